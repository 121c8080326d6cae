//! Locations, and nginx's order of choosing among them.
//!
//! Of locations beside each other an exact one comes first, then the longest prefix if it says `^~`,
//! then expressions in their order, then the longest prefix. What stands in a location that was
//! found is looked through in the same way, before the expressions beside it. The idea: each location
//! is told by a `match` for exactly the paths for which nginx chooses it; no path is two locations',
//! so that their rules may stand in any order.

use std::cell::Cell;

use pattern::Expression;

use super::Scope;
use super::condition::{Members, and_not};
use super::parse::Statement;
use super::table::{Meaning, meaning};
use super::template::Piece;
use crate::draft::{TomlItem, member};
use crate::words;

/// Members that the locations of a server come to together.
const MEMBERS_MAX: usize = 262_144;

/// How a location is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PlaceKind {
    Exact,
    /// Whether expressions beside it are not asked (`^~`).
    Prefix {
        stops: bool,
    },
    Regex,
    Named,
}

/// A location.
#[derive(Debug)]
pub(super) struct NginxPlace<'a> {
    pub(super) kind: PlaceKind,
    /// The path, the expression as it is here, or the name.
    pub(super) pattern: String,
    /// The number of the location it stands in.
    pub(super) outer: Option<usize>,
    /// What holds in it.
    pub(super) scope: Scope<'a>,
    /// The line; none of the one that stands for what no location is for.
    pub(super) id: Option<usize>,
    /// Why nobody may come in.
    closed: Cell<Option<&'static str>>,
}

impl<'a> NginxPlace<'a> {
    pub(super) fn new(
        (kind, pattern): (PlaceKind, String),
        outer: Option<usize>,
        scope: Scope<'a>,
        id: Option<usize>,
    ) -> Self {
        let closing = scope.below(2).find(|line| match meaning(&line.name) {
            Meaning::Closing(why) => Some(why),
            _ => None,
        });
        Self {
            kind,
            pattern,
            outer,
            scope,
            id,
            closed: Cell::new(closing),
        }
    }

    /// What is chosen where no location is.
    pub(super) fn rest(scope: &Scope<'a>) -> Self {
        let slash = (PlaceKind::Prefix { stops: false }, "/".to_owned());
        Self::new(slash, None, scope.with(Vec::new()), None)
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
        let path = || words::glob(pattern).map(|_| pattern.to_owned());
        let prefix = |stops| match pattern.strip_prefix('@') {
            Some(name) => Some((PlaceKind::Named, name.to_owned())),
            None => Some((PlaceKind::Prefix { stops }, path()?)),
        };
        match modifier {
            "" => prefix(false),
            "^~" => prefix(true),
            "=" => Some((PlaceKind::Exact, path()?)),
            "~" => Some((PlaceKind::Regex, words::expression(pattern, false)?)),
            "~*" => Some((PlaceKind::Regex, words::expression(pattern, true)?)),
            _ => None,
        }
    }

    /// What it says itself.
    pub(super) fn own(&self) -> &[&'a Statement] {
        self.scope.own()
    }

    /// What it says itself in the directive of this name.
    pub(super) fn line(&self, name: &str) -> Option<&'a Statement> {
        self.own().iter().find(|line| line.name == name).copied()
    }

    /// Nobody comes in, for this reason or an earlier one.
    pub(super) fn close(&self, why: &'static str) {
        self.closed.set(self.closed.get().or(Some(why)));
    }

    /// Why nobody comes in.
    pub(super) fn closed(&self) -> Option<&'static str> {
        self.closed.get()
    }

    /// Whether it is the location for everything.
    pub(super) fn is_root(&self) -> bool {
        self.is_prefix() && self.pattern == "/" && self.outer.is_none()
    }

    pub(super) fn is_prefix(&self) -> bool {
        matches!(self.kind, PlaceKind::Prefix { .. })
    }

    /// Whether what it answers with are files, or programs that are files.
    pub(super) fn needs_files(&self) -> bool {
        let answers = ["return", "proxy_pass", "stub_status"];
        self.kind != PlaceKind::Named && !answers.iter().any(|name| self.line(name).is_some())
    }

    /// Its place among those that are told by a file, in nginx's order.
    pub(super) fn rank(&self) -> u8 {
        match self.kind {
            PlaceKind::Exact => 0,
            PlaceKind::Regex if self.outer.is_some() => 1,
            PlaceKind::Regex => 2,
            PlaceKind::Prefix { .. } | PlaceKind::Named => 3,
        }
    }

    /// The expression, if it is one.
    pub(super) fn regex(&self) -> Option<&str> {
        (self.kind == PlaceKind::Regex).then_some(self.pattern.as_str())
    }

    /// The glob of its path, if it is one.
    pub(super) fn glob(&self) -> String {
        let glob = words::glob(&self.pattern).unwrap_or_default();
        match self.is_prefix() {
            true => glob + "*",
            false => glob,
        }
    }

    /// The globs of those beside it for longer paths that begin with its own.
    fn longer(&self, places: &[NginxPlace<'a>], left: &Left) -> Vec<String> {
        let is_longer = |other: &&NginxPlace<'a>| {
            let begins = other.outer == self.outer && other.pattern.starts_with(&self.pattern);
            let is_long = other.pattern.len() > self.pattern.len();
            begins && (other.kind == PlaceKind::Exact || (other.is_prefix() && is_long))
        };
        let longer = places.iter().filter(is_longer).take_while(|_| left.take());
        longer.map(Self::glob).collect()
    }
}

