//! The overrides file as text: read, and changed a line at a time.
//!
//! The idea: the file belongs to the operator as well, so a change touches the one line it is
//! about, and comments and order stay. What was made of the text is read again before it is handed
//! out: if it does not say exactly what was wanted (an entry over several lines), nothing is
//! changed and a person has to. What entries mean for limits stands in the lowering.

use std::fmt;

use crate::diagnostics::Diagnostics;
use crate::dump::write::quote;
pub use crate::keys::limit::KEYS;
use crate::lower;
use crate::model::Model;
use crate::sources::{Existence, Sources};

/// How a file begins that was not there.
const HEAD: &str = "\
# Changes of limits, kept by `nagaya limits set LIMIT KEY=VALUE … --keep`; they hold in place of what
# the configuration says. A line for each limit, as `nagaya limits list` names it. It may be edited:
# then `nagaya check`, and reload.
";
/// Lines of the file that are named where somebody is told that it changes limits.
const LINES_NAMED_MAX: usize = 5;
/// The table that entries stand in.
const TABLE: &str = "[limits]";

/// An overrides file.
#[derive(Debug, Clone)]
pub struct Overrides {
    name: String,
    text: String,
    entries: Vec<Entry>,
}

#[derive(Debug, Clone)]
struct Entry {
    identity: String,
    /// As typed after `limits set`: names and values.
    changes: Changes,
    /// The bytes from its name to its end.
    start: usize,
    end: usize,
}

type Changes = Vec<(&'static str, String)>;

/// Says how many limits the overrides file changes, and where: `1 limit is changed by FILE (line 6)`;
/// `None` where it changes none.
#[must_use]
pub fn told(model: &Model) -> Option<String> {
    let file = &model.kept().next()?.file;
    let mut lines: Vec<usize> = model.kept().map(|kept| kept.line).collect();
    lines.sort_unstable();
    let named = lines.iter().take(LINES_NAMED_MAX);
    let named: Vec<String> = named.map(ToString::to_string).collect();
    let named = named.join(", ");
    Some(match lines.len() {
        1 => format!("1 limit is changed by {file} (line {named})"),
        count @ ..=LINES_NAMED_MAX => {
            format!("{count} limits are changed by {file} (lines {named})")
        }
        count => {
            let more = count - LINES_NAMED_MAX;
            format!("{count} limits are changed by {file} (lines {named} and {more} more)")
        }
    })
}

/// Says what is wrong with changes of a limit, as typed after `limits set`, before anybody is asked
/// for them: with their values, whatever the limit is.
///
/// # Errors
/// The first thing that is wrong, and what to do.
pub fn check_changes(changes: &[(&str, &str)]) -> Result<(), Unedited> {
    let nothing = Overrides {
        name: "limits set".to_owned(),
        text: String::new(),
        entries: Vec::new(),
    };
    for (at, (name, _)) in changes.iter().enumerate() {
        if changes.iter().skip(at + 1).any(|(other, _)| other == name) {
            return Err(Unedited::Wrong(format!("`{name}` stands there twice")));
        }
    }
    let when = "1970-01-01T00:00:00Z";
    nothing.keep("it", changes, when).map(drop)
}

/// A text that was changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edited {
    /// All of it.
    pub text: String,
    /// The line that is concerned, from 1.
    pub line: usize,
    /// What the line says: names and values, as typed after `limits set`.
    pub changes: Vec<(&'static str, String)>,
}

/// Why a text cannot be changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unedited {
    /// What was asked for is wrong: what, and what to do.
    Wrong(String),
    /// The entry does not stand in one line, and has to be edited by hand: the file, the limit.
    ByHand(String, String),
}

