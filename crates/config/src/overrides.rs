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
use crate::looks::Existence;
use crate::lower;
use crate::model::Model;
use crate::sources::Sources;

/// How a file begins that was not there.
const HEAD: &str = "\
# What was changed while the gateway ran, and holds beside the configuration: limits, kept by
# `nagaya limits set LIMIT KEY=VALUE … --keep`, a line for each as `nagaya limits list` names it, and
# tenants, suspended by `nagaya tenant suspend`. It may be edited: then `nagaya check`, and reload.
";
/// Lines of the file that are named where somebody is told that it changes limits.
const LINES_NAMED_MAX: usize = 5;

/// A table of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    /// Changes of limits.
    Limits,
    /// Tenants that are suspended.
    Suspended,
}

impl Part {
    fn head(self) -> &'static str {
        match self {
            Part::Limits => "[limits]",
            Part::Suspended => "[suspended]",
        }
    }
}

/// An overrides file.
#[derive(Debug, Clone)]
pub struct Overrides {
    name: String,
    text: String,
    entries: Vec<Entry>,
}

#[derive(Debug, Clone)]
struct Entry {
    part: Part,
    /// The limit, or the tenant.
    identity: String,
    /// Of a limit, as typed after `limits set`: names and values; of a tenant since when.
    changes: Changes,
    /// The bytes from its name to its end.
    start: usize,
    end: usize,
}

