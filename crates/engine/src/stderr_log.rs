//! What a program says on its standard error, as lines of the error log.
//!
//! A tenant's program decides what is said, so each line stays one line (the error log escapes
//! it) under the request's id, and an exchange may say only so much; of the rest only its length
//! is logged. A page that warns on every request says the same each time: a text is logged once a
//! minute, by whatever workers, and then how often more it was said ([`Texts`]). So that a flood of
//! one site leaves room in the log for the others and for us, a site may say only so much a second
//! ([`StderrShares`]).

use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Lines one exchange may log.
pub(crate) const LINES_MAX: usize = 64;
/// Bytes of one line; the rest of a longer one is cut.
const LINE_BYTES_MAX: usize = 2 * 1024;
/// Lines one site may log in a [`SHARE_TIME`], on each worker.
const SITE_LINES_MAX: usize = 256;
const SHARE_TIME: Duration = Duration::from_secs(1);
/// Sites whose share is known at once; the shares of more begin anew.
const SITES_MAX: usize = 1_024;

/// How often the same text is logged.
const TEXT_TIME: Duration = Duration::from_secs(60);
/// Texts remembered of all, and of one site or map; more are logged whenever they are said.
const TEXTS_MAX: usize = 1_024;
const OWN_TEXTS_MAX: usize = 64;
/// Texts told again at once; the others are when it is looked next, so that the log has room.
const REPEATED_MAX: usize = 64;
/// Stands for what was cut.
pub(crate) const CUT: &str = "(more than is logged)";

/// What programs have complained of lately, whatever the worker.
#[derive(Debug, Default)]
pub struct Complaints {
    /// Of sites' programs.
    pub(crate) sites: Texts,
    /// Of maps' programs.
    pub(crate) maps: Texts,
    /// Why requests were refused, by site.
    pub(crate) refused: Texts,
    /// Refusals that found no room there, and when that was said last.
    unnamed: Mutex<(u64, Option<Instant>)>,
}

/// Whether a text is to be logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Due {
    /// It was not, within the last minute.
    Now,
    /// It was, and is counted.
    Counted,
    /// There are too many to remember it.
    NoRoom,
}

/// Texts that were logged within the last minute, by whose they are.
#[derive(Debug, Default)]
pub(crate) struct Texts {
    hasher: RandomState,
    /// Held to look one up for each line that is said.
    known: Mutex<SaidByName>,
}

#[derive(Debug, Default)]
struct SaidByName {
    count: usize,
    by_name: HashMap<Box<str>, HashMap<u64, Said>>,
}

/// A text, when it was logged, and how often more it was said since then.
#[derive(Debug)]
struct Said {
    text: Box<str>,
    since: Instant,
    more: u64,
}

/// How much each site has said lately, on one worker.
#[derive(Debug)]
pub struct StderrShares {
    sites: RefCell<HashMap<u32, (Instant, usize)>>,
    pub(crate) complaints: Arc<Complaints>,
}

/// Bytes on their way to lines.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    open: Vec<u8>,
    said: usize,
    pub(crate) unsaid_bytes: u64,
}

impl Complaints {
    /// Logs again what was said more than once in the last minute; `tell` is given the site and what
    /// says it.
    pub(crate) fn tell_repeated(&self, now: Instant, tell: impl Fn(&str, &dyn Fn())) {
        self.sites.repeated(now, |site, text, more| {
            tell(site, &|| {
                tracing::warn!(site, text, more, "a program's standard error");
            });
        });
        self.refused.repeated(now, |site, cause, more| {
            tell(site, &|| {
                tracing::warn!(site, cause, more, "requests refused again");
            });
        });
        self.tell_unnamed(now);
        self.maps.repeated(now, |map, text, more| {
            tracing::warn!(map, text, more, "a map program's standard error");
        });
    }

    /// Counts a refusal that is not told by name.
    pub(crate) fn note_unnamed(&self) {
        self.unnamed().0 += 1;
    }

    /// Says how many there were of those, once a minute.
    fn tell_unnamed(&self, now: Instant) {
        let mut unnamed = self.unnamed();
        let (count, said) = *unnamed;
        if count == 0 || said.is_some_and(|said| now.saturating_duration_since(said) < TEXT_TIME) {
            return;
        }
        *unnamed = (0, Some(now));
        drop(unnamed);
        tracing::warn!(count, "requests refused for further causes");
    }

