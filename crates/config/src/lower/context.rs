//! Tables and values of a file, met with a place to complain to.
//!
//! The idea: a [`Table`] is opened with its section of the key table, which checks its keys
//! there and then; a [`Value`] knows where it stands. Readers return `None` after they have
//! reported a problem, and the lowering goes on, so that all problems are found in one go.

use std::cell::RefCell;
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::diagnostics::{Diagnostics, Place, Problem};
use crate::keys::{self, Key, Kind, Section};
use crate::sources::Sources;
use crate::units;

/// Problems remembered; a file of a million mistakes needs no million reports.
const FINDINGS_MAX: usize = 10_000;

/// The run of the lowering: its sources, and what was found so far.
pub(crate) struct Context<'a> {
    pub(crate) sources: &'a Sources,
    findings: RefCell<Vec<Finding>>,
    nothing: DeTable<'a>,
    pub(crate) files: super::files::FileCache,
}

/// A place in a file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Spot {
    pub(crate) file: usize,
    pub(crate) start: usize,
    pub(crate) end: usize,
}

/// How sure a problem is while parts of the configuration could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Weight {
    /// A file cannot be parsed or read.
    Syntax,
    /// Something written is wrong.
    Mistake,
    /// Something is missing, which may have stood in the unreadable part.
    Absence,
}

/// A problem whose places are not yet looked up.
#[derive(Debug, Clone)]
pub(crate) struct Finding {
    weight: Weight,
    message: String,
    spot: Option<Spot>,
    other: Option<(String, Spot)>,
    help: Option<String>,
}

impl Finding {
    /// Adds what to do about it.
    pub(crate) fn help(mut self, help: impl Into<String>) -> Finding {
        self.help = Some(help.into());
        self
    }

    /// Adds a suggestion, if there is one.
    pub(crate) fn meant(mut self, meant: Option<&str>) -> Finding {
        if let Some(meant) = meant {
            self.help = Some(format!("did you mean `{meant}`?"));
        }
        self
    }

    /// Adds the other place concerned, and its part in the problem.
    pub(crate) fn other(mut self, role: &str, spot: Spot) -> Finding {
        self.other = Some((role.to_owned(), spot));
        self
    }

    /// Says that the problem vanishes where a file is broken and may hold what is missing.
    pub(crate) fn absence(mut self) -> Finding {
        self.weight = Weight::Absence;
        self
    }

    /// Says that the problem leaves part of a file unread.
    pub(crate) fn syntax(mut self) -> Finding {
        self.weight = Weight::Syntax;
        self
    }
}

