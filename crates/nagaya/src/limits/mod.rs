//! `nagaya limits …` and `nagaya why`: what limits hold now, what others would have done.
//!
//! `list`, `top`, `set` and `why` ask the running gateway, `set --keep` writes the overrides file as
//! well; `simulate` and `propose` ask an access
//! log, and run the gateway's own limits over it on a clock of their own.

mod history;
mod keep;
pub(crate) use recorder::line as log;
mod only;
mod propose;
mod simulate;
mod spec;

use std::io::IsTerminal;
use std::path::Path;

use clap::{Args, Subcommand};

use propose::ProposeOptions;
use simulate::SimulateOptions;

use crate::cli::without_configuration;
use crate::control::{self, Where};
use crate::outcome::{Outcome, complain};

/// Characters of a limit's name, of a change and of a request id that are sent on.
const WORD_BYTES_MAX: usize = 1_024;

/// What to do with limits.
#[derive(Debug, Subcommand)]
pub(crate) enum Limits {
    /// Every limit: in flight and waiting now, admitted and refused so far
    ///
    /// Each key of a limit by itself, such as this client or that file: nagaya limits top
    List(ListOptions),
    /// The busiest keys, again every second until Ctrl-C; once where it is no terminal
    Top(TopOptions),
    /// Change a limit of the running gateway at once; nobody under way is sent away
    ///
    /// `nagaya limits list` shows what limits are called. The change lasts until a reload brings
    /// another configuration of that limit, or, with --keep, until --forget: then it stands in the
    /// overrides file, which is read at start and at each reload.
    #[command(after_help = "\
Examples:
  nagaya limits set 'rule example.jp/php/file' concurrent=4 queue=10 wait=2s
  nagaya limits set 'rule example.jp/php/file' concurrent=4 --keep
  nagaya limits set 'rule example.jp/php/file' --forget
A limit is called by where it stands and its own name: 'site example.jp/file' for a site's limit by
file, 'rule example.jp/php/file' for one of its rule `php`. --keep wants a rule that has a name.
Keys: concurrent, queue, wait, rate, burst, mode (enforce or shadow)")]
    Set(SetOptions),
    /// Try limits on an access log: who would have waited or been refused
    #[command(after_help = SIMULATE_HELP, arg = without_configuration())]
    Simulate(SimulateOptions),
    /// Find for each site of an access log the smallest limit that would have refused nobody
    #[command(after_help = PROPOSE_HELP, arg = without_configuration())]
    Propose(ProposeOptions),
}

const SIMULATE_HELP: &str = "\
Examples:
  nagaya limits simulate --log access.log --limit 'file concurrent=2 queue=10' --only '*.php'
  nagaya limits simulate --log access.log --limit 'client rate=10/s burst=20'
Apache logs a duration with %D, nginx with $request_time, as the last field of the line.
Compressed logs: zcat access.log.*.gz | nagaya limits simulate --log - --limit …";

const PROPOSE_HELP: &str = "\
Examples:
  nagaya limits propose --log access.log --only '*.php'
  nagaya limits propose --log access.log --limit 'client queue=4 wait=5s'
What is printed goes into the configuration; a site with fewer than 100 requests has no line.
Apache logs a duration with %D, nginx with $request_time, as the last field of the line.
Compressed logs: zcat access.log.*.gz | nagaya limits propose --log -";

/// Options of `limits list`.
#[derive(Debug, Args)]
pub(crate) struct ListOptions {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) place: Where,
}

/// Options of `limits top`.
#[derive(Debug, Args)]
pub(crate) struct TopOptions {
    /// Keys shown
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    pub(crate) keys: u16,
    #[command(flatten)]
    pub(crate) place: Where,
}

/// Options of `limits set`.
#[derive(Debug, Args)]
pub(crate) struct SetOptions {
    /// The limit, as `nagaya limits list` names it
    #[arg(value_name = "LIMIT")]
    pub(crate) limit: String,
    /// What to change: concurrent=4 queue=10 wait=2s rate=10/s burst=20 mode=shadow
    #[arg(value_name = "KEY=VALUE", required_unless_present = "forget")]
    pub(crate) changes: Vec<String>,
    /// Write the change to the overrides file, too: it outlives reloads and restarts
    #[arg(long)]
    pub(crate) keep: bool,
    /// Make the limit what the configuration says, and remove it from the overrides file
    #[arg(long, conflicts_with_all = ["keep", "changes"])]
    pub(crate) forget: bool,
    #[command(flatten)]
    pub(crate) place: Where,
}

