//! An upgrade as the new program sees it: first a child that proves itself, then the supervisor.
//!
//! The idea: the child reads the configuration, starts a spawner and a server beside those that
//! serve, and when the server says that it is ready, writes down what it has and ends. What it has
//! written is read by the same program in the supervisor's place, which has the servers before
//! finish.

use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use config::reason;
use ipc::handover::{FORMAT, FromSuccessor, RetiringProcesses, ToSuccessor};
use ipc::message::Message;
use ipc::server::{LastReload, ReloadOutcome, Tally, ToServer, ToSupervisor};
use os::exec::{Handed, Inherited};
use os::signal::Signals;

use crate::acme::{self, Authorities};
use crate::child::{self, BackOff, Server};
use crate::directory::{DIRECTORY, Directories};
use crate::handover::{Arriving, Leaving};
use crate::keeper::Keys;
use crate::loose::Stored;
use crate::notify::Notify;
use crate::phase::Phase;
use crate::pools::lookups::UserLookups;
use crate::programs::{self, Programs};
use crate::recorder::{RECORDER, Recordings};
use crate::reload::{Generation, Refused};
use crate::retiring::{self, Retiring, SPAWNER};
use crate::{DRAIN_GRACE, READY_MAX, Supervisor, Wanted};

/// How long the last lines of the error log may take.
const FLUSH: Duration = Duration::from_secs(1);

