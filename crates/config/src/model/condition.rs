//! Conditions of rules, limits and shedding.

use ipnet::IpNet;

use super::map::MapMatch;

/// One condition of a rule's `match`.
#[derive(Debug, Clone, PartialEq)]
pub enum Condition {
    /// One of these globs matches the resolved file.
    File(Vec<Glob>),
    /// One of these globs matches the canonical path.
    Path(Vec<Glob>),
    /// Regular expression over the canonical path (syntax checked).
    PathRegex(String),
    /// One of these methods.
    Method(Vec<String>),
    /// A field (name in lower case) whose value matches; `None`: present at all.
    Header(String, Option<Glob>),
    /// A query parameter whose value matches; `None`: present at all.
    Query(String, Option<Glob>),
    /// The client is in one of these networks.
    Client(Vec<IpNet>),
    /// The resolved file exists (or not).
    Exists(bool),
    /// What a map answers.
    Map(Box<MapMatch>),
    /// None of these holds together.
    Not(Vec<Condition>),
}

/// A glob: `*` is any bytes including `/`, `?` one byte, `[a-z]` a
/// class, `[!a-z]` its opposite. Over a file or path it matches at the end if it has no leading `/`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Glob(pub String);
