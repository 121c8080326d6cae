//! The processes that the supervisor starts, and its ends of the links to them.
//!
//! The idea: whoever they are, they are started in one place. A successor has none of its own: the
//! supervisor starts them for it, and has them when it has become what the successor is.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::ExitStatus;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use config::reason;
use ipc::handover::{ChildProcess, FromSuccessor, ToSuccessor};
use ipc::message::Message;
use ipc::server::{ProcessLife, ToServer, ToSupervisor};
use os::exec::{Process, Program};

use crate::role::Role;

/// How long a process that has closed its link may take to end, or one whose link was closed.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// How long one that was killed may take to be gone: what hangs in the kernel, asking a file
/// system, takes as long as that does. It is left then, and reaped whenever it goes.
const LAST_BREATH: Duration = Duration::from_secs(2);

/// The link to the supervisor, where this process is its successor.
static SUPERVISOR: OnceLock<OwnedFd> = OnceLock::new();

/// Has the supervisor at the other end of this link start children from now on.
pub(super) fn start_through(supervisor: OwnedFd) {
    // There is one successor in a process, and it calls this once.
    let _ = SUPERVISOR.set(supervisor);
}

/// Whether this process is a successor, which starts nothing again.
pub(super) fn is_successor() -> bool {
    SUPERVISOR.get().is_some()
}

/// A running child; killed when dropped.
#[derive(Debug)]
pub(super) struct Child {
    kind: String,
    process: Process,
    link: OwnedFd,
    started: Instant,
}

impl Child {
    /// Starts this program again.
    pub(super) fn start(role: &Role) -> io::Result<Child> {
        let words = role.words();
        match SUPERVISOR.get() {
            None => Child::start_of(&Program::running()?, &words),
            Some(supervisor) => ask_for(supervisor.as_fd(), &words),
        }
    }

    /// Starts another program.
    pub(super) fn start_of(program: &Program, words: &[&str]) -> io::Result<Child> {
        let (link, its_link) = os::fdpass::pair()?;
        let process = program.spawn(words, its_link)?;
        Ok(Child::new(words, process, link))
    }

    fn new(words: &[&str], process: Process, link: OwnedFd) -> Child {
        Child {
            kind: words.first().copied().unwrap_or_default().to_owned(),
            process,
            link,
            started: Instant::now(),
        }
    }

    /// One that another supervisor had.
    pub(super) fn take_over(child: ChildProcess) -> io::Result<Child> {
        let age_us = os::cpu::monotonic_us().saturating_sub(child.started_us);
        let now = Instant::now();
        let started = now.checked_sub(Duration::from_micros(age_us));
        Ok(Child {
            kind: child.kind,
            process: Process::known(child.pid)?,
            link: child.link,
            started: started.unwrap_or(now),
        })
    }

    /// As another supervisor may have it.
    pub(super) fn to_hand_over(&self) -> io::Result<ChildProcess> {
        let age_us = u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX);
        Ok(ChildProcess {
            kind: self.kind.clone(),
            pid: self.process.id(),
            started_us: os::cpu::monotonic_us().saturating_sub(age_us),
            link: self.link.try_clone()?,
        })
    }

    /// The first word of its command line.
    pub(super) fn kind(&self) -> &str {
        &self.kind
    }

    /// Its process id.
    pub(super) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// The supervisor's end of the link to it.
    pub(super) fn link(&self) -> BorrowedFd<'_> {
        self.link.as_fd()
    }

    /// Whether it has ended.
    pub(super) fn has_ended(&self) -> bool {
        !matches!(self.process.try_wait(), Ok(None))
    }

    /// Closes this end of the link to it: where nobody else has one, that is its order to end.
    pub(super) fn close(&mut self) {
        if let Ok((nobody, _)) = os::fdpass::pair() {
            self.link = nobody;
        }
    }

    /// Ends it, if it does not end by itself soon, and tells how it ended and how long it lived.
    pub(super) fn end(self) -> io::Result<(ExitStatus, Duration)> {
        // Whoever closed the link may have last words to write.
        if !self.process.ends_within(LAST_WORDS)? {
            self.process.kill()?;
            if !self.process.ends_within(LAST_BREATH)? {
                let error = "it was killed and does not end: something it asks for hangs";
                return Err(io::Error::new(io::ErrorKind::TimedOut, error));
            }
        }
        Ok((self.process.wait()?, self.started.elapsed()))
    }

    /// Ends one that is lost, whatever it is, and tells why; how long it lived.
    pub(super) fn lose(self, what: &str, why: &str) -> Duration {
        let pid = self.pid();
        match self.end() {
            Ok((status, lived)) => {
                let lived_ms = lived.as_millis();
                tracing::error!(pid, %status, lived_ms, "lost the {what}: {why}");
                lived
            }
            Err(error) => {
                tracing::error!(pid, error = reason(&error), "cannot end the {what}");
                Duration::ZERO
            }
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // One that was reaped is nobody's child any more, and a successor has none.
        if self.has_ended() {
            return;
        }
        let _ = self.process.kill();
        if self.process.ends_within(LAST_BREATH).unwrap_or(true) {
            let _ = self.process.wait();
        }
    }
}

