//! `nagaya limits propose`: for each site of a log the smallest number that would have refused nobody.
//!
//! What is printed is a piece of a configuration: a line for each site, everything else a comment.

use std::fmt::Write;
use std::time::Duration;

use clap::Args;
use limits::{TenantDefinition, replay};
use report::units;

use super::history::{History, Part, Site};
use super::simulate::{Logs, heading, in_words};
use super::spec::Spec;
use crate::outcome::{Outcome, complain, print};

/// Sites that something is proposed for.
const SITES_MAX: usize = 50;
/// Requests below which nothing is proposed for a site.
const REQUESTS_LEAST: usize = 100;
/// What is sought unless something else is asked for.
const SOUGHT: &str = "file queue=10 wait=2s";
/// What is sought where the log does not tell files: to each site all of it is known.
const SOUGHT_WITHOUT_FILES: &str = "site queue=10 wait=2s";
/// Says why it is not the file.
const WITHOUT_FILES: &str = "\
# Of each site all requests count together, for the log does not tell files (json and ltsv of
# Nagaya's do). By path: --limit 'path queue=10 wait=2s'
";
/// Says where a line belongs, and how to begin.
const WHERETO: &str = "\
# Each line belongs to the [[sites]] it names, above its rules, or to a rule of that site. Where
# `limits` stands already, add what is between [ and ] to it.
# Try it in shadow first: it counts what it would refuse (nagaya limits list).
";

/// Options of `limits propose`.
#[derive(Debug, Args)]
pub(crate) struct ProposeOptions {
    #[command(flatten)]
    logs: Logs,
    /// Key, queue and wait of what is proposed; the number is found
    ///
    /// Unless it is said: 'file queue=10 wait=2s', or 'site queue=10 wait=2s' where the log does not
    /// tell files. Keys are file, path, client and site, or several: 'client,path'.
    #[arg(long = "limit", value_name = "LIMIT")]
    limit: Option<String>,
}

/// Runs `nagaya limits propose`.
pub(crate) fn propose(options: &ProposeOptions) -> Outcome {
    let (history, spec) = match sought(options) {
        Ok(found) => found,
        Err(outcome) => return outcome,
    };
    let sites = history.sites();
    let mut worth = sites.iter().filter(|site| site.requests >= REQUESTS_LEAST);
    let shown: Vec<&Site<'_>> = worth.by_ref().take(SITES_MAX).collect();
    if shown.is_empty() {
        complain(&format!(
            "nagaya: no site has {REQUESTS_LEAST} requests in the log: too few to propose anything\n"
        ));
        return Outcome::Failed;
    }
    let mut text: String = heading(&history, std::slice::from_ref(&spec))
        .lines()
        .map(|line| format!("# {line}\n"))
        .collect();
    if options.limit.is_none() && !history.tells_files() {
        text.push_str(WITHOUT_FILES);
    }
    text.push_str(WHERETO);
    let search = Search {
        history: &history,
        spec: &spec,
        tenants: history.tenants(),
    };
    for site in &shown {
        search.propose(&mut text, site);
    }
    let further = worth.count();
    silent(&mut text, further, sites.len() - shown.len() - further);
    print(text.as_bytes())
}

/// The log, and of what limit the number is sought.
fn sought(options: &ProposeOptions) -> Result<(History, Spec), Outcome> {
    let asked = options.limit.as_deref().map(Spec::sought).transpose()?;
    let history = options.logs.history()?;
    let spec = match asked {
        Some(spec) => spec,
        None if history.tells_files() => Spec::sought(SOUGHT)?,
        None => Spec::sought(SOUGHT_WITHOUT_FILES)?,
    };
    Ok((history, spec))
}

/// What numbers are sought in, and for what limit.
struct Search<'a> {
    history: &'a History,
    spec: &'a Spec,
    tenants: Vec<TenantDefinition>,
}

impl Search<'_> {
    /// Writes the line for a site, and what it rests on.
    fn propose(&self, text: &mut String, site: &Site<'_>) {
        let selected = self.history.selected(site.name);
        let partly = selected.as_ref().filter(|it| it.missed > 0);
        let part = Part::Site(site.name, partly.map(|it| it.subject));
        let definition = self.spec.definition();
        let arrivals = || self.history.arrivals(&self.spec.limit.key, part);
        let found = replay::thresholds(&definition, &self.tenants, arrivals);
        // Writing to memory does not fail, here and below.
        let _ = writeln!(
            text,
            "\n# {}: {} requests{}; {}",
            name(site),
            units::count(site.requests as u64),
            refused(site),
            in_words(found)
        );
        if let Some(partly) = partly {
            let (missed, subject) = (units::count(partly.missed), partly.subject.word());
            let _ = writeln!(
                text,
                "# {missed} of these match --only, but not by their {subject}: they are not counted here"
            );
        }
        let condition = selected.map_or(String::new(), |it| format!(", {}", it.condition));
        let _ = writeln!(
            text,
            "limits = [{{ key = {}{condition}, concurrent = {}, queue = {}, wait = {:?}{}, mode = \"shadow\" }}]",
            key(self.spec),
            found.without_refusals.unwrap_or(found.without_waits),
            definition.queue,
            spelled(definition.wait),
            definition.late.map_or(String::new(), |late| format!(
                ", late = {:?}",
                spelled(late)
            )),
        );
    }
}

fn spelled(duration: Duration) -> String {
    config::duration(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}

/// What a log says ends up in a configuration: a comment must not end early.
fn name(site: &Site<'_>) -> String {
    match site.name {
        "" => "the site of this log, which names no host".to_owned(),
        name => name.replace(char::is_control, " "),
    }
}

fn refused(site: &Site<'_>) -> String {
    match site.refused {
        0 => String::new(),
        count => format!(" ({} of them refused then)", units::count(count as u64)),
    }
}

fn key(spec: &Spec) -> String {
    let keys = spec.limit.key.iter().map(config::spell_key);
    let keys: Vec<String> = keys.map(config::quote).collect();
    match keys.as_slice() {
        [only] => only.clone(),
        several => format!("[{}]", several.join(", ")),
    }
}

/// Tells of sites that have no line.
fn silent(text: &mut String, further: usize, small: usize) {
    if further > 0 {
        let _ = writeln!(
            text,
            "\n# Sites with fewer requests than these, and no line: {further}"
        );
    }
    if small > 0 {
        let _ = writeln!(
            text,
            "\n# Sites with fewer than {REQUESTS_LEAST} requests, for which nothing is proposed: {small}"
        );
    }
}
