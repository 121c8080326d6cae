//! A file of an experiment as text, tables with places, and all that is wrong with it.
//!
//! The idea: whoever finds a problem writes it down with its line and goes on with a default, so
//! that one look at the file mends everything.

use std::cell::RefCell;
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Longest experiment file.
pub(crate) const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// The text of a file, and what was found wrong with it.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) path: PathBuf,
    pub(crate) text: String,
    problems: RefCell<Vec<Problem>>,
}

/// Something wrong, where, and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem {
    /// Counted from 1.
    pub(crate) line: usize,
    pub(crate) message: String,
}

/// Every problem of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problems {
    pub(crate) path: PathBuf,
    pub(crate) list: Vec<Problem>,
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.list.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            let path = self.path.display();
            write!(f, "{path}:{}: {}", problem.line, problem.message)?;
        }
        Ok(())
    }
}

impl Source {
    pub(crate) fn new(path: &Path, text: String) -> Source {
        Source {
            path: path.to_owned(),
            text,
            problems: RefCell::default(),
        }
    }

    /// The tables, as far as they can be read; mistakes of TOML's own syntax are written down.
    pub(crate) fn parse(&self) -> Spanned<DeTable<'_>> {
        let (document, errors) = DeTable::parse_recoverable(&self.text);
        let mut lines: Vec<usize> = Vec::new();
        for error in &errors {
            let start = error.span().map_or(0, |span| span.start);
            let line = self.line(start);
            // One mistake makes the parser complain again and again.
            if !lines.contains(&line) {
                lines.push(line);
                self.report(start..start, error.message().to_owned());
            }
        }
        document
    }

    pub(crate) fn report(&self, place: Range<usize>, message: impl Into<String>) {
        self.problems.borrow_mut().push(Problem {
            line: self.line(place.start),
            message: message.into(),
        });
    }

    /// All problems in the order of the file; `None` where there are none.
    pub(crate) fn problems(&self) -> Option<Problems> {
        let mut list = self.problems.borrow().clone();
        list.sort_by(|a, b| (a.line, &a.message).cmp(&(b.line, &b.message)));
        list.dedup();
        (!list.is_empty()).then(|| Problems {
            path: self.path.clone(),
            list,
        })
    }

    fn line(&self, offset: usize) -> usize {
        let before = self.text.as_bytes().iter().take(offset);
        1 + before.filter(|byte| **byte == b'\n').count()
    }
}

/// A table whose keys are known to be keys of its kind.
#[derive(Clone)]
pub(crate) struct Table<'a> {
    pub(crate) source: &'a Source,
    /// As messages call it: `[load]`.
    pub(crate) title: String,
    entries: &'a DeTable<'a>,
    span: Range<usize>,
}

/// A value and how it is called.
#[derive(Clone)]
pub(crate) struct Value<'a> {
    pub(crate) source: &'a Source,
    pub(crate) name: String,
    node: &'a Spanned<DeValue<'a>>,
}

impl<'a> Table<'a> {
    /// Opens a table that may hold `keys`, blanks between them, and writes down keys that do not belong there.
    pub(crate) fn open(
        source: &'a Source,
        title: impl Into<String>,
        entries: &'a DeTable<'a>,
        span: Range<usize>,
        keys: &str,
    ) -> Table<'a> {
        let title = title.into();
        let keys: Vec<&str> = keys.split_whitespace().collect();
        for key in entries.keys() {
            let name: &str = key.get_ref();
            if !keys.contains(&name) {
                let help = match nearest(name, &keys) {
                    Some(meant) => format!("did you mean `{meant}`?"),
                    None => format!("it takes {}", listed(&keys)),
                };
                source.report(
                    key.span(),
                    format!("unknown key `{name}` in {title}; {help}"),
                );
            }
        }
        Table {
            source,
            title,
            entries,
            span,
        }
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.entries.contains_key(name)
    }

    pub(crate) fn get(&self, name: &str) -> Option<Value<'a>> {
        let node = self.entries.get(name)?;
        Some(Value {
            source: self.source,
            name: name.to_owned(),
            node,
        })
    }

    /// The value of a key that must be there; `example` is what to write.
    pub(crate) fn required(&self, name: &str, example: &str) -> Option<Value<'a>> {
        let value = self.get(name);
        if value.is_none() {
            self.report(format!(
                "`{name}` is missing in {}; write for example `{example}`",
                self.title
            ));
        }
        value
    }

    /// Writes down a problem of the table as a whole.
    pub(crate) fn report(&self, message: impl Into<String>) {
        self.source.report(self.span.clone(), message);
    }

    pub(crate) fn text(&self, name: &str) -> Option<String> {
        self.get(name)?.text()
    }

    pub(crate) fn texts(&self, name: &str) -> Vec<String> {
        self.get(name).map_or_else(Vec::new, |value| value.texts())
    }

    pub(crate) fn number(&self, name: &str, least: f64, most: f64) -> Option<f64> {
        self.get(name)?.number(least, most)
    }

    pub(crate) fn count(&self, name: &str, least: u64, most: u64) -> Option<u64> {
        self.get(name)?.count(least, most)
    }

    pub(crate) fn flag(&self, name: &str) -> Option<bool> {
        self.get(name)?.flag()
    }
}

impl<'a> Value<'a> {
    pub(crate) fn report(&self, message: impl Into<String>) {
        self.source.report(self.node.span(), message);
    }

    fn expected(&self, what: &str) {
        self.report(format!("`{}` has to be {what}", self.name));
    }

