//! Who waits for a process of a FastCGI server, so that idle connections give theirs up.
//!
//! A server such as php-fpm has so many processes, and each serves one connection until that is
//! closed. A connection kept idle by one worker can so keep another worker's request waiting for
//! ever. The rule: a fresh connection that has heard nothing for [`PATIENCE`] counts as waiting
//! ([`Waiting`]); while anybody waits, connections to that server are closed when they are done
//! with, and those that are idle are closed at once, on every worker. A request answered within
//! that time disturbs nobody, so under the usual load connections are kept all the same.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use crate::worker::{Command, Worker};

/// How long a fresh connection waits before others make room for it.
pub const PATIENCE: Duration = Duration::from_millis(5);

/// The processes of one server, as far as anybody here waits for them.
#[derive(Debug)]
pub struct Slots {
    server: Arc<str>,
    waiting: AtomicUsize,
}

/// The slots of every FastCGI server by its address, for all workers and generations.
#[derive(Debug, Default)]
pub struct AllSlots {
    /// Held to look one up when pools are made.
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    slots: HashMap<Arc<str>, Weak<Slots>>,
    /// How many there may be before those that nobody has any more are looked for.
    tidy_at: usize,
}

/// Counts as waiting until dropped.
#[derive(Debug)]
pub struct Waiting(Arc<Slots>);

impl AllSlots {
    /// The slots of a server.
    pub fn of(&self, server: &Arc<str>) -> Arc<Slots> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(slots) = known.slots.get(server).and_then(Weak::upgrade) {
            return slots;
        }
        if known.slots.len() >= known.tidy_at {
            known.slots.retain(|_, slots| slots.strong_count() > 0);
            known.tidy_at = 2 * known.slots.len();
        }
        let slots = Arc::new(Slots {
            server: Arc::clone(server),
            waiting: AtomicUsize::new(0),
        });
        let place = Arc::clone(server);
        known.slots.insert(place, Arc::downgrade(&slots));
        slots
    }
}

impl Slots {
    /// Whether somebody waits for a process.
    pub fn are_wanted(&self) -> bool {
        self.waiting.load(SeqCst) > 0
    }

    /// Waits from now on, and has idle connections closed: this worker's, and through their doors
    /// the others'. Who is about to keep a connection looks whether anybody waits after having put
    /// it away, so none is missed.
    pub fn wait(self: &Arc<Self>, worker: &Worker) -> Waiting {
        self.waiting.fetch_add(1, SeqCst);
        worker.release(&self.server);
        for other in (0..worker.workers()).filter(|other| *other != worker.index) {
            // A full door means a worker that is busy with more than this; its sweep looks too.
            let command = Command::Release(Arc::clone(&self.server));
            worker.peers.try_tell(other, command);
        }
        Waiting(Arc::clone(self))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_has_one_count_however_often_it_is_named() {
        let all = AllSlots::default();
        let (one, other) = (Arc::from("unix:/a"), Arc::from("unix:/b"));
        let slots = all.of(&one);
        assert!(Arc::ptr_eq(&slots, &all.of(&Arc::from("unix:/a"))));
        assert!(!Arc::ptr_eq(&slots, &all.of(&other)));
        for number in 0..100 {
            all.of(&Arc::from(format!("unix:/{number}")));
        }
        let known = all.known.lock().expect("nobody panicked");
        assert!(known.slots.len() < 5, "servers nobody has are forgotten");
        assert!(known.slots.contains_key(&one), "and others are not");
    }
}