/// Proves that this program can serve, to the supervisor that has started it: the life of the
/// process. `format` is what that speaks.
#[must_use]
pub fn succeed(format: &str) -> ExitCode {
    error_log::start("successor");
    os::process::set_name("nagaya-next");
    let proven = os::process::take_stdin().and_then(|link| {
        let word = match prove(&link, format) {
            Ok(handed) => FromSuccessor::Ready {
                bytes: handed.bytes,
                fds: handed.fds,
            },
            Err(refused) => FromSuccessor::refused(refused.outcome(), refused.told()),
        };
        word.send(link.as_fd())
    });
    if let Err(error) = &proven {
        tracing::error!(error = reason(error), "cannot speak to the supervisor");
    }
    error_log::flush(FLUSH);
    match proven {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// Starts everything beside what serves.
fn prove(link: &OwnedFd, format: &str) -> Result<Handed, Refused> {
    // Read in any case: a link that is closed over what was not read loses what was said there.
    let handed = ToSuccessor::recv(link.as_fd());
    if format != FORMAT.to_string() {
        let version = env!("CARGO_PKG_VERSION");
        return Err(Refused::System(vec![format!(
            "version {version} hands over by format {FORMAT}, and the running program by {format}: this upgrade takes a restart"
        )]));
    }
    let said = |error: io::Error| Refused::by_system("hear from the supervisor", &error);
    let handed = match handed.map_err(said)? {
        ToSuccessor::Handover { bytes, fds } => Handed { bytes, fds },
        _ => return Err(said(io::ErrorKind::InvalidData.into())),
    };
    child::start_through(link.try_clone().map_err(said)?);
    let mut arriving = Arriving::read(handed)?;
    let mut keys = ManuallyDrop::new(Keys::default());
    let next = arriving.prepare_next(&mut keys)?;
    error_log::set_level(next.level);
    let mut programs = ManuallyDrop::new(Programs::default());
    programs.is_beside = true;
    let refused = |problem: String| Refused::System(vec![problem]);
    programs.start(&[&next]).map_err(refused)?;
    let told = next.told(&programs.held);
    let begun_us = arriving.tally.last_upgrade.begun_us;
    let tally = Tally {
        last_upgrade: LastReload::new(begun_us, ReloadOutcome::Taken, told),
        files_set_aside: next.loose.files_set_aside,
        set_aside: next.loose.set_aside.clone(),
        held: programs.held.clone(),
        ..arriving.tally.clone()
    };
    // The server hears of its upgrade when that is done.
    let before = Tally {
        last_upgrade: LastReload::default(),
        ..tally.clone()
    };
    let server = start_server(&next, before, (&mut programs, &mut keys))?;
    let next = ManuallyDrop::new(next);
    hand_back(&mut arriving, &next, tally, &server, (&programs, &keys))
        .map_err(|error| Refused::by_system("write down what there is", &error))
}

/// Starts a server and waits for it to be ready, as long as at any start.
fn start_server(
    next: &Generation,
    tally: Tally,
    (programs, keys): (&mut Programs, &mut Keys),
) -> Result<ManuallyDrop<Server>, Refused> {
    let said = |error: io::Error| Refused::by_system("start a server", &error);
    let links = programs.links(next.workers);
    let to_keeper = match next.certificates {
        Some(_) => keys.links(next.workers + 1),
        None => Vec::new(),
    };
    let server = ManuallyDrop::new(Server::start(&next.user).map_err(said)?);
    let challenges = acme::left_by_another(&next.wishes, keys);
    let message = next.configure(tally, (links, to_keeper), challenges);
    let message = message.map_err(said)?;
    server.send(&message).map_err(|error| lost(&error))?;
    let until = Instant::now() + READY_MAX + next.scripts;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if os::net::wait_readable(&[server.link()], Some(left)).map_err(said)? != [true] {
            let what = "the new server was not ready in time";
            return Err(Refused::System(vec![what.to_owned()]));
        }
        match server.recv() {
            Ok(ToSupervisor::Ready { .. }) => return Ok(server),
            Ok(ToSupervisor::Refused { message, .. }) => {
                return Err(Refused::System(vec![message]));
            }
            Ok(ToSupervisor::OpenLog { path }) => {
                let result = next.logs.open_on_demand(&path);
                // How it ended is heard next.
                let _ = server.send(&ToServer::LogFile { path, result });
            }
            Ok(_) => {}
            Err(error) => return Err(lost(&error)),
        }
    }
}

fn lost(error: &io::Error) -> Refused {
    Refused::by_system(
        "the new server was lost before it was ready (see the error log)",
        error,
    )
}

/// Writes down what there is now, for this program in the supervisor's place.
fn hand_back(
    arriving: &mut Arriving,
    next: &Generation,
    tally: Tally,
    server: &Server,
    (programs, keys): (&Programs, &Keys),
) -> io::Result<Handed> {
    let drain = arriving.drain + DRAIN_GRACE;
    let drain_us = u64::try_from(drain.as_micros()).unwrap_or(u64::MAX);
    let mut retiring = std::mem::take(&mut arriving.retiring);
    retiring.push(RetiringProcesses {
        until_us: os::cpu::monotonic_us().saturating_add(drain_us),
        children: std::mem::take(&mut arriving.children),
    });
    let children = std::iter::once(server.to_hand_over()).chain(programs.kept.to_hand_over());
    let children = children.chain(keys.kept.to_hand_over());
    let leaving = Leaving {
        config: &arriving.config,
        generation: next,
        base: &arriving.base,
        before: Some(&*arriving),
        tally,
        children: children.collect::<io::Result<_>>()?,
        retiring,
        strangers: &arriving.strangers,
        masters: &arriving.masters,
    };
    leaving.write()
}

impl Supervisor {
    /// Goes on where the program before stopped; executes that again where this is not possible.
    ///
    /// # Errors
    /// When neither can go on.
    pub fn take_place(
        config: &Path,
        signals: Signals,
        inherited: Inherited,
    ) -> Result<Supervisor, Refused> {
        let said = |error: io::Error| Refused::by_system("read the hand-over", &error);
        let taken = inherited.handed.map_err(said);
        match (
            taken.and_then(|handed| Supervisor::arrive(config, signals, handed)),
            inherited.before,
        ) {
            (Ok(mut supervisor), before) => {
                supervisor.begin_anew(before.is_some());
                Ok(supervisor)
            }
            (Err(refused), None) => Err(refused),
            (Err(refused), Some((program, handed))) => {
                refused.log();
                tracing::error!("the new program cannot go on: the old one is executed again");
                error_log::flush(FLUSH);
                Err(said(program.take_place(&handed, None)))
            }
        }
    }

    fn arrive(config: &Path, signals: Signals, handed: Handed) -> Result<Supervisor, Refused> {
        let said = |error: io::Error| Refused::by_system("take over the processes", &error);
        os::spawn::adopt_orphans().map_err(said)?;
        programs::lay_mounting_aside();
        let mut arriving = Arriving::read(handed)?;
        let children = std::mem::take(&mut arriving.children);
        let mut children = ManuallyDrop::new(retiring::children(children).map_err(said)?);
        let keeper = retiring::take(&mut children, "keeper");
        let mut keys = ManuallyDrop::new(Keys::take_over(keeper));
        let mut current = arriving.restore(&mut keys)?;
        current.listeners.take_over(&arriving.listeners);
        current.places.take_over(&arriving.places);
        let arriving = ManuallyDrop::into_inner(arriving);
        let mut children = ManuallyDrop::into_inner(children);
        let server = retiring::take(&mut children, "server").ok_or_else(|| {
            Refused::System(vec!["there is no server among what is handed over".into()])
        })?;
        // Its memory is not told of: the next one gets other.
        let recorder = retiring::take(&mut children, RECORDER);
        let directory = retiring::take(&mut children, DIRECTORY);
        let earlier = arriving.retiring.into_iter().map(Retiring::take_over);
        let earlier: io::Result<Vec<_>> = earlier.collect();
        let spawner = retiring::take(&mut children, SPAWNER);
        let known = (arriving.strangers, arriving.masters);
        let held = arriving.tally.held.clone();
        let programs = Programs::take_over(spawner, known, held, &current);
        Ok(Supervisor {
            config: config.to_owned(),
            signals,
            notify: Notify::from_environment(),
            current,
            phase: Phase::Serving {
                server: Server::of(server),
            },
            programs,
            keys: ManuallyDrop::into_inner(keys),
            // The set and its numbers are told with links of this supervisor's.
            linked: 0,
            authorities: Authorities::default(),
            recordings: Recordings::default(),
            directories: Directories::default(),
            row_users: UserLookups::default(),
            alerts: crate::alerts::AlertTelling::default(),
            base: arriving.base,
            wanted: Wanted::default(),
            back_off: BackOff::default(),
            tally: arriving.tally,
            reload_begun_us: 0,
            stored: Stored::default(),
            fresh: false,
            upgrade_begun_us: 0,
            upgrade: None,
            retiring: earlier.map_err(said)?.into_iter().flatten().collect(),
            leaving: retiring::LeavingChildren::of(recorder.into_iter().chain(directory)),
        })
    }

    /// The first acts in another program's place, or again in one's own.
    fn begin_anew(&mut self, is_new: bool) {
        error_log::set_level(self.current.level);
        self.programs.is_beside = !self.retiring.is_empty();
        if !is_new {
            let begun_us = self.tally.last_upgrade.begun_us;
            self.upgrade_begun_us = begun_us;
            let told = "error: the new program could not go on: see the error log\n";
            return self.refuse_upgrade(ReloadOutcome::Failed, told.to_owned());
        }
        self.take_charge_of_pools();
        for retiring in &self.retiring {
            // One that does not listen has ended, or ends when its time is up.
            let _ = retiring.server.send(&ToServer::Retire);
        }
        self.send_tally();
        self.current.loose.store(&mut self.stored);
        os::process::release_memory();
        let (generation, summary) = (self.current.number, self.current.summary());
        let version = env!("CARGO_PKG_VERSION");
        tracing::info!(
            generation,
            version,
            "ready: {summary}; the program is a new one"
        );
        self.notify.ready(&summary);
    }
}
