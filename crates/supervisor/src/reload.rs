//! A generation as the supervisor has it: read, checked, bound and opened, before it serves.
//!
//! The idea: everything that can fail happens in [`Generation::prepare`], beside the generation
//! that serves. What comes out is whole; what fails leaves nothing behind.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use config::model::{LogLevel, Model};
use config::{Diagnostics, LastGood, Naming, Place, Problem, Sources, reason};
use ipc::keeper::Settings;
use ipc::manifest::Manifest;
use ipc::server::{Challenge, Configure, ReloadOutcome, SOURCES_BYTES_MAX, Tally, ToServer};
use os::cgroup::Base;

use crate::acme::Wishes;
use crate::certificates::plan::{Plan, ticket_secret};
use crate::certificates::{Certificates, Lacking};
use crate::directory::{DirectoryWish, written_tenants};
use crate::keeper::Keys;
use crate::listeners::{Control, Listeners};
use crate::load::{Loaded, apart, load_beside, load_to_start};
use crate::logs::Logs;
use crate::loose::LooseFiles;
use crate::manifest;
use crate::pools::places::Places;
use crate::recorder::RecorderWish;
use crate::surroundings;

/// How many keys of tickets are still taken beside the current one.
const TICKETS_BEFORE: u8 = 2;
/// How long processes of pools may serve, mostly, that were started before the generation in force.
const EARLIER_MAX: Duration = Duration::from_secs(60);
/// The authority for development, beside the configuration.
const AUTHORITY: &str = "nagaya-development.pem";

/// A generation, ready to be given to a server, to one server after the other if need be.
#[derive(Debug)]
pub(super) struct Generation {
    /// Its number, from 1.
    pub(super) number: u64,
    /// Its listening sockets.
    pub(super) listeners: Listeners,
    /// Its logs.
    pub(super) logs: Logs,
    /// Where its pools live.
    pub(super) places: Places,
    /// What the server becomes when the supervisor is root.
    pub(super) user: String,
    /// How long a drain may take.
    pub(super) drain: Duration,
    /// How long its `init` and `worker_init` scripts may take.
    pub(super) scripts: Duration,
    /// Least severe level of the error log.
    pub(super) level: LogLevel,
    /// What the spawner is told of it.
    pub(super) manifest: Manifest,
    /// The server's workers.
    pub(super) workers: usize,
    sites: usize,
    /// Its files that may be set aside.
    pub(super) loose: LooseFiles,
    /// What is said of limits that the overrides file changed when it was read.
    changed: Option<String>,
    /// What it wants of authorities.
    pub(super) wishes: Arc<Wishes>,
    /// What it wants recorded.
    pub(super) recorder: Option<RecorderWish>,
    /// Its directories.
    pub(super) directories: Option<DirectoryWish>,
    /// The tenants that their rows may not name; none where there are no directories.
    pub(super) written_tenants: Vec<String>,
    /// Its certificates; `None` where no listener speaks TLS.
    pub(super) certificates: Option<Certificates>,
    /// By what its keeper works; `None` where none is wanted.
    pub(super) keeping: Option<Settings>,
    /// Its control socket.
    pub(super) control: Option<Rc<Control>>,
    limits_overrides: PathBuf,
    /// What was read there.
    overrides: Sources,
    /// All that was read.
    pub(super) sources: OwnedFd,
    /// All that was read for the one in force before, where that may have had pools, and when this became the next.
    pub(super) earlier: Option<(OwnedFd, Instant)>,
}

/// What is there already when a generation is prepared, and what may not change.
#[derive(Debug)]
pub(super) struct Before<'a> {
    /// Listening sockets.
    pub(super) listeners: &'a Listeners,
    /// Open logs.
    pub(super) logs: &'a Logs,
    /// Where pools live.
    pub(super) places: &'a Places,
    /// The control socket.
    pub(super) control: &'a [Rc<Control>],
    /// Certificates that were judged.
    pub(super) certificates: Option<&'a Certificates>,
    /// Last good versions of files.
    pub(super) last_good: &'a LastGood,
    /// The server's workers.
    pub(super) workers: usize,
    /// What the server becomes.
    pub(super) user: &'a str,
}

/// Why a configuration does not become a generation.
#[derive(Debug)]
pub enum Refused {
    /// It is wrong.
    Config(Diagnostics),
    /// It is right, but the machine does not let us.
    System(Vec<String>),
}

