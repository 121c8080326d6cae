//! A value of a file: where it stands, how it is called, and what it can be read as.
//!
//! The idea: a reader that finds something else reports it and returns `None`; its caller goes
//! on with a default, so that the next problem is found as well.

use std::borrow::Cow;
use std::ops::Range;

use toml::Spanned;
use toml::de::DeValue;

use super::context::{Context, Spot, problem};
use super::names::Named;
use super::table::Table;
use crate::keys::{self, Section};
use crate::units;

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

/// A kind of number that is written with its unit.
struct Measure {
    expected: &'static str,
    parse: fn(&str) -> Option<u64>,
    spell: fn(u64) -> String,
    /// The right spelling of a wrong one, of a number up to so much.
    meant: fn(&str, u64) -> Option<String>,
}

const SIZE: Measure = Measure {
    expected: "a size such as \"64KiB\", \"8MiB\" or 512",
    parse: units::parse_size,
    spell: units::size,
    meant: |text, _| units::meant_size(text),
};

const DURATION: Measure = Measure {
    expected: "a duration such as \"500ms\", \"2s\", \"1m\", \"1h\" or \"1d\"",
    parse: units::parse_duration,
    spell: units::duration,
    meant: units::meant_duration,
};

impl<'a> Value<'a> {
    pub(crate) fn new(
        context: &'a Context<'a>,
        file: usize,
        name: &'a str,
        node: &'a Spanned<DeValue<'a>>,
    ) -> Value<'a> {
        Value {
            context,
            file,
            name,
            node,
        }
    }

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

    /// The place of a line, from 1, of a text in three quotes; all of another text.
    pub(crate) fn line(&self, number: u32) -> Spot {
        self.line_of_three_quotes(number)
            .unwrap_or_else(|| self.spot())
    }

    fn line_of_three_quotes(&self, number: u32) -> Option<Spot> {
        let spot = self.spot();
        let file = self.context.sources.file(spot.file)?;
        let source = file.text.get(spot.start..spot.end)?;
        let mut rest = ["'''", "\"\"\""]
            .iter()
            .find_map(|quote| source.strip_prefix(quote))?;
        // A newline right behind the quotes is no part of the text.
        let first = rest.strip_prefix("\r\n").or(rest.strip_prefix('\n'));
        rest = first.unwrap_or(rest);
        for _ in 1..number {
            rest = rest.split_once('\n')?.1;
        }
        let start = spot.end - rest.len();
        let end = start + rest.find('\n').unwrap_or(rest.len());
        Some(Spot {
            file: spot.file,
            start,
            end,
        })
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

    /// Reports that something is there again, and where the first of it stands.
    pub(crate) fn report_again(&self, message: impl Into<String>, first: Spot) {
        let finding = problem(self.spot(), message);
        self.context.report(finding.other("the first", first));
    }

    /// Tells of what is not wrong, but hardly meant, with advice.
    pub(crate) fn warn_help(&self, message: impl Into<String>, help: impl Into<String>) {
        let finding = problem(self.spot(), message);
        self.context.warn(finding.help(help));
    }

    /// Reports that the value is of another type than it has to be.
    pub(crate) fn mistyped(&self, expected: &str) {
        self.report(self.mistake(expected));
    }

    /// What is wrong with the value where `expected` has to stand.
    fn mistake(&self, expected: &str) -> String {
        let found = match self.node.get_ref() {
            DeValue::String(_) => "a text",
            DeValue::Integer(_) => "a number",
            DeValue::Float(_) => "a fraction",
            DeValue::Boolean(_) => "true or false",
            DeValue::Datetime(_) => "a date",
            DeValue::Array(_) => "a list",
            DeValue::Table(_) => "a table",
        };
        format!("`{}` must be {expected}, not {found}", self.name)
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

    /// The value of a table's key, without complaint if there is none.
    pub(crate) fn member(&self, name: &str) -> Option<Value<'a>> {
        let table = self.node.get_ref().as_table()?;
        let (key, node) = table.get_key_value(name)?;
        Some(Value::new(self.context, self.file, key.get_ref(), node))
    }

    /// A flag, without complaint if it is none.
    pub(crate) fn as_flag(&self) -> Option<bool> {
        self.node.get_ref().as_bool()
    }

    /// A text or a whole number as it would be typed, without quotes; `None` for anything else.
    pub(crate) fn typed(&self) -> Option<String> {
        match self.node.get_ref() {
            DeValue::String(text) => Some(text.to_string()),
            DeValue::Integer(number) => {
                let number = u64::from_str_radix(number.as_str(), number.radix()).ok();
                number.map(|number| number.to_string())
            }
            _ => None,
        }
    }

    /// A date and time, as it is written.
    pub(crate) fn date(&self) -> Option<String> {
        let DeValue::Datetime(date) = self.node.get_ref() else {
            self.mistyped("a date and time such as 2026-11-22T02:40:00Z");
            return None;
        };
        Some(date.to_string())
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
        let node = self.node.get_ref();
        let DeValue::Integer(number) = node else {
            let message = self.mistake(&format!("a number from {least} to {most}"));
            let quoted = node.as_str().and_then(|text| text.parse::<u64>().ok());
            let meant = quoted.filter(|number| (least..=most).contains(number));
            self.report_meant(message, meant.map(|number| number.to_string()));
            return None;
        };
        let number = u64::from_str_radix(number.as_str(), number.radix()).ok();
        self.within(number, |number| number.to_string(), least, most)
    }

    /// A number, whole or not.
    pub(crate) fn number(&self) -> Option<f64> {
        let node = self.node.get_ref();
        let number = match node {
            DeValue::Integer(number) => {
                let whole = i64::from_str_radix(number.as_str(), number.radix()).ok();
                whole.map(|whole| whole as f64)
            }
            DeValue::Float(number) => number.as_str().parse().ok(),
            _ => None,
        };
        let number = number.filter(|number: &f64| number.is_finite());
        if number.is_none() {
            let quoted = node.as_str().filter(|text| text.parse::<f64>().is_ok());
            let message = match node {
                DeValue::Float(_) | DeValue::Integer(_) => {
                    format!("`{}` must be a number that can be compared", self.name)
                }
                _ => self.mistake("a number such as 3 or 3.5"),
            };
            self.report_meant(message, quoted.map(str::to_owned));
        }
        number
    }

    /// Bytes within bounds.
    pub(crate) fn size(&self, least: u64, most: u64) -> Option<u64> {
        if let DeValue::Integer(number) = self.node.get_ref() {
            let number = u64::from_str_radix(number.as_str(), number.radix()).ok();
            return self.within(number, units::size, least, most);
        }
        self.measured(&SIZE, least, most)
    }

    /// Milliseconds within bounds.
    pub(crate) fn duration(&self, least: u64, most: u64) -> Option<u64> {
        self.measured(&DURATION, least, most)
    }

    /// Up to `most` in a time of so many milliseconds.
    pub(crate) fn rate(&self, most: u64) -> Option<(u64, u64)> {
        let expected = "a rate such as \"10/s\", \"100/m\", \"1000/h\" or \"5000/d\"";
        let node = self.node.get_ref();
        let Some((count, per_ms)) = node.as_str().and_then(units::parse_rate) else {
            let (message, written) = match node {
                DeValue::String(text) => {
                    let message = format!("`{}` must be {expected}", self.name);
                    (message, Some(&**text))
                }
                DeValue::Integer(number) => (self.mistake(expected), Some(number.as_str())),
                _ => (self.mistake(expected), None),
            };
            let meant = written.and_then(units::meant_rate);
            self.report_meant(message, meant.map(|meant| format!("\"{meant}\"")));
            return None;
        };
        if !(1..=most).contains(&count) {
            self.report(format!(
                "the number in `{}` must be from 1 to {most}",
                self.name
            ));
            return None;
        }
        Some((count, per_ms))
    }

    fn measured(&self, measure: &Measure, least: u64, most: u64) -> Option<u64> {
        let node = self.node.get_ref();
        if let Some(number) = node.as_str().and_then(measure.parse) {
            return self.within(Some(number), measure.spell, least, most);
        }
        let (message, written) = match node {
            DeValue::String(text) => {
                let message = format!("`{}` must be {}", self.name, measure.expected);
                (message, Some(&**text))
            }
            DeValue::Integer(number) => {
                let decimal = (number.radix() == 10).then(|| number.as_str());
                (self.mistake(measure.expected), decimal)
            }
            _ => (self.mistake(measure.expected), None),
        };
        let fits = |text: &String| {
            (measure.parse)(text).is_some_and(|number| (least..=most).contains(&number))
        };
        let meant = written.and_then(|text| (measure.meant)(text, most));
        let help = meant.map(|meant| {
            let (least, most) = ((measure.spell)(least), (measure.spell)(most));
            match fits(&meant) {
                true => format!("write \"{meant}\""),
                false => format!("from {least} to {most}"),
            }
        });
        let finding = problem(self.spot(), message);
        self.context.report(match help {
            Some(help) => finding.help(help),
            None => finding,
        });
        None
    }

    /// Reports a problem of the value, with what to write instead where that is known.
    fn report_meant(&self, message: String, meant: Option<String>) {
        let finding = problem(self.spot(), message);
        self.context.report(match meant {
            Some(meant) => finding.help(format!("write {meant}")),
            None => finding,
        });
    }

    fn within(
        &self,
        number: Option<u64>,
        spell: fn(u64) -> String,
        least: u64,
        most: u64,
    ) -> Option<u64> {
        let number = number.filter(|number| (least..=most).contains(number));
        if number.is_none() {
            let (least, most) = (spell(least), spell(most));
            self.report(format!("`{}` must be from {least} to {most}", self.name));
        }
        number
    }

    /// One of the words of `T`.
    pub(crate) fn choice<T: Named>(&self) -> Option<T> {
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
        let node = self.node.get_ref();
        let DeValue::Array(elements) = node else {
            let meant = match (node, self.name) {
                (DeValue::Table(_), "rules") => {
                    Some("`[[sites.rules]]`, in double brackets".into())
                }
                (DeValue::Table(_), "limits") => Some("`limits = [{ … }]`, in brackets".into()),
                _ => node.as_str().map(|text| format!("[{text:?}]")),
            };
            self.report_meant(self.mistake("a list"), meant);
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
        let entry = |(key, node): (&'a Spanned<Cow<'a, str>>, &'a Spanned<DeValue<'a>>)| {
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