/// Has the supervisor start the new program.
fn ask_for(supervisor: BorrowedFd<'_>, words: &[&str]) -> io::Result<Child> {
    let asked = words.iter().copied().map(str::to_owned).collect();
    FromSuccessor::Start { words: asked }.send(supervisor)?;
    match ToSuccessor::recv(supervisor)? {
        ToSuccessor::Started { pid, link } => Ok(Child::new(words, Process::known(pid)?, link)),
        ToSuccessor::NotStarted { why } => Err(io::Error::other(why)),
        ToSuccessor::Handover { .. } => Err(io::ErrorKind::InvalidData.into()),
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

    /// The child that is a server.
    pub(super) fn of(child: Child) -> Server {
        Server(child)
    }

    /// As another supervisor may have it.
    pub(super) fn to_hand_over(&self) -> io::Result<ChildProcess> {
        self.0.to_hand_over()
    }

    /// Its process id.
    pub(super) fn pid(&self) -> u32 {
        self.0.pid()
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

/// Waits until somebody says something, but not for ever.
pub(super) fn wait_for(link: BorrowedFd<'_>, patience: Duration) -> io::Result<()> {
    match os::net::wait_readable(&[link], Some(patience))? == [true] {
        true => Ok(()),
        false => Err(io::ErrorKind::TimedOut.into()),
    }
}

/// Whom a process becomes beside a server of this user: where root starts it, the first of these that there is.
pub(super) fn user_beside<'a>(server: &'a str, users: &[&'a str]) -> &'a str {
    if !os::process::is_root() {
        return server;
    }
    let fits = |user: &&&str| **user != server && os::process::check_user(user).is_ok();
    users.iter().find(fits).copied().unwrap_or(server)
}

/// A process that is kept as long as it is wanted: it runs by a wish, or the next one is waited for.
#[derive(Debug)]
pub(super) struct KeptProcess<W = ()> {
    state: KeptState<W>,
    back_off: BackOff,
    /// How often one was lost, or could not be started.
    restarts: u64,
}

#[derive(Debug)]
enum KeptState<W> {
    /// None is wanted, or none was started yet.
    Absent,
    Running {
        process: Child,
        wish: W,
    },
    Resting {
        until: Instant,
    },
}

impl<W> Default for KeptProcess<W> {
    fn default() -> KeptProcess<W> {
        KeptProcess {
            state: KeptState::Absent,
            back_off: BackOff::default(),
            restarts: 0,
        }
    }
}

impl<W> KeptProcess<W> {
    /// The process with its wish, where it is there.
    pub(super) fn running(&self) -> Option<(&Child, &W)> {
        match &self.state {
            KeptState::Running { process, wish } => Some((process, wish)),
            KeptState::Absent | KeptState::Resting { .. } => None,
        }
    }

    /// The process, where it is there.
    pub(super) fn process(&self) -> Option<&Child> {
        self.running().map(|(process, _)| process)
    }

    /// What becomes readable when it says something or ends.
    pub(super) fn link(&self) -> Option<BorrowedFd<'_>> {
        self.process().map(Child::link)
    }

    /// Its process id, where it is there.
    pub(super) fn pid(&self) -> Option<u32> {
        self.process().map(Child::pid)
    }

    /// As another supervisor may have it.
    pub(super) fn to_hand_over(&self) -> Option<io::Result<ChildProcess>> {
        self.process().map(Child::to_hand_over)
    }

    /// The process, for who asks how it is.
    pub(super) fn life(&self) -> ProcessLife {
        ProcessLife {
            pid: self.pid().unwrap_or(0),
            restarts: self.restarts,
        }
    }

    /// Whether none is there, and none has ended of late.
    pub(super) fn is_absent(&self) -> bool {
        matches!(self.state, KeptState::Absent)
    }

    /// When the next one is to be started after a rest.
    pub(super) fn until(&self) -> Option<Instant> {
        match &self.state {
            KeptState::Resting { until } => Some(*until),
            KeptState::Absent | KeptState::Running { .. } => None,
        }
    }

    /// Whether one that is wanted is to be started.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.is_absent() || self.until().is_some_and(|until| until <= now)
    }

    /// Keeps one that was started.
    pub(super) fn run(&mut self, process: Child, wish: W) {
        self.state = KeptState::Running { process, wish };
    }

    /// None is wanted; the one that is there.
    pub(super) fn take(&mut self) -> Option<Child> {
        match std::mem::replace(&mut self.state, KeptState::Absent) {
            KeptState::Running { process, .. } => Some(process),
            KeptState::Absent | KeptState::Resting { .. } => None,
        }
    }

    /// Has it end, and waits for that.
    pub(super) fn end(&mut self) {
        if let Some(mut process) = self.take() {
            process.close();
            // How it ended matters to nobody any more.
            let _ = process.end();
        }
    }

    /// The process, where it is there, which is not kept any more.
    pub(super) fn take_running(&mut self) -> Option<Child> {
        self.process()?;
        self.take()
    }

    /// Ends the process, whatever it is, if it has not ended, and rests before the next.
    pub(super) fn lose(&mut self, what: &str, why: &str) {
        if let Some(process) = self.take_running() {
            let lived = process.lose(what, why);
            self.rest(lived);
        }
    }

    /// Rests before the next, after one that lived this long; failures in a row, and for how long.
    pub(super) fn rest(&mut self, lived: Duration) -> (u32, Duration) {
        self.restarts += 1;
        let rest = self.back_off.rest(lived);
        let until = Instant::now() + rest;
        self.state = KeptState::Resting { until };
        (self.back_off.failures(), rest)
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
