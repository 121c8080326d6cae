//! The processes that the supervisor starts, and its ends of the links to them.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use ipc::keeper::{FromKeeper, ToKeeper};
use ipc::manifest::{FromSpawner, ToSpawner};
use ipc::server::{ToServer, ToSupervisor};

use crate::role::Role;

/// How long a process that has closed its link may take to end, or one whose link was closed.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// How long one that was killed may take to be gone: what hangs in the kernel, asking a file
/// system, takes as long as that does. It is left then, and reaped whenever it goes.
const LAST_BREATH: Duration = Duration::from_secs(2);

/// A running child; killed when dropped.
#[derive(Debug)]
struct Child {
    process: std::process::Child,
    link: OwnedFd,
    started: Instant,
}

impl Child {
    /// Starts this program again.
    fn start(kind: &Role) -> io::Result<Child> {
        let (link, its_link) = os::fdpass::pair()?;
        let process = os::process::spawn_self(&kind.words(), its_link)?;
        Ok(Child {
            process,
            link,
            started: Instant::now(),
        })
    }

    /// Ends it, if it does not end by itself soon, and tells how it ended and how long it lived.
    fn end(mut self) -> io::Result<(ExitStatus, Duration)> {
        // Whoever closed the link may have last words to write.
        if !os::process::ends_within(&self.process, LAST_WORDS)? {
            self.process.kill()?;
            if !os::process::ends_within(&self.process, LAST_BREATH)? {
                let error = "it was killed and does not end: something it asks for hangs";
                return Err(io::Error::new(io::ErrorKind::TimedOut, error));
            }
        }
        Ok((self.process.wait()?, self.started.elapsed()))
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if let Ok(Some(_)) = self.process.try_wait() {
            return;
        }
        let _ = self.process.kill();
        if os::process::ends_within(&self.process, LAST_BREATH).unwrap_or(true) {
            let _ = self.process.wait();
        }
    }
}

/// A running server; killed when dropped.
#[derive(Debug)]
pub(super) struct Server(Child);

impl Server {
    /// Starts this program again as a server that becomes `user`.
    pub(super) fn start(user: &str) -> io::Result<Server> {
        let user = user.to_owned();
        Ok(Server(Child::start(&Role::Server { user })?))
    }

    /// Its process id.
    pub(super) fn pid(&self) -> u32 {
        self.0.process.id()
    }

    /// Tells it something.
    pub(super) fn send(&self, message: &ToServer) -> io::Result<()> {
        message.send(self.link())
    }

    /// Hears what it says; `UnexpectedEof` when it has ended.
    pub(super) fn recv(&self) -> io::Result<ToSupervisor> {
        ToSupervisor::recv(self.link())
    }

    /// What becomes readable when it says something or ends.
    pub(super) fn link(&self) -> BorrowedFd<'_> {
        self.0.link.as_fd()
    }

    /// Ends it, if it does not end by itself soon, and tells how it ended and how long it lived.
    pub(super) fn end(self) -> io::Result<(ExitStatus, Duration)> {
        self.0.end()
    }
}

/// A running keeper; killed when dropped.
#[derive(Debug)]
pub(super) struct Keeper(Child);

impl Keeper {
    /// Starts this program again as a keeper that becomes `user`.
    pub(super) fn start(user: &str) -> io::Result<Keeper> {
        let user = user.to_owned();
        Ok(Keeper(Child::start(&Role::Keeper { user })?))
    }

    /// Its process id.
    pub(super) fn pid(&self) -> u32 {
        self.0.process.id()
    }

    /// Tells it something.
    pub(super) fn send(&self, message: &ToKeeper) -> io::Result<()> {
        message.send(self.link())
    }

    /// Waits for what it says, but not for ever.
    pub(super) fn hear(&self, patience: Duration) -> io::Result<FromKeeper> {
        if os::net::wait_readable(&[self.link()], Some(patience))? == [true] {
            FromKeeper::recv(self.link())
        } else {
            Err(io::ErrorKind::TimedOut.into())
        }
    }