    pub(crate) fn is_text(&self) -> bool {
        matches!(self.node.get_ref(), DeValue::String(_))
    }

    pub(crate) fn is_list(&self) -> bool {
        matches!(self.node.get_ref(), DeValue::Array(_))
    }

    pub(crate) fn is_table(&self) -> bool {
        matches!(self.node.get_ref(), DeValue::Table(_))
    }

    pub(crate) fn text(&self) -> Option<String> {
        match self.node.get_ref() {
            DeValue::String(text) => Some(text.to_string()),
            _ => {
                self.expected("a text in quotes");
                None
            }
        }
    }

    /// A text, or a number or flag as it is written.
    pub(crate) fn word(&self) -> Option<String> {
        match self.node.get_ref() {
            DeValue::String(text) => Some(text.to_string()),
            DeValue::Integer(integer) => Some(integer.as_str().replace('_', "")),
            DeValue::Float(float) => Some(float.as_str().replace('_', "")),
            DeValue::Boolean(flag) => Some(flag.to_string()),
            _ => {
                self.expected("a text, a number, or true or false");
                None
            }
        }
    }

    /// A list of texts; one text stands for a list of one.
    pub(crate) fn texts(&self) -> Vec<String> {
        if self.is_text() {
            return self.text().into_iter().collect();
        }
        self.list().iter().filter_map(Value::text).collect()
    }

    pub(crate) fn list(&self) -> Vec<Value<'a>> {
        let DeValue::Array(items) = self.node.get_ref() else {
            self.expected("a list in square brackets");
            return Vec::new();
        };
        let value = |node| Value {
            source: self.source,
            name: self.name.clone(),
            node,
        };
        items.iter().map(value).collect()
    }

    pub(crate) fn number(&self, least: f64, most: f64) -> Option<f64> {
        let number = match self.node.get_ref() {
            DeValue::Integer(integer) => integer.as_str().replace('_', "").parse::<f64>().ok(),
            DeValue::Float(float) => float.as_str().replace('_', "").parse::<f64>().ok(),
            _ => None,
        };
        let good = number.filter(|number| (least..=most).contains(number));
        if good.is_none() {
            self.expected(&format!("a number from {least} to {most}"));
        }
        good
    }

    pub(crate) fn count(&self, least: u64, most: u64) -> Option<u64> {
        let number = match self.node.get_ref() {
            DeValue::Integer(integer) => integer.as_str().replace('_', "").parse::<u64>().ok(),
            _ => None,
        };
        let good = number.filter(|number| (least..=most).contains(number));
        if good.is_none() {
            self.expected(&format!("a whole number from {least} to {most}"));
        }
        good
    }

    pub(crate) fn flag(&self) -> Option<bool> {
        match self.node.get_ref() {
            DeValue::Boolean(flag) => Some(*flag),
            _ => {
                self.expected("true or false");
                None
            }
        }
    }

    /// A table with these keys.
    pub(crate) fn table(&self, title: impl Into<String>, keys: &str) -> Option<Table<'a>> {
        match self.node.get_ref() {
            DeValue::Table(entries) => {
                let span = self.node.span();
                Some(Table::open(self.source, title, entries, span, keys))
            }
            _ => {
                self.expected("a table");
                None
            }
        }
    }

    /// The entries of a table whose keys are free, in the order of the file.
    pub(crate) fn entries(&self) -> Vec<(String, Value<'a>)> {
        let DeValue::Table(entries) = self.node.get_ref() else {
            self.expected("a table");
            return Vec::new();
        };
        let entry = |(key, node): (
            &'a Spanned<toml::de::DeString<'a>>,
            &'a Spanned<DeValue<'a>>,
        )| {
            let name = key.get_ref().to_string();
            let value = Value {
                source: self.source,
                name: name.clone(),
                node,
            };
            (name, value)
        };
        let mut found: Vec<_> = entries.iter().collect();
        found.sort_by_key(|(key, _)| key.span().start);
        found.into_iter().map(entry).collect()
    }

    /// One of some words.
    pub(crate) fn one_of<T: Copy>(&self, choices: &[(&str, T)]) -> Option<T> {
        let text = self.text()?;
        let found = choices.iter().find(|(word, _)| *word == text);
        if found.is_none() {
            let words: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
            self.report(format!(
                "`{}` is `{text}`; it may be {}",
                self.name,
                listed(&words)
            ));
        }
        found.map(|(_, choice)| *choice)
    }
}

/// Words in a sentence.
pub(crate) fn listed(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
    quoted.join(", ")
}

/// The word that was probably meant: at most two changes away, and closer than any other length.
pub(crate) fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let best = known
        .iter()
        .map(|word| (strsim::levenshtein(name, word), *word))
        .min()?;
    (best.0 <= 2 && best.0 < name.chars().count()).then_some(best.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_word_is_recognised() {
        for (name, meant) in [
            ("conections", Some("connections")),
            ("second", Some("seconds")),
            ("colour", None),
            ("x", None),
        ] {
            assert_eq!(nearest(name, &["connections", "seconds", "rate"]), meant);
        }
    }

    #[test]
    fn every_mistake_of_syntax_has_its_line() {
        let source = Source::new(Path::new("x.toml"), "a = 1\nb =\nc = 2\nd = = 3\n".into());
        drop(source.parse());
        let problems = source.problems().expect("two mistakes");
        let lines: Vec<usize> = problems.list.iter().map(|problem| problem.line).collect();
        assert_eq!(lines, [2, 4], "{problems}");
    }
}
