//! `nagaya recorder`: logs read into the figures of sites, sites forgotten, and the figures as pages;
//! `nagaya report`: what they say.
//!
//! The idea: figures lie in a directory that is named here, or else by the configuration, so that logs of
//! another machine, or from before, can be read on any machine.

mod serve;

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::{Args, Subcommand, ValueEnum};
use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use os::exec::Inherited;
use os::signal::{Signal, Signals};
use recorder::{
    FigureStore, Fold, ImportCounts, ImportError, ImportEvent, Importer, LogInput, LogReader,
    PartsWanted, RangeFigures, Reading, ReadingOptions, SaltPeriod, Salts, day_number,
    is_site_name, machine_zone, zone_of,
};
use report::{Document, Paint, harmless, terminal_width, units};

use crate::control::unreadable;
use crate::outcome::{Outcome, complain, print};
use serve::RecorderServe;
use supervisor::load::load_without_overrides;

/// How often progress is shown.
const PROGRESS_EVERY: Duration = Duration::from_secs(1);
/// Columns of a report that goes to a file.
const WIDTH: usize = 100;
/// Sites that are named where one is not known.
const SITES_NAMED: usize = 20;

/// What is done with figures.
#[derive(Debug, Subcommand)]
pub(crate) enum RecorderCommand {
    /// Read access logs: nagaya recorder import /var/log/apache2/access.log --site www.example.jp
    ///
    /// Apache's and nginx's combined, common and vhost_combined, Nagaya's json and ltsv, plain or packed by gzip; `-`
    /// is standard input. Each line is counted once: a log that was read before is read on where it was, under
    /// whatever name it has now. What comes through standard input cannot be known again. The exit status is 0 where
    /// all lines could be read, 1 where some could not, or nothing could be written, 2 for wrong use.
    Import(Box<RecorderImport>),
    /// Forget all figures of a site
    Forget(ForgetOptions),
    /// Look at the figures in a browser on this machine: nagaya recorder serve
    ///
    /// It serves the console until it is told to end, to this machine alone; with `--directory` no configuration is read.
    /// From elsewhere: `ssh -L 8617:127.0.0.1:8617 HOST`. Where a service records into the directory, its own console shows more.
    Serve(RecorderServe),
}

/// Options of `recorder import`.
#[derive(Debug, Args)]
pub(crate) struct RecorderImport {
    /// Logs, `-` for standard input
    #[arg(value_name = "LOG", required = true)]
    logs: Vec<PathBuf>,
    /// The site of all lines; left out: each line tells its own
    #[arg(long, value_name = "NAME")]
    site: Option<String>,
    /// Count lines of this host for that site
    #[arg(long, value_name = "HOST=SITE")]
    alias: Vec<String>,
    /// Go on reading what is appended to the log, also when it is rotated
    #[arg(long)]
    follow: bool,
    /// Leave out what comes from this network: your own
    #[arg(long, value_name = "NETWORK")]
    exclude: Vec<ipnet::IpNet>,
    /// Keys of queries that say what was searched for on the site; no other value of a query is kept, but for campaigns
    #[arg(long, value_name = "KEYS", value_delimiter = ',', default_values = ["q", "s", "query", "search"])]
    search: Vec<String>,
    /// Count referrers that contain a text under this name
    #[arg(long, value_name = "TEXT=NAME")]
    group: Vec<String>,
    /// Tell countries by this database (MMDB)
    #[arg(long, value_name = "FILE")]
    countries: Option<PathBuf>,
    /// How long a visitor is known as the same; said once, with the first log
    #[arg(long, value_enum, value_name = "PERIOD")]
    salt: Option<SaltWord>,
    /// Zone whose days are counted; said once, with the first log [default: this machine's]
    #[arg(long, value_name = "ZONE")]
    zone: Option<String>,
    #[command(flatten)]
    place: FiguresPlace,
}

/// Options of `recorder forget`.
#[derive(Debug, Args)]
pub(crate) struct ForgetOptions {
    /// The site
    #[arg(value_name = "SITE")]
    site: String,
    #[command(flatten)]
    place: FiguresPlace,
}

