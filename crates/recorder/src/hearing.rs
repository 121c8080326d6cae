//! What the recorder hears of the server: a thread of its own.
//!
//! The idea: it waits for nobody. Figures and what went wrong go where the loop that reads the rings finds them,
//! and what people at the console ask goes to who draws pages ([`crate::respondent`]); so whoever looks at
//! whatever page, figures are of now, and so are alerts.

use std::collections::HashSet;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, TryRecvError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use config::reason;
use ipc::console::{HeldPlace, INCIDENT_REQUESTS_MAX, Incident, Incoming, TenantSites, ToConsole};
use ipc::limit_figures::{LIMIT_FIGURES, LimitCount};
use ipc::recorder::AlertRule;

use crate::alert::AlertStanding;
use crate::day::cut;
use crate::history::{Detail, History, Sample, Sums};
use crate::respondent::{ConsoleMailbox, Respondent};
use crate::store::{KeptIncident, Tier};

/// How often the thread looks whether there is another link.
const LOOK: Duration = Duration::from_millis(200);
/// Messages that are taken before it looks again whether there is another link.
const MESSAGES_MAX: usize = 1_024;
/// Figures of tenants that are followed: those of the busiest 64 or so.
const TENANT_FIGURES_MAX: usize = 384;
/// Counts of limits that one message may have.
const LIMIT_FIGURES_MAX: usize = 1_000;
/// Keys of limits that a day tells apart; what others come to is one.
const LIMIT_KEYS_MAX: usize = 2_000;
const OTHER_KEYS: &str = "(other)";
/// Incidents that wait for the disk, those of a minute, and holders of places that are kept of each.
const INCIDENTS_MAX: usize = 1_000;
const MINUTE_INCIDENTS_MAX: u32 = 600;
const HELD_MAX: usize = 20;
/// An incident may be so much older than now, or ahead of the clock.
const INCIDENT_AGE_S: i64 = 300;
/// Minutes that wait for the disk.
const MINUTES_MAX: usize = 100_000;

/// What all threads know.
#[derive(Debug, Default)]
pub struct Heard {
    /// Held for a message's figures, or while they are looked at.
    figures: Mutex<HeardFigures>,
    /// Figures that somebody wants to be told of: these are followed whosever they are.
    watched: HashSet<Box<str>>,
}

#[derive(Debug, Default)]
struct HeardFigures {
    history: History,
    /// What is not on disk of minutes that are over.
    minutes: Vec<Sample>,
    /// The day under way, and the figures of limits' keys that it has.
    keys: (i64, HashSet<Box<str>>),
    /// What went wrong and is not on disk.
    incidents: Vec<KeptIncident>,
    /// The minute under way, and how often something went wrong in it.
    of_minute: (i64, u32),
    /// How it stands with what somebody wants to be told of.
    alerts: Vec<AlertStanding>,
    /// Whose sites there are.
    owners: Arc<[TenantSites]>,
    /// Why nothing can be sent elsewhere; empty where it can.
    unsent: String,
}

impl Heard {
    /// Hears nothing yet, and follows what these rules are about.
    pub(crate) fn watching(rules: &[AlertRule]) -> Heard {
        Heard {
            watched: rules
                .iter()
                .map(|rule| rule.figure.as_str().into())
                .collect(),
            ..Heard::default()
        }
    }

    /// Takes a figure.
    pub(crate) fn note(&self, at_s: i64, name: &str, value: f64, detail: Detail) {
        self.figures().take(at_s, name, Sums::of(value), detail);
    }

    /// Holds what a figure was in a second.
    pub(crate) fn hold(&self, at_s: i64, name: &str, value: f64) {
        self.figures().history.hold(at_s, name, value);
    }

    /// What a figure was in the seconds of the last hour, where these are held.
    pub(crate) fn seconds(&self, name: &str) -> Vec<(i64, f64)> {
        self.look(|history| history.seconds(name).collect())
    }

    /// Looks at what figures were.
    pub(crate) fn look<T>(&self, look: impl FnOnce(&History) -> T) -> T {
        look(&self.figures().history)
    }

    /// What is to be written.
    pub(crate) fn fresh(&self, now_s: i64) -> Vec<Sample> {
        let mut figures = self.figures();
        let mut fresh = std::mem::take(&mut figures.minutes);
        fresh.append(&mut figures.history.fresh(now_s));
        fresh
    }

    /// Takes back what could not be written, as far as there is room.
    pub(crate) fn keep(&self, mut samples: Vec<Sample>) {
        samples.truncate(MINUTES_MAX);
        let mut figures = self.figures();
        samples.append(&mut figures.minutes);
        figures.minutes = samples;
    }

    /// What went wrong, to be written.
    pub(crate) fn incidents(&self) -> Vec<KeptIncident> {
        std::mem::take(&mut self.figures().incidents)
    }

    /// Takes back what could not be written, as far as there is room.
    pub(crate) fn keep_incidents(&self, mut incidents: Vec<KeptIncident>) {
        let mut figures = self.figures();
        incidents.append(&mut figures.incidents);
        incidents.truncate(INCIDENTS_MAX);
        figures.incidents = incidents;
    }

