//! Regular expressions as Apache has them (PCRE without UTF), matched within bounds.
//!
//! A pattern is written anew, byte by byte, in words that mean the same to both matchers there are:
//! `\<` is a bracket and no word's begin, `[` stands in a set, `$` is the very end, `.` any byte.
//! The matcher that counts its steps is made at once: it takes little room, says what is wrong, and
//! for most that is asked a few dozen steps. A pattern that takes it many is made an automaton the
//! first time, whose time no text stretches, unless it looks around, refers back or keeps what it
//! has; those have what is left of the steps of their request. There is no recursion, no verb and
//! no `(?m)`.

mod write;

use std::borrow::Cow;
use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use regex::bytes::{Regex, RegexBuilder};

use self::write::Writer;
use crate::request::Stop;
use ::pattern::{Budget, Exhausted, Flags};

/// The longest pattern, in bytes.
pub const PATTERN_BYTES_MAX: usize = 8 * 1024;
/// Steps that are counted of all matches of one request: some 2 ms of a core.
pub const STEPS_MAX: u64 = 200_000;
/// Steps of a match from which on an automaton is better.
const QUICK_STEPS_MAX: u64 = 2_000;
/// As many steps as it takes to make an automaton.
const AUTOMATON_STEPS: u64 = 10_000;
/// Bytes that an automaton may take.
const AUTOMATON_BYTES_MAX: usize = 256 * 1024;
/// Bytes of the states that it remembers for a thread.
const STATES_BYTES_MAX: usize = 128 * 1024;
/// Automata of the process; what comes too late is counted.
const AUTOMATA_MAX: usize = 1_024;
/// States that an automaton may have to go through for a byte, and that count as a step.
const STATES_A_STEP: usize = 64;
/// The longest text that groups are put into.
const RESULT_BYTES_MAX: usize = 64 * 1024;
/// Groups that results may name, with the whole.
const GROUPS_MAX: usize = 10;

/// How many automata there are.
static AUTOMATA: AtomicUsize = AtomicUsize::new(0);

/// A pattern, ready to match.
#[derive(Debug)]
pub struct Pattern {
    text: Box<str>,
    counted: ::pattern::Pattern,
    /// What an automaton is made of; none of a pattern that has to go back.
    words: Option<Box<str>>,
    states: usize,
    case: Case,
    /// The automaton, once it was wanted; none where there was no room for it.
    automaton: OnceLock<Option<Regex>>,
}

/// Whether letters are the same in either case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Case {
    /// They are not.
    Exact,
    /// They are.
    Folded,
}

/// The steps that the matches of a request have taken.
#[derive(Debug, Default)]
pub(crate) struct Steps(Cell<u64>);

impl Steps {
    fn left(&self) -> u64 {
        STEPS_MAX.saturating_sub(self.0.get())
    }

    fn take(&self, steps: u64) {
        self.0.set(self.0.get().saturating_add(steps));
    }
}

/// Where a match and its groups begin and end; none of a group that was not met.
type Places = Vec<Option<(usize, usize)>>;

/// What groups of a match were.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Groups(Vec<Vec<u8>>);

impl Groups {
    /// The text of a group; empty of one that was not met.
    pub(crate) fn get(&self, number: usize) -> &[u8] {
        self.0.get(number).map_or(&[], Vec::as_slice)
    }

    fn of(text: &[u8], places: &[Option<(usize, usize)>]) -> Self {
        let group = |place: &Option<(usize, usize)>| {
            let found = place.and_then(|(from, to)| text.get(from..to));
            found.unwrap_or_default().to_vec()
        };
        Self(places.iter().take(GROUPS_MAX).map(group).collect())
    }
}

