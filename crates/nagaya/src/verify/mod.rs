//! `nagaya import verify`: whether a new server answers as the old one does, by what people asked.
//!
//! The idea: a log's questions are asked of both servers, twice of the old one, and once more of both
//! where they differ; what is left is told in groups, each with its count, an example and the line of
//! the new configuration that answered. Only GET and HEAD are asked, without what may do something
//! ([`effects`]), one after the other and no faster than allowed, and no more once the old server
//! suffers. Not here: cookies and passwords, which logs do not have; more fields may be given.

mod causes;
mod compare;
mod effects;
mod fetch;

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use config::{Naming, reason};
use supervisor::load::load;

use crate::limits::log::{LINE_BYTES_MAX, read_asked, unpacker};
use crate::outcome::{Outcome, complain, print};
use causes::{Cause, Groups, Records};
use compare::{Aspect, Difference, Noise};
use fetch::{ComparedServer, Question, Reply, fetch};

/// Bytes of questions that are kept.
const QUESTION_BYTES_MAX: usize = 256 * 1024 * 1024;
/// Lines above a rule that are told of it.
const MADE_OF_MAX: usize = 4;
/// Lines of a log that are read.
const LINES_MAX: u64 = 10_000_000;
/// Times of the old server that are compared: so many at first with the last as many.
const TIMES: usize = 100;
/// What is no suffering however fast it was before.
const FAST: Duration = Duration::from_millis(50);
/// Replies of either server in a row that may fail.
const FAILURES_MAX: u32 = 20;
/// How often progress is shown.
const PROGRESS: Duration = Duration::from_millis(500);

/// Options of `import verify`.
#[derive(Debug, Args)]
pub(crate) struct VerifyOptions {
    /// Access log whose requests are asked again; - reads standard input. Repeatable
    #[arg(long = "log", value_name = "FILE", required_unless_present = "list")]
    logs: Vec<PathBuf>,
    /// The server that is to be replaced, such as 127.0.0.1:8081, or https://127.0.0.1:8443
    #[arg(long, value_name = "HOST:PORT", required_unless_present = "list")]
    old: Option<String>,
    /// The one that is to replace it
    #[arg(long, value_name = "HOST:PORT", required_unless_present = "list")]
    new: Option<String>,
    /// The host of requests whose log does not tell it (Apache's and nginx's `combined` do not)
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
    /// Questions a second; each is asked three to five times
    #[arg(long, value_name = "N", default_value = "20", value_parser = rate)]
    rate: f64,
    /// Different questions that are asked at most
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    requests: u32,
    /// Ask questions of this class, too, although they may do something; repeatable (see --list)
    #[arg(long, value_name = "CLASS", value_delimiter = ',', value_parser = clap::builder::PossibleValuesParser::new(effects::EFFECTS.iter().map(|it| it.name)))]
    allow: Vec<String>,
    /// A field to send with each question: 'Cookie: session=…', 'X-Forwarded-Proto: https'. Repeatable
    #[arg(long = "header", value_name = "FIELD", value_parser = field_line)]
    headers: Vec<String>,
    /// A field that may differ: X-Varnish. Repeatable
    #[arg(long, value_name = "NAME")]
    ignore: Vec<String>,
    /// The new server's access log (format = "json"), by which the rule behind a difference is told
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Print which requests are left out, and why
    #[arg(long)]
    list: bool,
}

impl VerifyOptions {
    fn ignores(&self, what: &Aspect) -> bool {
        let mut names = self.ignore.iter();
        matches!(what, Aspect::Field(field) if names.any(|it| it.eq_ignore_ascii_case(field)))
    }
}

fn rate(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix("/s").unwrap_or(text);
    let rate: f64 = number
        .parse()
        .map_err(|_| "it is no number, such as 50/s")?;
    let is_meant = (0.01..=10_000.0).contains(&rate);
    is_meant
        .then_some(rate)
        .ok_or_else(|| "it is not from 0.01 to 10000".into())
}