impl Generation {
    /// Reads the configuration and takes from the machine what it asks for, beyond what
    /// `before` has already.
    pub(super) fn prepare(
        config: &Path,
        number: u64,
        before: Option<&Before<'_>>,
        means: (&mut Base, &mut Keys),
    ) -> Result<Generation, Refused> {
        let last_good = before.map(|before| before.last_good);
        let loaded = apart(|| match last_good {
            Some(last_good) => load_beside(config, last_good),
            None => load_first(config),
        });
        let loaded = loaded.map_err(|error| Refused::by_system("start a thread", &error))?;
        let loaded = loaded.map_err(Refused::Config)?;
        let loose = LooseFiles::of(&loaded);
        let (sources, model) = (loaded.sources, loaded.model);
        for warning in loaded.warnings.problems() {
            let (place, other, help) = fields(warning);
            tracing::warn!(place, other, help, "{}", warning.message);
        }
        for warning in surroundings::warnings(&model) {
            tracing::warn!("{warning}");
        }
        check_changes(&model, before).map_err(Refused::System)?;
        Generation::take((config, sources, model, loose), number, before, means)
    }

    /// Takes from the machine what a configuration asks for, beyond what `before` has already.
    pub(super) fn take(
        (config, sources, model, loose): (&Path, Sources, Model, LooseFiles),
        number: u64,
        before: Option<&Before<'_>>,
        (base, keys): (&mut Base, &mut Keys),
    ) -> Result<Generation, Refused> {
        let mut problems = Vec::new();
        let known = before.map(|before| before.listeners);
        let listeners = Listeners::bind(&model.listeners, model.workers, known);
        let listeners = or_default(listeners, &mut problems);
        let known = before.map_or(&[][..], |before| before.control);
        let control = model
            .control
            .as_ref()
            .map(|control| Control::bind(&control.socket, known));
        let control = control.transpose().map_err(|problem| vec![problem]);
        let control = or_default(control, &mut problems);
        let manifest = or_default(manifest::of(&model, number, base), &mut problems);
        let places = Places::make(&model, before.map(|before| before.places));
        let places = or_default(places, &mut problems);
        let known = before.and_then(|before| before.certificates);
        let plan = Plan::of(&model);
        let keeping = plan.as_ref().map(|_| keeping(&model)).transpose();
        let keeping = or_default(keeping, &mut problems);
        let planned = plan.zip(keeping.clone());
        let certificates = certificates(planned, (&model.user, config), known, keys);
        let certificates = certificates.map_err(|problems| placed(&sources, problems));
        let certificates = or_default(certificates, &mut problems);
        let logs = Logs::open(&model, before.map(|before| before.logs));
        let overrides = sources.overrides_alone();
        let changed = config::overrides::told(&model);
        let scripts = model.scripts_start_max();
        let wishes = Arc::new(Wishes::of(&model));
        let recorder = RecorderWish::of(&model);
        let directories = DirectoryWish::of(&model);
        let written_tenants = directories.as_ref().map(|_| written_tenants(&model));
        let sources = keep(&sources);
        let sources =
            sources.map_err(|error| format!("keep the configuration: {}", reason(&error)));
        match (logs, sources) {
            (Ok(logs), Ok(sources)) if problems.is_empty() => Ok(Generation {
                number,
                listeners,
                logs,
                places,
                user: model.user,
                drain: Duration::from_millis(model.timeouts.drain_ms),
                scripts,
                level: model.log.level,
                manifest,
                workers: model.workers,
                sites: model.sites.len(),
                loose,
                changed,
                wishes,
                recorder,
                directories,
                written_tenants: written_tenants.unwrap_or_default(),
                certificates,
                keeping,
                control,
                limits_overrides: model.limits_overrides,
                overrides,
                sources,
                earlier: None,
            }),
            (logs, sources) => {
                problems.extend(logs.err().unwrap_or_default());
                problems.extend(sources.err());
                Err(Refused::System(problems))
            }
        }
    }

