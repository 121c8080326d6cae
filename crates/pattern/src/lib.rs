//! Regular expressions as Ruby writes them, matched within a number of steps.
//!
//! A pattern is read into a tree (`parse`), made into a program (`compile`), and run by a matcher
//! that goes back where it has to (`run`), as Ruby's own does: so it finds what Ruby finds, with
//! groups, references to them and looks around. Every step is counted, and a match that takes too
//! many ends in an error; no pattern and no text keep a worker. That is why it is written here:
//! `fancy-regex` counts how often it goes back, not the bytes it reads, and what it hands to an
//! automaton is not counted at all, so 64 KiB of one letter keep it for seconds at a low limit.
//!
//! Texts are any bytes. What is no UTF-8 is a character of its own, byte by byte.
//! Left out: `\g`, `\X`, `(?~ )`, and cases of letters that become two.
//!
//! What configurations say ([`Expression`]) needs the counting matcher seldom, and has few steps.
#![forbid(unsafe_code)]

mod budget;
mod choices;
mod class;
mod compile;
mod expression;
mod parse;
mod run;
mod set;

#[cfg(test)]
mod tests;

use std::fmt;

pub use self::budget::{Budget, Exhausted};
pub use self::expression::{Expression, Expressions};

/// Longest source of a pattern.
const SOURCE_BYTES_MAX: usize = 64 * 1_024;

/// How a pattern is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Flags {
    /// `i`
    pub ignore_case: bool,
    /// `m`: a `.` is any character, a newline too.
    pub multiline: bool,
    /// `x`: blanks and comments do not count.
    pub extended: bool,
    /// `^` and `$` are the ends of the text, not of its lines.
    pub whole_text: bool,
}

/// What is wrong with a pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Syntax(String);

impl fmt::Display for Syntax {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Syntax {}

/// A pattern, ready to be matched.
pub struct Pattern {
    program: compile::Program,
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pattern")
            .field("groups", &self.groups())
            .finish_non_exhaustive()
    }
}

impl Pattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// What is wrong with it, or that it is too large.
    pub fn new(source: &str, flags: Flags) -> Result<Self, Syntax> {
        if source.len() > SOURCE_BYTES_MAX {
            return Err(Syntax(format!("longer than {SOURCE_BYTES_MAX} bytes")));
        }
        let parsed = parse::parse(source, flags)?;
        let program = compile::compile(parsed)?;
        Ok(Self { program })
    }

    /// How many groups are remembered.
    pub fn groups(&self) -> usize {
        self.program.groups
    }

    /// Names of groups with their numbers, in the order they appear.
    pub fn names(&self) -> &[(String, Vec<usize>)] {
        &self.program.names
    }

    /// About as many bytes as it takes.
    pub fn bytes(&self) -> usize {
        self.program.bytes()
    }

    /// The first match at or after `from`: where the whole and each group begin and end, in bytes.
    ///
    /// # Errors
    /// When it takes more steps than `budget` has left.
    pub fn find(
        &self,
        text: &[u8],
        from: usize,
        budget: &mut Budget,
    ) -> Result<Option<Spans>, Exhausted> {
        run::find(&self.program, text, from, budget)
    }

    /// The last match that begins at or before `from`.
    ///
    /// # Errors
    /// When it takes more steps than `budget` has left.
    pub fn find_last(
        &self,
        text: &[u8],
        from: usize,
        budget: &mut Budget,
    ) -> Result<Option<Spans>, Exhausted> {
        run::find_last(&self.program, text, from, budget)
    }
}

/// Where the whole match (0) and its groups (from 1) begin and end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spans(Vec<Option<(usize, usize)>>);

impl Spans {
    /// A match without groups.
    pub fn whole_of(from: usize, to: usize) -> Self {
        Self(vec![Some((from, to))])
    }

    /// Of a group; `None` where it was not met.
    pub fn get(&self, group: usize) -> Option<(usize, usize)> {
        self.0.get(group).copied().flatten()
    }

    /// Of the whole match.
    pub fn whole(&self) -> (usize, usize) {
        self.get(0).unwrap_or((0, 0))
    }

    /// All, the whole match first.
    pub fn iter(&self) -> impl Iterator<Item = Option<(usize, usize)>> {
        self.0.iter().copied()
    }
}

/// A byte that is no UTF-8, as a character.
fn byte_code(byte: u8) -> u32 {
    0x11_0000 + u32::from(byte)
}

/// The character at `at` and its length; `None` at the end.
pub fn decode(text: &[u8], at: usize) -> Option<(u32, usize)> {
    let rest = text.get(at..)?;
    let (first, rest) = rest.split_first()?;
    if *first < 0x80 {
        return Some((u32::from(*first), 1));
    }
    let length = match first {
        0xc2..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xf4 => 4,
        _ => return Some((byte_code(*first), 1)),
    };
    let mut code = u32::from(*first) & (0x7f >> length);
    for index in 0..length - 1 {
        match rest.get(index) {
            Some(next) if next & 0xc0 == 0x80 => code = code << 6 | u32::from(next & 0x3f),
            _ => return Some((byte_code(*first), 1)),
        }
    }
    let least = [0x80, 0x800, 0x1_0000];
    let is_short = least.get(length - 2).is_some_and(|least| code < *least);
    match char::from_u32(code) {
        Some(_) if !is_short => Some((code, length)),
        _ => Some((byte_code(*first), 1)),
    }
}

/// Where the character before `at` begins.
fn before(text: &[u8], at: usize) -> Option<usize> {
    let one = at.checked_sub(1)?;
    if *text.get(one)? < 0x80 {
        return Some(one);
    }
    for length in 2..=4 {
        if let Some(start) = at.checked_sub(length)
            && decode(text, start).is_some_and(|(_, found)| found == length)
        {
            return Some(start);
        }
    }
    Some(one)
}