fn field_line(text: &str) -> Result<String, String> {
    let (name, value) = text.split_once(':').ok_or("write NAME: VALUE")?;
    let value = value.trim();
    if !wire::field_name_ok(name.as_bytes()) || !wire::field_value_ok(value.as_bytes()) {
        return Err("it is no field of HTTP".into());
    }
    let ours = [
        "host",
        "connection",
        "user-agent",
        "accept",
        "content-length",
        "transfer-encoding",
    ];
    if ours.contains(&name.to_ascii_lowercase().as_str()) {
        return Err(format!("{name} is sent already"));
    }
    Ok(format!("{name}: {value}\r\n"))
}

/// Runs `nagaya import verify`.
pub(crate) fn run(config: &Path, options: &VerifyOptions) -> Outcome {
    if options.list {
        return print(effects::page().as_bytes());
    }
    let servers = [("--old", &options.old), ("--new", &options.new)];
    let named = servers.map(|(flag, server)| {
        let server = ComparedServer::named(server.as_deref().unwrap_or_default());
        server.map_err(|why| complain(&format!("nagaya: {flag}: {why}\n")))
    });
    let [Ok(old), Ok(new)] = named else {
        return Outcome::Wrong;
    };
    let mut questions = Questions::default();
    for log in &options.logs {
        if let Err(error) = questions.read(log, options) {
            complain(&format!(
                "nagaya: read {}: {}\n",
                log.display(),
                reason(&error)
            ));
            return Outcome::Failed;
        }
    }
    let records = match options.record.as_deref().map(Records::open).transpose() {
        Ok(records) => records,
        Err(error) => {
            complain(&format!("nagaya: read the record: {}\n", reason(&error)));
            return Outcome::Failed;
        }
    };
    if questions.asked.is_empty() {
        complain(&format!(
            "nagaya: the log has nothing to ask\n{}",
            questions.told()
        ));
        return Outcome::Failed;
    }
    for (name, server) in [("old", &old), ("new", &new)] {
        let host = questions.asked.first().map_or("", |first| &first.host);
        if let Err(error) = server.reach(host) {
            let why = reason(&error);
            complain(&format!(
                "nagaya: the {name} server cannot be asked: {why}\n"
            ));
            return Outcome::Failed;
        }
    }
    let mut comparison = Comparison::new(old, new, options, records);
    for question in &questions.asked {
        if comparison.stopped.is_some() {
            break;
        }
        comparison.compare(question, questions.asked.len());
    }
    comparison.report(config, &questions, options.json)
}

/// What is asked, and what of the log is not.
#[derive(Debug, Default)]
struct Questions {
    asked: Vec<Question>,
    known: HashSet<Question>,
    bytes: usize,
    lines: u64,
    /// Lines that are no more asked, by why.
    left: BTreeMap<String, u64>,
}

impl Questions {
    fn read(&mut self, log: &Path, options: &VerifyOptions) -> io::Result<()> {
        match log == Path::new("-") {
            true => self.take(io::stdin().lock(), options),
            false => self.take(BufReader::new(File::open(log)?), options),
        }
    }

    fn take(&mut self, mut input: impl BufRead, options: &VerifyOptions) -> io::Result<()> {
        if let Some(program) = unpacker(input.fill_buf()?) {
            let told = format!("it is compressed: {program} FILE | nagaya import verify --log - …");
            return Err(io::Error::other(told));
        }
        let mut line = Vec::new();
        while self.lines < LINES_MAX {
            line.clear();
            let mut first = (&mut input).take(LINE_BYTES_MAX as u64 + 2);
            if first.read_until(b'\n', &mut line)? == 0 {
                return Ok(());
            }
            if !line.ends_with(b"\n") {
                input.skip_until(b'\n')?;
            }
            self.lines += 1;
            if let Err(why) = self.add(&String::from_utf8_lossy(&line), options) {
                *self.left.entry(why).or_default() += 1;
            }
        }
        Ok(())
    }

