//! The server process and the supervisor's end of the link to it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use engine::link::{ToServer, ToSupervisor};

/// How long a server that has closed its link may take to end.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// A running server; killed when dropped.
#[derive(Debug)]
pub(super) struct Server {
    process: Child,
    link: OwnedFd,
    started: Instant,
}

impl Server {
    /// Starts this program again as a server that becomes `user`.
    pub(super) fn start(user: &str) -> io::Result<Server> {
        let (link, its_link) = os::fdpass::pair()?;
        let process = os::process::spawn_self(&["server", "--user", user], its_link)?;
        Ok(Server {
            process,
            link,
            started: Instant::now(),
        })
    }

    /// Its process id.
    pub(super) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Tells it something.
    pub(super) fn send(&self, message: &ToServer) -> io::Result<()> {
        message.send(self.link.as_fd())
    }

    /// Hears what it says; `UnexpectedEof` when it has ended.
    pub(super) fn recv(&self) -> io::Result<ToSupervisor> {
        ToSupervisor::recv(self.link.as_fd())
    }

    /// What becomes readable when it says something or ends.
    pub(super) fn link(&self) -> BorrowedFd<'_> {
        self.link.as_fd()
    }

    /// Ends it, if it does not end by itself soon, and tells how it ended and how long it lived.
    pub(super) fn end(mut self) -> io::Result<(ExitStatus, Duration)> {
        // Whoever closed the link may have last words to write.
        if !os::process::ends_within(&self.process, LAST_WORDS)? {
            self.process.kill()?;
        }
        Ok((self.process.wait()?, self.started.elapsed()))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// How long to rest before the server is started again.
#[derive(Debug, Default)]
pub(super) struct BackOff {
    failures: u32,
}

impl BackOff {
    /// A server that lived this long was healthy: its end is the first failure again.
    const HEALTHY: Duration = Duration::from_secs(60);
    const SECOND_REST: Duration = Duration::from_millis(100);
    const LONGEST_REST: Duration = Duration::from_secs(10);

    /// The rest after a server that lived this long: none at first, then doubling.
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
