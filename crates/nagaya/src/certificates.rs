//! The certificates of a configuration, judged as the keeper would, by whoever types `check`.

use std::collections::HashSet;
use std::io::ErrorKind;

use config::model::{HostPattern, Model, Site};
use config::{Naming, Problem};
use ipc::certificates::Source;
use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use supervisor::certificates::plan::{Harm, Plan, Planned, Unread, ticket_secret};
use supervisor::certificates::validity_warning;

/// Threads that judge.
const THREADS_MAX: usize = 8;
/// Hosts without a certificate that are told one by one.
const TOLD_MAX: usize = 10;

/// What is to be said of certificates.
#[derive(Debug, Default)]
pub(crate) struct Report {
    /// What keeps the gateway from starting, or a site from answering.
    pub(crate) problems: Vec<Problem>,
    /// What does not.
    pub(crate) warnings: Vec<Problem>,
    /// What the certificates that clients are shown are good for.
    names: HashSet<String>,
    /// Whether some were not read.
    is_in_part: bool,
}

/// Reads and judges all of them, as of a day in this machine's time zone, or as of now.
pub(crate) fn judge(model: &Model, naming: &Naming<'_>, at: Option<Date>) -> Report {
    let Some(plan) = Plan::of(model) else {
        return Report::default();
    };
    let (files, problems, _) = plan.files();
    let mut report = Report::of(&files, naming, at);
    let unplaced = |message| Problem::at(None, message);
    report.problems.extend(problems.into_iter().map(unplaced));
    match ticket_secret(model) {
        Ok((_, exposed)) => report.warnings.extend(exposed.map(unplaced)),
        Err(why) => report.add_unread(why, unplaced),
    }
    report
        .warnings
        .extend(plan.missing().into_iter().map(unplaced));
    if !report.is_in_part && report.problems.is_empty() {
        report.warn_of_hosts(model);
    }
    report
}

/// What is wrong with those that are named, where the rest cannot be understood.
pub(crate) fn judge_named(naming: &Naming<'_>) -> Vec<Problem> {
    let mut seen = HashSet::new();
    let pairs = naming.certificates().filter(|pair| seen.insert(*pair));
    let files = pairs.map(|(chain, key)| Planned {
        source: Source::File(chain.display().to_string()),
        chain: chain.to_owned(),
        key: (key != chain).then(|| key.to_owned()),
        harm: Harm::Configuration,
        tenant: None,
    });
    let files: Vec<_> = files.collect();
    Report::of(&files, naming, None).problems
}

/// The hosts that clients are to be shown a certificate for, which nobody makes, each with whether
/// its site names one: those that listeners fall back to, and those of sites that name a
/// certificate, send clients to TLS or want theirs.
fn in_want(model: &Model) -> Vec<(&str, bool)> {
    let tls = model.listeners.iter().filter_map(|it| it.tls.as_ref());
    let defaults = tls.filter_map(|tls| tls.default.as_deref());
    let mut hosts: Vec<(&str, bool)> = defaults.map(|host| (host, false)).collect();
    if model.listeners.iter().all(|it| it.tls.is_none()) {
        return hosts;
    }
    let is_made = |site: &&Site| site.tls.local || site.tls.acme.is_some();
    let made = model.sites.iter().filter(is_made).flat_map(exact);
    let made: HashSet<&str> = made.collect();
    let has_default = model.sites.iter().any(|site| {
        (is_made(&site) || site.tls.files.is_some()) && site.hosts.contains(&HostPattern::Any)
    });
    let asks = |site: &&Site| {
        let tls = &site.tls;
        !has_default && (tls.redirect || tls.hsts_s.is_some() || tls.client.is_some())
    };
    let wants = |site: &&Site| !is_made(site) && (site.tls.files.is_some() || asks(site));
    for site in model.sites.iter().filter(wants) {
        hosts.extend(exact(site).map(|host| (host, site.tls.files.is_some())));
    }
    hosts.retain(|(host, names_one)| !made.contains(*host) && (*names_one || !has_default));
    hosts.sort_unstable();
    hosts.dedup();
    hosts
}

