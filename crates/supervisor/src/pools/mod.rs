//! Pools as the supervisor has them: it owns their sockets and knows their masters; what is done
//! with these the spawner decides.
//!
//! The idea: whoever serves and whoever starts programs may be lost, the sockets and the masters
//! stay. So sockets are bound here and kept over reloads and upgrades ([`places`]), masters are
//! held here by their descriptors and told to the next spawner, and neither is looked into: no
//! byte of a client or a pool is read in this process.

pub(super) mod lookups;
pub(super) mod manifest;
pub(super) mod places;
mod records;
pub(super) mod rows;
mod unused;
mod walls;

use std::io;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use config::reason;
use ipc::manifest::{FromSpawner, ToSpawner};
use ipc::message::Message;
use ipc::pools::{PoolAnswer, PoolProcess, PoolQuestion};
use ipc::server::ToServer;

use crate::Supervisor;
use crate::phase::Phase;
use crate::retiring::Retiring;

/// Masters known at once: what the spawner tells is bounded before it is believed.
const POOL_PROCESSES_MAX: usize = 20_000;
/// How long the spawners of earlier programs may take to let go of pools, all together.
const LET_GO_MAX: Duration = Duration::from_secs(5);

/// The masters that run, of each pool the latest last.
#[derive(Debug, Default)]
pub(super) struct PoolProcesses {
    pub(super) known: Vec<PoolProcess>,
    /// Where they are written down.
    directory: Option<PathBuf>,
}

/// What the spawner says of pools without being asked, or asked by somebody else.
#[derive(Debug)]
pub(super) enum News {
    /// A master has ended; its process may be this process's child by now.
    Ended,
    /// A socket of this pool refuses connections.
    Deaf(String),
    /// The pool of a row, of this user, wants a place.
    Place(String, String),
    /// Nobody wants it any more.
    Leave(String),
    /// The answer to a server's question.
    Answer(u64, PoolAnswer),
    /// Other limits of groups wait than before.
    Held,
}

impl PoolProcesses {
    /// Those that another supervisor knew, and has written down where pools are.
    pub(super) fn take_over(known: Vec<PoolProcess>, directory: Option<&Path>) -> PoolProcesses {
        PoolProcesses {
            known,
            directory: directory.map(Path::to_owned),
        }
    }

    /// Takes in one that runs; one that is known already is told of once.
    pub(super) fn add(&mut self, master: PoolProcess) {
        self.known.retain(|known| known.pid != master.pid);
        if self.known.len() >= POOL_PROCESSES_MAX {
            let (pool, pid) = (&master.id, master.pid);
            return tracing::error!(
                pool,
                pid,
                "{POOL_PROCESSES_MAX} masters run, and no more are kept: this one ends with its spawner"
            );
        }
        if let Some(directory) = &self.directory {
            records::write(directory, master.pid);
        }
        self.known.push(master);
    }

    /// Forgets one that has ended.
    pub(super) fn remove(&mut self, pid: u32) {
        self.known.retain(|known| known.pid != pid);
        if let Some(directory) = &self.directory {
            records::remove(directory, pid);
        }
    }

    /// Has them written down in this directory from now on.
    pub(super) fn write_in(&mut self, directory: Option<&Path>) {
        let Some(directory) = directory else { return };
        let before = self.directory.replace(directory.to_owned());
        if before.as_deref() == Some(directory) {
            return;
        }
        for pid in self.pids() {
            records::write(directory, pid);
            before
                .iter()
                .for_each(|before| records::remove(before, pid));
        }
    }

    /// All of them have ended.
    pub(super) fn forget_all(&mut self) {
        let pids: Vec<u32> = self.pids().collect();
        pids.into_iter().for_each(|pid| self.remove(pid));
    }

    /// Learns of all that the spawner at the other end of a link has, which was told to let go.
    fn take_from(&mut self, link: BorrowedFd<'_>, until: Instant) -> io::Result<()> {
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            if os::net::wait_readable(&[link], Some(left))? != [true] {
                continue;
            }
            match FromSpawner::recv(link)? {
                FromSpawner::PoolProcess(master) => self.add(master),
                FromSpawner::PoolProcessEnded { pid } => self.remove(pid),
                FromSpawner::LetGo => return Ok(()),
                // Said before it heard.
                _ => {}
            }
        }
    }

    /// Their process ids.
    pub(super) fn pids(&self) -> impl Iterator<Item = u32> {
        self.known.iter().map(|master| master.pid)
    }
}

impl Supervisor {
    /// Asks the spawner on behalf of the server; that there is none is said at once. Who is suspended
    /// the next spawner is told as well.
    pub(super) fn ask_of_pools(&mut self, number: u64, question: PoolQuestion) {
        self.current.manifest.note_suspended(&question);
        if let Phase::Reloading { next, .. } = &mut self.phase {
            next.manifest.note_suspended(&question);
        }
        if let Err(why) = self.programs.ask_of_pools(number, question) {
            self.answer_of_pools(number, PoolAnswer::Refused(why));
        }
    }

    /// Gives pools to the charge of the spawner of now, once those of earlier programs have let go of
    /// them.
    pub(super) fn take_charge_of_pools(&mut self) {
        let links: Vec<_> = self.retiring.iter().filter_map(Retiring::spawner).collect();
        let told: Vec<_> = links.iter().map(|it| ToSpawner::LetGo.send(*it)).collect();
        let until = Instant::now() + LET_GO_MAX;
        for (link, told) in links.into_iter().zip(told) {
            // One that has ended has none.
            let taken = told.and_then(|()| self.programs.masters.take_from(link, until));
            if let Err(error) = taken {
                tracing::warn!(error = reason(&error), "the spawner before keeps its pools");
            }
        }
        if let Err(problem) = self.programs.give_charge_of_pools() {
            tracing::error!("{problem}");
        }
    }

    /// Deals with what the spawner has said of pools.
    pub(super) fn mind_pools(&mut self) {
        for news in self.programs.news() {
            match news {
                News::Ended => self.programs.orphans = Some(Instant::now()),
                News::Deaf(id) => self.bind_anew(&id),
                News::Place(id, user) => self.want_place_of_row(&id, &user),
                News::Leave(id) => self.current.places.leave_row(&id),
                News::Answer(number, answer) => self.answer_of_pools(number, answer),
                News::Held => {
                    self.tally.held = self.programs.held.clone();
                    self.send_tally();
                }
            }
        }
        self.mind_places_of_rows();
        self.mind_orphans(Instant::now());
    }

    fn answer_of_pools(&mut self, number: u64, answer: PoolAnswer) {
        let answer = ToServer::Pools { number, answer };
        if let Some(Err(error)) = self.phase.server().map(|server| server.send(&answer)) {
            self.lose_server_by("it does not hear", &error);
        }
    }

    /// Listens with another socket where one refuses connections, and tells the spawner.
    fn bind_anew(&mut self, id: &str) {
        let next = match &self.phase {
            Phase::Reloading { next, .. } => Some(&**next),
            _ => None,
        };
        for generation in next.into_iter().chain([&self.current]) {
            let mut sockets = generation.places.of_pools();
            let Some((_, socket)) = sockets.find(|(pool, _)| *pool == id) else {
                continue;
            };
            let told = socket.bind_anew(&generation.user);
            let told = told.and_then(|()| self.programs.tell_sockets(generation));
            match told {
                Ok(()) => {
                    tracing::warn!(pool = id, "a socket refused connections: it was bound anew")
                }
                Err(problem) => tracing::error!(pool = id, "{problem}"),
            }
            return;
        }
    }
}
