//! The spawner as the supervisor keeps it: started first, told every manifest first, ended last.
//!
//! The idea: what it is told is answered at once, so the supervisor waits for the answer; no
//! request waits meanwhile. When the spawner dies, everything else goes on: programs that ran die
//! with it, what they left behind comes to this process and is killed here, and after a rest the
//! next spawner is told the manifests again and given new links.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use config::reason;
use ipc::handover::ChildProcess;
use ipc::manifest::{FromSpawner, Manifest, ToSpawner};
use os::cgroup::{Base, Host};

use crate::child::{self, BackOff, Child, Spawner};
use crate::reload::Refused;

/// How long a spawner may take to answer.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// How long what a spawner left behind may take to end.
const ORPHANS_MAX: Duration = Duration::from_secs(1);
/// How often it is looked for meanwhile.
const ORPHANS_LOOK: Duration = Duration::from_millis(5);

/// The spawner, or the wait for the next one.
#[derive(Debug, Default)]
pub(super) struct Programs {
    state: SpawnerState,
    /// Children of this process from before it was the gateway's, as an entry point may leave them.
    strangers: Vec<u32>,
    back_off: BackOff,
    /// Whether an earlier spawner still has programs.
    pub(super) is_beside: bool,
}

#[derive(Debug, Default)]
enum SpawnerState {
    /// None was started yet.
    #[default]
    Absent,
    Running(Spawner),
    Resting {
        until: Instant,
    },
}

impl Programs {
    /// Makes this process the one that what a spawner leaves behind comes to. To be called before
    /// there are children of ours.
    pub(super) fn prepare() -> io::Result<Programs> {
        os::spawn::adopt_orphans()?;
        Ok(Programs {
            strangers: os::process::children(),
            ..Programs::default()
        })
    }

    /// Goes on with what another supervisor had.
    pub(super) fn take_over(spawner: Option<Child>, strangers: Vec<u32>) -> Programs {
        let running = |child| SpawnerState::Running(Spawner::of(child));
        Programs {
            state: spawner.map_or_else(Default::default, running),
            strangers,
            ..Programs::default()
        }
    }

    /// The spawner as another supervisor may have it.
    pub(super) fn to_hand_over(&self) -> Option<io::Result<ChildProcess>> {
        match &self.state {
            SpawnerState::Running(spawner) => spawner.to_hand_over(),
            SpawnerState::Absent | SpawnerState::Resting { .. } => None,
        }
    }

    /// The spawner's process id.
    pub(super) fn pid(&self) -> Option<u32> {
        match &self.state {
            SpawnerState::Running(spawner) => Some(spawner.pid()),
            SpawnerState::Absent | SpawnerState::Resting { .. } => None,
        }
    }

    /// Children of this process that are none of ours.
    pub(super) fn strangers(&self) -> &[u32] {
        &self.strangers
    }

