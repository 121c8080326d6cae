//! A table of a file, read by the names of its keys.
//!
//! The idea: opening a table checks its keys against its section there and then, and every
//! reader takes range and default from the same place, so the lowering holds no numbers of its own.

use std::ops::Range;

use toml::de::DeTable;

use super::context::{Context, Finding, Spot, problem};
use super::names::Named;
use super::value::{Entry, Value};
use crate::keys::{self, Key, Kind, Section};
use crate::model::number::{Field, Number};
use crate::units;

/// Keys that a message about an unknown one lists.
const LISTED_MAX: usize = 24;
/// Sections that a message names as the place of a misplaced key.
const PLACES_MAX: usize = 3;

/// A table whose keys are known to be keys of its section.
#[derive(Clone, Copy)]
pub(crate) struct Table<'a> {
    pub(crate) context: &'a Context<'a>,
    pub(crate) file: usize,
    section: &'static Section,
    entries: &'a DeTable<'a>,
    start: usize,
    end: usize,
}

impl<'a> Table<'a> {
    /// Opens `entries` as a table of `section` and reports keys that do not belong there.
    pub(crate) fn open(
        context: &'a Context<'a>,
        file: usize,
        section: &'static Section,
        entries: &'a DeTable<'a>,
        span: Range<usize>,
    ) -> Table<'a> {
        let table = Table {
            context,
            file,
            section,
            entries,
            start: span.start,
            end: span.end,
        };
        for key in entries.keys() {
            if section.key(key.get_ref()).is_none() {
                let spot = Spot {
                    file,
                    start: key.span().start,
                    end: key.span().end,
                };
                context.report(stranger(section, key.get_ref(), spot));
            }
        }
        table
    }

    /// A table of `section` in which nothing is set.
    pub(crate) fn empty(context: &'a Context<'a>, section: &'static Section) -> Table<'a> {
        Table::open(context, 0, section, &context.nothing, 0..0)
    }

    /// Where the table stands.
    pub(crate) fn spot(&self) -> Spot {
        Spot {
            file: self.file,
            start: self.start,
            end: self.end,
        }
    }

    /// The value of a key, if it is set.
    pub(crate) fn get(&self, name: &'static str) -> Option<Value<'a>> {
        debug_assert!(
            self.section.key(name).is_some(),
            "{name} is not in the table of {}",
            self.section.title
        );
        let (key, node) = self.entries.get_key_value(name)?;
        Some(Value::new(self.context, self.file, key.get_ref(), node))
    }

    /// The value of a key that must be set.
    pub(crate) fn required(&self, name: &'static str) -> Option<Value<'a>> {
        let example = self.section.key(name).map_or("", |key| key.example);
        self.required_as(name, example)
    }

    /// As [`Table::required`], where another example is the one to follow.
    pub(crate) fn required_as(&self, name: &'static str, example: &str) -> Option<Value<'a>> {
        let value = self.get(name);
        if value.is_none() && !self.has_misspelt(name) {
            let message = format!("`{name}` is missing in {}", titled(self.section));
            let finding = problem(self.spot(), message)
                .help(format!("add `{example}`"))
                .absence();
            self.context.report(finding);
        }
        value
    }

    /// Whether a key is set that no section knows.
    pub(crate) fn has_strangers(&self) -> bool {
        self.entries
            .keys()
            .any(|key| self.section.key(key.get_ref()).is_none())
    }

    /// Whether a key is set that was reported as `name` misspelt.
    pub(crate) fn has_misspelt(&self, name: &str) -> bool {
        let known = || self.section.keys.iter().map(|key| key.name);
        let mut strangers = self
            .entries
            .keys()
            .filter(|key| self.section.key(key.get_ref()).is_none());
        strangers.any(|key| keys::nearest(key.get_ref(), known()) == Some(name))
    }

    /// Whether any key is set.
    pub(crate) fn has_anything(&self) -> bool {
        !self.entries.is_empty()
    }

    /// The table of a key; without keys if it is not set.
    pub(crate) fn table(&self, name: &'static str, section: &'static Section) -> Table<'a> {
        let table = self.get(name).and_then(|value| value.table(section));
        table.unwrap_or_else(|| Table::empty(self.context, section))
    }

    /// Reports a problem at the first of the keys that is set.
    pub(crate) fn report_at(&self, names: &[&'static str], message: impl Into<String>) {
        let value = names.iter().find_map(|name| self.get(name));
        let spot = value.map_or(self.spot(), |value| value.spot());
        self.context.report(problem(spot, message));
    }

    /// A count, in the range its key gives.
    pub(crate) fn count(&self, name: &'static str) -> u64 {
        let (key, value) = self.ranged(name);
        let Kind::Count(least, most) = key.kind else {
            return 0;
        };
        let default = || key.default_text().parse().unwrap_or(least);
        value
            .and_then(|value| value.count(least, most))
            .unwrap_or_else(default)
    }

    /// A size in bytes, in the range its key gives.
    pub(crate) fn size(&self, name: &'static str) -> u64 {
        let (key, value) = self.ranged(name);
        let Kind::Size(least, most) = key.kind else {
            return 0;
        };
        let default = || units::parse_size(key.default_text()).unwrap_or(least);
        value
            .and_then(|value| value.size(least, most))
            .unwrap_or_else(default)
    }

    /// A duration in milliseconds, in the range its key gives.
    pub(crate) fn duration(&self, name: &'static str) -> u64 {
        let (key, value) = self.ranged(name);
        let Kind::Duration(least, most) = key.kind else {
            return 0;
        };
        let default = || units::parse_duration(key.default_text()).unwrap_or(least);
        value
            .and_then(|value| value.duration(least, most))
            .unwrap_or_else(default)
    }

    /// A section of plain numbers, each as its key says.
    pub(crate) fn numbers<T: Default>(&self, fields: &[Field<T>]) -> T {
        let mut numbers = T::default();
        for (name, field) in fields {
            let kind = self.section.key(name).map(|key| key.kind);
            match (field(&mut numbers), kind) {
                (Number::Maybe(number), _) => *number = self.some_number(name),
                (number, Some(Kind::Size(..))) => number.set(self.size(name)),
                (number, Some(Kind::Duration(..))) => number.set(self.duration(name)),
                (number, _) => number.set(self.count(name)),
            }
        }
        numbers
    }

    /// A count, a size in bytes or a duration in milliseconds that may be left out, in the range
    /// its key gives.
    pub(crate) fn some_number(&self, name: &'static str) -> Option<u64> {
        let (key, value) = self.ranged(name);
        match key.kind {
            Kind::Count(least, most) => value?.count(least, most),
            Kind::Size(least, most) => value?.size(least, most),
            Kind::Duration(least, most) => value?.duration(least, most),
            _ => None,
        }
    }

    /// A flag.
    pub(crate) fn flag(&self, name: &'static str) -> bool {
        let (key, value) = self.ranged(name);
        value
            .and_then(|value| value.flag())
            .unwrap_or(key.default_text() == "true")
    }

    /// A text.
    pub(crate) fn text(&self, name: &'static str) -> String {
        let (key, value) = self.ranged(name);
        value
            .and_then(|value| value.text())
            .unwrap_or(key.default_text())
            .to_owned()
    }

    /// A choice among the words of `T`.
    pub(crate) fn choice<T: Named>(&self, name: &'static str) -> T {
        let (key, value) = self.ranged(name);
        let default = || T::named(key.default_text()).unwrap_or(T::first());
        value
            .and_then(|value| value.choice())
            .unwrap_or_else(default)
    }

    /// Elements of a list; none if the key is not set.
    pub(crate) fn list(&self, name: &'static str) -> Vec<Value<'a>> {
        self.get(name)
            .and_then(|value| value.list())
            .unwrap_or_default()
    }

    /// Entries of a table whose keys are free.
    pub(crate) fn entries(&self, name: &'static str) -> Vec<Entry<'a>> {
        self.get(name)
            .map(|value| value.entries())
            .unwrap_or_default()
    }

    fn ranged(&self, name: &'static str) -> (&'static Key, Option<Value<'a>>) {
        (
            self.section.key(name).unwrap_or(&keys::NO_KEY),
            self.get(name),
        )
    }
}

/// The problem of a key that its section does not know.
fn stranger(section: &'static Section, name: &str, spot: Spot) -> Finding {
    let finding = problem(spot, format!("unknown key `{name}` in {}", titled(section)));
    let holds_phases = [keys::SCRIPTS.title, keys::LEVEL_SCRIPTS.title].contains(&section.title);
    if let Some(help) = keys::phase_of_handler(name).filter(|_| holds_phases) {
        return finding.help(help);
    }
    if name == "shed" && section.title != keys::TOP.title {
        return finding.help("write `[[shed]]`, outside any site");
    }
    let known = section.keys.iter().map(|key| key.name);
    let others_word = (section.title == keys::HANDLER.title)
        .then(|| keys::others_handler(name))
        .flatten();
    if let Some(meant) = others_word.or_else(|| keys::nearest(name, known)) {
        return finding.meant(Some(meant));
    }
    // What stands in another `respond` is no help in this one.
    if section.title == keys::SHED_RESPOND.title {
        return finding.help(listed(section));
    }
    let has_it = |other: &&&Section| other.key(name).is_some();
    let elsewhere: Vec<_> = keys::SECTIONS.iter().filter(has_it).collect();
    finding.help(match elsewhere.first() {
        Some(first) if first.title == keys::TOP.title => {
            format!("`{name}` belongs before the first table of the file")
        }
        Some(_) => {
            let titles = elsewhere.iter().take(PLACES_MAX);
            let titles: Vec<_> = titles.map(|other| titled(other)).collect();
            format!("`{name}` belongs in {}", titles.join(" or "))
        }
        None => listed(section),
    })
}

/// The keys that a section may hold, as far as a line has room for them.
fn listed(section: &Section) -> String {
    let mut names: Vec<_> = section.keys.iter().map(|key| key.name).collect();
    names.sort_unstable();
    let more = match names.len().saturating_sub(LISTED_MAX) {
        0 => String::new(),
        more => format!(" and {more} more (docs/reference/config.md)"),
    };
    names.truncate(LISTED_MAX);
    format!("it may hold `{}`{more}", names.join("`, `"))
}

/// A section's title in a sentence.
fn titled(section: &Section) -> String {
    if section.title == keys::TOP.title {
        "the top level".to_owned()
    } else {
        format!("`{}`", section.title)
    }
}