    /// What the next one finds there.
    pub(super) fn as_before(&self) -> Before<'_> {
        Before {
            listeners: &self.listeners,
            logs: &self.logs,
            places: &self.places,
            control: self.control.as_slice(),
            certificates: self.certificates.as_ref(),
            last_good: &self.loose.last_good,
            workers: self.workers,
            user: &self.user,
        }
    }

    /// The message that makes a server this generation's; `programs` are its links to the spawner,
    /// `keeper` those to the keeper: none where it has them, as are `challenges`.
    pub(super) fn configure(
        &self,
        tally: Tally,
        (programs, keeper): (Vec<OwnedFd>, Vec<OwnedFd>),
        challenges: Vec<Challenge>,
    ) -> io::Result<ToServer> {
        Ok(ToServer::Configure(Configure {
            generation: self.number,
            sources: self.sources.try_clone()?,
            listeners: self.listeners.for_server()?,
            logs: self.logs.for_server()?,
            control: self
                .control
                .as_ref()
                .map(|control| control.for_server())
                .transpose()?,
            programs,
            keeper,
            certificates: self
                .certificates
                .as_ref()
                .map(Certificates::set)
                .transpose()?,
            earlier: self.earlier_of_late()?,
            challenges,
            layout: self.manifest.layout.clone(),
            tally,
        }))
    }

    /// What was read for the one before, while processes of pools may know nothing else.
    fn earlier_of_late(&self) -> io::Result<Option<OwnedFd>> {
        let earlier = self.earlier.as_ref();
        let earlier = earlier.filter(|(_, since)| since.elapsed() < EARLIER_MAX);
        earlier.map(|(sources, _)| sources.try_clone()).transpose()
    }

    /// Whether the overrides file is another than the one that was read.
    pub(super) fn has_newer_overrides(&self) -> bool {
        let mut overrides = self.overrides.clone();
        overrides.read_overrides_again(&self.limits_overrides)
    }

    /// Takes in changes of limits that were kept since the configuration was read, for a server
    /// that takes the place of one that was lost.
    pub(super) fn renew_overrides(&mut self) {
        match self.with_overrides_of_now() {
            Ok(None) => {}
            Ok(Some((overrides, sources))) => {
                self.overrides = overrides;
                self.sources = sources;
            }
            Err(problem) => {
                let file = self.limits_overrides.display().to_string();
                tracing::error!(
                    file,
                    "what was kept of limits is not read again, what was known of it holds: {problem}"
                );
            }
        }
    }

    /// The sources with the overrides file of now; `None` where that is the one they have.
    fn with_overrides_of_now(&self) -> Result<Option<(Sources, OwnedFd)>, String> {
        let said = |error: io::Error| reason(&error);
        let bytes = os::file::read_whole(self.sources.as_fd(), SOURCES_BYTES_MAX).map_err(said)?;
        let mut sources = Sources::from_bytes(&bytes).map_err(|error| error.to_string())?;
        if !sources.read_overrides_again(&self.limits_overrides) {
            return Ok(None);
        }
        config::load(&sources).map_err(|problems| problems.to_string())?;
        let kept = keep(&sources).map_err(said)?;
        Ok(Some((sources.overrides_alone(), kept)))
    }

    /// What the line for people goes on with where the overrides file changed limits when the
    /// configuration was read.
    pub(super) fn changed(&self) -> String {
        let changed = self.changed.as_ref();
        changed.map_or(String::new(), |changed| format!("; {changed}"))
    }

    /// What is said to whoever asked for it: a line, and what he has to know; `held` are limits of
    /// groups that wait.
    pub(super) fn told(&self, held: &[String]) -> String {
        let (summary, changed) = (self.summary(), self.changed());
        let held = held.iter().map(|limit| format!("warning: {limit}\n"));
        let held: String = held.collect();
        format!("{summary}{changed}\n{}{held}", self.loose.told)
    }

    /// A line for people.
    pub(super) fn summary(&self) -> String {
        let sites = if self.sites == 1 {
            "1 site".into()
        } else {
            format!("{} sites", self.sites)
        };
        let aside = match self.loose.files_set_aside {
            0 => String::new(),
            1 => "; 1 broken file is set aside".to_owned(),
            more => format!("; {more} broken files are set aside"),
        };
        let broken = match self.certificates.as_ref().map_or(0, Certificates::broken) {
            0 => String::new(),
            1 => "; 1 certificate is broken: nagaya check tells why".to_owned(),
            more => format!("; {more} certificates are broken: nagaya check tells why"),
        };
        format!(
            "generation {} serves {sites} with {} workers{aside}{broken}",
            self.number, self.workers
        )
    }
}

impl Refused {
    /// One thing that the machine does not let us do.
    pub(super) fn by_system(what: &str, error: &io::Error) -> Refused {
        Refused::System(vec![format!("{what}: {}", reason(error))])
    }

    /// Writes every problem to the error log, a line each.
    pub(super) fn log(&self) {
        match self {
            Refused::System(problems) => {
                for problem in problems {
                    tracing::error!("{problem}");
                }
            }
            Refused::Config(problems) => log_problems(problems),
        }
    }

