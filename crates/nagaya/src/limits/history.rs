//! All requests of some access logs, in the order of their arrival, small in memory.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use config::model::LimitKey;
use engine::glob::Matcher;
use jiff::Timestamp;
use limits::Time;
use limits::replay::Arrival;

use super::log::{self, Clock, Entry, LoggedFile, Refused};
use crate::outcome::{Outcome, complain};

/// Requests kept; further ones are counted and left out. Some 450 MB.
const REQUESTS_MAX: usize = 8_000_000;
/// Bytes of a line that are read: enough that one cut off is known to be too long. The rest is
/// skipped.
const LINE_BYTES_READ: u64 = log::LINE_BYTES_MAX as u64 + 2;
/// Of so many requests one may leave its file untold.
const UNTOLD_SHARE_MAX: usize = 20;
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
    /// Requests beyond those kept, and those left out by their path.
    pub(super) left_out: u64,
    /// Requests of which the log does not tell the file.
    untold_files: usize,
    lines: u64,
    has_seconds: bool,
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

/// The durations of one log that are whole numbers.
#[derive(Debug, Default)]
struct WholeNumbers {
    count: u64,
    /// Those below ten, which as microseconds hardly any request can be over in.
    tiny: u64,
    longest: u64,
}

impl WholeNumbers {
    fn add(&mut self, number: u64) {
        self.count += 1;
        self.tiny += u64::from(number < 10);
        self.longest = self.longest.max(number);
    }