type Changes = Vec<(&'static str, String)>;

/// Of what names of what, what it says.
type Meaning<'a> = (Part, &'a str, &'a Changes);

/// Says what the overrides file changes: `1 limit is changed by FILE (line 6); 2 tenants are
/// suspended`; `None` where that is nothing.
#[must_use]
pub fn told(model: &Model) -> Option<String> {
    let suspended = match model.suspended.len() {
        0 => None,
        1 => Some("1 tenant is suspended".to_owned()),
        count => Some(format!("{count} tenants are suspended")),
    };
    let all: Vec<String> = limits_told(model).into_iter().chain(suspended).collect();
    (!all.is_empty()).then(|| all.join("; "))
}

fn limits_told(model: &Model) -> Option<String> {
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
        let limits = found.limits.iter().map(|entry| Entry {
            part: Part::Limits,
            identity: entry.identity.to_owned(),
            changes: entry.typed(),
            start: entry.name_spot.start,
            end: entry.end,
        });
        let suspended = found.suspended.iter().map(|entry| Entry {
            part: Part::Suspended,
            identity: entry.tenant.to_owned(),
            changes: vec![("since", entry.since.clone())],
            start: entry.name_spot.start,
            end: entry.end,
        });
        let entries = limits.chain(suspended).collect();
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
        let known = self.entry(Part::Limits, identity)?;
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
            None => self.added(Part::Limits, &line),
        };
        let mut expected = self.meanings_without(Part::Limits, identity);
        expected.push((Part::Limits, identity, &merged));
        self.proved(text, at, identity, expected, merged.clone())
    }

    /// Notes that a tenant is suspended since `when`; `None` where that is noted.
    ///
    /// # Errors
    /// The name cannot be written down.
    pub fn suspend(&self, tenant: &str, when: &str) -> Result<Option<Edited>, Unedited> {
        let part = Part::Suspended;
        if self.entry(part, tenant)?.is_some() {
            return Ok(None);
        }
        let (at, text) = self.added(part, &format!("{} = {when}", quote(tenant)));
        let since = vec![("since", when.to_owned())];
        let mut expected = self.meanings_without(part, tenant);
        expected.push((part, tenant, &since));
        let edited = self.proved(text, at, tenant, expected, Vec::new());
        edited.map(Some)
    }

    /// Forgets that a tenant is suspended; `None` where it is not.
    ///
    /// # Errors
    /// The line has to be removed by hand.
    pub fn resume(&self, tenant: &str) -> Result<Option<Edited>, Unedited> {
        self.without(Part::Suspended, tenant)
    }

    /// Forgets what is kept of a limit; `None` where nothing is.
    ///
    /// # Errors
    /// The entry has to be removed by hand.
    pub fn forget(&self, identity: &str) -> Result<Option<Edited>, Unedited> {
        self.without(Part::Limits, identity)
    }

    fn without(&self, part: Part, identity: &str) -> Result<Option<Edited>, Unedited> {
        let Some(entry) = self.entry(part, identity)? else {
            return Ok(None);
        };
        let start = lower::line_start(&self.text, entry.start);
        let after = self.text.get(entry.end..).unwrap_or_default();
        let end = after
            .find('\n')
            .map_or(self.text.len(), |newline| entry.end + newline + 1);
        let text = self.with(start..end, "");
        let expected = self.meanings_without(part, identity);
        let edited = self.proved(text, entry.start, identity, expected, Vec::new());
        edited.map(Some)
    }

    /// The entry of a limit or tenant, if it stands in a line of its own.
    fn entry(&self, part: Part, identity: &str) -> Result<Option<&Entry>, Unedited> {
        let mut entries = self.of(part);
        let Some(entry) = entries.find(|entry| entry.identity == identity) else {
            return Ok(None);
        };
        let text = |range| self.text.get(range).unwrap_or_default();
        let before = text(lower::line_start(&self.text, entry.start)..entry.start);
        let itself = text(entry.start..entry.end);
        let is_whole = match part {
            Part::Limits => itself.ends_with('}') && !itself.contains('\n'),
            Part::Suspended => true,
        };
        let is_a_line = before.trim().is_empty() && is_whole;
        match is_a_line {
            true => Ok(Some(entry)),
            false => Err(self.by_hand(identity)),
        }
    }

    fn by_hand(&self, identity: &str) -> Unedited {
        Unedited::ByHand(self.name.clone(), identity.to_owned())
    }

    fn of(&self, part: Part) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(move |entry| entry.part == part)
    }

    fn meanings(&self) -> impl Iterator<Item = Meaning<'_>> {
        let entries = self.entries.iter();
        entries.map(|entry| (entry.part, entry.identity.as_str(), &entry.changes))
    }

    fn meanings_without<'a>(&'a self, part: Part, identity: &str) -> Vec<Meaning<'a>> {
        let is_meant = |meaning: &Meaning<'_>| (meaning.0, meaning.1) == (part, identity);
        self.meanings().filter(|it| !is_meant(it)).collect()
    }

    fn with(&self, range: std::ops::Range<usize>, instead: &str) -> String {
        let before = self.text.get(..range.start).unwrap_or_default();
        let after = self.text.get(range.end..).unwrap_or_default();
        format!("{before}{instead}{after}")
    }

    /// The text with a further line, and where that begins: behind the table's last entry, or else
    /// its head.
    fn added(&self, part: Part, line: &str) -> (usize, String) {
        let table = part.head();
        let head = || {
            let at = self.text.find(table)?;
            Some(at + table.len())
        };
        let last = self.of(part).last().map(|entry| entry.end);
        let Some(after) = last.or_else(head) else {
            let mut text = match self.text.as_str() {
                "" => HEAD.to_owned(),
                some => some.to_owned(),
            };
            if !text.ends_with('\n') {
                text.push('\n');
            }
            text.push_str(&format!("\n{table}\n"));
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
        mut expected: Vec<Meaning<'_>>,
        changes: Changes,
    ) -> Result<Edited, Unedited> {
        let again = Overrides::read(&self.name, &text).map_err(|problems| {
            let first = problems.problems().first();
            Unedited::Wrong(first.map_or(String::new(), ToString::to_string))
        })?;
        let mut found: Vec<_> = again.meanings().collect();
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
                 its table's head: edit it by hand, then reload"
            ),
        }
    }
}

impl std::error::Error for Unedited {}