    /// What becomes readable when it ends: it says nothing that it was not asked.
    pub(super) fn link(&self) -> BorrowedFd<'_> {
        self.0.link.as_fd()
    }

    /// Ends it, if it does not end by itself soon, and tells how it ended and how long it lived.
    pub(super) fn end(self) -> io::Result<(ExitStatus, Duration)> {
        self.0.end()
    }
}

/// A running spawner; when dropped it ends its programs and itself, or is killed.
#[derive(Debug)]
pub(super) struct Spawner {
    /// `None` once it was ended.
    child: Option<Child>,
}

impl Spawner {
    /// Starts this program again as a spawner.
    pub(super) fn start() -> io::Result<Spawner> {
        let child = Some(Child::start(&Role::Spawner)?);
        Ok(Spawner { child })
    }

    /// Its process id.
    pub(super) fn pid(&self) -> u32 {
        self.child.as_ref().map_or(0, |child| child.process.id())
    }

    /// Tells it something.
    pub(super) fn send(&self, message: &ToSpawner) -> io::Result<()> {
        message.send(self.link().ok_or(io::ErrorKind::BrokenPipe)?)
    }

    /// Waits for what it says, but not for ever.
    pub(super) fn hear(&self, patience: Duration) -> io::Result<FromSpawner> {
        let link = self.link().ok_or(io::ErrorKind::BrokenPipe)?;
        if os::net::wait_readable(&[link], Some(patience))? == [true] {
            FromSpawner::recv(link)
        } else {
            Err(io::ErrorKind::TimedOut.into())
        }
    }

    /// What becomes readable when it says something or ends.
    pub(super) fn link(&self) -> Option<BorrowedFd<'_>> {
        self.child.as_ref().map(|child| child.link.as_fd())
    }

    /// Ends it, if it does not end by itself soon, and tells how it ended and how long it lived.
    pub(super) fn end(mut self) -> io::Result<(ExitStatus, Duration)> {
        let child = self.child.take().ok_or(io::ErrorKind::BrokenPipe)?;
        child.end()
    }
}

impl Drop for Spawner {
    fn drop(&mut self) {
        let Some(mut child) = self.child.take() else {
            return;
        };
        // A closed link is its order to end: nobody has the other end but it.
        if let Ok((nobody, _)) = os::fdpass::pair() {
            child.link = nobody;
        }
        let _ = child.end();
    }
}

/// How long to rest before a child is started again.
#[derive(Debug, Default)]
pub(super) struct BackOff {
    failures: u32,
}

impl BackOff {
    /// A child that lived this long was healthy: its end is the first failure again.
    const HEALTHY: Duration = Duration::from_secs(60);
    const SECOND_REST: Duration = Duration::from_millis(100);
    const LONGEST_REST: Duration = Duration::from_secs(10);

    /// The rest after a child that lived this long: none at first, then doubling.
    pub(super) fn rest(&mut self, lived: Duration) -> Duration {
        if lived >= Self::HEALTHY {
            self.failures = 0;
        }
        self.failures = self.failures.saturating_add(1);
        match self.failures.checked_sub(2) {
            None => Duration::ZERO,
            Some(doublings) => Self::LONGEST_REST.min(Self::SECOND_REST * (1 << doublings.min(16))),
        }
    }

    /// Failures in a row.
    pub(super) fn failures(&self) -> u32 {
        self.failures
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rests_grow_from_nothing_to_ten_seconds_and_health_forgives() {
        let mut back_off = BackOff::default();
        let short = Duration::from_secs(59);
        let rests: Vec<_> = (0..10).map(|_| back_off.rest(short).as_millis()).collect();
        assert_eq!(
            rests,
            [0, 100, 200, 400, 800, 1_600, 3_200, 6_400, 10_000, 10_000]
        );
        assert_eq!(back_off.rest(Duration::from_secs(60)), Duration::ZERO);
        assert_eq!(back_off.failures(), 1);
        assert_eq!(back_off.rest(short).as_millis(), 100);
        back_off.failures = u32::MAX;
        assert_eq!(back_off.rest(short).as_millis(), 10_000);
    }
}
