//! Conditions of rules, limits and shedding.

use ipnet::IpNet;

use super::map::MapMatch;

/// One condition of a rule's `match`.
#[derive(Debug, Clone, PartialEq)]
pub enum Condition {
    /// One of these globs matches the resolved file.
    File(Vec<Glob>),
    /// Regular expression over the resolved file's name below the root, which begins with a slash
    /// (syntax checked).
    FileRegex(String),
    /// One of these globs matches the canonical path.
    Path(Vec<Glob>),
    /// Regular expression over the canonical path (syntax checked).
    PathRegex(String),
    /// One of these methods.
    Method(Vec<String>),
    /// A field (name in lower case) whose value matches; `None`: present at all.
    Header(String, Option<TextMatch>),
    /// A query parameter whose value matches; `None`: present at all.
    Query(String, Option<TextMatch>),
    /// A cookie whose value matches; `None`: present at all.
    Cookie(String, Option<TextMatch>),
    /// The client is in one of these networks.
    Client(Vec<IpNet>),
    /// The resolved file exists (or not).
    Exists(bool),
    /// The row of the host says something in this column.
    Row(String),
    /// A rewrite rule of the virtual host has set this variable.
    ServerEnv(String),
    /// A run of the resolved file takes more processor time than so many milliseconds, by what was
    /// measured of its last runs.
    CostAbove(u64),
    /// What a map answers.
    Map(Box<MapMatch>),
    /// None of these holds together.
    Not(Vec<Condition>),
}

impl Condition {
    /// Whether it holds for every request, as far as that can be told without one: what this says
    /// no to may do so, too.
    pub(crate) fn always_holds(&self) -> bool {
        match self {
            Condition::Path(globs) => globs.iter().any(Glob::takes_all),
            Condition::Client(nets) => {
                let has_all = |is_v4: bool| {
                    let mut nets = nets.iter();
                    nets.any(|net| net.prefix_len() == 0 && net.addr().is_ipv4() == is_v4)
                };
                has_all(true) && has_all(false)
            }
            _ => false,
        }
    }

    /// Whether it is about the path.
    pub(crate) fn goes_by_path(&self) -> bool {
        matches!(self, Condition::Path(_) | Condition::PathRegex(_))
    }

    /// Whether a map is asked for it.
    #[must_use]
    pub fn asks_map(&self) -> bool {
        match self {
            Condition::Map(_) => true,
            Condition::Not(inner) => inner.iter().any(Condition::asks_map),
            _ => false,
        }
    }
}

/// What a value must be like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TextMatch {
    /// As a whole.
    Glob(Glob),
    /// Regular expression that is found in it (syntax checked).
    Regex(String),
}

impl Glob {
    /// Whether it is nothing but `*`, or that below `/`, with which every path begins.
    fn takes_all(&self) -> bool {
        let stars = self.0.strip_prefix('/').unwrap_or(&self.0);
        !stars.is_empty() && stars.bytes().all(|byte| byte == b'*')
    }
}

/// A glob: `*` is any bytes including `/`, `?` one byte, `[a-z]` a
/// class, `[!a-z]` its opposite. Over a file or path it matches at the end if it has no leading `/`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Glob(pub String);
