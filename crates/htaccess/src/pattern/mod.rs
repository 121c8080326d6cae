//! Regular expressions as Apache has them (PCRE without UTF), matched within bounds.
//!
//! A pattern is written anew, byte by byte, in words that mean the same to the libraries here:
//! `\<` is a bracket and no word's begin, `[` stands in a set, `$` is the very end, `.` any byte.
//! What needs look-around, back-references or possessive repeats is matched with backtracking in
//! few steps, all else in time linear in the text. There is no recursion, and no verb.

mod write;

use self::write::Writer;
use crate::request::Stop;

/// The longest pattern, in bytes.
pub const PATTERN_BYTES_MAX: usize = 8 * 1024;
/// Bytes that a compiled pattern may take.
const PROGRAM_BYTES_MAX: usize = 512 * 1024;
/// Steps back in one match of a pattern that backtracks.
pub const STEPS_MAX: usize = 10_000;
/// Groups that results may name, with the whole.
pub(crate) const GROUPS_MAX: usize = 10;

/// A pattern, ready to match.
#[derive(Debug)]
pub struct Pattern {
    text: Box<str>,
    matcher: Matching,
}

#[derive(Debug)]
enum Matching {
    Linear(regex::bytes::Regex),
    Backtracking(Box<fancy_regex::Regex>),
}

/// Whether letters are the same in either case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Case {
    /// They are not.
    Exact,
    /// They are.
    Folded,
}

/// What groups of a match were.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Groups(Vec<Vec<u8>>);

impl Groups {
    /// The text of a group; empty of one that was not met.
    pub(crate) fn get(&self, number: usize) -> &[u8] {
        self.0.get(number).map_or(&[], Vec::as_slice)
    }

    fn of<'t>(count: usize, group: impl Fn(usize) -> Option<&'t [u8]>) -> Self {
        let texts = (0..count.min(GROUPS_MAX)).map(|at| group(at).unwrap_or_default().to_vec());
        Self(texts.collect())
    }
}

impl Pattern {
    /// Compiles a pattern.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn new(pattern: &[u8], case: Case) -> Result<Self, String> {
        if pattern.len() > PATTERN_BYTES_MAX {
            return Err(format!("longer than {PATTERN_BYTES_MAX} bytes"));
        }
        let mut writer = Writer::new(pattern);
        writer.run()?;
        let folds = case == Case::Folded;
        let matcher = if writer.backtracks {
            let mut builder = fancy_regex::RegexBuilder::new(&writer.out);
            builder
                .bytes_mode(fancy_regex::BytesMode::Ascii)
                .case_insensitive(folds)
                .dot_matches_new_line(true)
                .backtrack_limit(STEPS_MAX)
                .delegate_size_limit(PROGRAM_BYTES_MAX);
            let built = builder.build().map_err(|error| error.to_string())?;
            Matching::Backtracking(Box::new(built))
        } else {
            let built = regex::bytes::RegexBuilder::new(&writer.out)
                .unicode(false)
                .case_insensitive(folds)
                .dot_matches_new_line(true)
                .size_limit(PROGRAM_BYTES_MAX)
                .build();
            Matching::Linear(built.map_err(|error| last_line(&error.to_string()))?)
        };
        Ok(Self {
            text: String::from_utf8_lossy(pattern).into(),
            matcher,
        })
    }

    /// The pattern as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// How much a match in a text of so many bytes counts towards the work of a request.
    pub(crate) fn cost(&self, bytes: usize) -> usize {
        match self.matcher {
            Matching::Linear(_) => 1 + bytes / 64,
            Matching::Backtracking(_) => 16 + bytes / 4,
        }
    }

    /// Whether the text matches.
    pub(crate) fn is_match(&self, text: &[u8]) -> Result<bool, Stop> {
        match &self.matcher {
            Matching::Linear(regex) => Ok(regex.is_match(text)),
            Matching::Backtracking(regex) => regex.is_match(text).map_err(|_| too_long()),
        }
    }

    /// The groups of the first match.
    pub(crate) fn groups(&self, text: &[u8]) -> Result<Option<Groups>, Stop> {
        match &self.matcher {
            Matching::Linear(regex) => Ok(regex
                .captures(text)
                .map(|found| Groups::of(found.len(), |at| found.get(at).map(|it| it.as_bytes())))),
            Matching::Backtracking(regex) => {
                let found = regex.captures(text).map_err(|_| too_long())?;
                Ok(found.map(|found| {
                    Groups::of(found.len(), |at| {
                        let range = found.get(at).map(|it| it.range())?;
                        text.get(range)
                    })
                }))
            }
        }
    }

    /// The text with what matches replaced, first or everywhere; `None` where nothing does.
    pub(crate) fn replace(
        &self,
        text: &[u8],
        replacement: &[u8],
        is_all: bool,
    ) -> Result<Option<Vec<u8>>, Stop> {
        let mut out = Vec::new();
        let mut rest = text;
        let mut is_found = false;
        while let Some((range, groups)) = self.place(rest)? {
            is_found = true;
            out.extend_from_slice(rest.get(..range.start).unwrap_or_default());
            out.extend_from_slice(&substituted(replacement, &groups));
            let is_empty = range.is_empty();
            rest = rest.get(range.end..).unwrap_or_default();
            if is_empty {
                let Some((byte, after)) = rest.split_first() else {
                    break;
                };
                out.push(*byte);
                rest = after;
            }
            if !is_all || rest.is_empty() {
                break;
            }
        }
        out.extend_from_slice(rest);
        Ok(is_found.then_some(out))
    }

    fn place(&self, text: &[u8]) -> Result<Option<(std::ops::Range<usize>, Groups)>, Stop> {
        let Some(groups) = self.groups(text)? else {
            return Ok(None);
        };
        let range = match &self.matcher {
            Matching::Linear(regex) => regex.find(text).map(|it| it.range()),
            Matching::Backtracking(regex) => {
                let found = regex.find(text).map_err(|_| too_long())?;
                found.map(|it| it.range())
            }
        };
        Ok(range.map(|range| (range, groups)))
    }
}

fn too_long() -> Stop {
    Stop::new(500, "htaccess_regex")
}

/// A replacement with `$1` and `&` as other modules than rewriting have them.
pub(crate) fn substituted(replacement: &[u8], groups: &Groups) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = replacement;
    loop {
        match rest {
            [] => return out,
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

fn last_line(text: &str) -> String {
    text.lines().last().unwrap_or(text).trim().to_owned()
}