/// Paths: those of a glob in which all of some expressions are found, but for others.
#[derive(Debug, Default)]
struct Region {
    path: Option<String>,
    regexes: Vec<String>,
    not_paths: Vec<String>,
    not_regexes: Vec<String>,
    not: Vec<Members>,
}

impl Region {
    fn members(mut self) -> Members {
        let mut members = Vec::new();
        if let Some(path) = self.path.filter(|path| path != "/*") {
            members.push(member("path", path));
        }
        // The innermost one's groups are those of the rule's texts.
        if let Some(regex) = self.regexes.pop() {
            members.push(member("path_regex", regex));
        }
        if !self.not_paths.is_empty() {
            let paths = TomlItem::one_or_list(self.not_paths);
            and_not(&mut members, vec![member("path", paths)]);
        }
        for regex in self.not_regexes {
            and_not(&mut members, vec![member("path_regex", regex)]);
        }
        for not in self.not {
            and_not(&mut members, not);
        }
        for regex in self.regexes {
            let regex = TomlItem::table([("path_regex", regex.into())]);
            and_not(&mut members, vec![member("not", regex)]);
        }
        members
    }
}

/// How many members a server's locations may still come to: those within each other and beside
/// expressions are told by one another, again at each level.
#[derive(Debug)]
pub(super) struct Left(Cell<usize>);

impl Default for Left {
    fn default() -> Self {
        Self(Cell::new(MEMBERS_MAX))
    }
}

impl Left {
    fn take(&self) -> bool {
        let left = self.0.get();
        self.0.set(left.saturating_sub(1));
        left > 0
    }

    /// Whether there were more.
    pub(super) fn is_none(&self) -> bool {
        self.0.get() == 0
    }
}