    /// Takes what went wrong, with what sensors said until then; not what comes in one minute without end.
    fn take_incident(&self, mut incident: Incident, now_s: i64) {
        bound(&mut incident, now_s);
        let mut figures = self.figures();
        let (minute, count) = figures.of_minute;
        let now = now_s.div_euclid(60);
        let count = if minute == now {
            count.saturating_add(1)
        } else {
            1
        };
        figures.of_minute = (now, count);
        if count == MINUTE_INCIDENTS_MAX + 1 {
            let most = MINUTE_INCIDENTS_MAX;
            tracing::warn!(most, "more goes wrong than is kept of a minute");
        }
        if count <= MINUTE_INCIDENTS_MAX && figures.incidents.len() < INCIDENTS_MAX {
            let from_s = incident.at_s.saturating_sub(60);
            let sensors = figures.history.sums_since(from_s);
            figures.incidents.push(KeptIncident::new(incident, sensors));
        }
    }

    /// Shows how it stands with alerts.
    pub(crate) fn show_alerts(&self, alerts: Vec<AlertStanding>) {
        self.figures().alerts = alerts;
    }

    /// How it stands with alerts.
    pub(crate) fn alerts(&self) -> Vec<AlertStanding> {
        self.figures().alerts.clone()
    }

    /// Shows why nothing can be sent elsewhere.
    pub(crate) fn show_unsent(&self, why: &str) {
        why.clone_into(&mut self.figures().unsent);
    }

    /// Why nothing can be sent elsewhere; empty where it can.
    pub(crate) fn unsent(&self) -> String {
        self.figures().unsent.clone()
    }

    /// Whose sites there are, as the server last said.
    pub(crate) fn owners(&self) -> Arc<[TenantSites]> {
        Arc::clone(&self.figures().owners)
    }

    fn figures(&self) -> MutexGuard<'_, HeardFigures> {
        self.figures.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes what the server says there is, for so many looks: of tenants those that come first.
    fn take(&self, at_s: i64, looks: f64, values: &[(String, f64)]) {
        let mut figures = self.figures();
        let (mut of_tenants, mut of_limits) = (0, 0);
        for (name, value) in values {
            let sums = Sums::over(*value, looks);
            if name.starts_with(LIMIT_FIGURES) {
                of_limits += 1;
                if of_limits <= LIMIT_FIGURES_MAX {
                    figures.take_of_limit(at_s, name, sums);
                }
                continue;
            }
            let is_tenants = name.starts_with("tenant.");
            of_tenants += usize::from(is_tenants);
            let is_watched = self.watched.contains(name.as_str());
            if of_tenants <= TENANT_FIGURES_MAX || !is_tenants || is_watched {
                let detail = match name.contains('.') && !is_watched {
                    true => Detail::Minutes,
                    false => Detail::Seconds,
                };
                figures.take(at_s, name, sums, detail);
            }
        }
    }
}

/// Bounds what the server says of an incident. Holders beyond those that are kept are one without a name.
fn bound(incident: &mut Incident, now_s: i64) {
    let may_be = now_s.saturating_sub(INCIDENT_AGE_S)..=now_s.saturating_add(INCIDENT_AGE_S);
    incident.at_s = incident.at_s.clamp(*may_be.start(), *may_be.end());
    let beyond = incident.held.len().min(HELD_MAX);
    let others = incident.held.split_off(beyond).into_iter();
    let others = others.reduce(|one, other| HeldPlace {
        in_flight: one.in_flight.saturating_add(other.in_flight),
        queued: one.queued.saturating_add(other.queued),
        ..one
    });
    let nameless = |it: HeldPlace| HeldPlace {
        limit: String::new(),
        key: String::new(),
        ..it
    };
    incident.held.extend(others.map(nameless));
    incident.requests.truncate(INCIDENT_REQUESTS_MAX);
    let held = incident.held.iter_mut();
    let held = held.flat_map(|it| [&mut it.limit, &mut it.key]);
    let requests = incident.requests.iter_mut();
    let requests = requests.flat_map(|it| [&mut it.site, &mut it.path]);
    let texts = held.chain(requests);
    for text in texts.chain([&mut incident.what, &mut incident.why]) {
        *text = cut(text).to_owned();
    }
}

impl HeardFigures {
    /// Takes a count of a limit; one of a key that the day has no room for counts for all of these.
    fn take_of_limit(&mut self, at_s: i64, name: &str, sums: Sums) {
        let Some((limit, count)) = LimitCount::of_name(name) else {
            return;
        };
        let (day_s, keys) = &mut self.keys;
        if *day_s != Tier::Day.begin(at_s) {
            (*day_s, *keys) = (Tier::Day.begin(at_s), HashSet::new());
        }
        let is_key = matches!(count, LimitCount::Key(_));
        if is_key && !keys.contains(name) && keys.len() >= LIMIT_KEYS_MAX {
            let others = LimitCount::Key(OTHER_KEYS).name(limit);
            return self.take(at_s, &others, sums, Detail::Minutes);
        }
        if is_key {
            keys.insert(name.into());
        }
        self.take(at_s, name, sums, Detail::Minutes);
    }

