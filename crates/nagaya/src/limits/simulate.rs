//! `nagaya limits simulate` and `propose`: what limits would have done to the requests of a log.

use std::fmt::Write;
use std::path::PathBuf;
use std::time::Duration;

use bench::report::units;
use clap::Args;
use config::model::LimitKey;
use engine::glob::Matcher;
use limits::Definition;
use limits::replay::{self, KeyReport, Report, Thresholds};

use super::history::History;
use super::spec::Spec;
use crate::outcome::{Outcome, complain, print};

/// Keys shown of each limit.
const KEYS_SHOWN: usize = 20;
/// Sites that something is proposed for.
const SITES_MAX: usize = 50;
/// Requests below which nothing is proposed for a site.
const REQUESTS_LEAST: usize = 100;
/// What a column of the table means.
const WANTED: &str =
    "wanted: requests of this key that would have been under way at once without the limit";
/// Characters of a key.
const KEY_WIDTH: usize = 44;
/// What is sought unless something else is asked for.
const SOUGHT: &str = "file queue=10 wait=2s";
/// Says why it is not the file.
const WITHOUT_FILES: &str = "\
# Of each site all requests count together, for the log does not tell files (json and ltsv of
# Nagaya's do). By path: --limit 'path queue=10 wait=2s'
";
/// What is sought where the log does not tell files: to each site all of it is known.
const SOUGHT_WITHOUT_FILES: &str = "site queue=10 wait=2s";

/// Where requests come from.
#[derive(Debug, Args)]
pub(crate) struct Logs {
    /// Access log: json or ltsv of Nagaya's, or Apache's or nginx's with a duration; `-` is standard input
    #[arg(long = "log", value_name = "FILE", required = true)]
    log: Vec<PathBuf>,
    /// Only requests whose path, or file where the log tells it, matches, such as '*.php'
    #[arg(long, value_name = "GLOB")]
    only: Option<String>,
}

/// Options of `limits simulate`.
#[derive(Debug, Args)]
pub(crate) struct SimulateOptions {
    #[command(flatten)]
    logs: Logs,
    /// A limit, such as 'file concurrent=2 queue=10 wait=2s'; each one is tried alone
    #[arg(long = "limit", value_name = "LIMIT", required = true)]
    limit: Vec<String>,
}

/// Options of `limits propose`.
#[derive(Debug, Args)]
pub(crate) struct ProposeOptions {
    #[command(flatten)]
    logs: Logs,
    /// Key, queue and wait of what is proposed; the number is found
    ///
    /// Unless it is said: 'file queue=10 wait=2s', or 'site queue=10 wait=2s' where the log does not
    /// tell files.
    #[arg(long = "limit", value_name = "LIMIT")]
    limit: Option<String>,
}

/// Runs `nagaya limits simulate`.
pub(crate) fn simulate(options: &SimulateOptions) -> Outcome {
    let specs: Result<Vec<Spec>, Outcome> =
        options.limit.iter().map(|text| Spec::read(text)).collect();
    let specs = match specs {
        Ok(specs) => specs,
        Err(outcome) => return outcome,
    };
    let history = match history(&options.logs) {
        Ok(history) => history,
        Err(outcome) => return outcome,
    };
    let mut text = heading(&history, &specs);
    for spec in &specs {
        let (definition, tenants) = (spec.definition(), history.tenants());
        let arrivals = || history.arrivals(&spec.limit.key, None);
        let report = replay::run(&definition, &tenants, arrivals(), |_| {});
        let thresholds = definition
            .concurrent
            .map(|_| replay::thresholds(&definition, &tenants, arrivals));
        told(&mut text, spec, &report, thresholds);
    }
    print(text.as_bytes())
}

/// Runs `nagaya limits propose`.
pub(crate) fn propose(options: &ProposeOptions) -> Outcome {
    let (history, spec) = match sought(options) {
        Ok(found) => found,
        Err(outcome) => return outcome,
    };
    let (definition, tenants) = (spec.definition(), history.tenants());
    let mut text: String = heading(&history, std::slice::from_ref(&spec))
        .lines()
        .map(|line| format!("# {line}\n"))
        .collect();
    if options.limit.is_none() && !history.tells_files() {
        text.push_str(WITHOUT_FILES);
    }
    text.push_str(
        "# Try it in shadow first: it counts what it would refuse (nagaya limits list).\n",
    );
    let sites = history.sites();
    let worth = sites.iter().filter(|(_, count)| *count >= REQUESTS_LEAST);
    for (site, count) in worth.take(SITES_MAX) {
        let arrivals = || history.arrivals(&spec.limit.key, Some(site));
        let found = replay::thresholds(&definition, &tenants, arrivals);
        proposal(&mut text, (site, *count), &spec, &definition, found);
    }
    if sites.iter().all(|(_, count)| *count < REQUESTS_LEAST) {
        complain(&format!(
            "nagaya: no site has {REQUESTS_LEAST} requests in the log: too few to propose anything\n"
        ));
        return Outcome::Failed;
    }
    print(text.as_bytes())
}

/// The log, and of what limit the number is sought.
fn sought(options: &ProposeOptions) -> Result<(History, Spec), Outcome> {
    let asked = options.limit.as_deref().map(Spec::sought).transpose()?;
    let history = history(&options.logs)?;
    let spec = match asked {
        Some(spec) => spec,
        None if history.tells_files() => Spec::sought(SOUGHT)?,
        None => Spec::sought(SOUGHT_WITHOUT_FILES)?,
    };
    Ok((history, spec))
}

