//! What a program says on its standard error, as lines of the error log.
//!
//! A tenant's program decides what is said, so each line stays one line (the error log escapes
//! it) under the request's id, and an exchange may say only so much; of the rest only its length
//! is logged. So that a flood of one site leaves room in the log for the others and for us, a site
//! may say only so much a second ([`StderrShares`]). A [`StderrLog`] belongs to one exchange;
//! dropping it says what is left.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::exchange::{Exchange, RequestId};
use crate::resolve::Resolved;
use crate::worker::Serving;

/// Lines one exchange may log.
const LINES_MAX: usize = 64;
/// Bytes of one line; the rest of a longer one is cut.
const LINE_BYTES_MAX: usize = 2 * 1024;
/// Lines one site may log in a [`SHARE_TIME`], on each worker.
const SITE_LINES_MAX: usize = 256;
const SHARE_TIME: Duration = Duration::from_secs(1);
/// Sites whose share is known at once; the shares of more begin anew.
const SITES_MAX: usize = 1_024;

/// How much each site has said lately, on one worker.
#[derive(Debug, Default)]
pub struct StderrShares {
    sites: RefCell<HashMap<u32, (Instant, usize)>>,
}

/// Where one exchange's program says what is wrong.
#[derive(Debug)]
pub struct StderrLog {
    request_id: RequestId,
    serving: Option<Rc<Serving>>,
    site_index: Option<u32>,
    file: Option<Rc<Resolved>>,
    lines: Lines,
}

/// Bytes on their way to lines.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    open: Vec<u8>,
    said: usize,
    unsaid_bytes: u64,
}

impl StderrShares {
    /// Whether the site may log another line.
    fn take(&self, site_index: u32, now: Instant) -> bool {
        let mut sites = self.sites.borrow_mut();
        if sites.len() >= SITES_MAX && !sites.contains_key(&site_index) {
            sites.clear();
        }
        let (since, lines) = sites.entry(site_index).or_insert((now, 0));
        if now.saturating_duration_since(*since) >= SHARE_TIME {
            (*since, *lines) = (now, 0);
        }
        *lines += 1;
        *lines <= SITE_LINES_MAX
    }
}

impl StderrLog {
    /// Begins for an exchange whose route is known.
    pub fn new(exchange: &Exchange) -> Self {
        Self {
            request_id: exchange.request.id,
            serving: exchange.route.serving.clone(),
            site_index: exchange.route.site_index,
            file: exchange.route.file.clone(),
            lines: Lines::default(),
        }
    }

    /// Logs what was said, as soon as a line is whole.
    pub fn push(&mut self, bytes: &[u8]) {
        let mut lines = std::mem::take(&mut self.lines);
        lines.push(bytes, |line| self.say(line));
        self.lines = lines;
    }

    fn may_say(&self) -> bool {
        let (serving, site_index) = (&self.serving, self.site_index);
        let share = serving.as_ref().zip(site_index);
        share.is_none_or(|(serving, index)| serving.stderr.take(index, Instant::now()))
    }

    fn say(&self, line: &[u8]) {
        if !self.may_say() {
            return;
        }
        let text = String::from_utf8_lossy(line);
        tracing::warn!(request_id = %self.request_id, site = self.site(), file = self.file(), text = &*text, "a program's standard error");
    }

    fn site(&self) -> Option<&str> {
        let site = self.serving.as_ref()?.site(self.site_index?)?;
        Some(&site.name)
    }

    fn file(&self) -> Option<String> {
        let file = self.file.as_ref()?;
        Some(String::from_utf8_lossy(file.name()).into_owned())
    }
}

impl Drop for StderrLog {
    fn drop(&mut self) {
        let mut lines = std::mem::take(&mut self.lines);
        if let Some(line) = lines.last() {
            self.say(&line);
        }
        if lines.unsaid_bytes > 0 && self.may_say() {
            let (bytes, lines_max) = (lines.unsaid_bytes, LINES_MAX);
            tracing::warn!(request_id = %self.request_id, site = self.site(), file = self.file(), bytes, lines_max, "a program's standard error was cut");
        }
    }
}