impl<'a> Context<'a> {
    pub(crate) fn new(sources: &'a Sources) -> Context<'a> {
        Context {
            sources,
            findings: RefCell::new(Vec::new()),
            nothing: DeTable::new(),
            files: Default::default(),
        }
    }

    pub(crate) fn report(&self, finding: Finding) {
        let mut findings = self.findings.borrow_mut();
        if findings.len() < FINDINGS_MAX {
            findings.push(finding);
        }
    }

    /// The model, unless anything was found.
    pub(crate) fn finish<T>(self, model: Option<T>) -> Result<T, Diagnostics> {
        let findings = self.findings.into_inner();
        match model {
            Some(model) if findings.is_empty() => Ok(model),
            _ => Err(Diagnostics::new(told(self.sources, findings))),
        }
    }
}

/// The findings worth telling, in the order of their places.
fn told(sources: &Sources, mut findings: Vec<Finding>) -> Vec<Problem> {
    let line_of = |spot: &Spot| {
        let text = sources.files.get(spot.file).map_or("", |file| &file.text);
        let start = floor(text, spot.start);
        let before = text.get(..start).unwrap_or_default();
        (spot.file, before.matches('\n').count())
    };
    let broken = findings
        .iter()
        .any(|finding| finding.weight == Weight::Syntax);
    if broken {
        let syntax = findings
            .iter()
            .filter(|finding| finding.weight == Weight::Syntax);
        let lines: Vec<_> = syntax
            .filter_map(|finding| finding.spot.as_ref())
            .map(line_of)
            .collect();
        findings.retain(|finding| match (finding.weight, &finding.spot) {
            (Weight::Syntax, _) => true,
            (Weight::Absence, _) => false,
            (Weight::Mistake, Some(spot)) => !lines.contains(&line_of(spot)),
            (Weight::Mistake, None) => true,
        });
    }
    findings.sort_by(|left, right| left.spot.cmp(&right.spot));
    let place = |spot: Spot| {
        let file = sources.files.get(spot.file)?;
        Some(Place::new(&file.name, &file.text, spot.start..spot.end))
    };
    let problem = |finding: Finding| Problem {
        message: finding.message,
        place: finding.spot.and_then(place),
        other: finding
            .other
            .and_then(|(role, spot)| Some((role, place(spot)?))),
        help: finding.help,
    };
    findings.into_iter().map(problem).collect()
}

fn floor(text: &str, at: usize) -> usize {
    (0..=at.min(text.len()))
        .rev()
        .find(|at| text.is_char_boundary(*at))
        .unwrap_or(0)
}

/// A problem at `spot`.
pub(crate) fn problem(spot: Spot, message: impl Into<String>) -> Finding {
    Finding {
        weight: Weight::Mistake,
        message: message.into(),
        spot: Some(spot),
        other: None,
        help: None,
    }
}

/// A problem of the configuration as a whole.
pub(crate) fn problem_overall(message: impl Into<String>) -> Finding {
    Finding {
        weight: Weight::Absence,
        message: message.into(),
        spot: None,
        other: None,
        help: None,
    }
}

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
        Some(Value {
            context: self.context,
            file: self.file,
            name: key.get_ref(),
            node,
        })
    }

    /// The value of a key that must be set.
    pub(crate) fn required(&self, name: &'static str) -> Option<Value<'a>> {
        let value = self.get(name);
        if value.is_none() && !self.has_misspelt(name) {
            let message = format!("`{name}` is missing in {}", titled(self.section));
            let example = self.section.key(name).map_or("", |key| key.example);
            let finding = problem(self.spot(), message)
                .help(format!("add `{example}`"))
                .absence();
            self.context.report(finding);
        }
        value
    }

    /// Whether a key is set that no section knows, or only later work.
    pub(crate) fn has_strangers(&self) -> bool {
        self.entries
            .keys()
            .any(|key| self.section.key(key.get_ref()).is_none())
    }

    /// Whether `name`, a key of later work, is set.
    pub(crate) fn has_stranger(&self, name: &str) -> bool {
        self.entries.contains_key(name)
    }

    /// Whether a key is set that was reported as `name` misspelt.
    fn has_misspelt(&self, name: &str) -> bool {
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

    /// Reports a problem of the value of `name`, or of the table if it is not set.
    pub(crate) fn report_at(&self, name: &'static str, message: impl Into<String>) {
        let spot = self.get(name).map_or(self.spot(), |value| value.spot());
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
    pub(crate) fn choice<T: super::names::Named>(&self, name: &'static str) -> T {
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

/// A key of a free table, and its value.
pub(crate) struct Entry<'a> {
    pub(crate) name: &'a str,
    pub(crate) name_spot: Spot,
    pub(crate) value: Value<'a>,
}

/// A value, where it stands and how it is called.
#[derive(Clone, Copy)]
pub(crate) struct Value<'a> {
    pub(crate) context: &'a Context<'a>,
    pub(crate) file: usize,
    pub(crate) name: &'a str,
    node: &'a Spanned<DeValue<'a>>,
}

impl<'a> Value<'a> {
    /// Where the value stands.
    pub(crate) fn spot(&self) -> Spot {
        let span = self.node.span();
        Spot {
            file: self.file,
            start: span.start,
            end: span.end,
        }
    }

    /// The place of bytes `part` of a text, as near as its spelling allows.
    pub(crate) fn part(&self, part: Range<usize>) -> Spot {
        let spot = self.spot();
        let text = self.node.get_ref().as_str().unwrap_or_default();
        // Escapes and several lines move the bytes: then the whole text is the place.
        if spot.end - spot.start != text.len() + 2 {
            return spot;
        }
        Spot {
            file: self.file,
            start: spot.start + 1 + part.start,
            end: spot.start + 1 + part.end,
        }
    }

    /// Reports a problem of the value.
    pub(crate) fn report(&self, message: impl Into<String>) {
        self.context.report(problem(self.spot(), message));
    }

    /// Reports a problem of the value, with advice.
    pub(crate) fn report_help(&self, message: impl Into<String>, help: impl Into<String>) {
        self.context
            .report(problem(self.spot(), message).help(help));
    }

    /// Reports that the value is of another type than it has to be.
    pub(crate) fn mistyped(&self, expected: &str) {
        let found = match self.node.get_ref() {
            DeValue::String(_) => "a text",
            DeValue::Integer(_) => "a number",
            DeValue::Float(_) => "a fraction",
            DeValue::Boolean(_) => "true or false",
            DeValue::Datetime(_) => "a date",
            DeValue::Array(_) => "a list",
            DeValue::Table(_) => "a table",
        };
        self.report(format!("`{}` must be {expected}, not {found}", self.name));
    }

    pub(crate) fn is_text(&self) -> bool {
        self.node.get_ref().is_str()
    }

    pub(crate) fn is_list(&self) -> bool {
        self.node.get_ref().is_array()
    }

    pub(crate) fn is_table(&self) -> bool {
        self.node.get_ref().is_table()
    }

    /// Whether the value is a table with that key.
    pub(crate) fn has_member(&self, name: &str) -> bool {
        self.node
            .get_ref()
            .as_table()
            .is_some_and(|table| table.contains_key(name))
    }

    /// A flag, without complaint if it is none.
    pub(crate) fn as_flag(&self) -> Option<bool> {
        self.node.get_ref().as_bool()
    }

    /// A text.
    pub(crate) fn text(&self) -> Option<&'a str> {
        let text = self.node.get_ref().as_str();
        if text.is_none() {
            self.mistyped("a text in quotes");
        }
        text
    }

    /// A flag.
    pub(crate) fn flag(&self) -> Option<bool> {
        let flag = self.as_flag();
        if flag.is_none() {
            self.mistyped("true or false");
        }
        flag
    }

    /// A whole number within bounds.
    pub(crate) fn count(&self, least: u64, most: u64) -> Option<u64> {
        let DeValue::Integer(number) = self.node.get_ref() else {
            self.mistyped(&format!("a number from {least} to {most}"));
            return None;
        };
        let number = u64::from_str_radix(number.as_str(), number.radix()).ok();
        let number = number.filter(|number| (least..=most).contains(number));
        if number.is_none() {
            self.report(format!("`{}` must be from {least} to {most}", self.name));
        }
        number
    }

    /// Bytes within bounds.
    pub(crate) fn size(&self, least: u64, most: u64) -> Option<u64> {
        if let DeValue::Integer(_) = self.node.get_ref() {
            return self.count(least, most);
        }
        let expected = "a size such as \"64KiB\", \"8MiB\" or 512";
        self.measured(expected, units::parse_size, units::size, least, most)
    }

    /// Milliseconds within bounds.
    pub(crate) fn duration(&self, least: u64, most: u64) -> Option<u64> {
        let expected = "a duration such as \"500ms\", \"2s\", \"1m\" or \"1h\"";
        self.measured(
            expected,
            units::parse_duration,
            units::duration,
            least,
            most,
        )
    }

    fn measured(
        &self,
        expected: &str,
        parse: fn(&str) -> Option<u64>,
        spell: fn(u64) -> String,
        least: u64,
        most: u64,
    ) -> Option<u64> {
        let Some(text) = self.node.get_ref().as_str() else {
            self.mistyped(expected);
            return None;
        };
        let Some(number) = parse(text) else {
            self.report(format!("`{}` must be {expected}", self.name));
            return None;
        };
        if !(least..=most).contains(&number) {
            self.report(format!(
                "`{}` must be from {} to {}",
                self.name,
                spell(least),
                spell(most)
            ));
            return None;
        }
        Some(number)
    }

    /// One of the words of `T`.
    pub(crate) fn choice<T: super::names::Named>(&self) -> Option<T> {
        let words = || T::NAMES.iter().map(|(word, _)| *word);
        let text = self.text()?;
        let chosen = T::named(text);
        if chosen.is_none() {
            let list: Vec<String> = words().map(|word| format!("`{word}`")).collect();
            let message = format!("`{}` must be {}", self.name, either(&list));
            self.context
                .report(problem(self.spot(), message).meant(keys::nearest(text, words())));
        }
        chosen
    }

    /// The elements of a list, under the list's name.
    pub(crate) fn list(&self) -> Option<Vec<Value<'a>>> {
        let DeValue::Array(elements) = self.node.get_ref() else {
            self.mistyped("a list");
            return None;
        };
        Some(
            elements
                .iter()
                .map(|node| Value { node, ..*self })
                .collect(),
        )
    }

    /// The values of a table whose keys are free, each under its key's name.
    pub(crate) fn members(&self) -> Vec<Value<'a>> {
        self.entries()
            .into_iter()
            .map(|entry| entry.value)
            .collect()
    }

    /// The elements of a list, or the value itself where one may stand for a list of one.
    pub(crate) fn one_or_list(&self) -> Vec<Value<'a>> {
        if self.is_list() {
            self.list().unwrap_or_default()
        } else {
            vec![*self]
        }
    }

    /// A table of `section`.
    pub(crate) fn table(&self, section: &'static Section) -> Option<Table<'a>> {
        let DeValue::Table(entries) = self.node.get_ref() else {
            self.mistyped("a table");
            return None;
        };
        Some(Table::open(
            self.context,
            self.file,
            section,
            entries,
            self.node.span(),
        ))
    }

    /// The entries of a table whose keys are free, in the order they are written in.
    pub(crate) fn entries(&self) -> Vec<Entry<'a>> {
        let DeValue::Table(entries) = self.node.get_ref() else {
            self.mistyped("a table");
            return Vec::new();
        };
        let entry = |(key, node): (
            &'a Spanned<std::borrow::Cow<'a, str>>,
            &'a Spanned<DeValue<'a>>,
        )| {
            let name: &'a str = key.get_ref();
            let name_spot = Spot {
                file: self.file,
                start: key.span().start,
                end: key.span().end,
            };
            Entry {
                name,
                name_spot,
                value: Value {
                    name,
                    node,
                    ..*self
                },
            }
        };
        let mut entries: Vec<Entry<'a>> = entries.iter().map(entry).collect();
        entries.sort_by_key(|entry| entry.name_spot.start);
        entries
    }
}