/// Options of `report`.
#[derive(Debug, Args)]
pub(crate) struct ReportOptions {
    /// The site
    #[arg(value_name = "SITE")]
    site: String,
    /// First day, such as 2026-11-01 [default: 27 days before the last]
    #[arg(long, value_name = "DATE")]
    from: Option<Date>,
    /// Last day [default: today]
    #[arg(long, value_name = "DATE")]
    to: Option<Date>,
    /// Rows of each list
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=2_000))]
    rows: u16,
    /// Write a page instead, with its charts in it: nagaya report SITE --html > report.html
    #[arg(long)]
    html: bool,
    #[command(flatten)]
    place: FiguresPlace,
}

/// Where figures are.
#[derive(Debug, Args)]
pub(crate) struct FiguresPlace {
    /// Directory of the figures [default: what the configuration has in `[recorder]`]
    #[arg(long, value_name = "DIRECTORY")]
    directory: Option<PathBuf>,
}

impl FiguresPlace {
    /// The directory that is named here, or by the configuration.
    pub(crate) fn find(&self, config: &Path) -> Result<PathBuf, CommandFailure> {
        if let Some(directory) = &self.directory {
            return Ok(directory.clone());
        }
        let otherwise = "or name the figures' directory with --directory DIRECTORY";
        let loaded = load_without_overrides(config);
        let loaded = loaded.map_err(|_| match config.exists() {
            true => wrong(format!(
                "{}: mend it, {otherwise}",
                unreadable(config, true)
            )),
            false => wrong(format!("{}, {otherwise}", unreadable(config, false))),
        })?;
        let recorder = loaded.model.recorder.ok_or_else(|| {
            let config = config.display();
            wrong(format!(
                "{config} has no `[recorder]`: name another configuration with -c FILE, {otherwise}"
            ))
        })?;
        Ok(recorder.directory)
    }
}

/// How long a salt holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum SaltWord {
    /// Within a day
    Day,
    /// Within a week
    Week,
    /// Within a month
    Month,
}

/// What is told the user, and how it ends.
type CommandEnd = Result<Outcome, CommandFailure>;
/// How it ends where nothing came of it, and why.
pub(crate) type CommandFailure = (Outcome, String);

/// Reads logs, forgets a site, or serves the console.
pub(crate) fn run(
    config: &Path,
    command: &RecorderCommand,
    inherited: Option<Inherited>,
) -> ExitCode {
    let ended = match command {
        RecorderCommand::Import(options) => ended(import(config, options)),
        RecorderCommand::Forget(options) => ended(forget(config, options)),
        RecorderCommand::Serve(options) => return serve::run(config, options, inherited),
    };
    ended.into()
}

/// Shows a report.
pub(crate) fn report(config: &Path, options: &ReportOptions) -> Outcome {
    ended(reported(config, options))
}

pub(crate) fn ended(ended: CommandEnd) -> Outcome {
    ended.unwrap_or_else(|(outcome, why)| {
        complain(&format!("nagaya: {why}\n"));
        outcome
    })
}

pub(crate) fn failed(why: impl ToString) -> CommandFailure {
    (Outcome::Failed, why.to_string())
}

fn wrong(why: impl ToString) -> CommandFailure {
    (Outcome::Wrong, why.to_string())
}

pub(crate) fn now_us() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
    })
}

fn import(config: &Path, options: &RecorderImport) -> CommandEnd {
    let standard = |log: &&PathBuf| log.as_path() == Path::new("-");
    if options.logs.iter().filter(standard).count() > 1 {
        return Err(wrong("standard input can be read once: give `-` once"));
    }
    if options.follow && options.logs.len() > 1 {
        let help = "read the older logs first, then follow the newest";
        return Err(wrong(format!("one log can be followed: {help}")));
    }
    let reading = match options.follow {
        true => Reading::Following,
        false => Reading::Once,
    };
    listen()?;
    let directory = options.place.find(config)?;
    let mut importer = importer(&directory, options)?;
    let mut shown = Shown::default();
    let mut was_unread = false;
    for log in oldest_first(&options.logs) {
        let input = match log == Path::new("-") {
            true => Ok(LogInput::standard()),
            false => LogInput::open(log),
        };
        let input = input.map_err(|why| ImportError::Log(log.clone(), why));
        let read = input
            .and_then(|input| importer.read(input, reading, &mut |event| shown.tell(log, &event)));
        shown.clear();
        match read {
            Ok(()) if importer.has_to_end() => {
                was_unread |= !options.follow;
                break;
            }
            Ok(()) => {}
            Err(why) if is_of_log(&why) => {
                was_unread = true;
                complain(&format!("nagaya: {why}\n"));
            }
            Err(why) => {
                // The next import goes on where this one wrote.
                complain(&format!("nagaya: {why}\n"));
                return importer.end().map_err(failed).map(|_| Outcome::Failed);
            }
        }
    }
    let (counts, not_recorded) = importer.end().map_err(failed)?;
    let text = summary(&counts, not_recorded);
    let outcome = print(text.as_bytes());
    match outcome {
        Outcome::Fine if was_unread || counts.unread > 0 => Ok(Outcome::Failed),
        outcome => Ok(outcome),
    }
}