    /// Adds the question of a line, or tells why it is not asked.
    fn add(&mut self, line: &str, options: &VerifyOptions) -> Result<(), String> {
        let asked = read_asked(line).map_err(|why| format!("unread: {why}"))?;
        let is_head = asked.method == "HEAD";
        if asked.method != "GET" && !is_head {
            return Err("another method than GET and HEAD".into());
        }
        let host = asked.host.filter(|host| !host.is_empty() && host != "-");
        let host = host.or_else(|| options.host.clone());
        let host = host.ok_or("no host is logged: give --host")?;
        let is_sound = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
        if !asked.target.starts_with('/') || !is_sound(&asked.target) || !is_sound(&host) {
            return Err("no path of a site".into());
        }
        let is_allowed = |name: &str| options.allow.iter().any(|it| it == name);
        let mut effects = effects::of(&asked.target, asked.status);
        let effect = effects.find(|it| !is_allowed(it.name));
        if let Some(effect) = effect {
            return Err(format!("{}: {} (--allow {0})", effect.name, effect.what));
        }
        let question = Question {
            host,
            target: asked.target,
            is_head,
        };
        if self.known.contains(&question) {
            return Err("asked already".into());
        }
        if self.asked.len() >= options.requests as usize {
            return Err(format!(
                "beyond the first {} (--requests)",
                options.requests
            ));
        }
        self.bytes += question.host.len() + question.target.len();
        if self.bytes > QUESTION_BYTES_MAX {
            return Err("beyond 256 MiB of questions".into());
        }
        self.known.insert(question.clone());
        self.asked.push(question);
        Ok(())
    }

    fn told(&self) -> String {
        let lines = report::units::count(self.lines);
        let mut told = format!(
            "{lines} lines of the log: {} different questions\n",
            self.asked.len()
        );
        for (why, count) in &self.left {
            told.push_str(&format!(
                "  {} left out: {why}\n",
                report::units::count(*count)
            ));
        }
        told
    }
}

/// The questions as they are asked, and what has come of them.
struct Comparison<'a> {
    old: ComparedServer,
    new: ComparedServer,
    options: &'a VerifyOptions,
    records: Option<Records>,
    groups: Groups,
    equal: u64,
    different: u64,
    /// Questions that the old server gave no whole reply to.
    unanswered: u64,
    failures_in_row: u32,
    /// Questions in a row that the new server gave no whole reply to.
    new_failures_in_row: u32,
    times: Times,
    next: Instant,
    shown: Instant,
    asked: u64,
    /// Why no more is asked.
    stopped: Option<String>,
}

