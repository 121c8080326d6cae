//! The table of keys: what may be written, and everything that is said about it.
//!
//! The idea: one table drives the check for unknown keys, the suggestions, the ranges and
//! defaults of the lowering and the reference manual, so that none of them can drift from the
//! others. What a key's value means stands in `lower`.

mod handler;
pub(crate) mod limit;
mod map;
mod process;
mod program;
mod script;
mod shed;
mod site;
mod suggest;
#[cfg(test)]
mod tests;

use std::fmt;

pub(crate) use handler::{HANDLER, PROXY, RESPOND};
pub(crate) use limit::{LIMIT, OVERRIDE, OVERRIDES};
pub(crate) use map::MAP;
pub(crate) use process::{CAPS, CONTROL, LISTEN, LOG, SERVER, TIMEOUTS, TOP, UPSTREAM};
pub(crate) use program::{CGI, CGROUP, FASTCGI, IO, PARAMS, TENANT};
pub(crate) use script::{LEVEL_SCRIPTS, SCRIPT, SCRIPTS};
pub(crate) use shed::{SHED, SHED_RESPOND};
pub(crate) use site::{AUTH, EDITS, FILES, MATCH, RULE, SITE, SITE_LOG};
pub(crate) use suggest::{nearest, others_handler, phase_of_handler};

/// Every section, in the order of the reference.
pub(crate) const SECTIONS: &[&Section] = &[
    &TOP,
    &CONTROL,
    &LISTEN,
    &LOG,
    &TIMEOUTS,
    &CAPS,
    &SCRIPTS,
    &UPSTREAM,
    &SERVER,
    &TENANT,
    &SHED,
    &SHED_RESPOND,
    &MAP,
    &SITE,
    &SITE_LOG,
    &FILES,
    &AUTH,
    &EDITS,
    &RULE,
    &MATCH,
    &HANDLER,
    &PROXY,
    &FASTCGI,
    &CGI,
    &PARAMS,
    &RESPOND,
    &LEVEL_SCRIPTS,
    &SCRIPT,
    &LIMIT,
    &CGROUP,
    &IO,
];

/// A table of the file and the keys it may hold.
#[derive(Debug)]
pub(crate) struct Section {
    /// As it is written in a file.
    pub(crate) title: &'static str,
    /// What it is for; Markdown.
    pub(crate) about: &'static str,
    /// Keys it may hold.
    pub(crate) keys: &'static [Key],
    /// Keys that later work brings.
    pub(crate) later: &'static [&'static str],
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
const fn key(
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
                    crate::units::size(*least),
                    crate::units::size(*most)
                )
            }
            Kind::Duration(least, most) => {
                write!(
                    out,
                    "duration, {} to {}",
                    crate::units::duration(*least),
                    crate::units::duration(*most)
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