impl Lines {
    /// Takes bytes, and hands out each line they complete.
    pub(crate) fn push(&mut self, bytes: &[u8], mut say: impl FnMut(&[u8])) {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            if self.said == LINES_MAX {
                self.unsaid_bytes += part.len() as u64;
                continue;
            }
            let (text, is_whole) = match part.strip_suffix(b"\n") {
                Some(text) => (text, true),
                None => (part, false),
            };
            let room = LINE_BYTES_MAX - self.open.len();
            let (kept, cut) = text.split_at(text.len().min(room));
            self.open.extend_from_slice(kept);
            self.unsaid_bytes += cut.len() as u64;
            if is_whole && let Some(line) = self.last() {
                say(&line);
            }
        }
    }

    /// Lets as many lines be said again; how many bytes were left out since the last time.
    pub(crate) fn renew(&mut self) -> u64 {
        self.said = 0;
        std::mem::take(&mut self.unsaid_bytes)
    }

    /// The line that is open, unless it is empty.
    pub(crate) fn last(&mut self) -> Option<Vec<u8>> {
        let mut line = std::mem::take(&mut self.open);
        line.truncate(line.trim_ascii_end().len());
        if line.is_empty() {
            return None;
        }
        self.said += 1;
        Some(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines that come of bytes pushed in pieces, and how many bytes were left out.
    fn lines(pieces: &[&[u8]]) -> (Vec<String>, u64) {
        let mut lines = Lines::default();
        let mut said = Vec::new();
        let text = |line: &[u8]| String::from_utf8_lossy(line).into_owned();
        for piece in pieces {
            lines.push(piece, |line| said.push(text(line)));
        }
        said.extend(lines.last().map(|line| text(&line)));
        (said, lines.unsaid_bytes)
    }

    #[test]
    fn bytes_become_lines_however_they_are_cut() {
        let expected = (vec!["one".to_owned(), "two  2".into(), "three".into()], 0);
        let text = b"one\r\n\n \ntwo  2\nthree";
        assert_eq!(lines(&[text]), expected);
        let single: Vec<_> = text.chunks(1).collect();
        assert_eq!(lines(&single), expected);
        for at in 0..text.len() {
            assert_eq!(lines(&[&text[..at], &text[at..]]), expected);
        }
    }

    #[test]
    fn a_long_line_is_cut_and_the_next_one_is_not() {
        let long = [b'x'; 3 * LINE_BYTES_MAX];
        let (said, unsaid) = lines(&[&long, &long, b"\nnext\n"]);
        assert_eq!(said, ["x".repeat(LINE_BYTES_MAX), "next".into()]);
        assert_eq!(unsaid, 5 * LINE_BYTES_MAX as u64);
    }

    #[test]
    fn a_flood_is_counted_not_logged() {
        let flood = b"help\n".repeat(10 * LINES_MAX);
        let (said, unsaid) = lines(&[&flood, b"no end"]);
        assert_eq!(said.len(), LINES_MAX);
        assert_eq!(unsaid, (flood.len() - 5 * LINES_MAX) as u64 + 6);
    }

    #[test]
    fn a_site_says_only_so_much_a_second_and_leaves_others_theirs() {
        let shares = StderrShares::default();
        let now = Instant::now();
        let said = |site, at| (0..1_000).filter(|_| shares.take(site, at)).count();
        assert_eq!((said(1, now), said(1, now)), (SITE_LINES_MAX, 0));
        assert_eq!(said(2, now), SITE_LINES_MAX);
        assert_eq!(said(1, now + SHARE_TIME), SITE_LINES_MAX);
        for site in 0..5_000 {
            shares.take(site, now);
        }
        assert!(shares.sites.borrow().len() <= SITES_MAX);
    }
}