impl Comparison<'_> {
    fn new(
        old: ComparedServer,
        new: ComparedServer,
        options: &VerifyOptions,
        records: Option<Records>,
    ) -> Comparison<'_> {
        let now = Instant::now();
        Comparison {
            old,
            new,
            options,
            records,
            groups: Groups::default(),
            equal: 0,
            different: 0,
            unanswered: 0,
            failures_in_row: 0,
            new_failures_in_row: 0,
            times: Times::default(),
            next: now,
            shown: now,
            asked: 0,
            stopped: None,
        }
    }

    /// Asks both servers, and notes where they differ.
    fn compare(&mut self, question: &Question, of: usize) {
        std::thread::sleep(self.next.saturating_duration_since(Instant::now()));
        self.next = Instant::now() + Duration::from_secs_f64(1.0 / self.options.rate);
        self.asked += 1;
        self.show_progress(of);
        match self.differences(question) {
            Ok(found) if found.is_empty() => {
                self.equal += 1;
                self.new_failures_in_row = 0;
            }
            Ok(found) => {
                self.different += 1;
                self.note_failure(&found);
                let recorded = self
                    .records
                    .as_mut()
                    .and_then(|it| it.cause(&agent(self.asked)));
                let cause = recorded.unwrap_or_else(|| Cause::of(question));
                self.groups.add(cause, question, found);
            }
            Err(error) => {
                self.unanswered += 1;
                self.failures_in_row += 1;
                if self.failures_in_row >= FAILURES_MAX {
                    let why = reason(&error);
                    self.stopped = Some(format!("the old server gives no whole reply: {why}"));
                }
                return;
            }
        }
        self.failures_in_row = 0;
        self.stopped = self.stopped.take().or_else(|| self.times.suffering());
    }

    /// Counts the questions to which the new server gives no reply: where it gives none, all differ.
    fn note_failure(&mut self, found: &[Difference]) {
        let failed = found.iter().find(|it| it.what == Aspect::NoReply);
        self.new_failures_in_row = failed.map_or(0, |_| self.new_failures_in_row + 1);
        if let Some(failed) = failed.filter(|_| self.new_failures_in_row >= FAILURES_MAX) {
            let why = &failed.new;
            self.stopped = Some(format!("the new server gives no whole reply: {why}"));
        }
    }

    /// Where the servers differ, twice.
    fn differences(&mut self, question: &Question) -> io::Result<Vec<Difference>> {
        let first = self.ask_old(question)?;
        let new = self.ask_new(question);
        let second = self.ask_old(question)?;
        let noise = Noise::between(&first, &second);
        let mut found = differences(&noise, &first, &new);
        if found.is_empty() {
            return Ok(found);
        }
        // A minute that has passed in between, or a page that was just changed, is no difference.
        let new = self.ask_new(question);
        let third = self.ask_old(question)?;
        let mut noise = Noise::between(&third, &first);
        noise.add(Noise::between(&third, &second));
        let again = differences(&noise, &third, &new);
        found.retain(|it| again.iter().any(|other| other.what == it.what));
        found.retain(|it| !self.options.ignores(&it.what));
        Ok(found)
    }

    fn ask_old(&mut self, question: &Question) -> io::Result<Reply> {
        let reply = fetch(&self.old, question, &self.fields())?;
        self.times.add(reply.took);
        Ok(reply)
    }

    fn ask_new(&self, question: &Question) -> Result<Reply, String> {
        let reply = fetch(&self.new, question, &self.fields());
        reply.map_err(|error| reason(&error))
    }

    fn fields(&self) -> String {
        let agent = agent(self.asked);
        format!("User-Agent: {agent}\r\n{}", self.options.headers.concat())
    }

    fn show_progress(&mut self, of: usize) {
        let now = Instant::now();
        if now >= self.shown && io::stderr().is_terminal() {
            self.shown = now + PROGRESS;
            let Comparison {
                asked, different, ..
            } = self;
            complain(&format!("\r{asked} of {of} asked, {different} differ "));
        }
    }

    fn report(&self, config: &Path, questions: &Questions, as_json: bool) -> Outcome {
        if io::stderr().is_terminal() {
            complain("\r");
        }
        let loaded = self.options.record.as_ref().and_then(|_| load(config).ok());
        let naming = loaded.as_ref().map(|loaded| Naming::of(&loaded.sources));
        let page = match as_json {
            true => self.json(questions, naming.as_ref()),
            false => self.page(questions, naming.as_ref()),
        };
        let printed = print(page.as_bytes());
        let is_proof = self.groups.is_empty() && self.stopped.is_none() && self.equal > 0;
        match is_proof {
            true => printed,
            false => Outcome::Failed,
        }
    }

    fn page(&self, questions: &Questions, naming: Option<&Naming<'_>>) -> String {
        let mut page = questions.told();
        let Comparison {
            asked,
            equal,
            different,
            unanswered,
            ..
        } = self;
        page.push_str(&format!(
            "{asked} asked: {equal} answered alike, {different} differ, {unanswered} without a whole reply of the old server\n"
        ));
        if let Some(why) = &self.stopped {
            page.push_str(&format!("Stopped: {why}\n"));
        }
        if self.records.as_ref().is_some_and(Records::has_none) {
            page.push_str("--record: that file has no record of these questions. Give the new server's access log, with `log = { format = \"json\" }`; a site may have one of its own\n");
        }
        for (cause, group) in self.groups.sorted() {
            let Question { host, target, .. } = &group.example;
            let scheme = self.old.scheme();
            let address = report::harmless(&format!("{scheme}://{host}{target}"));
            let (count, told) = (group.count, cause.told(naming));
            page.push_str(&format!("\n{count} × {told}\n"));
            let made_of = cause.made_of(naming);
            for line in made_of.iter().take(MADE_OF_MAX) {
                page.push_str(&format!("  made of {}\n", report::harmless(line)));
            }
            if made_of.len() > MADE_OF_MAX {
                let more = made_of.len() - MADE_OF_MAX;
                page.push_str(&format!("  and of {more} lines more\n"));
            }
            page.push_str(&format!("  such as {address}\n"));
            for Difference { what, old, new } in &group.differences {
                page.push_str(&format!(
                    "  {}:\n    old  {old}\n    new  {new}\n",
                    what.name()
                ));
            }
        }
        if self.groups.ungrouped > 0 {
            page.push_str(&format!(
                "\n{} more differ in other ways\n",
                self.groups.ungrouped
            ));
        }
        page
    }

    fn json(&self, questions: &Questions, naming: Option<&Naming<'_>>) -> String {
        let groups = self.groups.sorted().into_iter().map(|(cause, group)| {
            let differences = group.differences.iter().map(
                |it| serde_json::json!({ "what": it.what.name(), "old": it.old, "new": it.new }),
            );
            serde_json::json!({
                "cause": cause.told(naming),
                "made_of": cause.made_of(naming),
                "count": group.count,
                "host": group.example.host,
                "target": group.example.target,
                "differences": differences.collect::<Vec<_>>(),
            })
        });
        let page = serde_json::json!({
            "lines": questions.lines,
            "questions": questions.asked.len(),
            "left_out": questions.left,
            "asked": self.asked,
            "alike": self.equal,
            "different": self.different,
            "unanswered": self.unanswered,
            "stopped": self.stopped,
            "recorded": self.records.as_ref().map(|it| !it.has_none()),
            "groups": groups.collect::<Vec<_>>(),
            "ungrouped": self.groups.ungrouped,
        });
        format!("{page:#}\n")
    }
}