/// Whether it is one log that cannot be read, and others can.
fn is_of_log(why: &ImportError) -> bool {
    match why {
        ImportError::Log(..) => true,
        ImportError::Store(error) => error.is_raced(),
        ImportError::Salt(_) => false,
    }
}

/// What tells the process to end.
static SIGNALS: OnceLock<Signals> = OnceLock::new();

/// Listens for signals, from now on.
fn listen() -> Result<(), CommandFailure> {
    let signals = Signals::listen().map_err(|why| failed(config::reason(&why)))?;
    let _ = SIGNALS.set(signals);
    Ok(())
}

/// Whether a signal has come that ends the process.
fn is_to_end() -> bool {
    let ends = [
        Signal::Terminate,
        Signal::Interrupt,
        Signal::Hangup,
        Signal::Quit,
    ];
    let come = SIGNALS.get().and_then(|signals| signals.next().ok()?);
    come.is_some_and(|signal| ends.contains(&signal))
}

/// Logs by the time they were last written to, so that visits are read as they went; standard input
/// is of now.
fn oldest_first(logs: &[PathBuf]) -> Vec<&PathBuf> {
    let mut logs: Vec<_> = logs.iter().collect();
    let changed = |log: &PathBuf| log.metadata().and_then(|it| it.modified()).ok();
    logs.sort_by_cached_key(|log| (changed(log).is_none(), changed(log)));
    logs
}

fn importer(directory: &Path, options: &RecorderImport) -> Result<Importer, CommandFailure> {
    let reading = reading_options(options)?;
    let groups = pairs("group", &options.group)?;
    let now_s = u64::try_from(now_us() / 1_000_000).unwrap_or(0);
    let (mut store, aside) = FigureStore::open(directory, now_s).map_err(failed)?;
    if let Some(aside) = aside {
        complain(&format!(
            "nagaya: the figures were broken and are set aside as {}; new ones begin\n",
            aside.display()
        ));
    }
    let word = options.salt.and_then(|it| it.to_possible_value());
    let word = word.as_ref().map(|it| it.get_name());
    let salt = settled(&mut store, "salt", word, || "day".into())?;
    let salt = SaltPeriod::of_word(&salt).unwrap_or_default();
    let zone = settled(&mut store, "zone", options.zone.as_deref(), machine_zone)?;
    let zone = zone_named(&zone).map_err(wrong)?;
    let mut fold = Fold::new(zone, groups);
    let today = fold.day_of(now_us());
    let salts = Salts::open(directory, salt, today, random);
    let salts = salts.map_err(|why| {
        let why = config::reason(&why);
        failed(format!("read the salt in {}: {why}", directory.display()))
    })?;
    let secret = random().map_err(|why| failed(config::reason(&why)))?;
    let mut reader = LogReader::new(reading, salts, secret);
    if let Some(file) = &options.countries {
        let read = reader.with_countries(file);
        reader = read.map_err(|why| wrong(format!("read {}: {why}", file.display())))?;
    }
    let site = options.site.as_deref().unwrap_or_default();
    Importer::new(fold, store, reader, site, now_us, is_to_end).map_err(failed)
}

fn reading_options(options: &RecorderImport) -> Result<ReadingOptions, CommandFailure> {
    let named = options.site.as_ref().map(|site| site.to_ascii_lowercase());
    let aliases = pairs("alias", &options.alias)?;
    let sites = named.iter().chain(aliases.iter().map(|(_, site)| site));
    if let Some(site) = sites.clone().find(|site| !is_site_name(site)) {
        return Err(wrong(format!(
            "`{site}` is no name of a site: give one such as www.example.jp"
        )));
    }
    let lower = |text: String| text.to_ascii_lowercase();
    let aliases = aliases.clone().into_iter();
    Ok(ReadingOptions {
        site: named.clone(),
        aliases: aliases
            .map(|(host, site)| (lower(host), lower(site)))
            .collect(),
        own: options.exclude.clone(),
        searches: options.search.clone(),
    })
}

