//! All requests of some access logs, in the order of their arrival, small in memory.

mod doubts;

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use config::model::LimitKey;
use jiff::Timestamp;
use jiff::tz::Offset;
use limits::Time;
use limits::replay::Arrival;
use report::units;

use super::log::{self, Clock, LogEntry, LogLine, LoggedFile, Refused};
use super::only::{Only, Subject};
use crate::outcome::{Outcome, complain};
use doubts::WholeNumbers;

/// Requests kept; further ones are counted and left out. Some 450 MB.
const REQUESTS_MAX: usize = 8_000_000;
/// Bytes of a line that are read: enough that one cut off is known to be too long. The rest is
/// skipped.
const LINE_BYTES_READ: u64 = log::LINE_BYTES_MAX as u64 + 2;
/// Joins the parts of a key that has several.
const BETWEEN: u8 = 0x1f;

/// What logs tell.
#[derive(Debug, Default)]
pub(super) struct History {
    requests: Vec<Request>,
    texts: Texts,
    /// Lines that could not be read, and why the first could not.
    pub(super) unread: u64,
    pub(super) first_unread: Option<(u64, &'static str)>,
    /// Requests beyond those kept.
    left_out: u64,
    /// What requests were selected by, and how many were not.
    only: Option<Only>,
    unselected: u64,
    /// Requests of which the log does not tell the file.
    untold_files: usize,
    lines: u64,
    has_seconds: bool,
    /// Of the first request's time from UTC.
    offset: Option<Offset>,
}

/// A site as a log tells it.
#[derive(Debug)]
pub(super) struct Site<'a> {
    /// Empty where the log names none.
    pub(super) name: &'a str,
    pub(super) requests: usize,
    /// How many of these were refused by a limit, surely or perhaps.
    pub(super) refused: usize,
}

/// Which requests are meant.
#[derive(Debug, Clone, Copy)]
pub(super) enum Part<'a> {
    All,
    /// Of this site, those that `--only` selects by this.
    Site(&'a str, Option<Subject>),
}

/// What selects a site's requests in a configuration as `--only` did.
#[derive(Debug)]
pub(super) struct Selected {
    pub(super) subject: Subject,
    pub(super) condition: String,
    /// Requests that `--only` selected, and this does not.
    pub(super) missed: u64,
}

#[derive(Debug, Clone, Copy)]
struct Request {
    arrived_us: i64,
    held_us: u64,
    client: IpAddr,
    site: u32,
    path: u32,
    /// The path where there is no file, or none is told.
    file: u32,
    upstream: u32,
    by_seconds: bool,
    tells_file: bool,
    refused: Refused,
}

impl Request {
    /// Whether it is known to have come to a file.
    fn has_file(&self) -> bool {
        self.file != self.path
    }
}

/// Each text once.
#[derive(Debug, Default)]
struct Texts {
    numbers: HashMap<String, u32>,
    texts: Vec<String>,
}

impl Texts {
    fn number(&mut self, text: &str) -> u32 {
        if let Some(number) = self.numbers.get(text) {
            return *number;
        }
        let number = u32::try_from(self.texts.len()).unwrap_or(u32::MAX);
        self.texts.push(text.to_owned());
        self.numbers.insert(text.to_owned(), number);
        number
    }

    fn text(&self, number: u32) -> &str {
        let index = usize::try_from(number).unwrap_or(usize::MAX);
        self.texts.get(index).map_or("", String::as_str)
    }
}

impl History {
    /// Reads logs, `-` being standard input; of their requests those whose path or file matches.
    pub(super) fn read(logs: &[impl AsRef<Path>], only: Option<Only>) -> Result<History, Outcome> {
        let mut history = History {
            only,
            ..History::default()
        };
        for log in logs {
            let log = log.as_ref();
            let read = match log == Path::new("-") {
                true => history.take_text("FILE", io::stdin().lock()),
                false => File::open(log).and_then(|file| {
                    history.take_text(&log.display().to_string(), BufReader::new(file))
                }),
            };
            let why = read.unwrap_or_else(|error| Some(config::reason(&error)));
            if let Some(why) = why {
                complain(&format!("nagaya: read {}: {why}\n", log.display()));
                return Err(Outcome::Failed);
            }
        }
        history.give_files_by_paths();
        history.select();
        history.spread();
        history.give_time_to_refused();
        history.requests.sort_by_key(|request| request.arrived_us);
        Ok(history)
    }