fn differences(noise: &Noise, old: &Reply, new: &Result<Reply, String>) -> Vec<Difference> {
    match new {
        Ok(new) => noise.differences(old, new),
        Err(why) => vec![Difference {
            what: Aspect::NoReply,
            old: old.status.to_string(),
            new: why.clone(),
        }],
    }
}

/// Who asks, by which the new server's record of it is found.
fn agent(number: u64) -> String {
    format!("nagaya-verify/{}-{number}", std::process::id())
}

/// How long the old server took, at first and lately.
#[derive(Debug, Default)]
struct Times {
    first: Vec<Duration>,
    last: VecDeque<Duration>,
}

impl Times {
    fn add(&mut self, took: Duration) {
        if self.first.len() < TIMES {
            self.first.push(took);
            return;
        }
        if self.last.len() >= TIMES {
            self.last.pop_front();
        }
        self.last.push_back(took);
    }

    /// Whether the old server has become so slow that no more is to be asked of it.
    fn suffering(&self) -> Option<String> {
        if self.last.len() < TIMES {
            return None;
        }
        let first = p99(self.first.iter().copied());
        let last = p99(self.last.iter().copied());
        let is_slow = last > FAST && last > first * 2;
        is_slow.then(|| {
            format!("the old server's p99 was {first:.1?} and is {last:.1?}: try a lower --rate")
        })
    }
}

fn p99(times: impl Iterator<Item = Duration>) -> Duration {
    let mut times: Vec<Duration> = times.collect();
    times.sort_unstable();
    let at = times.len().saturating_sub(1) * 99 / 100;
    times.get(at).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_server_that_becomes_slow_is_left_alone() {
        let mut times = Times::default();
        for took_ms in [10; TIMES].iter().chain(&[12; TIMES]) {
            times.add(Duration::from_millis(*took_ms));
        }
        assert_eq!(times.suffering(), None);
        for _ in 0..5 {
            times.add(Duration::from_millis(80));
        }
        assert!(times.suffering().is_some_and(|it| it.contains("80.0ms")));
    }

    #[test]
    fn fields_of_a_question_are_fields_and_no_others_of_ours() {
        assert_eq!(field_line("Cookie:a=b"), Ok("Cookie: a=b\r\n".into()));
        for wrong in ["Cookie", "Host: x", "A: b\r\nC: d", "a b: c"] {
            assert!(field_line(wrong).is_err(), "{wrong}");
        }
        assert_eq!(rate("50/s"), Ok(50.0));
        assert!(rate("0").is_err() && rate("fast").is_err());
    }
}