impl Pattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn new(pattern: &[u8], case: Case) -> Result<Self, String> {
        if pattern.len() > PATTERN_BYTES_MAX {
            return Err(format!("longer than {PATTERN_BYTES_MAX} bytes"));
        }
        let mut writer = Writer::new(pattern);
        writer.run()?;
        let flags = Flags {
            ignore_case: case == Case::Folded,
            multiline: true,
            whole_text: true,
            ..Flags::default()
        };
        let counted = ::pattern::Pattern::new(&counted_words(&writer.out), flags);
        Ok(Self {
            text: String::from_utf8_lossy(pattern).into(),
            counted: counted.map_err(|error| error.to_string())?,
            states: writer.states(),
            words: (!writer.goes_back).then(|| writer.out.into()),
            case,
            automaton: OnceLock::new(),
        })
    }

    /// The pattern as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether the text matches.
    pub(crate) fn is_match(&self, text: &[u8], steps: &Steps) -> Result<bool, Stop> {
        Ok(self.find(text, steps)?.is_some())
    }

    /// The groups of the first match.
    pub(crate) fn groups(&self, text: &[u8], steps: &Steps) -> Result<Option<Groups>, Stop> {
        let found = self.find(text, steps)?;
        Ok(found.map(|places| Groups::of(text, &places)))
    }

    /// The text with what matches replaced, first or everywhere; `None` where nothing does.
    pub(crate) fn replace(
        &self,
        text: &[u8],
        (replacement, everywhere): (&[u8], bool),
        steps: &Steps,
    ) -> Result<Option<Vec<u8>>, Stop> {
        let mut out = Vec::new();
        let mut rest = text;
        let mut is_found = false;
        while out.len() <= RESULT_BYTES_MAX
            && let Some(places) = self.find(rest, steps)?
        {
            is_found = true;
            let (from, to) = places.first().copied().flatten().unwrap_or_default();
            out.extend_from_slice(rest.get(..from).unwrap_or_default());
            out.extend_from_slice(&substituted(replacement, &Groups::of(rest, &places))?);
            rest = rest.get(to..).unwrap_or_default();
            if from >= to {
                let Some((byte, after)) = rest.split_first() else {
                    break;
                };
                out.push(*byte);
                rest = after;
            }
            if !everywhere || rest.is_empty() {
                break;
            }
        }
        out.extend_from_slice(rest);
        Ok(is_found.then_some(out))
    }

    /// Where it and its groups are found first.
    fn find(&self, text: &[u8], steps: &Steps) -> Result<Option<Places>, Stop> {
        let quick = match self.words {
            Some(_) => QUICK_STEPS_MAX,
            None => STEPS_MAX,
        };
        if self.made().is_none()
            && let Ok(found) = self.count(text, quick, steps)
        {
            return Ok(found);
        }
        match self.make(steps) {
            Some(automaton) => {
                let states = text.len().saturating_mul(self.states) / STATES_A_STEP;
                match states as u64 <= steps.left() {
                    true => steps.take(states as u64),
                    false => return Err(Stop::new(500, "htaccess_regex")),
                }
                Ok(places(automaton, text))
            }
            None => {
                let found = self.count(text, STEPS_MAX, steps);
                found.map_err(|Exhausted| Stop::new(500, "htaccess_regex"))
            }
        }
    }

    /// Looks for it in at most so many steps.
    fn count(&self, text: &[u8], most: u64, steps: &Steps) -> Result<Option<Places>, Exhausted> {
        let granted = most.min(steps.left());
        let mut budget = Budget::of_steps(granted);
        let characters = characters(text);
        let found = self.counted.find(&characters, 0, &mut budget);
        let left = if found.is_ok() { budget.left() } else { 0 };
        steps.take(granted.saturating_sub(left));
        let byte = |at: usize| match &characters {
            Cow::Borrowed(_) => at,
            Cow::Owned(text) => {
                let before = text.get(..at).unwrap_or_default().iter();
                before.filter(|byte| **byte & 0xc0 != 0x80).count()
            }
        };
        let place = |(from, to): (usize, usize)| (byte(from), byte(to));
        Ok(found?.map(|spans| spans.iter().map(|span| span.map(place)).collect()))
    }

    fn made(&self) -> Option<&Regex> {
        self.automaton.get()?.as_ref()
    }

    /// The automaton, made the first time; `None` where there is none, no room, or no step left.
    fn make(&self, steps: &Steps) -> Option<&Regex> {
        if let Some(made) = self.made() {
            return Some(made);
        }
        let words = self.words.as_deref()?;
        if steps.left() < AUTOMATON_STEPS {
            return None;
        }
        steps.take(AUTOMATON_STEPS);
        let made = self.automaton.get_or_init(|| automaton(words, self.case));
        made.as_ref()
    }
}