    /// Reads a log, and tells why it is of no use.
    fn take_text(&mut self, name: &str, mut input: impl BufRead) -> io::Result<Option<String>> {
        match log::unpacker(input.fill_buf()?) {
            Some(program) => Ok(Some(format!(
                "it is compressed: {program} {name} | nagaya limits propose --log -\n  \
                 and so for simulate"
            ))),
            None => Ok(self.take(input)?.doubt()),
        }
    }

    /// Reads a log, and tells what of its durations were whole numbers.
    fn take(&mut self, mut input: impl BufRead) -> io::Result<WholeNumbers> {
        let mut durations = WholeNumbers::default();
        let mut line = Vec::new();
        loop {
            line.clear();
            let mut first = (&mut input).take(LINE_BYTES_READ);
            if first.read_until(b'\n', &mut line)? == 0 {
                return Ok(durations);
            }
            self.lines += 1;
            if !line.ends_with(b"\n") && line.len() as u64 == LINE_BYTES_READ {
                input.skip_until(b'\n')?;
            }
            let text = String::from_utf8_lossy(&line);
            match log::read(&text) {
                Ok(read) => {
                    if read.clock == Clock::ArrivalSecond {
                        durations.add(read.entry.held_us);
                    }
                    self.add(&read);
                }
                Err(_) if text.trim().is_empty() => {}
                Err(why) => {
                    self.unread += 1;
                    self.first_unread.get_or_insert((self.lines, why));
                }
            }
        }
    }

    fn add(&mut self, line: &LogLine) {
        let (entry, clock) = (&line.entry, line.clock);
        let file = match &entry.file {
            LoggedFile::Named(file) => file,
            LoggedFile::Without | LoggedFile::Untold => &entry.path,
        };
        if !self.may_be_selected(entry, file) {
            self.unselected += 1;
            return;
        }
        if self.requests.len() >= REQUESTS_MAX {
            self.left_out += 1;
            return;
        }
        self.offset.get_or_insert(line.offset);
        self.has_seconds |= clock != Clock::Exact;
        let tells_file = entry.file != LoggedFile::Untold;
        self.untold_files += usize::from(!tells_file);
        self.requests.push(Request {
            arrived_us: entry.arrived_us,
            held_us: entry.held_us,
            client: entry.client,
            site: self.texts.number(&entry.site),
            path: self.texts.number(&entry.path),
            file: self.texts.number(file),
            upstream: self
                .texts
                .number(entry.upstream.as_deref().unwrap_or_default()),
            by_seconds: clock != Clock::Exact,
            tells_file,
            refused: entry.refused,
        });
    }

    /// Whether `--only` selects a request, or may do so when others have told its file.
    fn may_be_selected(&self, entry: &LogEntry, file: &str) -> bool {
        let untold = entry.file == LoggedFile::Untold && entry.refused == Refused::ByLimit;
        let matches = |only: &Only| only.matches(&entry.path) || only.matches(file);
        self.only
            .as_ref()
            .is_none_or(|only| untold || matches(only))
    }

    /// Leaves out those that `--only` does not select, now that their files are known.
    fn select(&mut self) {
        let Some(only) = &self.only else { return };
        let before = self.requests.len();
        let texts = &self.texts;
        let mut known: HashMap<u32, bool> = HashMap::new();
        let mut matches = |number: u32| {
            *known
                .entry(number)
                .or_insert_with(|| only.matches(texts.text(number)))
        };
        self.requests
            .retain(|request| matches(request.path) || matches(request.file));
        self.unselected += (before - self.requests.len()) as u64;
        let untold = self.requests.iter().filter(|request| !request.tells_file);
        self.untold_files = untold.count();
    }

    /// Says that no request of the log was selected, where that is so.
    pub(super) fn in_vain(&self) -> Option<String> {
        let only = self.only.as_ref()?;
        (self.unselected > 0).then(|| only.in_vain(&units::count(self.unselected)))
    }

    /// How a configuration selects the requests of a site, where `--only` did.
    pub(super) fn selected(&self, site: &str) -> Option<Selected> {
        let only = self.only.as_ref()?;
        let requests = || self.of_site(site);
        let all = requests().count();
        let by = |subject| {
            requests()
                .filter(|it| self.selects(only, subject, it))
                .count()
        };
        let (by_file, by_path) = (by(Subject::File), by(Subject::Path));
        let (subject, count) = match by_file >= by_path {
            true => (Subject::File, by_file),
            false => (Subject::Path, by_path),
        };
        Some(Selected {
            subject,
            condition: only.condition(subject),
            missed: (all - count) as u64,
        })
    }

