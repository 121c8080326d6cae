//! What the table of keys is made of: sections of keys, each with its kind and its default.

use std::fmt;

use crate::units;

/// A table of the file and the keys it may hold.
#[derive(Debug)]
pub(crate) struct Section {
    /// As it is written in a file.
    pub(crate) title: &'static str,
    /// What it is for; Markdown.
    pub(crate) about: &'static str,
    /// Keys it may hold.
    pub(crate) keys: &'static [Key],
}

/// One key.
#[derive(Debug)]
pub(crate) struct Key {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) default: Fallback,
    /// What it does; Markdown, whole sentences.
    pub(crate) about: &'static str,
    /// A line that sets it to something other than its default.
    pub(crate) example: &'static str,
}

/// What stands to the right of the equals sign.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    /// `true` or `false`.
    Flag,
    /// A string.
    Text,
    /// A whole number within bounds.
    Count(u64, u64),
    /// Bytes: `"64KiB"`.
    Size(u64, u64),
    /// Milliseconds: `"2s"`.
    Duration(u64, u64),
    /// One of these words.
    Choice(&'static [&'static str]),
    /// Something the words describe.
    Other(&'static str),
}

/// What holds when the key is left out.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Fallback {
    /// It may not be left out.
    Required,
    /// This value: TOML, but without quotes for sizes, durations, texts and choices.
    Value(&'static str),
    /// No value; the words say what that means.
    Absent(&'static str),
}

/// Stands in for a key that no section has.
pub(crate) const NO_KEY: Key = Key {
    name: "",
    kind: Kind::Flag,
    default: Fallback::Required,
    about: "",
    example: "",
};

/// A key, for the tables.
pub(super) const fn key(
    name: &'static str,
    kind: Kind,
    default: Fallback,
    about: &'static str,
    example: &'static str,
) -> Key {
    Key {
        name,
        kind,
        default,
        about,
        example,
    }
}

/// The default of a key of `section`, as text.
pub(crate) fn default_of(section: &Section, name: &str) -> &'static str {
    section.key(name).map_or("", Key::default_text)
}

impl Key {
    /// The default as text; empty if there is none.
    pub(crate) fn default_text(&self) -> &'static str {
        match self.default {
            Fallback::Value(text) => text,
            Fallback::Required | Fallback::Absent(_) => "",
        }
    }
}

impl Section {
    /// The key called `name`.
    pub(crate) fn key(&self, name: &str) -> Option<&'static Key> {
        self.keys.iter().find(|key| key.name == name)
    }
}

impl Kind {
    /// `value`, an entry of [`Fallback::Value`], as it is written in a file.
    pub(crate) fn quoted(&self, value: &str) -> String {
        match self {
            Kind::Text | Kind::Choice(_) | Kind::Duration(..) | Kind::Size(..) => {
                format!("{value:?}")
            }
            Kind::Flag | Kind::Count(..) | Kind::Other(_) => value.to_owned(),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::Flag => out.write_str("`true` or `false`"),
            Kind::Text => out.write_str("text"),
            Kind::Count(least, most) => write!(out, "number, {least} to {most}"),
            Kind::Size(least, most) => {
                write!(
                    out,
                    "size, {} to {}",
                    units::size(*least),
                    units::size(*most)
                )
            }
            Kind::Duration(least, most) => {
                write!(
                    out,
                    "duration, {} to {}",
                    units::duration(*least),
                    units::duration(*most)
                )
            }
            Kind::Choice(words) => {
                let words: Vec<String> = words.iter().map(|word| format!("`{word:?}`")).collect();
                out.write_str(&words.join(", "))
            }
            Kind::Other(words) => out.write_str(words),
        }
    }
}