/// `A=B` as pairs.
fn pairs(option: &str, words: &[String]) -> Result<Vec<(String, String)>, CommandFailure> {
    let pair = |word: &String| match word.split_once('=') {
        Some((one, other)) if !one.is_empty() && !other.is_empty() => {
            Ok((one.to_owned(), other.to_owned()))
        }
        _ => Err(wrong(format!(
            "--{option} wants two words joined by `=`, not `{word}`"
        ))),
    };
    words.iter().map(pair).collect()
}

/// What holds for all figures of a directory: said once, and then only again.
fn settled(
    store: &mut FigureStore,
    name: &str,
    said: Option<&str>,
    otherwise: impl Fn() -> String,
) -> Result<String, CommandFailure> {
    let known = store.setting(name).map_err(failed)?;
    match (known, said) {
        (Some(known), Some(said)) if known != said => Err(wrong(format!(
            "the figures were begun with --{name} {known}: leave --{name} out, or begin others (--directory)"
        ))),
        (Some(known), _) => Ok(known),
        (None, said) => {
            let value = said.map_or_else(otherwise, str::to_owned);
            if name == "zone" {
                zone_named(&value).map_err(wrong)?;
            }
            store.set_setting(name, &value).map_err(failed)?;
            Ok(value)
        }
    }
}

fn zone_named(name: &str) -> Result<TimeZone, String> {
    TimeZone::get(name)
        .map_err(|_| format!("`{name}` is no time zone: give one such as Asia/Tokyo"))
}

fn random() -> std::io::Result<[u8; 16]> {
    let mut bytes = [0; 16];
    os::random::fill(&mut bytes)?;
    Ok(bytes)
}

fn summary(counts: &ImportCounts, not_recorded: u64) -> String {
    let count = units::count;
    let mut text = format!(
        "{} lines read, {} counted\n",
        count(counts.lines),
        count(counts.taken)
    );
    let mut add = |number: u64, what: &str| {
        if number > 0 {
            text.push_str(&format!("  {} {what}\n", count(number)));
        }
    };
    add(counts.own, "of your own networks, left out");
    add(counts.no_site, "for none of the server's sites, left out");
    add(
        not_recorded,
        "of sites beyond the 20,000 that are kept, left out",
    );
    if counts.known_bytes > 0 {
        let bytes = units::bytes(counts.known_bytes as f64);
        text.push_str(&format!("  {bytes} had been read before\n"));
    }
    if counts.begun_bytes > 0 {
        text.push_str("  the last line has not ended: it is read next time\n");
    }
    if let Some((line, why)) = counts.first_unread {
        text.push_str(&format!(
            "  {} could not be read, the first being line {}: {why}\n",
            count(counts.unread),
            count(line)
        ));
    }
    text
}

/// What was shown of progress, and when.
#[derive(Debug, Default)]
struct Shown {
    at: Option<Instant>,
    began: Option<Instant>,
    has_line: bool,
}

impl Shown {
    fn tell(&mut self, log: &Path, event: &ImportEvent<'_>) {
        match event {
            ImportEvent::Progress(counts) => self.progress(log, counts),
            ImportEvent::SetAside(aside) => {
                self.clear();
                complain(&format!(
                    "nagaya: the figures are broken and set aside as {}; new ones begin\n",
                    aside.display()
                ));
            }
            ImportEvent::Full(error) => {
                self.clear();
                complain(&format!("nagaya: {error}; reading waits for it\n"));
            }
        }
    }

    fn progress(&mut self, log: &Path, counts: &ImportCounts) {
        let now = Instant::now();
        let began = *self.began.get_or_insert(now);
        let is_time = self
            .at
            .is_none_or(|at| now.duration_since(at) >= PROGRESS_EVERY);
        if !is_time || !std::io::stderr().is_terminal() {
            return;
        }
        self.at = Some(now);
        self.has_line = true;
        let seconds = now.duration_since(began).as_secs_f64().max(0.001);
        let mut stderr = std::io::stderr().lock();
        // Nobody is left to hear of it when that fails.
        let _ = write!(
            stderr,
            "\r\x1b[K{}: {} lines, {}, {}",
            harmless(&log.display().to_string()),
            units::count(counts.lines),
            units::bytes(counts.bytes as f64),
            units::per_second(counts.lines as f64 / seconds)
        );
        let _ = stderr.flush();
    }

