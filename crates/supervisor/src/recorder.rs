//! The recorder as the supervisor keeps it: there where the configuration has one, started again, and
//! given the same rings as the server.
//!
//! The idea: each server gets rings of its own, which are made once and handed to both ends. A recorder
//! that is started again goes on with them, and gets a link to the server that is new at both ends; one
//! that has to work by other settings is another process, which is started when the one before has
//! written what it has. Nothing waits for it.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::chown;
use std::time::{Duration, Instant};

use config::model::sensor::Worse;
use config::model::{Alert, Chore, Model};
use config::reason;
use ipc::handover::ChildProcess;
use ipc::recorder::{
    AlertFailures, AlertRule, FromRecorder, RecorderNews, RecorderSettings, Side, ToRecorder,
};
use ipc::ring::{CURSOR_WORDS, RING_WORDS};
use ipc::server::{ProcessLife, ToServer};
use os::user::User;

use crate::Supervisor;
use crate::child::{BackOff, Child, Server};
use crate::phase::Phase;
use crate::role::Role;

/// The word of its command line.
pub(super) const RECORDER: &str = "recorder";
/// Whom it becomes where nobody is named, if there is such a user and it is not the server's: what the
/// package makes for it, and what every system has.
const USERS: [&str; 3] = ["nagaya-recorder", "sys", "daemon"];

/// Memory that it may have in a group of its own, files' pages that are kept for it included: several times
/// what thousands of sites take.
const MEMORY_MAX: u64 = 1 << 30;

/// What a configuration wants recorded, and by whom.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RecorderWish {
    settings: RecorderSettings,
    /// What is run for each of its alerts.
    runs: Vec<Option<Chore>>,
    user: Option<String>,
}

impl RecorderWish {
    pub(super) fn of(model: &Model) -> Option<RecorderWish> {
        let recorder = model.recorder.as_ref()?;
        Some(RecorderWish {
            settings: RecorderSettings {
                directory: recorder.directory.clone(),
                salt: recorder.salt.word().to_owned(),
                zone: model.time_zone.clone(),
                groups: recorder.groups.clone(),
                nice: recorder.nice,
                alerts: model.alerts.iter().map(alert_rule).collect(),
                is_sent: recorder.send.is_some(),
            },
            runs: model.alerts.iter().map(|it| it.run.clone()).collect(),
            user: recorder.user.clone(),
        })
    }
}

/// The recorder, or the wait for the next one, and the rings.
#[derive(Debug, Default)]
pub(super) struct Recordings {
    state: RecorderState,
    back_off: BackOff,
    restarts: u64,
    rings: Option<Rings>,
    /// The server's end of the link to the recorder, until it is handed to it.
    console: Option<OwnedFd>,
    /// What the server was told last of the process, and of programs of alerts.
    told: (ProcessLife, AlertFailures),
    /// The process, and the generation in force, when it was last put into its group.
    apart: Option<(u32, u64)>,
    /// Why it has none, as was last said.
    not_apart: Option<String>,
}

#[derive(Debug, Default)]
enum RecorderState {
    /// None is wanted, or the one before has not ended.
    #[default]
    Absent,
    Running {
        process: Child,
        wish: Box<RecorderWish>,
    },
    Resting {
        until: Instant,
    },
}

/// The rings of a server: for each worker its ring and the page of its reader, each to be written and to be
/// read.
#[derive(Debug)]
struct Rings {
    /// The server's process.
    server: u32,
    memory: Vec<[(OwnedFd, OwnedFd); 2]>,
}

impl Rings {
    fn make(server: u32, workers: usize) -> io::Result<Rings> {
        let memory = (0..workers).map(|_| {
            let ring = os::shared::memory("nagaya ring", RING_WORDS)?;
            Ok([ring, os::shared::memory("nagaya cursor", CURSOR_WORDS)?])
        });
        let memory = memory.collect::<io::Result<_>>()?;
        Ok(Rings { server, memory })
    }

    fn for_server(&self) -> io::Result<Vec<OwnedFd>> {
        let ends = self.memory.iter();
        let ends = ends.flat_map(|[ring, cursor]| [&ring.0, &cursor.1]);
        ends.map(OwnedFd::try_clone).collect()
    }

    fn for_recorder(&self) -> io::Result<Vec<OwnedFd>> {
        let ends = self.memory.iter();
        let ends = ends.flat_map(|[ring, cursor]| [&ring.1, &cursor.0]);
        ends.map(OwnedFd::try_clone).collect()
    }
}

