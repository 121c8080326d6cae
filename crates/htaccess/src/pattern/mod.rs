//! Regular expressions as Apache has them (PCRE without UTF), matched within bounds.
//!
//! A pattern is written anew, byte by byte, in words that mean the same to the matcher of the crate
//! `pattern`: `\<` is a bracket and no word's begin, `[` stands in a set, `$` is the very end, `.` any
//! byte. Its steps are those of the request. Unless a pattern refers back, it takes at most as many
//! as it is long for each byte of the text. There is no recursion, no verb and no `(?m)`.

mod write;

use std::borrow::Cow;
use std::cell::Cell;

use self::write::Writer;
use crate::request::Stop;
use crate::work::Work;
use ::pattern::{Budget, Exhausted, Flags};

/// The longest pattern, in bytes.
const PATTERN_BYTES_MAX: usize = 8 * 1024;
/// The longest text that groups are put into.
const RESULT_BYTES_MAX: usize = 64 * 1024;
/// Groups that results may name, with the whole.
const GROUPS_MAX: usize = 10;

thread_local! {
    /// Bytes of all patterns that this thread has made.
    static MADE_BYTES: Cell<usize> = const { Cell::new(0) };
}

/// Bytes of all patterns that this thread has made: who asks before and after he makes some knows
/// what his take.
pub(crate) fn made_bytes() -> usize {
    MADE_BYTES.get()
}

/// A pattern, ready to match.
#[derive(Debug)]
pub(crate) struct Pattern {
    text: Box<str>,
    counted: ::pattern::Pattern,
}

/// Whether letters are the same in either case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Case {
    /// They are not.
    Exact,
    /// They are.
    Folded,
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
    pub(crate) fn new(pattern: &[u8], case: Case) -> Result<Self, String> {
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
        let counted = match writer.out.contains('\\') {
            true => ::pattern::Pattern::new(&counted_words(&writer.out), flags),
            false => ::pattern::Pattern::new(&writer.out, flags),
        };
        let counted = counted.map_err(|error| error.to_string())?;
        let bytes = counted.bytes() + writer.out.len() + size_of::<Self>();
        MADE_BYTES.set(MADE_BYTES.get().wrapping_add(bytes));
        Ok(Self {
            text: String::from_utf8_lossy(pattern).into(),
            counted,
        })
    }

    /// The pattern as it was written.
    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether it has groups that capture.
    pub(crate) fn captures(&self) -> bool {
        self.counted.groups() > 0
    }

    /// The groups of the first match.
    pub(crate) fn groups(&self, text: &[u8], work: &Work) -> Result<Option<Groups>, Stop> {
        let found = self.find(text, work)?;
        Ok(found.map(|places| Groups::of(text, &places)))
    }

    /// The text with what matches replaced, first or everywhere; `None` where nothing does.
    pub(crate) fn replace(
        &self,
        text: &[u8],
        (replacement, everywhere): (&[u8], bool),
        work: &Work,
    ) -> Result<Option<Vec<u8>>, Stop> {
        let mut out = Vec::new();
        let mut rest = text;
        let mut is_found = false;
        while out.len() <= RESULT_BYTES_MAX
            && let Some(places) = self.find(rest, work)?
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
    fn find(&self, text: &[u8], work: &Work) -> Result<Option<Places>, Stop> {
        let granted = work.left();
        let mut budget = Budget::of_steps(granted);
        let characters = characters(text);
        let found = self.counted.find(&characters, 0, &mut budget);
        let left = if found.is_ok() { budget.left() } else { 0 };
        work.take(granted.saturating_sub(left));
        let found = found.map_err(|Exhausted| Stop::new(500, "htaccess_regex"))?;
        let byte = |at: usize| match &characters {
            Cow::Borrowed(_) => at,
            Cow::Owned(text) => {
                let before = text.get(..at).unwrap_or_default().iter();
                before.filter(|byte| **byte & 0xc0 != 0x80).count()
            }
        };
        let place = |(from, to): (usize, usize)| (byte(from), byte(to));
        Ok(found.map(|spans| spans.iter().map(|span| span.map(place)).collect()))
    }
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