    fn selects(&self, only: &Only, subject: Subject, request: &Request) -> bool {
        match subject {
            Subject::Path => only.matches(self.texts.text(request.path)),
            Subject::File => request.has_file() && only.matches(self.texts.text(request.file)),
        }
    }

    fn of_site<'a>(&'a self, site: &'a str) -> impl Iterator<Item = &'a Request> + 'a {
        let of_site = move |request: &&Request| self.texts.text(request.site) == site;
        self.requests.iter().filter(of_site)
    }

    /// Requests of which only the second is known are spread over it, in the order of the log.
    fn spread(&mut self) {
        let whole = |request: &Request| request.arrived_us.div_euclid(1_000_000);
        let mut counts: HashMap<i64, (u32, u32)> = HashMap::new();
        for request in self.requests.iter().filter(|request| request.by_seconds) {
            counts.entry(whole(request)).or_default().0 += 1;
        }
        for request in self
            .requests
            .iter_mut()
            .filter(|request| request.by_seconds)
        {
            if let Some((all, seen)) = counts.get_mut(&whole(request)) {
                let offset_us = i64::from(*seen) * 1_000_000 / i64::from((*all).max(1));
                request.arrived_us = whole(request) * 1_000_000 + offset_us;
                *seen += 1;
            }
        }
    }

    /// A request whose file is not told, as of many that were refused, came to the one that others
    /// with its path came to.
    fn give_files_by_paths(&mut self) {
        if self.untold_files == 0 || self.untold_files == self.requests.len() {
            return;
        }
        let told = self.requests.iter().filter(|request| request.tells_file);
        let files: HashMap<(u32, u32), u32> = told
            .map(|request| ((request.site, request.path), request.file))
            .collect();
        for request in self.requests.iter_mut().filter(|it| !it.tells_file) {
            if let Some(file) = files.get(&(request.site, request.path)) {
                request.file = *file;
                request.tells_file = true;
                self.untold_files -= 1;
            }
        }
    }

    /// A refused request took no time, whatever limit it is replayed with. It gets what it would
    /// have taken: the median of its file, or path, else that of all.
    fn give_time_to_refused(&mut self) {
        let subject = |request: &Request| (request.site, request.file);
        let is_refused = |request: &&Request| request.refused != Refused::No;
        let refused = self.requests.iter().filter(is_refused);
        let mut times: HashMap<(u32, u32), Vec<u64>> = refused
            .map(|request| (subject(request), Vec::new()))
            .collect();
        if times.is_empty() {
            return;
        }
        let mut all = Vec::new();
        for request in self.requests.iter().filter(|request| !is_refused(request)) {
            all.push(request.held_us);
            if let Some(times) = times.get_mut(&subject(request)) {
                times.push(request.held_us);
            }
        }
        let all = median(all);
        let medians: HashMap<(u32, u32), Option<u64>> = times
            .into_iter()
            .map(|(subject, times)| (subject, median(times).or(all)))
            .collect();
        for request in &mut self.requests {
            let median = medians.get(&subject(request)).copied().flatten();
            request.held_us = match (request.refused, median) {
                (Refused::ByLimit, Some(median)) => median,
                (Refused::Perhaps, Some(median)) => request.held_us.max(median),
                _ => request.held_us,
            };
        }
    }

    pub(super) fn len(&self) -> usize {
        self.requests.len()
    }

    /// The first arrival and the last, in words and as the clock of the log had them.
    pub(super) fn span(&self) -> String {
        let zone = self.offset.unwrap_or(Offset::UTC).to_time_zone();
        let at = |request: Option<&Request>, format: &str| {
            let us = request.map_or(0, |request| request.arrived_us);
            Timestamp::from_microsecond(us).map_or(String::new(), |time| {
                time.to_zoned(zone.clone()).strftime(format).to_string()
            })
        };
        let ending = match self.offset.is_none_or(Offset::is_zero) {
            true => "%Y-%m-%d %H:%M:%S UTC",
            false => "%Y-%m-%d %H:%M:%S %z",
        };
        format!(
            "{} to {}",
            at(self.requests.first(), "%Y-%m-%d %H:%M:%S"),
            at(self.requests.last(), ending)
        )
    }

    /// Whether of any request the upstream is known.
    pub(super) fn tells_upstreams(&self) -> bool {
        let mut requests = self.requests.iter();
        requests.any(|request| !self.texts.text(request.upstream).is_empty())
    }

    /// The sites, those with the most requests first.
    pub(super) fn sites(&self) -> Vec<Site<'_>> {
        let mut counts: HashMap<u32, (usize, usize)> = HashMap::new();
        for request in &self.requests {
            let (requests, refused) = counts.entry(request.site).or_default();
            *requests += 1;
            *refused += usize::from(request.refused != Refused::No);
        }
        let mut sites: Vec<Site<'_>> = counts
            .into_iter()
            .map(|(site, (requests, refused))| Site {
                name: self.texts.text(site),
                requests,
                refused,
            })
            .collect();
        sites.sort_by(|a, b| b.requests.cmp(&a.requests).then(a.name.cmp(b.name)));
        sites
    }

    /// The requests as a limit with these keys sees them.
    pub(super) fn arrivals<'a>(
        &'a self,
        key: &'a [LimitKey],
        part: Part<'a>,
    ) -> impl Iterator<Item = Arrival> + 'a {
        let first_us = self
            .requests
            .first()
            .map_or(0, |request| request.arrived_us);
        let wanted = move |request: &&Request| self.is_of(part, request);
        self.requests.iter().filter(wanted).map(move |request| {
            let after_us = u64::try_from(request.arrived_us - first_us).unwrap_or(0);
            Arrival {
                arrived: Time::ZERO + Duration::from_micros(after_us),
                held: Duration::from_micros(request.held_us),
                tenant: usize::try_from(request.site).unwrap_or(usize::MAX),
                client: request.client,
                key: self.key(key, request),
            }
        })
    }

    fn is_of(&self, part: Part<'_>, request: &Request) -> bool {
        let Part::Site(site, subject) = part else {
            return true;
        };
        let selects = || match (&self.only, subject) {
            (Some(only), Some(subject)) => self.selects(only, subject, request),
            _ => true,
        };
        self.texts.text(request.site) == site && selects()
    }

    /// A tenant a site: whose they are, logs do not tell.
    pub(super) fn tenants(&self) -> Vec<limits::TenantDefinition> {
        let names = self.texts.texts.iter();
        let tenant = |name: &String| limits::TenantDefinition {
            name: name.clone(),
            weight: 1,
            keys_max: u32::try_from(limits::replay::KEYS_MAX).unwrap_or(u32::MAX),
        };
        names.map(tenant).collect()
    }

    fn key(&self, keys: &[LimitKey], request: &Request) -> Box<[u8]> {
        let mut text = Vec::new();
        for (at, key) in keys.iter().enumerate() {
            if at > 0 {
                text.push(BETWEEN);
            }
            match key {
                LimitKey::Site => {
                    text.extend_from_slice(self.texts.text(request.site).as_bytes());
                }
                // One file name of two sites is two files.
                LimitKey::File if request.has_file() => {
                    text.extend_from_slice(self.texts.text(request.site).as_bytes());
                    text.push(b' ');
                    text.extend_from_slice(self.texts.text(request.file).as_bytes());
                }
                LimitKey::File | LimitKey::Path => {
                    text.extend_from_slice(self.texts.text(request.site).as_bytes());
                    text.extend_from_slice(self.texts.text(request.path).as_bytes());
                }
                LimitKey::Upstream => {
                    text.extend_from_slice(self.texts.text(request.upstream).as_bytes());
                }
                LimitKey::Client => text.extend_from_slice(request.client.to_string().as_bytes()),
                // One count for all. What no log tells is refused before.
                LimitKey::Process
                | LimitKey::Const(_)
                | LimitKey::Tenant
                | LimitKey::Network
                | LimitKey::Rule
                | LimitKey::Header(_)
                | LimitKey::Cookie(_)
                | LimitKey::Capture(_) => {}
            }
        }
        text.into()
    }
}

