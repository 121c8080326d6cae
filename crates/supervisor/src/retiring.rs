//! Servers of earlier programs that finish what is under way, and what stands by them meanwhile.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use config::reason;
use ipc::handover::RetiringProcesses;
use ipc::server::{HeldPermits, ToServer, ToSupervisor};

use crate::Supervisor;
use crate::child::{Child, Server};

/// Servers that finish at once, at most.
pub(super) const RETIRING_MAX: usize = 4;
/// How long processes that nobody needs may take to end by themselves.
const LEAVING_MAX: Duration = Duration::from_secs(10);
/// How often it is looked whether they have.
const LEAVING_LOOK: Duration = Duration::from_millis(200);
/// The word of a server's command line.
const SERVER: &str = "server";
/// The word of a spawner's.
pub(super) const SPAWNER: &str = "spawner";

/// A server that finishes what is under way, and the processes it needs for that.
#[derive(Debug)]
pub(super) struct Retiring {
    pub(super) server: Server,
    others: Vec<Child>,
    pub(super) until: Instant,
}

/// Processes whose links are closed.
#[derive(Debug, Default)]
pub(super) struct LeavingChildren(Vec<(Child, Instant)>);

impl Retiring {
    /// One that an earlier program had; `None` where there is no server among these.
    pub(super) fn take_over(retiring: RetiringProcesses) -> io::Result<Option<Retiring>> {
        let left_us = retiring.until_us.saturating_sub(os::cpu::monotonic_us());
        let mut others = children(retiring.children)?;
        let server = take(&mut others, SERVER);
        Ok(server.map(|server| Retiring {
            server: Server::of(server),
            others,
            until: Instant::now() + Duration::from_micros(left_us),
        }))
    }

    fn to_hand_over(&self) -> io::Result<RetiringProcesses> {
        let left = self.until.saturating_duration_since(Instant::now());
        let left_us = u64::try_from(left.as_micros()).unwrap_or(u64::MAX);
        let others = self.others.iter().map(Child::to_hand_over);
        let server = std::iter::once(self.server.to_hand_over());
        Ok(RetiringProcesses {
            until_us: os::cpu::monotonic_us().saturating_add(left_us),
            children: server.chain(others).collect::<io::Result<_>>()?,
        })
    }

    /// The link to its spawner.
    pub(super) fn spawner(&self) -> Option<BorrowedFd<'_>> {
        let spawner = self.others.iter().find(|child| child.kind() == SPAWNER);
        spawner.map(Child::link)
    }

    fn pids(&self) -> impl Iterator<Item = u32> {
        let others = self.others.iter().map(Child::pid);
        others.chain([self.server.pid()])
    }
}

impl LeavingChildren {
    /// Begins with these.
    pub(super) fn of(children: impl Iterator<Item = Child>) -> LeavingChildren {
        let mut leaving = LeavingChildren::default();
        leaving.add(children.collect());
        leaving
    }

    /// Whether one of a kind has not ended.
    pub(super) fn has(&self, kind: &str) -> bool {
        self.0.iter().any(|(child, _)| child.kind() == kind)
    }

    /// Closes the links to these, and leaves them a while to end.
    pub(super) fn add(&mut self, children: Vec<Child>) {
        let until = Instant::now() + LEAVING_MAX;
        self.0.extend(children.into_iter().map(|mut child| {
            child.close();
            (child, until)
        }));
    }

    /// Reaps those that have ended, and kills those that do not.
    fn sweep(&mut self, now: Instant) -> usize {
        let before = self.0.len();
        // Dropped, they are killed.
        self.0
            .retain(|(child, until)| !child.has_ended() && *until > now);
        before - self.0.len()
    }
}

impl Supervisor {
    /// The processes that are neither the server nor the spawner of now.
    pub(super) fn other_pids(&self) -> Vec<u32> {
        let retiring = self.retiring.iter().flat_map(Retiring::pids);
        let leaving = self.leaving.0.iter().map(|(child, _)| child.pid());
        let upgrade = self.upgrade.iter().flat_map(|upgrade| upgrade.pids());
        let others = retiring.chain(leaving).chain(upgrade);
        let others = others.chain(self.authorities.kept.pid());
        let others = others.chain(self.recordings.kept.pid());
        others.chain(self.directories.kept.pid()).collect()
    }

    /// Servers that finish, as another supervisor may have them.
    pub(super) fn retiring_to_hand_over(&self) -> io::Result<Vec<RetiringProcesses>> {
        self.retiring.iter().map(Retiring::to_hand_over).collect()
    }

    /// When something is to be done about the processes here.
    pub(super) fn retiring_until(&self) -> Option<Instant> {
        let look = (!self.leaving.0.is_empty()).then(|| Instant::now() + LEAVING_LOOK);
        let retiring = self.retiring.iter().map(|retiring| retiring.until);
        retiring.chain(look).min()
    }

    /// Deals with a word of a server that finishes, or with its end.
    pub(super) fn on_retiring(&mut self, at: usize) {
        let Some(retiring) = self.retiring.get(at) else {
            return;
        };
        match retiring.server.recv() {
            Ok(ToSupervisor::OpenLog { path }) => {
                let answer = self.opened_log(path);
                // One that does not listen any more has nothing to write.
                let _ = self.retiring[at].server.send(&answer);
            }
            Ok(ToSupervisor::Stuck { report }) => tracing::error!(report, "a worker stands still"),
            Ok(ToSupervisor::Held { held }) => {
                let by = retiring.server.pid();
                self.tell_held(by, held);
            }
            Ok(_) => {}
            Err(_) => self.end_retiring(at),
        }
    }

    /// Deals with processes whose time is up.
    pub(super) fn sweep_retiring(&mut self, now: Instant) {
        while let Some(at) = self.retiring.iter().position(|it| it.until <= now) {
            tracing::warn!("what the server before has under way is cut off: its time is over");
            self.end_retiring(at);
        }
        if self.leaving.sweep(now) > 0 && self.retiring.is_empty() {
            self.programs.orphans = Some(now);
        }
    }

    /// Lets go of a server that has finished, and of what stood by it.
    fn end_retiring(&mut self, at: usize) {
        let retiring = self.retiring.remove(at);
        let pid = retiring.server.pid();
        match retiring.server.end() {
            Ok((status, _)) => tracing::info!(pid, %status, "the server before has finished"),
            Err(error) => {
                tracing::error!(pid, error = reason(&error), "cannot end the server before");
            }
        }
        self.tell_held(pid, Vec::new());
        self.leaving.add(retiring.others);
        self.programs.is_beside = !self.retiring.is_empty();
    }

    /// Tells the server what an earlier one's requests hold.
    fn tell_held(&self, by: u32, held: Vec<HeldPermits>) {
        if let Some(server) = self.phase.server() {
            // One that does not listen is told of again, or has ended.
            let _ = server.send(&ToServer::HeldElsewhere { by, held });
        }
    }

    /// Has servers that finish end connections that wait for a request, too.
    pub(super) fn drain_retiring(&mut self) {
        for retiring in &self.retiring {
            // One that does not listen ends when its time is up.
            let _ = retiring.server.send(&ToServer::Drain);
        }
    }
}

/// Processes another supervisor had.
pub(super) fn children(children: Vec<ipc::handover::ChildProcess>) -> io::Result<Vec<Child>> {
    children.into_iter().map(Child::take_over).collect()
}

/// Takes the one of a kind from among children.
pub(super) fn take(children: &mut Vec<Child>, kind: &str) -> Option<Child> {
    let at = children.iter().position(|child| child.kind() == kind)?;
    Some(children.remove(at))
}