/// Adds for which paths a location is come to, those among them for which what stands in it, or an
/// expression beside it, is chosen then.
fn reach(places: &[NginxPlace<'_>], at: usize, region: &mut Region, left: &Left) {
    let Some(place) = places.get(at).filter(|_| left.take()) else {
        return;
    };
    if let Some(outer) = place.outer {
        reach(places, outer, region, left);
    }
    match place.kind {
        PlaceKind::Named => {}
        PlaceKind::Exact => region.path = Some(place.glob()),
        PlaceKind::Prefix { .. } => {
            region.path = Some(place.glob());
            region.not_paths.extend(place.longer(places, left));
        }
        PlaceKind::Regex => {
            beside_regex(places, (at, place), region, left);
            region.regexes.push(place.pattern.clone());
        }
    }
    if let Some(path) = &region.path {
        // Of what its outer locations leave to others, what can begin like its own path.
        let own = path.trim_end_matches('*');
        let may_be = |it: &String| {
            let other = it.trim_end_matches('*');
            other.starts_with(own) || own.starts_with(other)
        };
        region.not_paths.retain(may_be);
    }
}

/// Leaves out what is chosen before an expression is asked.
fn beside_regex(
    places: &[NginxPlace<'_>],
    (at, place): (usize, &NginxPlace<'_>),
    region: &mut Region,
    left: &Left,
) {
    let expression = Expression::new(&place.pattern).ok();
    let finds = |path: &str| {
        let found = expression.as_ref().map(|it| it.is_match(path.as_bytes()));
        !matches!(found, Some(Ok(false)))
    };
    for (other_at, other) in places.iter().enumerate() {
        if other.outer != place.outer || other_at == at || !left.take() {
            continue;
        }
        match other.kind {
            PlaceKind::Exact if finds(&other.pattern) => region.not_paths.push(other.glob()),
            PlaceKind::Regex if other_at < at => region.not_regexes.push(other.pattern.clone()),
            PlaceKind::Prefix { stops: true } => {
                let mut not = vec![member("path", other.glob())];
                let longer = other.longer(places, left);
                if !longer.is_empty() {
                    let longer = TomlItem::one_or_list(longer);
                    and_not(&mut not, vec![member("path", longer)]);
                }
                region.not.push(not);
            }
            PlaceKind::Prefix { stops: false } => settled(places, other_at, &mut region.not, left),
            _ => {}
        }
    }
}

/// What is chosen within a prefix that was found, whatever stands beside that.
fn settled(places: &[NginxPlace<'_>], at: usize, all: &mut Vec<Members>, left: &Left) {
    let inner = || places.iter().filter(|it| it.outer == Some(at));
    let stops = |it: &&NginxPlace<'_>| it.kind == PlaceKind::Prefix { stops: true };
    for (inner_at, place) in places.iter().enumerate() {
        if place.outer != Some(at) || !left.take() {
            continue;
        }
        match place.kind {
            PlaceKind::Exact => all.push(vec![member("path", place.glob())]),
            PlaceKind::Regex => {
                let mut region = Region::default();
                reach(places, at, &mut region, left);
                region.regexes.push(place.pattern.clone());
                region
                    .not_paths
                    .extend(inner().filter(stops).map(NginxPlace::glob));
                all.push(region.members());
            }
            PlaceKind::Prefix { .. } => settled(places, inner_at, all, left),
            PlaceKind::Named => {}
        }
    }
}

/// The members of a `match` for exactly the paths for which nginx chooses a location. Where nothing is
/// left they are others.
pub(super) fn members_of(places: &[NginxPlace<'_>], at: usize, left: &Left) -> Members {
    let mut region = Region::default();
    reach(places, at, &mut region, left);
    for inner in places.iter().filter(|it| it.outer == Some(at)) {
        match inner.kind {
            PlaceKind::Regex => region.not_regexes.push(inner.pattern.clone()),
            PlaceKind::Named => {}
            _ => region.not_paths.push(inner.glob()),
        }
    }
    // Having found the longest prefix nginx asks the expressions beside it, and so outwards.
    let mut level = places.get(at);
    while let Some(place) = level {
        let PlaceKind::Prefix { stops } = place.kind else {
            break;
        };
        if !stops {
            let beside = places.iter().filter(|it| it.outer == place.outer);
            region
                .not_regexes
                .extend(beside.filter_map(|it| it.regex().map(str::to_owned)));
        }
        level = place.outer.and_then(|outer| places.get(outer));
    }
    region.members()
}

/// The location that nginx chooses for a path among those within another one, and whether no
/// expression beside it is asked.
fn chosen(places: &[NginxPlace<'_>], outer: Option<usize>, path: &str) -> Option<(usize, bool)> {
    let beside = || {
        places
            .iter()
            .enumerate()
            .filter(|(_, it)| it.outer == outer)
    };
    let exact =
        |(_, it): &(usize, &NginxPlace<'_>)| it.kind == PlaceKind::Exact && it.pattern == path;
    if let Some((at, _)) = beside().find(exact) {
        return Some((at, true));
    }
    let prefixes = beside().filter(|(_, it)| it.is_prefix() && path.starts_with(&it.pattern));
    let longest = prefixes.max_by_key(|(_, it)| it.pattern.len());
    let mut found = None;
    if let Some((at, place)) = longest {
        let inner = chosen(places, Some(at), path).unwrap_or((at, false));
        if inner.1 || place.kind == (PlaceKind::Prefix { stops: true }) {
            return Some(inner);
        }
        found = Some(inner);
    }
    let is_met = |(_, it): &(usize, &NginxPlace<'_>)| {
        it.regex().is_some_and(|regex| words::is_found(regex, path))
    };
    match beside().find(is_met) {
        Some((at, _)) => Some((
            chosen(places, Some(at), path).map_or(at, |(at, _)| at),
            true,
        )),
        None => found,
    }
}

/// The location with `internal` that leads on what is sent to a path, be it with variables behind it.
pub(super) fn inside(places: &[NginxPlace<'_>], to: &str) -> Option<usize> {
    let path = to.split(['?', '$']).next()?;
    let (at, _) = chosen(places, None, path)?;
    places.get(at)?.line("internal").map(|_| at)
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