impl Overrides {
    /// Reads a file; an empty text is one that is not there.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn read(name: &str, text: &str) -> Result<Overrides, Diagnostics> {
        let sources = Sources::empty(1, Existence::Assumed).with_overrides(name, text);
        let context = lower::Context::new(&sources);
        let document = lower::parse(&context, 0);
        let found = lower::overrides::entries(&context, 0, &document);
        let entries = found.iter().map(|entry| Entry {
            identity: entry.identity.to_owned(),
            changes: entry.typed(),
            start: entry.name_spot.start,
            end: entry.end,
        });
        let entries = entries.collect();
        drop(found);
        drop(document);
        context.finish(())?;
        Ok(Overrides {
            name: name.to_owned(),
            text: text.to_owned(),
            entries,
        })
    }

    /// Keeps changes of a limit, beside or in place of what is kept of it; `when` is the time, as
    /// TOML writes it.
    ///
    /// # Errors
    /// The entry has to be changed by hand.
    pub fn keep(
        &self,
        identity: &str,
        changes: &[(&str, &str)],
        when: &str,
    ) -> Result<Edited, Unedited> {
        let known = self.entry(identity)?;
        let value = |name: &str| {
            let said = changes.iter().rfind(|(said, _)| *said == name);
            let before = || known?.changes.iter().find(|(known, _)| *known == name);
            said.map(|(_, value)| (*value).to_owned())
                .or_else(|| before().map(|(_, value)| value.clone()))
        };
        let names = KEYS.iter();
        // A number as the line will say it: 04 is 4.
        let plain = |value: String| value.parse::<u64>().map_or(value, |it| it.to_string());
        let merged: Changes = names
            .filter_map(|name| Some((*name, plain(value(name)?))))
            .collect();
        let line = line_of(identity, &merged, when);
        let (at, text) = match known {
            Some(entry) => (entry.start, self.with(entry.start..entry.end, &line)),
            None => self.added(&line),
        };
        let mut expected = self.meanings();
        match expected.iter_mut().find(|(known, _)| *known == identity) {
            Some((_, changes)) => *changes = &merged,
            None => expected.push((identity, &merged)),
        }
        self.proved(text, at, identity, expected, merged.clone())
    }

    /// Forgets what is kept of a limit; `None` where nothing is.
    ///
    /// # Errors
    /// The entry has to be removed by hand.
    pub fn forget(&self, identity: &str) -> Result<Option<Edited>, Unedited> {
        let Some(entry) = self.entry(identity)? else {
            return Ok(None);
        };
        let start = lower::line_start(&self.text, entry.start);
        let after = self.text.get(entry.end..).unwrap_or_default();
        let end = after
            .find('\n')
            .map_or(self.text.len(), |newline| entry.end + newline + 1);
        let text = self.with(start..end, "");
        let mut expected = self.meanings();
        expected.retain(|(known, _)| *known != identity);
        let edited = self.proved(text, entry.start, identity, expected, Vec::new());
        edited.map(Some)
    }

    /// The entry of a limit, if it stands in a line of its own.
    fn entry(&self, identity: &str) -> Result<Option<&Entry>, Unedited> {
        let mut entries = self.entries.iter();
        let Some(entry) = entries.find(|entry| entry.identity == identity) else {
            return Ok(None);
        };
        let text = |range| self.text.get(range).unwrap_or_default();
        let before = text(lower::line_start(&self.text, entry.start)..entry.start);
        let itself = text(entry.start..entry.end);
        let is_whole = itself.ends_with('}') && !itself.contains('\n');
        let is_a_line = before.trim().is_empty() && is_whole;
        match is_a_line {
            true => Ok(Some(entry)),
            false => Err(self.by_hand(identity)),
        }
    }

    fn by_hand(&self, identity: &str) -> Unedited {
        Unedited::ByHand(self.name.clone(), identity.to_owned())
    }

    fn meanings(&self) -> Vec<(&str, &Changes)> {
        let entries = self.entries.iter();
        entries
            .map(|entry| (entry.identity.as_str(), &entry.changes))
            .collect()
    }

    fn with(&self, range: std::ops::Range<usize>, instead: &str) -> String {
        let before = self.text.get(..range.start).unwrap_or_default();
        let after = self.text.get(range.end..).unwrap_or_default();
        format!("{before}{instead}{after}")
    }

    /// The text with a further line, and where that begins: behind the last entry, or else the
    /// table's head.
    fn added(&self, line: &str) -> (usize, String) {
        let head = || {
            let at = self.text.find(TABLE)?;
            Some(at + TABLE.len())
        };
        let last = self.entries.last().map(|entry| entry.end);
        let Some(after) = last.or_else(head) else {
            let mut text = match self.text.as_str() {
                "" => HEAD.to_owned(),
                some => some.to_owned(),
            };
            if !text.ends_with('\n') {
                text.push('\n');
            }
            text.push_str(&format!("\n{TABLE}\n"));
            return (text.len(), format!("{text}{line}\n"));
        };
        let rest = self.text.get(after..).unwrap_or_default();
        match rest.find('\n') {
            Some(newline) => {
                let at = after + newline + 1;
                (at, self.with(at..at, &format!("{line}\n")))
            }
            None => (self.text.len() + 1, format!("{}\n{line}\n", self.text)),
        }
    }

    /// The text, if it says what is expected and nothing else.
    fn proved(
        &self,
        text: String,
        at: usize,
        identity: &str,
        mut expected: Vec<(&str, &Changes)>,
        changes: Changes,
    ) -> Result<Edited, Unedited> {
        let again = Overrides::read(&self.name, &text).map_err(|problems| {
            let first = problems.problems().first();
            Unedited::Wrong(first.map_or(String::new(), ToString::to_string))
        })?;
        let mut found = again.meanings();
        found.sort();
        expected.sort();
        if found != expected {
            return Err(self.by_hand(identity));
        }
        let before = text.get(..at).unwrap_or_default();
        let line = before.matches('\n').count() + 1;
        Ok(Edited {
            text,
            line,
            changes,
        })
    }
}

/// An entry as one line.
fn line_of(identity: &str, changes: &Changes, when: &str) -> String {
    let said = changes
        .iter()
        .map(|(name, value)| match value.parse::<u64>() {
            Ok(number) => format!("{name} = {number}"),
            Err(_) => format!("{name} = {}", quote(value)),
        });
    let said: Vec<String> = said.chain([format!("changed = {when}")]).collect();
    format!("{} = {{ {} }}", quote(identity), said.join(", "))
}

impl fmt::Display for Unedited {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unedited::Wrong(why) => out.write_str(why),
            Unedited::ByHand(name, identity) => write!(
                out,
                "{name}: what it says of `{identity}` does not stand in a line of its own below \
                 `{TABLE}`: edit it by hand, then reload"
            ),
        }
    }
}

impl std::error::Error for Unedited {}