    fn clear(&mut self) {
        if std::mem::take(&mut self.has_line) {
            complain("\r\x1b[K");
        }
    }
}

fn forget(config: &Path, options: &ForgetOptions) -> CommandEnd {
    let mut store = FigureStore::open_existing(&options.place.find(config)?).map_err(failed)?;
    let site = options.site.to_ascii_lowercase();
    match store.forget(&site).map_err(failed)? {
        true if store.is_sent_elsewhere() => Ok(print(forgotten_here(&site).as_bytes())),
        true => Ok(print(format!("{site} is forgotten\n").as_bytes())),
        false => Err(unknown_site(&store, &site)),
    }
}

/// What is said where figures were sent elsewhere as well. The name is one that figures had, so it is a host's.
fn forgotten_here(site: &str) -> String {
    let names = ["requests", "errors", "p99"].map(|what| format!("'site.{site}.{what}'"));
    let names = names.join(", ");
    let of_limits = |column: &str| {
        let of = ["site", "rule"].map(|level| format!("strpos({column}, '{level} {site}/') > 0"));
        of.join(" OR ")
    };
    format!(
        "{site} is forgotten on this machine. What was sent stands in the database of `[recorder] send` until you delete it there:\n\
        DELETE FROM nagaya_sites WHERE site = '{site}';\n\
        DELETE FROM nagaya_samples WHERE name IN ({names}) OR {};\n\
        DELETE FROM nagaya_incidents WHERE strpos(content, '\"{site}\"') > 0 OR {};\n",
        of_limits("name"),
        of_limits("what || '/'"),
    )
}

fn unknown_site(store: &FigureStore, site: &str) -> CommandFailure {
    let sites = match store.sites() {
        Ok(sites) => sites,
        Err(error) => return failed(error),
    };
    let mut named = sites
        .iter()
        .take(SITES_NAMED)
        .map(String::as_str)
        .collect::<Vec<_>>()
        .join(", ");
    if sites.len() > SITES_NAMED {
        named.push_str(&format!(" and {} more", sites.len() - SITES_NAMED));
    }
    let known = match sites.is_empty() {
        true => "there are none as yet (a recorder writes what it hears every five seconds; `nagaya recorder import` reads logs)".to_owned(),
        false => format!("there are {named}"),
    };
    wrong(format!("there are no figures of `{site}`: {known}"))
}

fn reported(config: &Path, options: &ReportOptions) -> CommandEnd {
    let mut store = FigureStore::open_existing(&options.place.find(config)?).map_err(failed)?;
    let site = options.site.to_ascii_lowercase();
    if !store.sites().map_err(failed)?.contains(&site) {
        return Err(unknown_site(&store, &site));
    }
    let zone = zone_of(&mut store).map_err(failed)?;
    let salt = store.setting("salt").map_err(failed)?;
    let salt = salt
        .and_then(|word| SaltPeriod::of_word(&word))
        .unwrap_or_default();
    let today = Timestamp::now().to_zoned(zone).date();
    let to = day_number(options.to.unwrap_or(today));
    let from = options.from.map_or(to.saturating_sub(27), day_number);
    if from > to {
        return Err(wrong(match options.to {
            Some(_) => "--from is behind --to: give the earlier day as --from",
            None => "--from is behind today, which --to is where it is not said",
        }));
    }
    let range =
        RangeFigures::read(&store, &site, (from, to), salt, PartsWanted::ALL).map_err(failed)?;
    let document = recorder::document(&site, &range, salt, options.rows.into());
    Ok(print(printed(&document, options.html).as_bytes()))
}

/// A report as a page, or as text for where it goes.
pub(crate) fn printed(document: &Document, is_page: bool) -> String {
    if is_page {
        return document.to_html();
    }
    let shows_colours = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let paint = if shows_colours {
        Paint::Colours
    } else {
        Paint::Never
    };
    document.to_text(terminal_width().unwrap_or(WIDTH), paint)
}