    fn take(&mut self, at_s: i64, name: &str, sums: Sums, detail: Detail) {
        let over = self.history.take(at_s, name, sums, detail);
        if self.minutes.len() < MINUTES_MAX {
            self.minutes.extend(over);
        }
    }
}

/// The threads that hear and answer, from outside; they end with this.
#[derive(Debug)]
pub(crate) struct Hearing {
    links: Option<Sender<OwnedFd>>,
    mailbox: Arc<ConsoleMailbox>,
    threads: Vec<JoinHandle<()>>,
}

impl Hearing {
    /// Answers of the figures in this directory, without a link yet.
    pub(crate) fn start(directory: PathBuf, heard: Arc<Heard>) -> io::Result<Hearing> {
        let (links, received) = mpsc::channel();
        let mailbox = Arc::<ConsoleMailbox>::default();
        let mut hearing = Hearing {
            links: Some(links),
            mailbox: Arc::clone(&mailbox),
            threads: Vec::new(),
        };
        let respondent = Respondent::new(directory, Arc::clone(&heard), Arc::clone(&mailbox));
        let thread = std::thread::Builder::new().name("console".to_owned());
        hearing.threads.push(thread.spawn(|| respondent.run())?);
        let thread = std::thread::Builder::new().name("hearing".to_owned());
        let body = move || run(&received, &heard, &mailbox);
        hearing.threads.push(thread.spawn(body)?);
        Ok(hearing)
    }

    /// Hears this server from now on.
    pub(crate) fn use_link(&self, link: OwnedFd) {
        if let Some(links) = &self.links {
            // A thread that has ended is noticed elsewhere.
            let _ = links.send(link);
        }
    }

    /// Asks the archive over this link from now on.
    pub(crate) fn use_archive(&self, link: OwnedFd) {
        self.mailbox.use_archive(link);
    }

    /// Whether one of them has ended, which none does by itself.
    pub(crate) fn has_ended(&self) -> bool {
        self.threads.iter().any(JoinHandle::is_finished)
    }
}

impl Drop for Hearing {
    fn drop(&mut self) {
        drop(self.links.take());
        self.mailbox.end();
        for thread in self.threads.drain(..) {
            // One that panicked has ended, too.
            let _ = thread.join();
        }
    }
}

fn run(links: &Receiver<OwnedFd>, heard: &Heard, mailbox: &ConsoleMailbox) {
    let mut link: Option<ServerLink> = None;
    loop {
        let next = match link {
            Some(_) => links.try_recv(),
            None => links.recv_timeout(LOOK).map_err(|error| match error {
                RecvTimeoutError::Timeout => TryRecvError::Empty,
                RecvTimeoutError::Disconnected => TryRecvError::Disconnected,
            }),
        };
        match next {
            Ok(next) => link = Some(ServerLink::new(next, mailbox)),
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => return,
        }
        if let Some(open) = &mut link
            && let Err(error) = open.hear(heard, mailbox)
        {
            // The supervisor says of a server that has ended.
            if error.kind() == io::ErrorKind::InvalidData {
                let error = reason(&error);
                tracing::error!(
                    error,
                    "the server is heard no more until it is started again"
                );
            }
            mailbox.use_link(Weak::new());
            link = None;
        }
    }
}

/// The link to a server. It is open for as long as this holds it; who answers has it weakly.
#[derive(Debug)]
struct ServerLink {
    link: Arc<OwnedFd>,
    incoming: Incoming<ToConsole>,
}

impl ServerLink {
    fn new(link: OwnedFd, mailbox: &ConsoleMailbox) -> ServerLink {
        let link = Arc::new(link);
        mailbox.use_link(Arc::downgrade(&link));
        ServerLink {
            link,
            incoming: Incoming::default(),
        }
    }

    /// Hears what is said within a while.
    fn hear(&mut self, heard: &Heard, mailbox: &ConsoleMailbox) -> io::Result<()> {
        let link = self.link.as_fd();
        os::net::wait_readable(&[link], Some(LOOK))?;
        for _ in 0..MESSAGES_MAX {
            match self.incoming.receive(link)? {
                Some(ToConsole::Figures {
                    at_s,
                    looks,
                    values,
                }) => heard.take(at_s, looks, &values),
                Some(ToConsole::Tenants(owners)) => heard.figures().owners = owners.into(),
                Some(ToConsole::Question(question)) => mailbox.ask(question),
                Some(ToConsole::Live(live)) => mailbox.show(live),
                Some(ToConsole::Incident(incident)) => heard.take_incident(incident, now_s()),
                None => break,
            }
        }
        Ok(())
    }
}

fn now_s() -> i64 {
    jiff::Timestamp::now().as_second()
}

#[cfg(test)]
mod tests;