fn history(logs: &Logs) -> Result<History, Outcome> {
    let only = match logs.only.as_deref().map(Matcher::new).transpose() {
        Ok(only) => only,
        Err(error) => {
            complain(&format!("nagaya: --only: {error}\n"));
            return Err(Outcome::Wrong);
        }
    };
    let history = History::read(&logs.log, only.as_ref())?;
    if history.len() > 0 {
        return Ok(history);
    }
    let why = history.doubts().into_iter().next();
    complain(&format!(
        "nagaya: not one request was found in the log{}\n",
        why.map_or(String::new(), |why| format!(": {why}"))
    ));
    Err(Outcome::Failed)
}

fn heading(history: &History, specs: &[Spec]) -> String {
    let mut text = format!(
        "{} requests, {}\n",
        units::count(history.len() as u64),
        history.span()
    );
    let by_file = |spec: &Spec| spec.limit.key.contains(&LimitKey::File);
    let of_files = history.doubt_of_files();
    let of_files = of_files.filter(|_| specs.iter().any(by_file));
    for doubt in history.doubts().into_iter().chain(of_files) {
        let _ = writeln!(text, "({doubt})");
    }
    text
}

fn told(text: &mut String, spec: &Spec, report: &Report, thresholds: Option<Thresholds>) {
    let total = &report.total;
    let at_once = total.admitted - total.waited.min(total.admitted);
    let _ = writeln!(
        text,
        "\nlimit {}\n  {} at once · {} after a wait{} · {} refused{}",
        spec.text,
        units::count(at_once),
        units::count(total.waited),
        waits(total),
        units::count(total.refused_total()),
        reasons(total),
    );
    let eventful = |key: &&KeyReport| key.waited > 0 || key.refused_total() > 0;
    let shown: Vec<&KeyReport> = report
        .keys
        .iter()
        .filter(eventful)
        .take(KEYS_SHOWN)
        .collect();
    if !shown.is_empty() {
        let _ = writeln!(
            text,
            "\n  {:KEY_WIDTH$} {:>10} {:>7} {:>8} {:>9} {:>9}",
            "key", "requests", "wanted", "waited", "p99 wait", "refused"
        );
    }
    for key in &shown {
        let _ = writeln!(
            text,
            "  {:KEY_WIDTH$} {:>10} {:>7} {:>8} {:>9} {:>9}",
            shortened(&key.key),
            units::count(key.admitted + key.refused_total()),
            key.wanted,
            units::count(key.waited),
            duration(key.wait_p99),
            units::count(key.refused_total()),
        );
    }
    let eventful = report.keys.iter().filter(eventful).count();
    if eventful > shown.len() {
        let _ = writeln!(text, "  … and {} more keys", eventful - shown.len());
    }
    if !shown.is_empty() {
        let _ = writeln!(text, "  {WANTED}");
    }
    if let Some(found) = thresholds {
        let _ = writeln!(text, "\n  {}", in_words(found));
    }
}

/// `wanted` is how many a key would have had under way at once without a limit.
fn in_words(found: Thresholds) -> String {
    let waits = found.without_waits;
    match found.without_refusals {
        Some(refusals) => format!(
            "nobody would have been refused with concurrent = {refusals}, and nobody would have waited with {waits}"
        ),
        None => format!(
            "nobody would have waited with concurrent = {waits}; somebody is refused with any number, for there are more keys than are told apart"
        ),
    }
}

fn proposal(
    text: &mut String,
    (site, count): (&str, usize),
    spec: &Spec,
    definition: &Definition,
    found: Thresholds,
) {
    let name = if site.is_empty() {
        "(no host in the log)"
    } else {
        site
    };
    let concurrent = found.without_refusals.unwrap_or(found.without_waits);
    let keys = spec.limit.key.iter().map(config::spell_key);
    let keys: Vec<String> = keys.map(|key| format!("{key:?}")).collect();
    let key = match keys.as_slice() {
        [only] => only.clone(),
        several => format!("[{}]", several.join(", ")),
    };
    let _ = writeln!(
        text,
        "\n# {name}: {} requests; {}\nlimits = [{{ key = {key}, concurrent = {concurrent}, queue = {}, wait = {:?}, mode = \"shadow\" }}]",
        units::count(count as u64),
        in_words(found),
        definition.queue,
        config::duration(u64::try_from(definition.wait.as_millis()).unwrap_or(u64::MAX)),
    );
}

fn waits(total: &KeyReport) -> String {
    match total.waited {
        0 => String::new(),
        _ => format!(
            " (half of them about {}, 99 % no more than about {}, the longest {})",
            duration(total.wait_p50),
            duration(total.wait_p99),
            duration(total.wait_max)
        ),
    }
}

fn reasons(total: &KeyReport) -> String {
    let told: Vec<String> = total
        .refused
        .iter()
        .map(|(why, count)| format!("{} {}", units::count(*count), why.word()))
        .collect();
    match told.is_empty() {
        true => String::new(),
        false => format!(" ({})", told.join(", ")),
    }
}

/// The end of a key tells more than its beginning.
fn shortened(key: &str) -> String {
    let shown: String = key.replace('\u{fffd}', " ");
    let count = shown.chars().count();
    match count > KEY_WIDTH {
        true => format!(
            "…{}",
            shown
                .chars()
                .skip(count + 1 - KEY_WIDTH)
                .collect::<String>()
        ),
        false => shown,
    }
}

fn duration(time: Duration) -> String {
    match time.as_micros() {
        0 => units::NONE.to_owned(),
        us => units::micros(us as f64),
    }
}
