//! The recorder as the supervisor keeps it: there where the configuration has one, started again, and
//! given the same rings as the server.
//!
//! The idea: each server gets rings of its own, which are made once and handed to both ends. A recorder
//! that is started again goes on with them, and gets a link to the server that is new at both ends; one
//! that has to work by other settings is another process, which is started when the one before has
//! written what it has. Nothing waits for it.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::chown;
use std::time::{Duration, Instant};

use config::model::sensor::Worse;
use config::model::{Alert, Chore, Model};
use config::reason;
use ipc::recorder::{
    AlertFailures, AlertRule, FromRecorder, RecorderNews, RecorderSettings, Side, ToRecorder,
};
use ipc::ring::{CURSOR_WORDS, RING_WORDS};
use ipc::server::{ProcessLife, ToServer};
use os::user::User;

use crate::Supervisor;
use crate::child::{Child, KeptProcess, Server, user_beside};
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
    pub(super) kept: KeptProcess<Box<RecorderWish>>,
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
    /// Hears what it says, if it does; `UnexpectedEof` when it has ended.
    pub(super) fn hear(&self) -> io::Result<Option<FromRecorder>> {
        match self.kept.link() {
            Some(link) => FromRecorder::try_recv(link),
            None => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// A rule of those it was given, and what is run for it.
    pub(super) fn alert(&self, rule: u32) -> Option<(&AlertRule, Option<&Chore>)> {
        let (_, wish) = self.kept.running()?;
        let at = usize::try_from(rule).ok()?;
        let rule = wish.settings.alerts.get(at)?;
        Some((rule, wish.runs.get(at)?.as_ref()))
    }

    /// Ends the recorder, if it has not ended, and rests before the next.
    pub(super) fn lose(&mut self, why: &str) {
        self.kept.lose("recorder", why);
    }

    /// Starts one beside a server of this user.
    fn start(&mut self, wish: &RecorderWish, server: &str) {
        let user = wish
            .user
            .as_deref()
            .unwrap_or_else(|| user_beside(server, &USERS));
        let started = give_directory(&wish.settings, user).and_then(|()| {
            let user = user.to_owned();
            let process = Child::start(&Role::Recorder { user })?;
            ToRecorder::Settings(wish.settings.clone()).send(process.link())?;
            Ok(process)
        });
        match started {
            Ok(process) => {
                tracing::info!(pid = process.pid(), "recorder started");
                self.kept.run(process, Box::new(wish.clone()));
                self.hand_rings();
            }
            Err(error) => {
                tracing::error!(error = reason(&error), "the recorder cannot be started");
                self.kept.rest(Duration::ZERO);
            }
        }
    }

    /// Tells the recorder something; it is lost where it does not hear.
    pub(super) fn tell(&mut self, message: &ToRecorder) {
        let sent = self.kept.link().map(|link| message.send(link));
        if let Some(Err(error)) = sent {
            self.lose(&format!("it does not hear: {}", reason(&error)));
        }
    }

    /// Gives the recorder its ends of the rings, and of a link to the server.
    fn hand_rings(&mut self) {
        let (Some(rings), Some(link)) = (&self.rings, self.kept.link()) else {
            return;
        };
        let handed = os::fdpass::packet_pair().and_then(|(for_server, console)| {
            let rings = rings.for_recorder()?;
            ToRecorder::Rings { rings, console }.send(link)?;
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
        if let Some((_, wish)) = self.recordings.kept.running()
            && Some(&**wish) != self.current.recorder.as_ref()
        {
            self.hear_out_recorder();
            self.leaving
                .add(self.recordings.kept.take().into_iter().collect());
        }
        let Some(wish) = self.current.recorder.as_ref() else {
            self.recordings.kept.take();
            return self.tell_recorder(Vec::new());
        };
        let kept = &self.recordings.kept;
        // One that leaves has figures to write, and visits to keep for the next.
        let waits = kept.is_absent() && self.leaving.has(RECORDER);
        if kept.is_due(Instant::now()) && !waits {
            self.recordings.start(wish, &self.current.user);
        }
        self.set_recorder_apart();
        let rings = self.rings_of_server();
        self.tell_recorder(rings);
    }

    /// Puts the recorder into a group of its own, where there may be one: again with each generation, for one
    /// may have processors shared out by group.
    fn set_recorder_apart(&mut self) {
        let Some((process, wish)) = self.recordings.kept.running() else {
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
        let life = self.recordings.kept.life();
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
        is_serving.then(|| self.recordings.kept.until()).flatten()
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
