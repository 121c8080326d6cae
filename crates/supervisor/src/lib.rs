//! The supervisor: owns sockets, logs and its two children, and answers no request itself.
//!
//! The idea: one thread, one loop, one [`Phase`] of the server; the spawner beside it is there or
//! comes back ([`Programs`]), and is told everything before the server is. It waits for a signal,
//! a word of the server, the spawner's end or the end of a wait, and each of them moves the phase.
//! What is wanted while something else is under way is remembered once, however often it is asked
//! for. Privileges go to the spawner alone; the server has none.
#![forbid(unsafe_code)]

mod acme;
mod alerts;
mod authority;
pub mod certificates;
mod child;
mod chores;
mod directory;
mod handover;
mod keeper;
mod last_good;
mod listeners;
pub mod load;
mod logs;
mod loose;
mod manifest;
mod notify;
mod phase;
mod pools;
mod programs;
mod recorder;
mod reload;
mod reopening;
mod retiring;
mod role;
mod successor;
pub mod surroundings;
mod tls;
mod upgrade;
mod woken;

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use config::reason;
use ipc::server::{LastReload, ReloadOutcome, Tally, ToServer, ToSupervisor};
use os::cgroup::Base;
use os::signal::{Signal, Signals};

use self::acme::Authorities;
use self::alerts::AlertTelling;
use self::child::{BackOff, Server};
use self::directory::Directories;
pub use self::directory::{directory_settings, directory_user, fleet_settings, written_tenants};
use self::keeper::Keys;
use self::notify::Notify;
use self::phase::Phase;
use self::pools::lookups::UserLookups;
use self::programs::{Programs, lay_mounting_aside};
use self::recorder::Recordings;
use self::reload::Generation;
pub use self::reload::Refused;
use self::retiring::{LeavingChildren, Retiring};
pub use self::role::Role;
pub use self::successor::succeed;
use self::upgrade::Upgrade;
use self::woken::Woken;

/// How long a server may take to be ready for a generation, besides the scripts that start it.
const READY_MAX: Duration = Duration::from_secs(10);
/// How much longer than its own deadline a drain may take before it is cut short.
const DRAIN_GRACE: Duration = Duration::from_secs(5);

/// The supervisor.
#[derive(Debug)]
pub struct Supervisor {
    config: PathBuf,
    signals: Signals,
    notify: Notify,
    /// What serves, or will when the server is back.
    current: Generation,
    phase: Phase,
    programs: Programs,
    keys: Keys,
    /// The keeper that the server has links to.
    linked: u64,
    authorities: Authorities,
    recordings: Recordings,
    directories: Directories,
    /// Users of rows whose pools want a place.
    row_users: UserLookups,
    alerts: AlertTelling,
    /// Where control groups stand: gone after the programs.
    base: Base,
    wanted: Wanted,
    back_off: BackOff,
    tally: Tally,
    /// When the reload under way, or the last one, began.
    reload_begun_us: u64,
    /// The last good versions that are stored.
    stored: loose::Stored,
    /// No server has been ready yet: one that ends by itself will not do better next time.
    fresh: bool,
    /// When the upgrade under way, or the last one, began.
    upgrade_begun_us: u64,
    upgrade: Option<Upgrade>,
    /// Servers of earlier programs.
    retiring: Vec<Retiring>,
    leaving: LeavingChildren,
}

/// What was asked for and not begun.
#[derive(Debug, Default)]
struct Wanted {
    reload: bool,
    reopen: bool,
    upgrade: bool,
}