/// The middle one of some times, of two the longer.
fn median(mut times: Vec<u64>) -> Option<u64> {
    let middle = times.len() / 2;
    (!times.is_empty()).then(|| *times.select_nth_unstable(middle).1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(log: &str) -> History {
        let mut history = History::default();
        history.take(log.as_bytes()).expect("memory");
        history
    }

    #[test]
    fn a_wait_for_a_permit_is_no_part_of_how_long_it_was_held() {
        let log = r#"{"time":"2026-11-21T20:45:00Z","target":"/a","queue_us":9000,"waited_us":8000,"upstream_us":30000,"total_us":40000}
{"time":"2026-11-21T20:45:00Z","target":"/a","queue_us":9000,"waited_us":8000,"upstream_us":null,"total_us":40000}"#;
        let history = read(log);
        let held: Vec<u64> = history.requests.iter().map(|it| it.held_us).collect();
        assert_eq!(held, [30_000, 31_000]);
    }

    #[test]
    fn a_line_too_long_is_left_out_whole_and_the_next_is_read() {
        let begin = "h - - [21/Nov/2026:20:45:00 +0000] \"GET / HTTP/1.1\" 200 1 0.5 ";
        for (longer, unread) in [(0, 0), (1, 1), (2, 1), (100_000, 1)] {
            let filled = "x".repeat(log::LINE_BYTES_MAX - begin.len() + longer);
            for end in ["\n", "\r\n"] {
                let history = read(&format!("{begin}{filled}{end}{begin}\n"));
                let read = (history.len(), history.unread, history.lines);
                assert_eq!(read, (2 - unread as usize, unread, 2), "{longer} {end:?}");
            }
        }
    }

    #[test]
    fn who_was_refused_has_the_median_time_of_its_file_or_else_of_all() {
        let line = |target: &str, file: &str, reason: &str, total_us: u64| {
            format!(
                r#"{{"time":"2026-11-21T20:45:00Z","target":"{target}","file":{file},"reason":{reason},"total_us":{total_us}}}"#
            ) + "\n"
        };
        let (page, other) = (r#""/srv/page.php""#, r#""/srv/other.php""#);
        let full = r#""limit_full""#;
        let log = [
            line("/a", page, "null", 7_000),
            line("/b", page, "null", 9_000),
            line("/c", page, "null", 8_000),
            line("/d", page, full, 20),
            line("/e", other, full, 20),
            line("/f", "null", "null", 1_000),
            line("/g", "null", "null", 1_000),
        ];
        let mut history = read(&log.concat());
        history.give_time_to_refused();
        let held: Vec<u64> = history.requests.iter().map(|it| it.held_us).collect();
        assert_eq!(held, [7_000, 9_000, 8_000, 8_000, 7_000, 1_000, 1_000]);
        assert!(history.doubts()[0].starts_with("2 of 7 requests were refused by a limit"));
    }

    #[test]
    fn a_refused_request_counts_at_the_file_that_others_with_its_path_came_to() {
        let line = |path: &str, file: &str, reason: &str| {
            format!(
                r#"{{"time":"2026-11-21T20:45:00Z","target":"{path}?x","file":{file},"reason":{reason},"total_us":9}}"#
            ) + "\n"
        };
        let log = [
            line("/a", "null", r#""limit_rate""#),
            line("/a", r#""/srv/index.php""#, "null"),
            line("/b", "null", r#""limit_rate""#),
            line("/c", "null", "null"),
        ];
        let mut history = read(&log.concat());
        history.give_files_by_paths();
        let files: Vec<&str> = history
            .requests
            .iter()
            .map(|request| history.texts.text(request.file))
            .collect();
        assert_eq!(files, ["/srv/index.php", "/srv/index.php", "/b", "/c"]);
        assert_eq!(history.untold_files, 1);
        assert!(!history.tells_files());
    }

    #[test]
    fn a_long_503_keeps_its_time_where_no_reason_is_logged() {
        let line = |status: u16, time: &str| {
            format!("h - - [21/Nov/2026:20:45:00 +0000] \"GET / HTTP/1.1\" {status} 1 {time}\n")
        };
        let log = [line(200, "0.300"), line(503, "0.001"), line(503, "9.000")];
        let mut history = read(&log.concat());
        history.give_time_to_refused();
        let held: Vec<u64> = history.requests.iter().map(|it| it.held_us).collect();
        assert_eq!(held, [300_000, 300_000, 9_000_000]);
    }

    #[test]
    fn whole_seconds_are_not_taken_for_microseconds() {
        let doubt = |durations: &[u64]| {
            let line = |duration| {
                format!("h - - [21/Nov/2026:20:45:00 +0000] \"GET / HTTP/1.1\" 200 1 {duration}\n")
            };
            let log: String = durations.iter().map(line).collect();
            let durations = History::default().take(log.as_bytes());
            durations.expect("memory").doubt()
        };
        assert!(doubt(&[3, 0, 12]).expect("seconds").contains("%D"));
        assert!(doubt(&[0, 0, 0, 1, 1_200]).is_some());
        assert_eq!(doubt(&[30, 5, 900, 1_200]), None);
        assert_eq!(doubt(&[]), None);
    }
}
