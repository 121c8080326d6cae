//! What scripts in shadow would have done: counted by script and phase, remembered for `nagaya why`,
//! and told to the log once a second.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::{self, Write as _};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use script::Phase;

use crate::exchange::request::RequestId;

/// Requests of which it is remembered.
const REMEMBERED_MAX: usize = 2_048;
/// Scripts that are counted; beyond them reloads have made up names.
const COUNTED_MAX: usize = 4_096;
/// How often the log hears of it, and of how many scripts and words then.
const LINES_EVERY: Duration = Duration::from_secs(1);
const LINES_MAX: usize = 32;
/// Bytes of a path that are remembered.
const PATH_BYTES_MAX: usize = 128;

/// What would have become of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Word {
    /// The script answers it.
    Answered(u16),
    /// The script fails, and that denies it.
    Denied {
        /// The reason as records have it.
        reason: &'static str,
        /// How it failed.
        detail: String,
    },
    /// Its connection is closed.
    Closed,
    /// It is resolved anew.
    Elsewhere,
    /// It goes on, and this of it or its reply is another.
    Changed(String),
}

impl Word {
    /// Whether the log says the same of both, but for the detail.
    fn is_same(&self, other: &Word) -> bool {
        match (self, other) {
            (Word::Denied { reason, .. }, Word::Denied { reason: other, .. }) => reason == other,
            _ => self == other,
        }
    }

    /// Whether the script would have had the last word on it.
    pub(crate) fn ends(&self) -> bool {
        matches!(self, Word::Answered(_) | Word::Denied { .. } | Word::Closed)
    }
}

impl fmt::Display for Word {
    /// What stands behind "it would be".
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Word::Answered(status) => write!(out, "answered {status}"),
            Word::Denied { reason, .. } => write!(out, "answered 500: {reason}"),
            Word::Closed => out.write_str("closed without a reply"),
            Word::Elsewhere => out.write_str("sent elsewhere inside"),
            Word::Changed(what) => write!(out, "changed: {what}"),
        }
    }
}

/// A request for which a script in shadow had a word.
#[derive(Debug, Clone)]
pub(crate) struct Remembered {
    pub(crate) id: RequestId,
    /// When it came, since 1970.
    pub(crate) at: Duration,
    pub(crate) site: Arc<str>,
    pub(crate) path: Box<[u8]>,
    pub(crate) script: Arc<str>,
    pub(crate) phase: Phase,
    pub(crate) word: Word,
}

/// What a script came to in a phase.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) runs: u64,
    pub(crate) answered: u64,
    pub(crate) changed: u64,
}

/// What the scripts in shadow of all workers would have done.
#[derive(Debug, Default)]
pub(crate) struct Tried {
    /// Held for one word, or to copy what is asked for.
    known: Mutex<Known>,
    /// Whether the log has yet to hear of something.
    has_lines: AtomicBool,
}

#[derive(Debug, Default)]
struct Known {
    counts: BTreeMap<(Arc<str>, &'static str), Counts>,
    ring: VecDeque<Remembered>,
    lines: Vec<Line>,
    /// Words beyond those of [`Self::lines`].
    further: u64,
    said: Option<Instant>,
}

#[derive(Debug)]
struct Line {
    /// The last of them.
    last: Remembered,
    count: u64,
}

impl Tried {
    /// Counts a run of a script that had no word.
    pub(super) fn count(&self, script: &Arc<str>, phase: Phase) {
        if let Some(counts) = self.lock().counts(script, phase) {
            counts.runs += 1;
        }
    }

    /// Counts and remembers a word.
    pub(super) fn note(&self, remembered: Remembered) {
        let mut known = self.lock();
        if let Some(counts) = known.counts(&remembered.script, remembered.phase) {
            counts.runs += 1;
            match remembered.word.ends() {
                true => counts.answered += 1,
                false => counts.changed += 1,
            }
        }
        known.add_line(&remembered);
        if known.ring.len() == REMEMBERED_MAX {
            known.ring.pop_front();
        }
        known.ring.push_back(remembered);
        self.has_lines.store(true, Relaxed);
    }

    /// What a script came to in a phase.
    pub(crate) fn counts(&self, script: &Arc<str>, phase: Phase) -> Counts {
        let key = (Arc::clone(script), phase.name());
        self.lock().counts.get(&key).copied().unwrap_or_default()
    }

    /// What is remembered of this request, the first word first.
    pub(crate) fn find(&self, id: &[u8]) -> Vec<Remembered> {
        let known = self.lock();
        let all = known.ring.iter().filter(|it| it.id.as_bytes() == id);
        all.cloned().collect()
    }