impl Supervisor {
    /// Takes from the machine what the configuration asks for, and starts spawner and server.
    pub fn start(config: &Path, signals: Signals) -> Result<Supervisor, Refused> {
        let descriptors = os::process::raise_nofile();
        lay_mounting_aside();
        let programs = Programs::prepare().map_err(|error| {
            let reason = reason(&error);
            Refused::System(vec![format!("adopt what programs leave behind: {reason}")])
        })?;
        let mut base = programs::claim_place()?;
        let mut keys = Keys::default();
        let current = Generation::prepare(config, 1, None, (&mut base, &mut keys))?;
        let tally = Tally {
            files_set_aside: current.loose.files_set_aside,
            set_aside: current.loose.set_aside.clone(),
            ..Tally::default()
        };
        let mut supervisor = Supervisor {
            config: config.to_owned(),
            signals,
            notify: Notify::from_environment(),
            phase: Phase::Resting {
                until: Instant::now(),
            },
            programs,
            keys,
            linked: 0,
            authorities: Authorities::default(),
            recordings: Recordings::default(),
            directories: Directories::default(),
            row_users: UserLookups::default(),
            alerts: AlertTelling::default(),
            base,
            wanted: Wanted::default(),
            stored: current.loose.stored_before(),
            current,
            back_off: BackOff::default(),
            tally,
            reload_begun_us: 0,
            fresh: true,
            upgrade_begun_us: 0,
            upgrade: None,
            retiring: Vec::new(),
            leaving: LeavingChildren::default(),
        };
        error_log::set_level(supervisor.current.level);
        tracing::info!(
            version = env!("CARGO_PKG_VERSION"),
            pid = std::process::id(),
            descriptors = descriptors.as_ref().ok(),
            "starting"
        );
        supervisor
            .current
            .listeners
            .take_over(&listeners::Listeners::default());
        let started = supervisor.programs.start(&[&supervisor.current]);
        started.map_err(|problem| Refused::System(vec![problem]))?;
        supervisor.start_server();
        Ok(supervisor)
    }

    /// Lives until told to end.
    pub fn run(mut self) -> ExitCode {
        loop {
            if let Phase::Ended(outcome) = self.phase
                && self.retiring.is_empty()
            {
                self.recordings.kept.end();
                self.directories.kept.end();
                self.programs.end();
                tracing::info!("ended");
                return outcome;
            }
            if let Err(error) = self.turn() {
                tracing::error!(error = reason(&error), "the supervisor cannot go on");
                return ExitCode::FAILURE;
            }
        }
    }

    /// Waits for something to happen and deals with it.
    fn turn(&mut self) -> io::Result<()> {
        let woken = self.wait()?;
        while let Some(signal) = self.signals.next()? {
            self.on_signal(signal);
        }
        // From the last on: what is dealt with may go.
        for woken in woken.into_iter().rev() {
            match woken {
                Woken::Signals | Woken::Chores | Woken::Users => {}
                Woken::Spawner => self.programs.on_word(),
                Woken::Keeper => self.keys.lose("it ended"),
                Woken::Acme => self.on_acme_word(),
                Woken::Recorder => self.on_recorder_word(),
                Woken::Directory => self.directories.lose("it ended"),
                Woken::Server => self.on_word(),
                Woken::Successor => self.on_successor(),
                Woken::Retiring(at) => self.on_retiring(at),
            }
        }
        self.on_time(Instant::now());
        self.mind_keys();
        self.mind_authorities();
        self.mind_chores();
        self.mind_recorder();
        self.mind_directories();
        self.mind_pools();
        self.tell_operators();
        self.begin_what_is_wanted();
        Ok(())
    }

    fn on_signal(&mut self, signal: Signal) {
        tracing::info!(%signal, "signal");
        match signal {
            Signal::Terminate | Signal::Interrupt => self.drain(),
            Signal::Hangup => self.wanted.reload = true,
            Signal::User1 => self.wanted.reopen = true,
            Signal::Quit if self.is_draining() => {
                tracing::info!("what is under way is being finished already");
            }
            Signal::Quit => self.drain(),
            Signal::User2 => self.wanted.upgrade = true,
        }
    }

