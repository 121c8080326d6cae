//! What the supervisor is told that may be slow to listen: who tells it does not wait.
//!
//! The idea: one thread says it, and what it has not said yet waits here: so many names that clients ask for, fewer of
//! which are only told to be in use, and of proofs that are answered with the last number, which stands for those
//! before it. So whoever hears the supervisor goes on hearing, and two that wait for each other's ear hear nothing.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use ipc::server::{LinkSender, ToSupervisor};

/// Names that wait to be told.
const NAMES_MAX: usize = 1_024;
/// As many may wait when one more that is only in use is put to them.
const IN_USE_MAX: usize = NAMES_MAX / 4;

/// A name that clients ask for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct AskedName {
    pub(crate) name: String,
    /// Whose it is, where its row says that.
    pub(crate) tenant: Option<String>,
    /// Whether its map accepts it.
    pub(crate) is_accepted: bool,
    /// Whether it has a certificate.
    pub(crate) is_in_use: bool,
}

/// What is to be told.
#[derive(Debug, Default)]
pub(crate) struct Teller {
    /// Held to put something there, or to take it.
    untold: Mutex<Untold>,
    news: Condvar,
}

#[derive(Debug, Default)]
struct Untold {
    challenged: Option<u32>,
    names: VecDeque<AskedName>,
}

impl Teller {
    /// Has a thread tell the supervisor over this link what is there, for the life of the process.
    ///
    /// # Errors
    /// When there is no such thread.
    pub(crate) fn tell_over(self: &Arc<Self>, supervisor: LinkSender) -> std::io::Result<()> {
        let teller = Arc::clone(self);
        let thread = std::thread::Builder::new().name("teller".into());
        let tell = move || {
            loop {
                if let Err(error) = supervisor.send(&teller.next()) {
                    let error = config::reason(&error);
                    tracing::error!(error, "the supervisor does not hear");
                }
            }
        };
        thread.spawn(tell).map(drop)
    }

    /// Has the supervisor know of a name.
    ///
    /// # Errors
    /// Where too many wait.
    pub(crate) fn put(&self, name: AskedName) -> Result<(), String> {
        let mut untold = self.lock();
        let most = if name.is_in_use {
            IN_USE_MAX
        } else {
            NAMES_MAX
        };
        if untold.names.len() >= most {
            return Err("the supervisor is slow to hear of names".into());
        }
        untold.names.push_back(name);
        self.news.notify_one();
        Ok(())
    }

    /// Has the supervisor know that proofs up to this number are answered with.
    pub(crate) fn challenged(&self, number: u32) {
        self.lock().challenged = Some(number);
        self.news.notify_one();
    }

    /// What is said next, once there is something.
    fn next(&self) -> ToSupervisor {
        let mut untold = self.lock();
        loop {
            if let Some(number) = untold.challenged.take() {
                return ToSupervisor::Challenged { number };
            }
            if let Some(asked) = untold.names.pop_front() {
                return ToSupervisor::Demand {
                    name: asked.name,
                    tenant: asked.tenant,
                    is_accepted: asked.is_accepted,
                };
            }
            let waited = self.news.wait(untold);
            untold = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Untold> {
        self.untold.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_tells_a_supervisor_that_does_not_listen_does_not_wait_and_proofs_go_first() {
        let teller = Teller::default();
        let put = |count: usize, is_in_use| {
            let told = (0..count).map(|index| {
                teller.put(AskedName {
                    name: format!("n{index}.jp"),
                    tenant: None,
                    is_accepted: true,
                    is_in_use,
                })
            });
            told.filter(Result::is_ok).count()
        };
        assert_eq!(put(5_000, true), IN_USE_MAX);
        assert_eq!(put(5_000, false), NAMES_MAX - IN_USE_MAX);
        teller.challenged(7);
        teller.challenged(9);
        assert!(matches!(
            teller.next(),
            ToSupervisor::Challenged { number: 9 }
        ));
        for _ in 0..NAMES_MAX {
            assert!(matches!(teller.next(), ToSupervisor::Demand { .. }));
        }
        assert_eq!(put(1, true), 1);
    }
}