    /// Why they are no microseconds.
    fn doubt(&self) -> Option<String> {
        let Self {
            count,
            tiny,
            longest,
        } = self;
        let is_odd = *count > 0 && (*longest < 1_000 || tiny * 2 > *count);
        is_odd.then(|| {
            format!(
                "{tiny} of its {count} durations are below 10, the longest is {longest}: these can \
                 hardly be microseconds, and whole seconds (%T) are too coarse\n  \
                 log %D, as the only field behind the user agent"
            )
        })
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
    /// Reads logs, `-` being standard input; of their requests those whose path matches.
    pub(super) fn read(
        logs: &[impl AsRef<Path>],
        only: Option<&Matcher>,
    ) -> Result<History, Outcome> {
        let mut history = History::default();
        for log in logs {
            let log = log.as_ref();
            let read = match log == Path::new("-") {
                true => history.take(io::stdin().lock(), only),
                false => File::open(log).and_then(|file| history.take(BufReader::new(file), only)),
            };
            let why = match read {
                Err(error) => Some(config::reason(&error)),
                Ok(durations) => durations.doubt(),
            };
            if let Some(why) = why {
                complain(&format!("nagaya: read {}: {why}\n", log.display()));
                return Err(Outcome::Failed);
            }
        }
        history.spread();
        history.give_files_by_paths();
        history.give_time_to_refused();
        history.requests.sort_by_key(|request| request.arrived_us);
        Ok(history)
    }

    /// Reads a log, and tells what of its durations were whole numbers.
    fn take(
        &mut self,
        mut input: impl BufRead,
        only: Option<&Matcher>,
    ) -> io::Result<WholeNumbers> {
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
                    self.add(&read.entry, read.clock, only);
                }
                Err(_) if text.trim().is_empty() => {}
                Err(why) => {
                    self.unread += 1;
                    self.first_unread.get_or_insert((self.lines, why));
                }
            }
        }
    }

    fn add(&mut self, entry: &Entry, clock: Clock, only: Option<&Matcher>) {
        let file = match &entry.file {
            LoggedFile::Named(file) => file,
            LoggedFile::Without | LoggedFile::Untold => &entry.path,
        };
        let matches = |glob: &Matcher| [&entry.path, file].map(|it| glob.matches(it.as_bytes()));
        let wanted = only.is_none_or(|glob| matches(glob).contains(&true));
        if !wanted || self.requests.len() >= REQUESTS_MAX {
            self.left_out += 1;
            return;
        }
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

    /// The first arrival and the last, in words.
    pub(super) fn span(&self) -> String {
        let at = |request: Option<&Request>| {
            let us = request.map_or(0, |request| request.arrived_us);
            Timestamp::from_microsecond(us).map_or(String::new(), |time| {
                time.strftime("%Y-%m-%d %H:%M:%S").to_string()
            })
        };
        format!(
            "{} to {} UTC",
            at(self.requests.first()),
            at(self.requests.last())
        )
    }

    /// What is to be known before figures of these logs are believed.
    pub(super) fn doubts(&self) -> Vec<String> {
        let mut doubts = Vec::new();
        if let Some((line, why)) = self.first_unread {
            doubts.push(format!(
                "{} of {} lines were left out; the first, line {line}: {why}",
                self.unread, self.lines
            ));
        }
        if self.left_out > 0 && self.requests.len() >= REQUESTS_MAX {
            doubts.push(format!(
                "only the first {REQUESTS_MAX} requests were looked at"
            ));
        }
        if self.has_seconds {
            doubts.push(
                "the log tells whole seconds: requests of one second are spread over it, so short \
                 bursts look tamer than they were"
                    .to_owned(),
            );
        }
        let refused = |how| {
            let requests = self.requests.iter();
            requests.filter(|request| request.refused == how).count()
        };
        let instead = "each counts with the median time of its file or path, else of all; a log \
                       written without limits, or with them in shadow, tells more";
        if let count @ 1.. = refused(Refused::ByLimit) {
            doubts.push(format!(
                "{count} requests were refused by a limit and took no time: {instead}"
            ));
        }
        if let count @ 1.. = refused(Refused::Perhaps) {
            doubts.push(format!(
                "{count} requests were answered 429 or 503, perhaps by a limit: {instead}"
            ));
        }
        doubts
    }

    /// Whether of nearly every request the file is known: enough to go by.
    pub(super) fn tells_files(&self) -> bool {
        self.untold_files <= self.requests.len() / UNTOLD_SHARE_MAX
    }

    /// What is to be known of limits that count by file, where files are not told.
    pub(super) fn doubt_of_files(&self) -> Option<String> {
        let whose = match self.untold_files {
            0 => return None,
            all if all == self.requests.len() => "this log does not tell files".to_owned(),
            some => format!("{some} requests do not tell their file"),
        };
        Some(format!(
            "{whose}: paths stand in for them, and a front controller, such as one index.php for all \
             paths, counts as many files"
        ))
    }

    /// The sites, those with the most requests first.
    pub(super) fn sites(&self) -> Vec<(&str, usize)> {
        let mut counts: HashMap<u32, usize> = HashMap::new();
        for request in &self.requests {
            *counts.entry(request.site).or_default() += 1;
        }
        let mut sites: Vec<(&str, usize)> = counts
            .into_iter()
            .map(|(site, count)| (self.texts.text(site), count))
            .collect();
        sites.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(b.0)));
        sites
    }

    /// The requests as a limit with these keys sees them; of one site, or of all.
    pub(super) fn arrivals<'a>(
        &'a self,
        key: &'a [LimitKey],
        site: Option<&'a str>,
    ) -> impl Iterator<Item = Arrival> + 'a {
        let first_us = self
            .requests
            .first()
            .map_or(0, |request| request.arrived_us);
        let wanted =
            move |request: &&Request| site.is_none_or(|site| self.texts.text(request.site) == site);
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
                LimitKey::Tenant | LimitKey::Site | LimitKey::Rule => {
                    text.extend_from_slice(self.texts.text(request.site).as_bytes());
                }
                // One file name of two sites is two files.
                LimitKey::File if request.file != request.path => {
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
                LimitKey::Process
                | LimitKey::Const(_)
                | LimitKey::Header(_)
                | LimitKey::Cookie(_) => {}
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
        history.take(log.as_bytes(), None).expect("memory");
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
        assert!(history.doubts()[0].starts_with("2 requests were refused by a limit"));
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
            let durations = History::default().take(log.as_bytes(), None);
            durations.expect("memory").doubt()
        };
        assert!(doubt(&[3, 0, 12]).expect("seconds").contains("%D"));
        assert!(doubt(&[0, 0, 0, 1, 1_200]).is_some());
        assert_eq!(doubt(&[30, 5, 900, 1_200]), None);
        assert_eq!(doubt(&[]), None);
    }
}