    /// What becomes readable when the spawner ends.
    pub(super) fn link(&self) -> Option<BorrowedFd<'_>> {
        match &self.state {
            SpawnerState::Running(spawner) => spawner.link(),
            SpawnerState::Absent | SpawnerState::Resting { .. } => None,
        }
    }

    /// When the next spawner is to be started.
    pub(super) fn until(&self) -> Option<Instant> {
        match &self.state {
            SpawnerState::Resting { until } => Some(*until),
            SpawnerState::Absent | SpawnerState::Running(_) => None,
        }
    }

    /// Whether a spawner is there.
    pub(super) fn is_running(&self) -> bool {
        matches!(self.state, SpawnerState::Running(_))
    }

    /// Starts a spawner, and tells it these manifests.
    pub(super) fn start(&mut self, manifests: &[&Manifest]) -> Result<(), String> {
        let spawner = Spawner::start().map_err(|error| {
            let reason = reason(&error);
            self.rest(Duration::ZERO);
            format!("start the spawner: {reason}")
        })?;
        tracing::info!(pid = spawner.pid(), "spawner started");
        self.state = SpawnerState::Running(spawner);
        manifests
            .iter()
            .try_for_each(|manifest| self.tell(manifest))
    }

    /// Tells the spawner a manifest, and hears whether it takes it.
    pub(super) fn tell(&mut self, manifest: &Manifest) -> Result<(), String> {
        let SpawnerState::Running(spawner) = &self.state else {
            return Err("there is no spawner".into());
        };
        let answer = spawner
            .send(&ToSpawner::Manifest(Manifest {
                is_beside: self.is_beside,
                ..manifest.clone()
            }))
            .and_then(|()| spawner.hear(ANSWER_MAX));
        match answer {
            Ok(FromSpawner::Ready { generation }) if generation == manifest.generation => Ok(()),
            Ok(FromSpawner::Refused { message, .. }) => Err(message),
            Ok(FromSpawner::Ready { .. }) => {
                self.lose("it answered something else");
                Err("the spawner answered something else".into())
            }
            Err(error) => {
                let reason = reason(&error);
                self.lose(&format!("it does not answer: {reason}"));
                Err(format!("the spawner does not answer: {reason}"))
            }
        }
    }

    /// Links between the spawner and a server's workers: the workers' ends; none while there is
    /// no spawner.
    pub(super) fn links(&mut self, workers: usize) -> Vec<OwnedFd> {
        let SpawnerState::Running(spawner) = &self.state else {
            return Vec::new();
        };
        let made = (0..workers).map(|_| os::fdpass::packet_pair());
        let made: io::Result<Vec<_>> = made.collect();
        let sent = made.and_then(|made| {
            let (workers, links) = made.into_iter().unzip();
            spawner.send(&ToSpawner::Workers { links })?;
            Ok(workers)
        });
        sent.unwrap_or_else(|error| {
            self.lose(&format!("it does not take links: {}", reason(&error)));
            Vec::new()
        })
    }

    /// A link to the spawner for chores, if there is a spawner; the one before is closed by it.
    pub(super) fn link_for_chores(&mut self) -> Option<OwnedFd> {
        let SpawnerState::Running(spawner) = &self.state else {
            return None;
        };
        let sent = os::fdpass::packet_pair().and_then(|(ours, link)| {
            spawner.send(&ToSpawner::Chores { link })?;
            Ok(ours)
        });
        let failed = |error: &_| self.lose(&format!("it does not take a link: {}", reason(error)));
        sent.inspect_err(failed).ok()
    }

    /// Ends the spawner, if it has not ended, and rests before the next.
    pub(super) fn lose(&mut self, why: &str) {
        let spawner = match std::mem::take(&mut self.state) {
            SpawnerState::Running(spawner) => spawner,
            // Lost already.
            state => return self.state = state,
        };
        let pid = spawner.pid();
        if child::is_successor() {
            return tracing::error!(pid, "lost the spawner: {why}");
        }
        let lived = match spawner.end() {
            Ok((status, lived)) => {
                let lived_ms = lived.as_millis();
                tracing::error!(pid, %status, lived_ms, "lost the spawner: {why}");
                lived
            }
            Err(error) => {
                tracing::error!(pid, error = reason(&error), "cannot end the spawner");
                Duration::ZERO
            }
        };
        self.rest(lived);
    }

    /// Ends the spawner, and with it all programs.
    pub(super) fn end(&mut self) {
        self.state = SpawnerState::Absent;
        self.end_orphans(&[]);
    }

    /// Kills and reaps what a spawner left behind: children of this process that are neither
    /// `ours` nor were here before. Programs, and all that descends from them, can be told by
    /// that they cannot gain privileges; whatever else came to this process is none of ours.
    pub(super) fn end_orphans(&self, ours: &[u32]) {
        let until = Instant::now() + ORPHANS_MAX;
        loop {
            let mut orphans = os::process::children();
            orphans.retain(|child| !ours.contains(child) && !self.strangers.contains(child));
            for orphan in &orphans {
                // Whoever has ended is to be reaped here in any case.
                let _ = os::spawn::reap_orphan(*orphan);
            }
            orphans.retain(|child| os::process::has_no_new_privileges(*child));
            if orphans.is_empty() {
                return;
            }
            orphans.iter().copied().for_each(os::process::kill_child);
            if Instant::now() >= until {
                let left = orphans.len();
                tracing::warn!(left, "programs that were killed have not ended");
                return;
            }
            std::thread::sleep(ORPHANS_LOOK);
        }
    }

    fn rest(&mut self, lived: Duration) {
        let rest = self.back_off.rest(lived);
        let (failures, rest_ms) = (self.back_off.failures(), rest.as_millis());
        tracing::warn!(failures, rest_ms, "the spawner is started again");
        let until = Instant::now() + rest;
        self.state = SpawnerState::Resting { until };
    }
}

/// Takes a place among the control groups, before there are children; what a crash left there goes.
pub(super) fn claim_place() -> Result<Base, Refused> {
    let host = Host::look().map_err(|error| {
        let problem = format!("look at control groups in /proc: {}", reason(&error));
        Refused::System(vec![problem])
    })?;
    let (base, problems) = Base::start(host);
    for problem in problems {
        let reason = reason(&problem.error);
        tracing::warn!("{}: {reason}", problem.what);
    }
    Ok(base)
}