impl Recordings {
    /// What becomes readable when the recorder says something or ends.
    pub(super) fn link(&self) -> Option<BorrowedFd<'_>> {
        self.process().map(Child::link)
    }

    /// Hears what it says, if it does; `UnexpectedEof` when it has ended.
    pub(super) fn hear(&self) -> io::Result<Option<FromRecorder>> {
        match self.link() {
            Some(link) => FromRecorder::try_recv(link),
            None => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// A rule of those it was given, and what is run for it.
    pub(super) fn alert(&self, rule: u32) -> Option<(&AlertRule, Option<&Chore>)> {
        let RecorderState::Running { wish, .. } = &self.state else {
            return None;
        };
        let at = usize::try_from(rule).ok()?;
        let rule = wish.settings.alerts.get(at)?;
        Some((rule, wish.runs.get(at)?.as_ref()))
    }

    /// Its process id, where it is there.
    pub(super) fn pid(&self) -> Option<u32> {
        self.process().map(Child::pid)
    }

    /// When the next one is to be started.
    pub(super) fn until(&self) -> Option<Instant> {
        match &self.state {
            RecorderState::Resting { until } => Some(*until),
            RecorderState::Absent | RecorderState::Running { .. } => None,
        }
    }

    /// As another supervisor may have it.
    pub(super) fn to_hand_over(&self) -> Option<io::Result<ChildProcess>> {
        self.process().map(Child::to_hand_over)
    }

    fn process(&self) -> Option<&Child> {
        match &self.state {
            RecorderState::Running { process, .. } => Some(process),
            RecorderState::Absent | RecorderState::Resting { .. } => None,
        }
    }

    /// Ends the recorder, if it has not ended, and rests before the next.
    pub(super) fn lose(&mut self, why: &str) {
        let process = match std::mem::take(&mut self.state) {
            RecorderState::Running { process, .. } => process,
            state => return self.state = state,
        };
        let pid = process.pid();
        let lived = match process.end() {
            Ok((status, lived)) => {
                let lived_ms = lived.as_millis();
                tracing::error!(pid, %status, lived_ms, "lost the recorder: {why}");
                lived
            }
            Err(error) => {
                tracing::error!(pid, error = reason(&error), "cannot end the recorder");
                Duration::ZERO
            }
        };
        self.rest(lived);
    }

    fn rest(&mut self, lived: Duration) {
        self.restarts += 1;
        let until = Instant::now() + self.back_off.rest(lived);
        self.state = RecorderState::Resting { until };
    }

    /// Has it write what it has, and end.
    pub(super) fn end(&mut self) {
        if let RecorderState::Running { mut process, .. } = std::mem::take(&mut self.state) {
            process.close();
            // How it ended matters to nobody any more.
            let _ = process.end();
        }
    }

    /// Starts one beside a server of this user.
    fn start(&mut self, wish: &RecorderWish, server: &str) {
        let user = wish.user.as_deref().unwrap_or_else(|| user(server));
        let started = give_directory(&wish.settings, user).and_then(|()| {
            let user = user.to_owned();
            let process = Child::start(&Role::Recorder { user })?;
            ToRecorder::Settings(wish.settings.clone()).send(process.link())?;
            Ok(process)
        });
        match started {
            Ok(process) => {
                tracing::info!(pid = process.pid(), "recorder started");
                let wish = Box::new(wish.clone());
                self.state = RecorderState::Running { process, wish };
                self.hand_rings();
            }
            Err(error) => {
                tracing::error!(error = reason(&error), "the recorder cannot be started");
                self.rest(Duration::ZERO);
            }
        }
    }

    /// Tells the recorder something; it is lost where it does not hear.
    pub(super) fn tell(&mut self, message: &ToRecorder) {
        let sent = self.process().map(|it| message.send(it.link()));
        if let Some(Err(error)) = sent {
            self.lose(&format!("it does not hear: {}", reason(&error)));
        }
    }

    /// Gives the recorder its ends of the rings, and of a link to the server.
    fn hand_rings(&mut self) {
        let (Some(rings), Some(process)) = (&self.rings, self.process()) else {
            return;
        };
        let handed = os::fdpass::packet_pair().and_then(|(for_server, console)| {
            let rings = rings.for_recorder()?;
            ToRecorder::Rings { rings, console }.send(process.link())?;
            Ok(for_server)
        });
        match handed {
            Ok(for_server) => self.console = Some(for_server),
            Err(error) => self.lose(&format!("it does not hear: {}", reason(&error))),
        }
    }
}

impl Supervisor {
    /// Does what is to be done for the recorder while a server serves.
    pub(super) fn mind_recorder(&mut self) {
        if self.upgrade.is_some() || !matches!(self.phase, Phase::Serving { .. }) {
            return;
        }
        if let RecorderState::Running { wish, .. } = &self.recordings.state
            && Some(&**wish) != self.current.recorder.as_ref()
        {
            self.hear_out_recorder();
            let state = std::mem::take(&mut self.recordings.state);
            if let RecorderState::Running { process, .. } = state {
                self.leaving.add(vec![process]);
            }
        }
        let Some(wish) = self.current.recorder.as_ref() else {
            self.recordings.state = RecorderState::Absent;
            return self.tell_recorder(Vec::new());
        };
        let is_wanted = match &self.recordings.state {
            // One that leaves has figures to write, and visits to keep for the next.
            RecorderState::Absent => !self.leaving.has(RECORDER),
            RecorderState::Resting { until } => *until <= Instant::now(),
            RecorderState::Running { .. } => false,
        };
        if is_wanted {
            self.recordings.start(wish, &self.current.user);
        }
        self.set_recorder_apart();
        let rings = self.rings_of_server();
        self.tell_recorder(rings);
    }

    /// Puts the recorder into a group of its own, where there may be one: again with each generation, for one
    /// may have processors shared out by group.
    fn set_recorder_apart(&mut self) {
        let RecorderState::Running { process, wish } = &self.recordings.state else {
            return;
        };
        let now = Some((process.pid(), self.current.manifest.generation));
        if self.recordings.apart == now {
            return;
        }
        let nice = wish.settings.nice;
        let set = self
            .base
            .set_recorder_apart(process.pid(), MEMORY_MAX, nice);
        let problem = set.err();
        let problem = problem.map(|it| format!("{}: {}", it.what, reason(&it.error)));
        if problem.is_some() && problem != self.recordings.not_apart {
            let error = problem.as_deref();
            tracing::info!(error, "the recorder has no control group of its own");
        }
        self.recordings.apart = now;
        self.recordings.not_apart = problem;
    }

    /// Makes rings for a server that has none yet; its ends of them.
    fn rings_of_server(&mut self) -> Vec<OwnedFd> {
        let server = self.phase.server().map_or(0, Server::pid);
        let known = self.recordings.rings.as_ref();
        if known.is_some_and(|rings| rings.server == server) {
            return Vec::new();
        }
        let made = Rings::make(server, self.current.workers);
        match made.and_then(|rings| Ok((rings.for_server()?, rings))) {
            Ok((for_server, rings)) => {
                self.recordings.rings = Some(rings);
                self.recordings.hand_rings();
                for_server
            }
            Err(error) => {
                tracing::error!(error = reason(&error), "no memory for what is recorded");
                Vec::new()
            }
        }
    }

    /// Tells the server how the recorder is, where that is new, and its rings and link, where there are some.
    fn tell_recorder(&mut self, rings: Vec<OwnedFd>) {
        let life = ProcessLife {
            pid: self.recordings.pid().unwrap_or(0),
            restarts: self.recordings.restarts,
        };
        let alerts = match &self.current.recorder {
            Some(wish) => self.alerts.failures(&wish.settings.alerts),
            None => AlertFailures::default(),
        };
        let now = (life, alerts);
        let was_told = self.recordings.told == now;
        let console = self.recordings.console.take();
        if rings.is_empty() && console.is_none() && was_told {
            return;
        }
        self.recordings.told.clone_from(&now);
        let (life, alerts) = now;
        let message = ToServer::Recorder(RecorderNews {
            life,
            alerts,
            rings,
            console,
        });
        if let Some(Err(error)) = self.phase.server().map(|server| server.send(&message)) {
            self.lose_server_by("it does not hear", &error);
        }
    }

    /// When the recorder is to be started again.
    pub(super) fn recorder_until(&self) -> Option<Instant> {
        let is_serving = matches!(self.phase, Phase::Serving { .. }) && self.upgrade.is_none();
        is_serving.then(|| self.recordings.until()).flatten()
    }
}

fn alert_rule(alert: &Alert) -> AlertRule {
    AlertRule {
        name: alert.name.clone(),
        figure: alert.figure.to_string(),
        side: match alert.worse {
            Worse::Above => Side::Above,
            Worse::Below => Side::Below,
        },
        bound: alert.bound,
        leave: alert.leave,
        for_s: alert.for_s,
    }
}

/// Makes the directory for the recorder's user alone, where root starts it and it is missing.
fn give_directory(settings: &RecorderSettings, user: &str) -> io::Result<()> {
    if !os::process::is_root() || settings.directory.exists() {
        return Ok(());
    }
    let user = User::look_up(user)?;
    os::directory::make(&settings.directory, 0o700)?;
    chown(&settings.directory, Some(user.uid), Some(user.gid))
}

/// Whom the recorder becomes beside a server of this user.
fn user(server: &str) -> &str {
    if !os::process::is_root() {
        return server;
    }
    let fits = |user: &&str| *user != server && os::process::check_user(user).is_ok();
    USERS.into_iter().find(fits).unwrap_or(server)
}
