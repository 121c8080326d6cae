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

use super::log::{self, Clock, Entry};
use crate::outcome::{Outcome, complain};

/// Requests kept; further ones are counted and left out. Some 400 MB.
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
    /// Requests beyond those kept, and those left out by their path.
    pub(super) left_out: u64,
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
    upstream: u32,
    by_seconds: bool,
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
            if let Err(error) = read {
                let why = config::reason(&error);
                complain(&format!("nagaya: read {}: {why}\n", log.display()));
                return Err(Outcome::Failed);
            }
        }
        history.spread();
        history.requests.sort_by_key(|request| request.arrived_us);
        Ok(history)
    }

    fn take(&mut self, mut input: impl BufRead, only: Option<&Matcher>) -> io::Result<()> {
        let mut line = Vec::new();
        loop {
            line.clear();
            let mut first = (&mut input).take(LINE_BYTES_READ);
            if first.read_until(b'\n', &mut line)? == 0 {
                return Ok(());
            }
            self.lines += 1;
            if !line.ends_with(b"\n") && line.len() as u64 == LINE_BYTES_READ {
                input.skip_until(b'\n')?;
            }
            let text = String::from_utf8_lossy(&line);
            match log::read(&text) {
                Ok(read) => self.add(&read.entry, read.clock, only),
                Err(_) if text.trim().is_empty() => {}
                Err(why) => {
                    self.unread += 1;
                    self.first_unread.get_or_insert((self.lines, why));
                }
            }
        }
    }

    fn add(&mut self, entry: &Entry, clock: Clock, only: Option<&Matcher>) {
        let wanted = only.is_none_or(|glob| glob.matches(entry.path.as_bytes()));
        if !wanted || self.requests.len() >= REQUESTS_MAX {
            self.left_out += 1;
            return;
        }
        self.has_seconds |= clock == Clock::Seconds;
        self.requests.push(Request {
            arrived_us: entry.arrived_us,
            held_us: entry.held_us,
            client: entry.client,
            site: self.texts.number(&entry.site),
            path: self.texts.number(&entry.path),
            upstream: self
                .texts
                .number(entry.upstream.as_deref().unwrap_or_default()),
            by_seconds: clock == Clock::Seconds,
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
        doubts
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
                LimitKey::File | LimitKey::Path => {
                    // One file name of two sites is two files.
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
        let begin = "h - - [21/Nov/2026:20:45:00 +0000] \"GET / HTTP/1.1\" 200 1 5 ";
        for (longer, unread) in [(0, 0), (1, 1), (2, 1), (100_000, 1)] {
            let filled = "x".repeat(log::LINE_BYTES_MAX - begin.len() + longer);
            for end in ["\n", "\r\n"] {
                let history = read(&format!("{begin}{filled}{end}{begin}\n"));
                let read = (history.len(), history.unread, history.lines);
                assert_eq!(read, (2 - unread as usize, unread, 2), "{longer} {end:?}");
            }
        }
    }
}
