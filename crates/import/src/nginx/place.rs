//! Locations, and nginx's order of choosing among them.
//!
//! An exact one comes first, then the longest prefix if it says `^~`, then expressions in their
//! order, then the longest prefix. Rules are tried in order and the first with a handler ends the
//! search, so handlers stand in nginx's order; but what is about access holds whatever comes
//! before it, so a rule for access says in its `match` whom nginx would have sent elsewhere.

use super::Scope;
use super::parse::Statement;
use super::template::Piece;
use crate::draft::TomlItem;
use crate::words;

/// How a location is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PlaceKind {
    Exact,
    /// Whether expressions are not asked (`^~`).
    Prefix {
        stops: bool,
    },
    Regex,
    Named,
}

/// A location.
#[derive(Debug, Clone)]
pub(super) struct NginxPlace<'a> {
    pub(super) kind: PlaceKind,
    /// The path, the expression as it is here, or the name.
    pub(super) pattern: String,
    /// The path of the location it stands in.
    pub(super) outer: Option<String>,
    /// What holds in it.
    pub(super) scope: Scope<'a>,
    /// The line; none of the one that stands for what no location is for.
    pub(super) id: Option<usize>,
}

/// Where a handler stands among the others, and how long its path is.
pub(super) type Rank = (u8, usize);

impl<'a> NginxPlace<'a> {
    /// What is chosen where no location is.
    pub(super) fn rest(scope: Scope<'a>) -> Self {
        Self {
            kind: PlaceKind::Prefix { stops: false },
            pattern: "/".to_owned(),
            outer: None,
            scope: scope.with(Vec::new()),
            id: None,
        }
    }

    /// The kind and pattern of a `location`; `None` where its expression is none here.
    pub(super) fn read(statement: &Statement) -> Option<(PlaceKind, String)> {
        let (modifier, pattern) = match statement.words.as_slice() {
            [pattern] => {
                let end = ["=", "^~", "~*", "~"]
                    .into_iter()
                    .find(|it| pattern.starts_with(it));
                pattern.split_at(end.map_or(0, str::len))
            }
            [modifier, pattern] => (modifier.as_str(), pattern.as_str()),
            _ => return None,
        };
        let prefix = |stops| match pattern.strip_prefix('@') {
            Some(name) => (PlaceKind::Named, name.to_owned()),
            None => (PlaceKind::Prefix { stops }, pattern.to_owned()),
        };
        match modifier {
            "" => Some(prefix(false)),
            "^~" => Some(prefix(true)),
            "=" => Some((PlaceKind::Exact, pattern.to_owned())),
            "~" => Some((PlaceKind::Regex, words::expression(pattern, false)?)),
            "~*" => Some((PlaceKind::Regex, words::expression(pattern, true)?)),
            _ => None,
        }
    }

    /// What it says itself.
    pub(super) fn own(&self) -> &[&'a Statement] {
        self.scope.own()
    }

    /// Whether it is the location for everything.
    pub(super) fn is_root(&self) -> bool {
        matches!(self.kind, PlaceKind::Prefix { .. }) && self.pattern == "/" && self.outer.is_none()
    }

    /// The expression, if it is one.
    pub(super) fn regex(&self) -> Option<&str> {
        (self.kind == PlaceKind::Regex).then_some(self.pattern.as_str())
    }

    /// The members of a `match` for its path.
    pub(super) fn members(&self) -> Option<Vec<(String, TomlItem)>> {
        let mut members = Vec::new();
        let mut add = |name: &str, text: String| members.push((name.to_owned(), text.into()));
        match self.kind {
            PlaceKind::Named => return None,
            PlaceKind::Exact => add("path", words::glob(&self.pattern)?),
            PlaceKind::Prefix { .. } if self.pattern == "/" => {}
            PlaceKind::Prefix { .. } => add("path", words::glob(&self.pattern)? + "*"),
            PlaceKind::Regex => {
                if let Some(outer) = &self.outer {
                    add("path", words::glob(outer)? + "*");
                }
                add("path_regex", self.pattern.clone());
            }
        }
        Some(members)
    }