    /// How it is said to whoever asked for a reload.
    pub(super) fn outcome(&self) -> ReloadOutcome {
        match self {
            Refused::System(_) => ReloadOutcome::Failed,
            Refused::Config(_) => ReloadOutcome::Wrong,
        }
    }

    /// Every problem, as text for people.
    pub(super) fn told(&self) -> String {
        match self {
            Refused::System(problems) => {
                let lines = problems.iter().map(|problem| format!("error: {problem}\n"));
                lines.collect()
            }
            Refused::Config(problems) => problems.to_string(),
        }
    }
}

/// Writes problems to the error log, a line each.
pub(super) fn log_problems(problems: &Diagnostics) {
    for problem in problems.problems() {
        let (place, other, help) = fields(problem);
        tracing::error!(place, other, help, "{}", problem.message);
    }
}

/// What there is; nothing where there are problems instead, which are added to the others.
fn or_default<T: Default>(had: Result<T, Vec<String>>, problems: &mut Vec<String>) -> T {
    had.unwrap_or_else(|found| {
        problems.extend(found);
        T::default()
    })
}

/// By what a configuration's keeper works.
fn keeping(model: &Model) -> Result<Settings, Vec<String>> {
    let (ticket_secret, exposed) = ticket_secret(model).map_err(|why| vec![why.problem])?;
    if let Some(exposed) = exposed {
        tracing::warn!("{exposed}");
    }
    Ok(Settings {
        tickets_rotate_s: model.tls.tickets_ms / 1_000,
        tickets_before: TICKETS_BEFORE,
        ticket_secret,
    })
}

/// The certificates of a configuration, judged by a keeper that is started for them.
fn certificates(
    planned: Option<(Plan, Settings)>,
    (user, config): (&str, &Path),
    known: Option<&Certificates>,
    keys: &mut Keys,
) -> Result<Option<Certificates>, Vec<String>> {
    let Some((plan, settings)) = planned else {
        return Ok(None);
    };
    let started = keys.start(user).and_then(|()| keys.set(settings));
    started.map_err(|problem| vec![problem])?;
    let directory = config.parent().unwrap_or(Path::new("."));
    let authority = directory.join(AUTHORITY);
    let prepared = Certificates::prepare(plan, authority, known, keys);
    prepared.map(Some).map_err(Lacking::into_problems)
}

/// Problems of files of certificates, each behind the place that names its file.
fn placed(sources: &Sources, problems: Vec<String>) -> Vec<String> {
    let naming = Naming::of(sources);
    let placed = problems
        .into_iter()
        .map(|problem| match naming.place_of_certificate(&problem) {
            Some(place) => format!("{}: {problem}", shown(&place)),
            None => problem,
        });
    placed.collect()
}

/// Puts sources where a server can read them.
fn keep(sources: &Sources) -> io::Result<OwnedFd> {
    os::file::memfd("nagaya configuration", &sources.to_bytes())
}

/// Reads the first configuration. A broken overrides file shall not keep everybody out: what it
/// says is missed until it is mended, what the configuration says holds.
fn load_first(config: &Path) -> Result<Loaded, Diagnostics> {
    let (loaded, broken) = load_to_start(config)?;
    if let Some(broken) = broken {
        let file = loaded.model.limits_overrides.display().to_string();
        Refused::Config(broken).log();
        tracing::error!(
            file,
            "limits start as configured, without what was kept of changes: mend the file (nagaya check), then reload"
        );
    }
    Ok(loaded)
}

/// A problem's places and what to do about it, for the log.
fn fields(problem: &Problem) -> (Option<String>, Option<String>, Option<&str>) {
    let place = problem.place.as_ref().map(shown);
    let other = problem.other.as_ref();
    let other = other.map(|(part, at)| format!("{part}: {}", shown(at)));
    (place, other, problem.help.as_deref())
}

fn shown(at: &Place) -> String {
    format!("{}:{}:{}", at.file, at.line, at.column)
}

/// Refuses what only a new supervisor can change.
fn check_changes(model: &Model, before: Option<&Before<'_>>) -> Result<(), Vec<String>> {
    let Some(before) = before else {
        return Ok(());
    };
    let mut problems = Vec::new();
    if model.workers != before.workers {
        let (now, wanted) = (before.workers, model.workers);
        problems.push(format!(
            "workers cannot change from {now} to {wanted} by a reload: restart"
        ));
    }
    if model.user != before.user {
        let (now, wanted) = (before.user, &model.user);
        problems.push(format!(
            "user cannot change from {now} to {wanted} by a reload: restart"
        ));
    }
    if problems.is_empty() {
        Ok(())
    } else {
        Err(problems)
    }
}
