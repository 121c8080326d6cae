//! `nagaya limits simulate`: what limits would have done to the requests of a log.

use std::fmt::Write;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use config::model::LimitKey;
use limits::replay::{self, KeyReport, Report, Thresholds};
use report::units;

use super::history::{History, Part};
use super::only::Only;
use super::spec::{KEYS, Spec};
use crate::outcome::{Outcome, complain, print};

/// Keys shown of each limit.
const KEYS_SHOWN: usize = 20;
/// What a column of the table means.
const WANTED: &str =
    "wanted: requests of this key that would have been under way at once without the limit";
/// Characters of a key.
const KEY_WIDTH: usize = 44;

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

/// Runs `nagaya limits simulate`.
pub(crate) fn simulate(options: &SimulateOptions) -> Outcome {
    let specs: Result<Vec<Spec>, Outcome> =
        options.limit.iter().map(|text| Spec::read(text)).collect();
    let specs = match specs {
        Ok(specs) => specs,
        Err(outcome) => return outcome,
    };
    let read = options.logs.history();
    let history = match read.and_then(|history| judge(&history, &specs).map(|()| history)) {
        Ok(history) => history,
        Err(outcome) => return outcome,
    };
    let mut text = heading(&history, &specs);
    for spec in &specs {
        let (definition, tenants) = (spec.definition(), history.tenants());
        let arrivals = || history.arrivals(&spec.limit.key, Part::All);
        let report = replay::run(&definition, &tenants, arrivals(), |_| {});
        let thresholds = definition
            .concurrent
            .map(|_| replay::thresholds(&definition, &tenants, arrivals));
        told(&mut text, spec, &report, thresholds);
    }
    print(text.as_bytes())
}

impl Logs {
    /// Reads them; when there is nothing to go by, that has been told.
    pub(super) fn history(&self) -> Result<History, Outcome> {
        let only = self.only.as_deref().map(Only::read).transpose()?;
        let history = History::read(&self.log, only)?;
        if history.len() > 0 {
            return Ok(history);
        }
        let why = match (history.in_vain(), history.doubts().into_iter().next()) {
            (Some(in_vain), None) => in_vain,
            (Some(in_vain), Some(doubt)) => format!("{in_vain}\n  {doubt}"),
            (None, Some(doubt)) => format!("not one request was found in the log: {doubt}"),
            (None, None) => "not one request was found in the log".to_owned(),
        };
        complain(&format!("nagaya: {why}\n"));
        Err(Outcome::Failed)
    }
}

/// Says so where a limit counts what the log does not tell.
fn judge(history: &History, specs: &[Spec]) -> Result<(), Outcome> {
    let by_upstream = |spec: &&Spec| spec.limit.key.contains(&LimitKey::Upstream);
    match specs.iter().find(by_upstream) {
        Some(spec) if !history.tells_upstreams() => {
            complain(&format!(
                "nagaya: --limit '{}': this log tells no upstreams: json and ltsv of Nagaya's do\n  \
                 other keys are {KEYS}\n",
                spec.text
            ));
            Err(Outcome::Wrong)
        }
        _ => Ok(()),
    }
}

/// What the log holds, and what is to be known of it.
pub(super) fn heading(history: &History, specs: &[Spec]) -> String {
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
pub(super) fn in_words(found: Thresholds) -> String {
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