    /// The expression for the paths that are this one's and another's, and for which nginx chooses
    /// the other.
    fn yields(&self, at: usize, other: &NginxPlace<'_>, other_at: usize) -> Option<String> {
        let begins = other.pattern.starts_with(&self.pattern);
        let path = || format!("^{}", words::escape(&other.pattern));
        let exact = || format!("{}$", path());
        let nested = || {
            other
                .outer
                .as_ref()
                .is_some_and(|outer| self.pattern.starts_with(outer))
        };
        match (self.kind, other.kind) {
            (PlaceKind::Named | PlaceKind::Exact, _) | (_, PlaceKind::Named) => None,
            (PlaceKind::Prefix { .. }, PlaceKind::Exact) => begins.then(exact),
            (PlaceKind::Prefix { .. }, PlaceKind::Prefix { .. }) => {
                (begins && other.pattern.len() > self.pattern.len()).then(path)
            }
            (PlaceKind::Prefix { stops }, PlaceKind::Regex) => {
                let asked = match &other.outer {
                    Some(_) => nested(),
                    None => !stops,
                };
                asked.then(|| format!("(?:{})", other.pattern))
            }
            (PlaceKind::Regex, PlaceKind::Exact) => Some(exact()),
            (PlaceKind::Regex, PlaceKind::Prefix { stops }) => {
                (stops && self.outer.is_none()).then(path)
            }
            (PlaceKind::Regex, PlaceKind::Regex) => {
                (other_at < at).then(|| format!("(?:{})", other.pattern))
            }
        }
    }

    /// The members of a `match` for exactly the paths for which nginx chooses this one; where that
    /// cannot be said, for more of them.
    pub(super) fn exactly(
        &self,
        at: usize,
        others: &[NginxPlace<'a>],
        differs: impl Fn(&NginxPlace<'a>) -> bool,
    ) -> Option<Vec<(String, TomlItem)>> {
        let mut members = self.members()?;
        let others = others.iter().enumerate();
        let others = others.filter(|(other_at, other)| *other_at != at && differs(other));
        let others: Vec<String> = others
            .filter_map(|(other_at, other)| self.yields(at, other, other_at))
            .collect();
        if !others.is_empty()
            && let Some(regex) = words::expression(&others.join("|"), false)
        {
            let not = TomlItem::table([("path_regex", regex.into())]);
            members.push(("not".to_owned(), not));
        }
        Some(members)
    }

    /// Where its handler stands.
    pub(super) fn rank(&self, is_by_file: bool) -> Rank {
        let shorter = usize::MAX - self.pattern.len();
        match self.kind {
            PlaceKind::Exact => (0, 0),
            PlaceKind::Regex if self.outer.is_some() && !is_by_file => (1, 0),
            PlaceKind::Prefix { stops: true } => (2, shorter),
            PlaceKind::Regex if !is_by_file => (3, 0),
            _ if is_by_file => (4, 0),
            PlaceKind::Prefix { .. } => (5, shorter),
            PlaceKind::Regex | PlaceKind::Named => (6, 0),
        }
    }
}

/// What a limit counts by, as nginx's text of variables says it.
pub(super) fn limit_key(text: &str) -> Option<TomlItem> {
    let mut keys = Vec::new();
    for piece in super::template::pieces(text) {
        let Piece::Variable(name) = piece else {
            return None;
        };
        let key = match name {
            "binary_remote_addr" | "remote_addr" => "client".to_owned(),
            "server_name" | "host" | "http_host" => "site".to_owned(),
            "uri" | "document_uri" | "request_uri" => "path".to_owned(),
            "request_filename" => "file".to_owned(),
            name => match (name.strip_prefix("http_"), name.strip_prefix("cookie_")) {
                (Some(field), _) if config::is_changeable_field(field) => {
                    format!("header:{}", field.replace('_', "-"))
                }
                (_, Some(cookie)) if !cookie.is_empty() => format!("cookie:{cookie}"),
                _ => return None,
            },
        };
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    (!keys.is_empty()).then(|| TomlItem::one_or_list(keys))
}
