//! What the supervisor waits for: signals, words of processes and their ends, and what time asks for.

use std::io;
use std::os::fd::AsFd;
use std::time::Instant;

use crate::Supervisor;
use crate::child::Server;
use crate::phase::Phase;
use crate::upgrade::Upgrade;

/// Who has something to say, or has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Woken {
    Signals,
    Spawner,
    Keeper,
    Acme,
    Recorder,
    Directory,
    Chores,
    Users,
    Server,
    Successor,
    Retiring(usize),
}

impl Supervisor {
    /// Waits for a signal, a word of a child or the end of a wait.
    pub(super) fn wait(&self) -> io::Result<Vec<Woken>> {
        let until = match &self.phase {
            Phase::Serving { .. } | Phase::Ended(_) => None,
            Phase::Starting { until, .. }
            | Phase::Reloading { until, .. }
            | Phase::Resting { until }
            | Phase::Draining { until, .. } => Some(*until),
        };
        let upgrade = self.upgrade.as_ref();
        let others = [upgrade.map(Upgrade::until), self.retiring_until()];
        let until = until.into_iter().chain(self.programs.kept.until());
        let until = until.chain(self.keys_until());
        let until = until.chain(self.authorities_until());
        let until = until.chain(self.recorder_until());
        let until = until.chain(self.directories_until());
        let until = until.chain(self.authorities.chores_until());
        let until = until.chain(self.current.places.until());
        let until = until.chain(self.programs.orphans);
        let until = until.chain(self.row_users.until());
        let until = until.chain(others.into_iter().flatten()).min();
        let wait = until.map(|until| until.saturating_duration_since(Instant::now()));
        let retiring = self.retiring.iter().enumerate();
        let retiring = retiring.map(|(at, it)| (Woken::Retiring(at), Some(it.server.link())));
        let links = [
            (Woken::Signals, Some(self.signals.as_fd())),
            (Woken::Server, self.phase.server().map(Server::link)),
            (Woken::Spawner, self.programs.kept.link()),
            (Woken::Keeper, self.keys.kept.link()),
            (Woken::Acme, self.authorities.kept.link()),
            (Woken::Recorder, self.recordings.kept.link()),
            (Woken::Directory, self.directories.kept.link()),
            (Woken::Successor, upgrade.map(Upgrade::link)),
        ];
        let chores = self.authorities.chores().fds();
        let chores = chores.map(|fd| (Woken::Chores, Some(fd)));
        let users = self.row_users.ends().map(|fd| (Woken::Users, Some(fd)));
        let links = links.into_iter().chain(retiring).chain(chores).chain(users);
        let links = links.filter_map(|(who, link)| Some((who, link?)));
        let (who, fds): (Vec<_>, Vec<_>) = links.unzip();
        let readable = os::net::wait_readable(&fds, wait)?;
        let woken = who.into_iter().zip(readable);
        Ok(woken.filter_map(|(who, is)| is.then_some(who)).collect())
    }
}
