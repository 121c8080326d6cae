//! Users of rows' pools, looked up beside the supervisor's own thread.
//!
//! The idea: who is a user another machine may have to say, and nothing else waits for that. A thread looks for each,
//! few at once; one that takes long is given up, and keeps its place until it has ended. Who was found is believed for
//! a while.

use std::collections::BTreeMap;
use std::io::{self, PipeReader};
use std::os::fd::{AsFd, BorrowedFd};
use std::rc::Rc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use config::reason;
use os::user::User;

/// Threads there may be.
const THREADS_MAX: usize = 64;
/// A thread's stack: the database of users is the C library's, and takes some.
const STACK_BYTES: usize = 512 * 1024;
/// How long one is waited for.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long users are believed to be who they were, and of how many that is known.
const BELIEVED: Duration = Duration::from_secs(10);
const KNOWN_MAX: usize = 10_000;

/// What is looked for, and what was found.
#[derive(Debug)]
pub(crate) struct UserLookups {
    look: fn(&str) -> io::Result<User>,
    known: BTreeMap<String, (Instant, Rc<User>)>,
    under_way: Vec<UserLookup>,
}

#[derive(Debug)]
struct UserLookup {
    user: String,
    /// Closed at its end.
    end: PipeReader,
    thread: JoinHandle<io::Result<User>>,
    /// The pool that waits for it, and until when; `None` where it was given up.
    waits: Option<(String, Instant)>,
}

/// A pool whose user was looked for.
#[derive(Debug)]
pub(crate) struct LookedUp {
    pub(crate) pool: String,
    pub(crate) name: String,
    pub(crate) user: Result<Rc<User>, String>,
}

impl Default for UserLookups {
    fn default() -> Self {
        Self {
            look: User::look_up,
            known: BTreeMap::new(),
            under_way: Vec::new(),
        }
    }
}

impl UserLookups {
    /// Looks for a pool's user; what is known already is told at once.
    pub(crate) fn add(&mut self, pool: &str, name: &str, now: Instant) -> Option<LookedUp> {
        let found = |user| {
            Some(LookedUp {
                pool: pool.to_owned(),
                name: name.to_owned(),
                user,
            })
        };
        let known = self.known.get(name);
        if let Some((at, user)) = known
            && now.saturating_duration_since(*at) < BELIEVED
        {
            return found(Ok(Rc::clone(user)));
        }
        match self.begin(pool, name, now) {
            Ok(()) => None,
            Err(error) => found(Err(format!("user {name}: {}", reason(&error)))),
        }
    }

    fn begin(&mut self, pool: &str, name: &str, now: Instant) -> io::Result<()> {
        if self.under_way.len() >= THREADS_MAX {
            return Err(io::Error::other("the database of users does not answer"));
        }
        let (end, its_end) = io::pipe()?;
        let (look, wanted) = (self.look, name.to_owned());
        let builder = std::thread::Builder::new().name("nagaya-lookup".into());
        let thread = builder.stack_size(STACK_BYTES).spawn(move || {
            let found = look(&wanted);
            drop(its_end);
            found
        })?;
        self.under_way.push(UserLookup {
            user: name.to_owned(),
            end,
            thread,
            waits: Some((pool.to_owned(), now + PATIENCE)),
        });
        Ok(())
    }

    /// What is readable when a thread has ended.
    pub(crate) fn ends(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.under_way.iter().map(|it| it.end.as_fd())
    }

    /// When the next one is to be given up.
    pub(crate) fn until(&self) -> Option<Instant> {
        let waits = self.under_way.iter().filter_map(|it| it.waits.as_ref());
        waits.map(|(_, until)| *until).min()
    }

    /// Those that have ended, or are given up.
    pub(crate) fn take(&mut self, now: Instant) -> Vec<LookedUp> {
        let mut taken = Vec::new();
        let ended = self.under_way.extract_if(.., |it| it.thread.is_finished());
        for ended in ended.collect::<Vec<_>>() {
            let broken = |_| Err(io::Error::other("the look for it failed"));
            let found = ended.thread.join().unwrap_or_else(broken).map(Rc::new);
            let name = ended.user;
            if let Ok(user) = &found {
                if self.known.len() >= KNOWN_MAX {
                    self.known.clear();
                }
                self.known.insert(name.clone(), (now, Rc::clone(user)));
            }
            if let Some((pool, _)) = ended.waits {
                let user = found.map_err(|error| format!("user {name}: {}", reason(&error)));
                taken.push(LookedUp { pool, name, user });
            }
        }
        for late in &mut self.under_way {
            if let Some((pool, _)) = late.waits.take_if(|(_, until)| *until <= now) {
                taken.push(LookedUp {
                    pool,
                    name: late.user.clone(),
                    user: Err("the database of users does not answer".to_owned()),
                });
            }
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_secs(10);

    /// One that hangs for some, and knows this process's user alone.
    fn look(name: &str) -> io::Result<User> {
        match name {
            "hangs" => loop {
                std::thread::park();
            },
            "own" => User::this_process(),
            _ => Err(io::ErrorKind::NotFound.into()),
        }
    }

    #[test]
    fn nobody_waits_for_a_user_whom_the_database_does_not_tell() {
        let mut lookups = UserLookups {
            look,
            ..UserLookups::default()
        };
        let now = Instant::now();
        assert!(lookups.add("a", "hangs", now).is_none());
        assert!(lookups.add("b", "own", now).is_none());
        assert!(lookups.add("c", "none", now).is_none());
        let mut found = Vec::new();
        testkit::eventually(SOON, "the others to be found", || {
            found.extend(lookups.take(now));
            (found.len() == 2).then_some(())
        });
        found.sort_by(|one, other| one.pool.cmp(&other.pool));
        assert!(found[0].user.is_ok() && found[1].user.is_err(), "{found:?}");
        let known = lookups.add("d", "own", now).unwrap();
        assert!((known.pool == "d") && known.user.is_ok());
        assert!(lookups.add("e", "own", now + BELIEVED).is_none());
        assert_eq!(lookups.until(), Some(now + PATIENCE));
        let late = lookups.take(now + PATIENCE);
        assert!(late.iter().any(|it| it.pool == "a" && it.user.is_err()));
        for at in lookups.under_way.len()..THREADS_MAX {
            assert!(lookups.add(&at.to_string(), "hangs", now).is_none());
        }
        assert!(lookups.add("full", "hangs", now).unwrap().user.is_err());
    }
}