    /// Tells the log of the words since the last time, once a second.
    pub(crate) fn say(&self, now: Instant) {
        if !self.has_lines.load(Relaxed) {
            return;
        }
        let mut known = self.lock();
        let is_soon = |said: Instant| now.saturating_duration_since(said) < LINES_EVERY;
        if known.said.is_some_and(is_soon) {
            return;
        }
        known.said = Some(now);
        let further = std::mem::take(&mut known.further);
        let lines = std::mem::take(&mut known.lines);
        self.has_lines.store(false, Relaxed);
        drop(known);
        for Line { last, count } in lines {
            let Remembered { script, phase, .. } = &last;
            let (word, request_id, site) = (&last.word, last.id, &last.site);
            let detail = match word {
                Word::Denied { detail, .. } => Some(detail),
                _ => None,
            };
            tracing::warn!(%site, %request_id, detail, "script {script} in {phase}: {count} would be {word} (shadow)");
        }
        if further > 0 {
            tracing::warn!("further scripts: {further} would be answered or changed (shadow)");
        }
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn counts(&mut self, script: &Arc<str>, phase: Phase) -> Option<&mut Counts> {
        let key = (Arc::clone(script), phase.name());
        if self.counts.len() >= COUNTED_MAX && !self.counts.contains_key(&key) {
            return None;
        }
        Some(self.counts.entry(key).or_default())
    }

    fn add_line(&mut self, remembered: &Remembered) {
        let is_same = |line: &&mut Line| {
            let last = &line.last;
            let same_script = last.script == remembered.script && last.phase == remembered.phase;
            same_script && last.word.is_same(&remembered.word)
        };
        if let Some(line) = self.lines.iter_mut().find(is_same) {
            line.last = remembered.clone();
            line.count += 1;
        } else if self.lines.len() < LINES_MAX {
            self.lines.push(Line {
                last: remembered.clone(),
                count: 1,
            });
        } else {
            self.further += 1;
        }
    }
}

/// As much of a path as is remembered.
pub(super) fn beginning(path: &[u8]) -> Box<[u8]> {
    path.get(..PATH_BYTES_MAX).unwrap_or(path).into()
}

/// What `nagaya why` says of it; `moment` is when that was.
pub(crate) fn told(remembered: &Remembered, moment: &str) -> String {
    let word = &remembered.word;
    let path = String::from_utf8_lossy(&remembered.path);
    let mut out = String::new();
    let mut line = |name: &str, value: &dyn fmt::Display| {
        // Writing to memory does not fail.
        let _ = writeln!(out, "{name:<11} {value}");
    };
    line("request", &remembered.id);
    line("at", &moment);
    line("site", &remembered.site);
    // Nothing a client sends can look like a line of its own.
    line("path", &path.escape_debug());
    line("script", &remembered.script);
    line("phase", &remembered.phase);
    let outcome = format!("passed: would have been {word}, but the script is in shadow");
    line("outcome", &outcome);
    if let Word::Denied { detail, .. } = word {
        line("failed", &detail.escape_debug());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(number: u64, script: &str, word: Word) -> Remembered {
        Remembered {
            id: RequestId::from_number(number),
            at: Duration::ZERO,
            site: "a".into(),
            path: beginning(b"/a\nb"),
            script: script.into(),
            phase: Phase::Access,
            word,
        }
    }

    #[test]
    fn words_are_counted_by_script_and_remembered_up_to_a_number() {
        let tried = Tried::default();
        tried.count(&"a.rb".into(), Phase::Access);
        for number in 0..REMEMBERED_MAX as u64 + 1 {
            tried.note(word(number, "a.rb", Word::Answered(403)));
        }
        tried.note(word(1, "a.rb", Word::Changed("path".to_owned())));
        let all = REMEMBERED_MAX as u64 + 1;
        let expected = Counts {
            runs: all + 2,
            answered: all,
            changed: 1,
        };
        assert_eq!(tried.counts(&"a.rb".into(), Phase::Access), expected);
        let none = Counts::default();
        assert_eq!(tried.counts(&"a.rb".into(), Phase::Rewrite), none);
        assert!(tried.find(RequestId::from_number(0).as_bytes()).is_empty());
        let last = tried.find(RequestId::from_number(all - 1).as_bytes());
        let told = told(&last[0], "then");
        assert!(told.contains("path        /a\\nb\n"), "{told}");
        assert!(told.contains("would have been answered 403, but"), "{told}");
    }

    #[test]
    fn a_second_has_a_line_for_each_script_and_word_and_one_for_the_rest() {
        let tried = Tried::default();
        for number in 0..3 {
            let detail = format!("failed {number}");
            let reason = "script_raised";
            tried.note(word(number, "a.rb", Word::Denied { reason, detail }));
        }
        for number in 0..40 {
            tried.note(word(number, &format!("{number}.rb"), Word::Closed));
        }
        let known = tried.lock();
        assert_eq!((known.lines.len(), known.further), (LINES_MAX, 9));
        assert_eq!(known.lines[0].count, 3);
        drop(known);
        let now = Instant::now();
        tried.say(now);
        assert!(tried.lock().lines.is_empty());
        tried.note(word(1, "a.rb", Word::Elsewhere));
        tried.say(now + LINES_EVERY / 2);
        assert_eq!(tried.lock().lines.len(), 1, "it was told of just now");
        tried.say(now + LINES_EVERY);
        assert!(tried.lock().lines.is_empty());
    }
}