    /// Deals with a word of the server, or with its end.
    fn on_word(&mut self) {
        let Some(server) = self.phase.server() else {
            return;
        };
        match server.recv() {
            Ok(ToSupervisor::Ready { generation }) => self.on_ready(generation),
            Ok(ToSupervisor::Refused {
                generation,
                message,
            }) => self.on_refused(generation, &message),
            Ok(ToSupervisor::OpenLog { path }) => self.open_log(path),
            Ok(ToSupervisor::Challenged { number }) => self.on_challenged(number),
            Ok(ToSupervisor::Renew { path }) => self.renew(&path),
            Ok(ToSupervisor::Rehearse { path }) => self.rehearse(&path),
            Ok(ToSupervisor::Demand {
                name,
                tenant,
                is_accepted,
            }) => self.demand(name, tenant, is_accepted),
            Ok(ToSupervisor::Certificate(question)) => self.find_certificate(question),
            Ok(ToSupervisor::Pools { number, question }) => self.ask_of_pools(number, question),
            Ok(ToSupervisor::Drained) => tracing::info!("everything under way is finished"),
            Ok(ToSupervisor::Stuck { report }) => tracing::error!(report, "a worker stands still"),
            // Only one that retires says so.
            Ok(ToSupervisor::Held { .. }) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                self.lose_server("it ended")
            }
            Err(error) => self.lose_server_by("the link to it failed", &error),
        }
    }

    /// Deals with waits that are over.
    fn on_time(&mut self, now: Instant) {
        if self.programs.kept.until().is_some_and(|until| until <= now) {
            self.start_spawner();
        }
        if self.upgrade.as_ref().is_some_and(|it| it.until() <= now) {
            self.give_up_upgrade();
        }
        self.sweep_retiring(now);
        self.current.places.sweep(now);
        match &self.phase {
            Phase::Starting { until, .. } | Phase::Reloading { until, .. } if *until <= now => {
                self.lose_server("it was not ready in time");
            }
            Phase::Resting { until } if *until <= now => {
                self.current.renew_overrides();
                self.start_server();
            }
            Phase::Draining { until, .. } if *until <= now => {
                tracing::warn!("what is still under way is cut off: the drain's time is over");
                self.phase = Phase::Ended(ExitCode::SUCCESS);
            }
            _ => {}
        }
    }

    fn begin_what_is_wanted(&mut self) {
        if self.upgrade.is_some()
            || !matches!(self.phase, Phase::Serving { .. } | Phase::Resting { .. })
        {
            return;
        }
        if std::mem::take(&mut self.wanted.reopen) {
            self.reopen_logs();
        }
        if std::mem::take(&mut self.wanted.reload) {
            self.reload();
        }
        if matches!(self.phase, Phase::Serving { .. }) && std::mem::take(&mut self.wanted.upgrade) {
            self.upgrade();
        }
    }

    /// Starts a server for the current generation.
    fn start_server(&mut self) {
        let links = self.programs.links(self.current.workers);
        self.renew_keys();
        let links = (links, self.links_to_keeper());
        let challenges = self.authorities.challenges(&mut self.keys);
        let started = Server::start(&self.current.user).and_then(|server| {
            let tally = self.tally.clone();
            server.send(&self.current.configure(tally, links, challenges)?)?;
            Ok(server)
        });
        match started {
            Ok(server) => {
                tracing::info!(
                    pid = server.pid(),
                    generation = self.current.number,
                    "server started"
                );
                self.phase = Phase::Starting {
                    server,
                    until: Instant::now() + READY_MAX + self.current.scripts,
                };
            }
            Err(error) => {
                tracing::error!(error = reason(&error), "the server cannot be started");
                if self.fresh {
                    self.phase = Phase::Ended(ExitCode::FAILURE);
                } else {
                    self.rest(Duration::ZERO);
                }
            }
        }
    }

    fn on_ready(&mut self, generation: u64) {
        match self.phase.take() {
            Phase::Starting { server, .. } if generation == self.current.number => {
                self.phase = Phase::Serving { server };
                self.fresh = false;
            }
            Phase::Reloading { server, next, .. } if generation == next.number => {
                error_log::set_level(next.level);
                self.take_over(*next);
                self.phase = Phase::Serving { server };
                // What was kept of limits meanwhile is not lost.
                self.wanted.reload |= self.current.has_newer_overrides();
            }
            // A drain goes on, whatever was asked for before it.
            phase => return self.phase = phase,
        }
        self.current.loose.store(&mut self.stored);
        self.publish();
        self.authorities.tell_all();
        os::process::release_memory();
        let summary = self.current.summary();
        let changed = self.current.changed();
        tracing::info!(generation, "ready: {summary}{changed}");
        self.notify.ready(&summary);
    }

    /// Makes the next generation the current one.
    fn take_over(&mut self, mut next: Generation) {
        next.listeners.take_over(&self.current.listeners);
        next.places.take_over(&self.current.places);
        self.tally = self.tally_with(&next);
        let before = std::mem::replace(&mut self.current, next);
        let had_pools = !before.manifest.pools.is_empty();
        self.current.earlier = had_pools.then(|| (before.sources, Instant::now()));
    }

    /// What is counted and known once the next generation is in force.
    fn tally_with(&self, next: &Generation) -> Tally {
        let held = self.programs.held.clone();
        let told = next.told(&held);
        Tally {
            reloads: self.tally.reloads + 1,
            last_reload: LastReload::new(self.reload_begun_us, ReloadOutcome::Taken, told),
            files_set_aside: next.loose.files_set_aside,
            set_aside: next.loose.set_aside.clone(),
            held,
            ..self.tally.clone()
        }
    }

    fn on_refused(&mut self, generation: u64, message: &str) {
        tracing::error!(generation, "the server refuses the generation: {message}");
        match self.phase.take() {
            Phase::Reloading { server, .. } => {
                self.phase = Phase::Serving { server };
                self.take_manifest_back();
                self.keep_old(ReloadOutcome::Failed, format!("error: {message}\n"));
            }
            phase => {
                self.phase = phase;
                if matches!(self.phase, Phase::Starting { .. }) {
                    self.lose_server("it refused to serve");
                }
            }
        }
    }

    fn lose_server_by(&mut self, what: &str, error: &io::Error) {
        self.lose_server(&format!("{what}: {}", reason(error)));
    }

    /// Ends the server, if it has not ended, and decides what comes next.
    fn lose_server(&mut self, why: &str) {
        let phase = self.phase.take();
        let draining = matches!(phase, Phase::Draining { .. });
        if matches!(phase, Phase::Reloading { .. }) {
            self.tally.reloads_refused += 1;
            let told = format!("error: the server was lost over it: {why}\n");
            let (begun_us, outcome) = (self.reload_begun_us, ReloadOutcome::Failed);
            self.tally.last_reload = LastReload::new(begun_us, outcome, told);
            tracing::error!("the reload failed with the server; the old configuration comes back");
            self.take_manifest_back();
            self.take_keeping_back();
        }
        let Some(server) = phase.into_server() else {
            return;
        };
        let pid = server.pid();
        let (status, lived) = match server.end() {
            Ok(end) => end,
            Err(error) => {
                tracing::error!(pid, error = reason(&error), "cannot end the server");
                if draining {
                    self.phase = Phase::Ended(ExitCode::FAILURE);
                } else {
                    self.rest(Duration::ZERO);
                }
                return;
            }
        };
        if draining {
            self.phase = Phase::Ended(ExitCode::SUCCESS);
        } else if self.fresh && status.code().is_some() {
            tracing::error!(pid, %status, "the server cannot serve: {why}");
            self.phase = Phase::Ended(ExitCode::FAILURE);
        } else {
            let lived_ms = lived.as_millis();
            tracing::error!(pid, %status, lived_ms, "lost the server: {why}");
            self.rest(lived);
        }
    }

    /// Rests before the server is started again.
    fn rest(&mut self, lived: Duration) {
        let rest = self.back_off.rest(lived);
        let failures = self.back_off.failures();
        self.tally.restarts += 1;
        let rest_ms = rest.as_millis();
        tracing::warn!(
            restarts = self.tally.restarts,
            failures,
            rest_ms,
            "the server is started again"
        );
        self.notify.status(&format!(
            "server lost {failures} times in a row, again in {rest_ms} ms"
        ));
        self.phase = Phase::Resting {
            until: Instant::now() + rest,
        };
    }

    fn reload(&mut self) {
        self.reload_begun_us = os::cpu::monotonic_us();
        self.notify.reloading();
        // A number is used up by the generation that comes into force with it.
        let number = self.current.number + 1;
        let before = self.current.as_before();
        let means = (&mut self.base, &mut self.keys);
        let next = match Generation::prepare(&self.config, number, Some(&before), means) {
            Ok(next) => next,
            Err(refused) => {
                refused.log();
                return self.keep_old(refused.outcome(), refused.told());
            }
        };
        if let Err(problem) = self.tell_manifest(&next) {
            let told = format!("the spawner refuses the generation: {problem}");
            tracing::error!("{told}");
            self.take_manifest_back();
            return self.keep_old(ReloadOutcome::Failed, format!("error: {told}\n"));
        }
        match self.phase.take() {
            Phase::Serving { server } => {
                let links = (Vec::new(), self.links_where_none(&next));
                let message = match next.configure(self.tally_with(&next), links, Vec::new()) {
                    Ok(message) => message,
                    Err(error) => {
                        let error = reason(&error);
                        let told = format!("the new configuration cannot be handed on: {error}");
                        tracing::error!("{told}");
                        self.phase = Phase::Serving { server };
                        self.take_manifest_back();
                        return self.keep_old(ReloadOutcome::Failed, format!("error: {told}\n"));
                    }
                };
                let sent = server.send(&message);
                let until = Instant::now() + READY_MAX + next.scripts;
                self.phase = Phase::Reloading {
                    server,
                    next: Box::new(next),
                    until,
                };
                if let Err(error) = sent {
                    self.lose_server_by("it does not take the new configuration", &error);
                }
            }
            // There is no server to ask: the next one is started with it, and at once.
            phase => {
                drop(phase);
                self.take_over(next);
                self.start_server();
            }
        }
    }

    /// Says that nothing has changed, and why.
    fn keep_old(&mut self, outcome: ReloadOutcome, told: String) {
        self.tally.reloads_refused += 1;
        self.tally.last_reload = LastReload::new(self.reload_begun_us, outcome, told);
        self.take_keeping_back();
        tracing::error!(
            generation = self.current.number,
            "reload refused, the old configuration serves on"
        );
        self.notify.ready(&format!(
            "reload refused (see the log); {}",
            self.current.summary()
        ));
        self.send_tally();
    }

    fn is_draining(&self) -> bool {
        matches!(self.phase, Phase::Draining { .. } | Phase::Ended(_))
    }

    /// Lets the server finish; when it is finishing already, ends at once.
    fn drain(&mut self) {
        self.notify.stopping();
        self.end_upgrade();
        let draining = self.is_draining();
        match draining {
            // Dropping a server kills it.
            true => self.retiring.clear(),
            false => self.drain_retiring(),
        }
        match self.phase.take().into_server() {
            Some(server) if !draining => {
                let sent = server.send(&ToServer::Drain);
                // The server empties its copies and closes them, too: then nobody listens.
                self.current.listeners.close();
                let until = Instant::now() + self.current.drain + DRAIN_GRACE;
                self.phase = Phase::Draining { server, until };
                if let Err(error) = sent {
                    self.lose_server_by("it does not hear", &error);
                }
            }
            server => {
                drop(server);
                self.phase = Phase::Ended(ExitCode::SUCCESS);
            }
        }
    }
}