/// Options of `why`.
#[derive(Debug, Args)]
pub(crate) struct WhyOptions {
    /// What the reply carried as X-Request-Id
    #[arg(value_name = "REQUEST-ID", required_unless_present = "tls")]
    pub(crate) request_id: Option<String>,
    /// Say instead why TLS handshakes for this name, or of this client, came to nothing: of the last
    /// 4,096 that did
    #[arg(long, value_name = "NAME|ADDRESS", conflicts_with = "request_id")]
    pub(crate) tls: Option<String>,
    /// With --tls: print JSON
    #[arg(long, requires = "tls")]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) place: Where,
}

/// Runs `nagaya limits …`.
pub(crate) fn run(config: &Path, command: &Limits) -> Outcome {
    match command {
        Limits::List(options) => {
            let question = match options.json {
                true => "limits list json",
                false => "limits list",
            };
            control::show(config, &options.place, question)
        }
        Limits::Top(options) => top(config, options),
        Limits::Set(options) => set(config, options),
        Limits::Simulate(options) => simulate::simulate(options),
        Limits::Propose(options) => propose::propose(options),
    }
}

/// Runs `nagaya why`.
pub(crate) fn why(config: &Path, options: &WhyOptions) -> Outcome {
    if let Some(whose) = &options.tls {
        return why_tls(config, options, whose);
    }
    let id = options.request_id.as_deref().unwrap_or_default();
    match sound(id) {
        true => control::show(config, &options.place, &format!("why {id}")),
        false => {
            complain(
                "nagaya: a request id has no spaces: it is what the reply carried as X-Request-Id\n",
            );
            Outcome::Wrong
        }
    }
}

fn why_tls(config: &Path, options: &WhyOptions, whose: &str) -> Outcome {
    if !sound(whose) {
        complain("nagaya: a host's name or an address has no spaces\n");
        return Outcome::Wrong;
    }
    let form = if options.json { " json" } else { "" };
    let question = format!("why-tls {whose}{form}");
    control::show(config, &options.place, &question)
}

fn top(config: &Path, options: &TopOptions) -> Outcome {
    let question = format!("limits top {}", options.keys);
    match std::io::stdout().is_terminal() {
        true => control::watch(config, &options.place, &question),
        false => control::show(config, &options.place, &question),
    }
}

fn set(config: &Path, options: &SetOptions) -> Outcome {
    let odd = options
        .changes
        .iter()
        .find(|change| !change.contains('=') || !sound(change));
    if let Some(odd) = odd {
        complain(&format!(
            "nagaya: `{odd}` is no change: write KEY=VALUE, such as concurrent=4 or mode=shadow\n"
        ));
        return Outcome::Wrong;
    }
    // As it may have been copied from the table.
    let limit = options.limit.trim();
    if limit.len() > WORD_BYTES_MAX || limit.contains(['\n', '\t']) {
        complain("nagaya: no limit is called so: nagaya limits list shows their names\n");
        return Outcome::Wrong;
    }
    if options.forget {
        return keep::forget(config, &options.place, limit);
    }
    let pairs: Vec<(&str, &str)> = options
        .changes
        .iter()
        .filter_map(|change| change.split_once('='))
        .collect();
    if let Err(why) = config::overrides::check_changes(&pairs) {
        complain(&format!("nagaya: {why}\n"));
        return Outcome::Wrong;
    }
    if options.keep {
        return keep::keep(config, &options.place, limit, &pairs);
    }
    // A limit's name may have spaces; what follows it is known by its `=`.
    let question = format!("limits set {limit} {}", options.changes.join(" "));
    control::carry_out(config, &options.place, &question)
}

/// Whether a word can be sent as one.
fn sound(word: &str) -> bool {
    !word.is_empty() && word.len() <= WORD_BYTES_MAX && !word.contains(char::is_whitespace)
}