/// `a`, `b` or `c`.
fn either(words: &[String]) -> String {
    match words {
        [] => String::new(),
        [only] => only.clone(),
        [most @ .., last] => format!("{} or {last}", most.join(", ")),
    }
}

/// The problem of a key that its section does not know.
fn stranger(section: &'static Section, name: &str, spot: Spot) -> Finding {
    if section.later.contains(&name) {
        return problem(
            spot,
            format!(
                "`{name}` in {} is not supported by this build",
                titled(section)
            ),
        );
    }
    let finding = problem(spot, format!("unknown key `{name}` in {}", titled(section)));
    let known = section.keys.iter().map(|key| key.name);
    if let Some(meant) = keys::nearest(name, known) {
        return finding.meant(Some(meant));
    }
    let elsewhere = keys::SECTIONS
        .iter()
        .find(|other| other.key(name).is_some());
    match elsewhere {
        Some(other) if other.title == keys::TOP.title => finding.help(format!(
            "`{name}` belongs before the first table of the file"
        )),
        Some(other) => finding.help(format!("`{name}` belongs in {}", titled(other))),
        None => finding,
    }
}

/// A section's title in a sentence.
fn titled(section: &Section) -> String {
    if section.title == keys::TOP.title {
        "the top level".to_owned()
    } else {
        format!("`{}`", section.title)
    }
}
