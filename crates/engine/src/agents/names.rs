//! Where agents are whose servers are configured by name.
//!
//! The idea: a look-up may hang for as long as it likes, so a round never waits for one. It takes
//! what is known, and has a name looked up again when that has become old: each once at a time, so
//! that a resolver that hangs gathers no queue. While a look-up fails the last good answer is used.

use std::collections::{HashMap, HashSet};
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;

/// How long an answer is good for.
const FRESH: Duration = Duration::from_secs(10);
/// Addresses of one name that are tried.
const ADDRESSES_MAX: usize = 4;

/// What names stand for, as far as they were looked up.
#[derive(Default)]
pub(super) struct Names {
    known: HashMap<String, Arc<Name>>,
}

#[derive(Default)]
struct Name {
    /// Held to look at it or to replace it.
    looked: Mutex<Looked>,
}

#[derive(Default)]
struct Looked {
    addresses: Arc<[SocketAddr]>,
    /// Why the last look-up found nothing.
    failure: Option<String>,
    fresh_until: Option<Instant>,
    is_under_way: bool,
}

impl Names {
    /// What a name stands for, as far as that is known now. Has it looked up off this thread where
    /// that is due; a later call tells what came of it.
    ///
    /// # Errors
    /// In words, where it has not stood for anything so far.
    pub(super) fn of(
        &mut self,
        host: &str,
        runtime: &Runtime,
        look_up: impl FnOnce() -> io::Result<Vec<SocketAddr>> + Send + 'static,
    ) -> Result<Arc<[SocketAddr]>, String> {
        let name = self.known.entry(host.to_owned()).or_default();
        let now = Instant::now();
        let mut looked = name.look();
        let is_old = looked.fresh_until.is_none_or(|until| now >= until);
        if is_old && !looked.is_under_way {
            looked.is_under_way = true;
            let name = Arc::clone(name);
            runtime.spawn_blocking(move || name.note(look_up(), now + FRESH));
        }
        match (looked.addresses.is_empty(), &looked.failure) {
            (false, _) => Ok(Arc::clone(&looked.addresses)),
            (true, Some(why)) => Err(format!("look up {host}: {why}")),
            (true, None) => Err(format!("{host} is still being looked up")),
        }
    }

    /// Forgets names that are not asked for, unless they are being looked up.
    pub(super) fn retain(&mut self, asked: &HashSet<&str>) {
        self.known
            .retain(|host, name| asked.contains(host.as_str()) || name.look().is_under_way);
    }
}

impl Name {
    fn look(&self) -> MutexGuard<'_, Looked> {
        self.looked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, found: io::Result<Vec<SocketAddr>>, fresh_until: Instant) {
        let mut looked = self.look();
        looked.is_under_way = false;
        match found {
            Ok(addresses) if addresses.is_empty() => {
                looked.failure = Some("it has no address".to_owned());
            }
            Ok(addresses) => {
                looked.addresses = addresses.into_iter().take(ADDRESSES_MAX).collect();
                looked.failure = None;
                looked.fresh_until = Some(fresh_until);
            }
            Err(error) => looked.failure = Some(config::reason(&error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
    use std::sync::mpsc;

    use super::*;

    fn runtime() -> Runtime {
        tokio::runtime::Builder::new_current_thread()
            .build()
            .expect("a runtime")
    }

    /// Asks until it hears something of the kind.
    fn until<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
        let end = Instant::now() + Duration::from_secs(20);
        loop {
            if let Some(heard) = ask() {
                return heard;
            }
            assert!(Instant::now() < end, "never: {what}");
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_look_up_that_hangs_is_the_only_one_of_its_name() {
        let (runtime, mut names) = (runtime(), Names::default());
        let (release, hangs) = mpsc::channel::<()>();
        let slow = names.of("app", &runtime, move || {
            let _ = hangs.recv();
            Ok(vec!["192.0.2.1:0".parse().expect("an address")])
        });
        assert!(slow.is_err_and(|why| why.contains("still")));
        let second = Arc::new(AtomicBool::new(false));
        for _ in 0..100 {
            let second = Arc::clone(&second);
            let again = names.of("app", &runtime, move || {
                second.store(true, Relaxed);
                Ok(Vec::new())
            });
            assert!(again.is_err());
        }
        // Nobody asks for it, but it is under way.
        names.retain(&HashSet::new());
        assert_eq!(names.known.len(), 1);
        drop(release);
        let found = until("an address", || {
            names
                .of("app", &runtime, || Err(io::ErrorKind::Other.into()))
                .ok()
        });
        assert_eq!(found.len(), 1);
        assert!(!second.load(Relaxed));
        names.retain(&HashSet::from(["app"]));
        assert_eq!(names.known.len(), 1);
        names.retain(&HashSet::from(["other"]));
        assert!(names.known.is_empty());
    }

    #[test]
    fn the_last_good_answer_is_used_while_look_ups_fail() {
        let name = Name::default();
        let now = Instant::now();
        let many = vec!["192.0.2.1:0".parse().expect("an address"); 100];
        name.note(Ok(many), now);
        name.note(Err(io::ErrorKind::TimedOut.into()), now);
        let looked = name.look();
        assert_eq!(looked.addresses.len(), ADDRESSES_MAX);
        assert!(looked.failure.is_some());
        drop(looked);
        name.note(Ok(Vec::new()), now);
        assert_eq!(name.look().addresses.len(), ADDRESSES_MAX);
    }

    #[test]
    fn what_cannot_be_looked_up_says_why_and_is_tried_again() {
        let (runtime, mut names) = (runtime(), Names::default());
        let fail = || Err(io::Error::other("no such name"));
        let why = until("a failure", || {
            let heard = names.of("app", &runtime, fail);
            heard.err().filter(|why| !why.contains("still"))
        });
        assert!(why.starts_with("look up app: "), "{why}");
        until("another try", || {
            let good = || Ok(vec!["192.0.2.1:0".parse().expect("an address")]);
            names.of("app", &runtime, good).ok()
        });
    }
}