/// The hosts of a site that stand for themselves.
fn exact(site: &Site) -> impl Iterator<Item = &str> {
    site.hosts.iter().filter_map(|host| match host {
        HostPattern::Exact(name) => Some(name.as_str()),
        HostPattern::Below(_) | HostPattern::Any => None,
    })
}

impl Report {
    /// That of some, judged side by side.
    fn of(files: &[Planned], naming: &Naming<'_>, at: Option<Date>) -> Report {
        let day = at.and_then(|day| day.to_zoned(TimeZone::system()).ok());
        let at_s = day
            .map_or_else(Timestamp::now, |day| day.timestamp())
            .as_second();
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let share = files.len().div_ceil(threads.min(THREADS_MAX)).max(1);
        let parts = std::thread::scope(|scope| {
            let judges: Vec<_> = files
                .chunks(share)
                .map(|files| scope.spawn(move || Report::part(files, naming, at_s)))
                .collect();
            let judged = judges.into_iter().map(|judge| judge.join());
            judged.flatten().collect::<Vec<_>>()
        });
        let mut report = Report::default();
        for part in parts {
            report.problems.extend(part.problems);
            report.warnings.extend(part.warnings);
            report.names.extend(part.names);
            report.is_in_part |= part.is_in_part;
        }
        report
    }

    fn part(files: &[Planned], naming: &Naming<'_>, at_s: i64) -> Report {
        let mut report = Report::default();
        for planned in files {
            report.add(planned, naming, at_s);
        }
        report
    }

    fn warn(&mut self, message: String) {
        self.warnings.push(Problem::at(None, message));
    }

    /// Warns of hosts that no certificate is good for.
    fn warn_of_hosts(&mut self, model: &Model) {
        let is_covered = |host: &str| {
            let host = host.trim_matches(['[', ']']);
            let above = host.split_once('.').map(|(_, above)| format!("*.{above}"));
            self.names.contains(host) || above.is_some_and(|it| self.names.contains(&it))
        };
        let hosts = in_want(model).into_iter();
        let hosts: Vec<_> = hosts.filter(|(host, _)| !is_covered(host)).collect();
        for (host, names_one) in hosts.iter().take(TOLD_MAX) {
            let advice = match names_one {
                true => "the one that its site names has other names, and browsers refuse it",
                false => {
                    "clients that ask for it by https are refused; put one where `tls.certificates` looks, or give its site `acme`"
                }
            };
            self.warn(format!("no certificate is good for {host}: {advice}"));
        }
        if let more @ 1.. = hosts.len().saturating_sub(TOLD_MAX) {
            self.warn(format!("no certificate is good for {more} more hosts"));
        }
    }

    /// Adds that a file was not read. The service may read what the user of this command may not.
    fn add_unread(&mut self, why: Unread, placed: impl Fn(String) -> Problem) {
        match why.kind {
            ErrorKind::PermissionDenied => {
                let unread = format!("{}: it is not judged here; ask as root", why.problem);
                self.warnings.push(placed(unread));
            }
            _ => self.problems.push(placed(why.problem)),
        }
    }

    fn add(&mut self, planned: &Planned, naming: &Naming<'_>, at_s: i64) {
        let placed = |message: String| {
            let named = naming.place_of_certificate(&message);
            let pattern = || naming.place_of_pattern("certificates", &planned.chain);
            Problem::at(named.or_else(pattern), message)
        };
        let candidate = match planned.read() {
            Ok(candidate) => candidate,
            Err(why) if why.kind == ErrorKind::NotFound && planned.harm == Harm::Nobody => return,
            Err(why) => {
                self.is_in_part |= why.kind == ErrorKind::PermissionDenied;
                return self.add_unread(why, placed);
            }
        };
        match keeper::judge(&candidate) {
            Ok(pair) => {
                let valid_s = pair.not_before_s..=pair.not_after_s;
                let validity = validity_warning(&planned.source, valid_s, at_s);
                let warnings = validity.into_iter().chain(planned.exposed());
                self.warnings.extend(warnings.map(placed));
                if !matches!(planned.source, Source::Upstream(_)) {
                    self.names.extend(pair.names);
                }
            }
            Err(problem) => self.problems.push(placed(problem)),
        }
    }
}
