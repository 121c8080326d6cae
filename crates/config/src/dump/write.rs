//! What everything that is written down is written with: keys, lists, inline tables, texts.

use std::fmt::{self, Write as _};
use std::path::Path;

use crate::keys::{Kind, Section};
use crate::model::number::Field;
use crate::units;

/// The text so far, a key a line.
#[derive(Default)]
pub(super) struct Lines {
    pub(super) text: String,
}

impl Lines {
    pub(super) fn section(&mut self, title: &str) {
        self.text.push_str(&format!("\n{title}\n"));
    }

    pub(super) fn key(&mut self, name: &str, value: impl fmt::Display) {
        self.text.push_str(&format!("{name} = {value}\n"));
    }

    /// A key, where it is said.
    pub(super) fn some(&mut self, name: &str, value: Option<impl fmt::Display>) {
        if let Some(value) = value {
            self.key(name, value);
        }
    }

    pub(super) fn duration(&mut self, name: &str, ms: u64) {
        self.key(name, quote(units::duration(ms)));
    }

    pub(super) fn size(&mut self, name: &str, bytes: u64) {
        self.key(name, quote(units::size(bytes)));
    }

    /// The keys of a section of plain numbers, each as its key says.
    pub(super) fn numbers<T: Clone>(
        &mut self,
        section: &Section,
        numbers: &T,
        fields: &[Field<T>],
    ) {
        for line in said(section, numbers, fields) {
            self.text.push_str(&format!("{line}\n"));
        }
    }
}

/// The numbers of a section that are said, each as its key says: `name = value`.
pub(super) fn said<T: Clone>(section: &Section, numbers: &T, fields: &[Field<T>]) -> Vec<String> {
    let mut numbers = numbers.clone();
    let spell = |(name, field): &Field<T>| {
        let number = field(&mut numbers).get();
        match section.key(name).map(|key| key.kind) {
            Some(Kind::Size(..)) => some_size(name, number),
            Some(Kind::Duration(..)) => some_duration(name, number),
            _ => some_count(name, number),
        }
    };
    fields.iter().filter_map(spell).collect()
}

/// `name = "8KiB"`, where it is said.
pub(super) fn some_size(name: &str, bytes: Option<u64>) -> Option<String> {
    bytes.map(|bytes| format!("{name} = {}", quote(units::size(bytes))))
}

/// `name = "2s"`, where it is said.
pub(super) fn some_duration(name: &str, ms: Option<u64>) -> Option<String> {
    ms.map(|ms| format!("{name} = {}", quote(units::duration(ms))))
}

/// `name = 8`, where it is said.
pub(super) fn some_count(name: &str, count: Option<impl fmt::Display>) -> Option<String> {
    count.map(|count| format!("{name} = {count}"))
}

pub(super) fn list<'t, T>(items: &'t [T], spell: impl Fn(&'t T) -> String) -> String {
    format!(
        "[{}]",
        items.iter().map(spell).collect::<Vec<_>>().join(", ")
    )
}

pub(super) fn braces(entries: impl IntoIterator<Item = String>) -> String {
    let entries: Vec<String> = entries.into_iter().collect();
    if entries.is_empty() {
        "{}".to_owned()
    } else {
        format!("{{ {} }}", entries.join(", "))
    }
}

pub(super) fn quote_path(path: &Path) -> String {
    quote(path.display())
}

/// Writes a text as a basic string of TOML, quotes and all.
#[must_use]
pub fn quote(text: impl fmt::Display) -> String {
    let mut out = String::from("\"");
    for c in text.to_string().chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            // Writing to a text cannot fail.
            c if c.is_control() => write!(out, "\\u{:04X}", u32::from(c)).unwrap_or_default(),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