impl Drop for Pattern {
    fn drop(&mut self) {
        if self.made().is_some() {
            AUTOMATA.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// How much a match in a text of so many bytes counts towards the work of a request.
pub(crate) fn work_of(bytes: usize) -> usize {
    1 + bytes / 64
}

/// Makes an automaton, as long as there is room for one more.
fn automaton(words: &str, case: Case) -> Option<Regex> {
    if AUTOMATA.fetch_add(1, Ordering::Relaxed) < AUTOMATA_MAX {
        let made = RegexBuilder::new(words)
            .unicode(false)
            .case_insensitive(case == Case::Folded)
            .dot_matches_new_line(true)
            .size_limit(AUTOMATON_BYTES_MAX)
            .dfa_size_limit(STATES_BYTES_MAX)
            .build();
        if let Ok(made) = made {
            return Some(made);
        }
    }
    AUTOMATA.fetch_sub(1, Ordering::Relaxed);
    None
}

fn places(automaton: &Regex, text: &[u8]) -> Option<Places> {
    let found = automaton.captures(text)?;
    let groups = found.iter();
    Some(
        groups
            .map(|group| group.map(|it| (it.start(), it.end())))
            .collect(),
    )
}

/// A text in which each byte is the character of its number.
fn characters(text: &[u8]) -> Cow<'_, [u8]> {
    if text.is_ascii() {
        return Cow::Borrowed(text);
    }
    let text: String = text.iter().map(|byte| char::from(*byte)).collect();
    Cow::Owned(text.into_bytes())
}

/// The words as the matcher that counts reads them: bytes as characters, and ends of words as
/// those of ASCII.
fn counted_words(words: &str) -> String {
    let mut out = String::with_capacity(words.len());
    let mut rest = words;
    while let Some(at) = rest.find('\\') {
        let (before, escape) = rest.split_at(at);
        let length = escape.len().min(2);
        let (begin, after) = escape.split_at(length);
        out.push_str(before);
        out.push_str(match begin {
            "\\x" if after.starts_with(|digit: char| ('8'..='F').contains(&digit)) => "\\u00",
            "\\b" => "(?:(?<=\\w)(?!\\w)|(?<!\\w)(?=\\w))",
            "\\B" => "(?:(?<=\\w)(?=\\w)|(?<!\\w)(?!\\w))",
            other => other,
        });
        rest = after;
    }
    out.push_str(rest);
    out
}

/// A replacement with `$1` and `&` as other modules than rewriting have them.
///
/// # Errors
/// It gets too long.
pub(crate) fn substituted(replacement: &[u8], groups: &Groups) -> Result<Vec<u8>, Stop> {
    let mut out = Vec::new();
    let mut rest = replacement;
    loop {
        if out.len() > RESULT_BYTES_MAX {
            return Err(Stop::new(500, "htaccess_loop"));
        }
        match rest {
            [] => return Ok(out),
            [b'\\', byte @ (b'$' | b'&'), after @ ..] => {
                out.push(*byte);
                rest = after;
            }
            [b'$', digit @ b'0'..=b'9', after @ ..] => {
                out.extend_from_slice(groups.get(usize::from(digit - b'0')));
                rest = after;
            }
            [b'&', after @ ..] => {
                out.extend_from_slice(groups.get(0));
                rest = after;
            }
            [byte, after @ ..] => {
                out.push(*byte);
                rest = after;
            }
        }
    }
}