    fn unnamed(&self) -> MutexGuard<'_, (u64, Option<Instant>)> {
        self.unnamed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Texts {
    /// Whether a text is to be logged: it was not within the last minute, or cannot be remembered.
    pub(crate) fn is_due(&self, name: &str, text: &str, now: Instant) -> bool {
        self.note(name, text, now) != Due::Counted
    }

    /// Whether a text is to be logged; it is counted if it was within the last minute.
    pub(crate) fn note(&self, name: &str, text: &str, now: Instant) -> Due {
        let key = self.hasher.hash_one(text);
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let has_room = known.count < TEXTS_MAX;
        if let Some(own) = known.by_name.get_mut(name) {
            if let Some(said) = own.get_mut(&key) {
                said.more += 1;
                return Due::Counted;
            }
            if own.len() >= OWN_TEXTS_MAX {
                return Due::NoRoom;
            }
        }
        if !has_room {
            return Due::NoRoom;
        }
        let own = known.by_name.entry(name.into()).or_default();
        let (text, since, more) = (text.into(), now, 0);
        own.insert(key, Said { text, since, more });
        known.count += 1;
        Due::Now
    }

    /// Hands out each text whose minute is over and that was said again, with how often: it counts
    /// as logged anew. The others are forgotten. At most [`REPEATED_MAX`] at once, and unlocked.
    fn repeated(&self, now: Instant, mut tell: impl FnMut(&str, &str, u64)) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut count, mut due) = (0, Vec::new());
        known.by_name.retain(|name, own| {
            own.retain(|_, said| {
                if now.saturating_duration_since(said.since) < TEXT_TIME {
                    return true;
                }
                if said.more > 0 && due.len() < REPEATED_MAX {
                    let more = std::mem::take(&mut said.more);
                    due.push((name.clone(), said.text.clone(), more));
                    said.since = now;
                    return true;
                }
                said.more > 0
            });
            count += own.len();
            !own.is_empty()
        });
        known.count = count;
        drop(known);
        for (name, text, more) in due {
            tell(&name, &text, more);
        }
    }
}

impl StderrShares {
    /// Makes one in which nobody has said anything.
    pub fn new(complaints: &Arc<Complaints>) -> Self {
        Self {
            sites: RefCell::default(),
            complaints: Arc::clone(complaints),
        }
    }

    /// Whether the site may log another line.
    pub(crate) fn is_due(&self, site_index: u32, now: Instant) -> bool {
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
        let shares = StderrShares::new(&Arc::default());
        let now = Instant::now();
        let said = |site, at| (0..1_000).filter(|_| shares.is_due(site, at)).count();
        assert_eq!((said(1, now), said(1, now)), (SITE_LINES_MAX, 0));
        assert_eq!(said(2, now), SITE_LINES_MAX);
        assert_eq!(said(1, now + SHARE_TIME), SITE_LINES_MAX);
        for site in 0..5_000 {
            shares.is_due(site, now);
        }
        assert!(shares.sites.borrow().len() <= SITES_MAX);
    }

    #[test]
    fn a_text_is_said_once_a_minute_and_then_how_often_more() {
        let texts = Texts::default();
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let repeated = |now| {
            let mut told = Vec::new();
            texts.repeated(now, |name, text, more| {
                told.push(format!("{name} {text} {more}"))
            });
            told
        };
        let said = |name, text, seconds| {
            (0..1_000)
                .filter(|_| texts.is_due(name, text, at(seconds)))
                .count()
        };
        assert_eq!((said("a", "oops", 0), said("a", "oops", 59)), (1, 0));
        assert_eq!(
            (said("b", "oops", 1), said("a", "else", 1)),
            (1, 1),
            "others are others'"
        );
        assert!(texts.is_due("a", "just once", at(2)));
        assert!(repeated(at(59)).is_empty(), "its minute is not over");
        assert_eq!(repeated(at(60)), ["a oops 1999"]);
        let mut later = repeated(at(62));
        later.sort();
        assert_eq!(later, ["a else 999", "b oops 999"]);
        assert!(texts.is_due("a", "just once", at(62)), "forgotten");
        assert_eq!(said("a", "oops", 100), 0, "told a minute ago");
        assert_eq!(repeated(at(120)), ["a oops 1000"]);
        assert!(repeated(at(1_000)).is_empty());
        assert!(
            texts
                .known
                .lock()
                .expect("nobody panicked")
                .by_name
                .is_empty()
        );
    }

    #[test]
    fn only_so_many_texts_are_told_again_at_once_and_the_others_next_time() {
        let texts = Texts::default();
        let start = Instant::now();
        for number in 0..100 {
            let name = format!("site {number}");
            texts.is_due(&name, "oops", start);
            texts.is_due(&name, "oops", start);
        }
        let told = || {
            let mut told = 0;
            texts.repeated(start + TEXT_TIME, |_, _, _| told += 1);
            told
        };
        assert_eq!(
            [told(), told(), told()],
            [REPEATED_MAX, 100 - REPEATED_MAX, 0]
        );
    }

    #[test]
    fn texts_that_are_never_the_same_take_no_more_memory_and_are_said() {
        let texts = Texts::default();
        let now = Instant::now();
        for name in 0..100 {
            for number in 0..100 {
                assert!(texts.is_due(&format!("site {name}"), &format!("{number}"), now));
            }
        }
        let known = texts.known.lock().expect("nobody panicked");
        let counts = || known.by_name.values().map(HashMap::len);
        assert_eq!(
            (counts().sum::<usize>(), known.count),
            (TEXTS_MAX, TEXTS_MAX)
        );
        assert!(counts().all(|count| count <= OWN_TEXTS_MAX));
    }
}
