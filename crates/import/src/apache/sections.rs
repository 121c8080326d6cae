//! Sections: which requests each is for.
//!
//! Apache has the sections of all directories on the way to a file, the shortest first, then those
//! of files, then those of paths, and the last one that says who may come in counts. Rules add up:
//! where a later one lets in whom an earlier one kept out, the earlier one says that it is not for
//! those paths if that can be said, and else holds.

use super::{Apache, ApacheLine};
use crate::draft::TomlItem;
use crate::words;

/// Requests that a section is for; all where it says nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Area {
    /// A path and all below it.
    pub(super) prefix: Option<String>,
    /// An expression for the path.
    pub(super) regex: Option<String>,
    /// Globs for the end of the path, or of the file that is found.
    pub(super) names: Option<Vec<String>>,
    /// Globs for the whole name of the file that is found.
    pub(super) files: Option<Vec<String>>,
    /// Methods, and whether it is for all others.
    pub(super) methods: Option<(Vec<String>, bool)>,
}

impl Area {
    pub(super) fn is_whole(&self) -> bool {
        *self == Self::default()
    }

    /// Whether it is a path and all below it.
    fn is_prefix(&self) -> bool {
        self.regex.is_none()
            && self.names.is_none()
            && self.files.is_none()
            && self.methods.is_none()
    }

    pub(super) fn below(prefix: &str) -> Self {
        Self {
            prefix: (!prefix.is_empty() && prefix != "/")
                .then(|| prefix.trim_end_matches('/').to_owned()),
            ..Self::default()
        }
    }

    /// The globs of a path and all below it.
    fn prefix_globs(&self) -> Option<Vec<String>> {
        let prefix = words::glob(self.prefix.as_deref()?)?;
        Some(vec![prefix.clone(), prefix + "/*"])
    }

    /// Members of a `match`, by the path or by the file that is found, but for what other areas say.
    pub(super) fn members(
        &self,
        by_file: bool,
        others: &[&Area],
    ) -> Option<Vec<(String, TomlItem)>> {
        let mut members = Vec::new();
        let mut add = |name: &str, item: TomlItem| members.push((name.to_owned(), item));
        let prefix = self.prefix_globs();
        if self.prefix.is_some() && prefix.is_none() {
            return None;
        }
        match (&self.names, &self.files, prefix) {
            (Some(names), None, prefix) if by_file => {
                add("file", TomlItem::one_or_list(names.clone()));
                prefix
                    .into_iter()
                    .for_each(|it| add("path", TomlItem::texts(it)));
            }
            (Some(names), None, None) => add("path", TomlItem::one_or_list(names.clone())),
            (Some(names), None, Some(prefix)) => {
                let below = prefix.last()?.trim_end_matches('*').to_owned();
                let names = names
                    .iter()
                    .map(|name| below.clone() + name.trim_start_matches("*/"));
                add("path", TomlItem::one_or_list(names.collect()));
            }
            (None, Some(files), _) => add("file", TomlItem::one_or_list(files.clone())),
            (None, None, prefix) => prefix
                .into_iter()
                .for_each(|it| add("path", TomlItem::texts(it))),
            (Some(_), Some(_), _) => return None,
        }
        if let Some(regex) = &self.regex {
            add("path_regex", regex.as_str().into());
        }
        let mut not = Vec::new();
        match &self.methods {
            Some((methods, false)) => add("method", TomlItem::texts(methods.iter().cloned())),
            Some((methods, true)) => not.push((
                "method".to_owned(),
                TomlItem::texts(methods.iter().cloned()),
            )),
            None => {
                let globs: Vec<String> = others
                    .iter()
                    .filter_map(|it| it.prefix_globs())
                    .flatten()
                    .collect();
                if !globs.is_empty() {
                    not.push(("path".to_owned(), TomlItem::texts(globs)));
                }
            }
        }
        if !not.is_empty() {
            add("not", TomlItem::Table(not));
        }
        Some(members)
    }

    /// Whether all of it is within this one, so that it can be taken out.
    pub(super) fn holds(&self, other: &Area) -> bool {
        let Some(inner) = other.prefix.as_deref().filter(|_| other.is_prefix()) else {
            return false;
        };
        let outer = self.prefix.as_deref().unwrap_or_default();
        inner
            .strip_prefix(outer)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }
}

/// Where a site's files are.
#[derive(Debug, Clone, Default)]
pub(super) struct Roots {
    pub(super) root: Option<String>,
    /// Paths, and the directories there.
    pub(super) mounts: Vec<(String, String)>,
}

/// What a section is for.
pub(super) enum Covered {
    /// These requests; none where its directory is not of the site.
    Areas(Vec<Area>),
    /// Nobody knows.
    Unknown,
}

impl Roots {
    /// The requests that a section is for, within those of the one around it.
    pub(super) fn covered(&self, section: &ApacheLine, outer: &Area) -> Covered {
        let (name, mut pattern) = (section.name.as_str(), section.first());
        let is_tilde = pattern == "~";
        if is_tilde {
            pattern = section.word(1);
        }
        let one = |area: Area| Covered::Areas(vec![area]);
        match (name, is_tilde) {
            ("directory", false) => {
                Covered::Areas(self.of_directory(pattern.trim_end_matches('/')))
            }
            ("directory" | "directorymatch", _) => self.of_directory_regex(pattern),
            ("location", false) => match pattern.contains(['*', '?', '[']) {
                true => Covered::Unknown,
                false => one(Area::below(pattern)),
            },
            ("location" | "locationmatch", _) => match words::expression(pattern, false) {
                Some(regex) => one(Area {
                    regex: Some(regex),
                    ..Area::default()
                }),
                None => Covered::Unknown,
            },
            ("files", false) => {
                let names = match pattern.contains(['[', '?']) {
                    true => return Covered::Unknown,
                    false => pattern
                        .split('*')
                        .map(|it| words::glob(it).unwrap_or_default())
                        .collect::<Vec<_>>()
                        .join("*"),
                };
                let names = if names.starts_with('*') {
                    names
                } else {
                    format!("*/{names}")
                };
                one(Area {
                    names: Some(vec![names]),
                    ..outer.clone()
                })
            }
            ("files" | "filesmatch", _) => of_file_regex(pattern, outer),
            ("limit" | "limitexcept", _) => {
                let mut methods: Vec<String> = section
                    .words
                    .iter()
                    .map(|it| it.to_ascii_uppercase())
                    .collect();
                if methods.iter().any(|it| it == "GET") {
                    methods.push("HEAD".to_owned());
                }
                let is_fine = methods
                    .iter()
                    .all(|it| !it.is_empty() && it.bytes().all(|byte| byte.is_ascii_uppercase()));
                match is_fine && !methods.is_empty() {
                    true => one(Area {
                        methods: Some((methods, name == "limitexcept")),
                        ..outer.clone()
                    }),
                    false => Covered::Unknown,
                }
            }
            _ => Covered::Unknown,
        }
    }

    fn of_directory(&self, directory: &str) -> Vec<Area> {
        let is_on_the_way = |path: &str| match directory.contains(['*', '?']) {
            true => ancestors(path).any(|it| words::is_meant(directory, it)),
            false => {
                directory.is_empty()
                    || path == directory
                    || path.starts_with(&format!("{directory}/"))
            }
        };
        let mut areas = Vec::new();
        let places = self.root.iter().map(|root| ("", root.as_str()));
        let mounts = self
            .mounts
            .iter()
            .map(|(path, root)| (path.as_str(), root.as_str()));
        for (path, root) in places.chain(mounts) {
            if is_on_the_way(root) {
                areas.push(Area::below(path));
            } else if let Some(rest) = directory
                .strip_prefix(root)
                .filter(|it| it.starts_with('/'))
            {
                match rest.contains(['*', '?', '[']) {
                    true => areas.push(Area {
                        files: Some(vec![format!("{directory}/*")]),
                        ..Area::default()
                    }),
                    false => areas.push(Area::below(&format!("{path}{rest}"))),
                }
            }
        }
        areas
    }

    fn of_directory_regex(&self, source: &str) -> Covered {
        let rest = match source.strip_prefix('^') {
            None => Some(source.to_owned()),
            Some(anchored) => self.root.as_deref().and_then(|root| {
                let rest = anchored
                    .strip_prefix(root)
                    .or_else(|| anchored.strip_prefix(&words::escape(root)))?;
                Some(format!("^{rest}"))
            }),
        };
        match rest.and_then(|it| words::expression(it.trim_end_matches('$'), false)) {
            Some(regex) => Covered::Areas(vec![Area {
                regex: Some(regex),
                ..Area::default()
            }]),
            None => Covered::Unknown,
        }
    }
}

/// A path and those above it.
fn ancestors(path: &str) -> impl Iterator<Item = &str> {
    let ends = path
        .match_indices('/')
        .map(|(at, _)| at)
        .filter(|at| *at > 0);
    ends.chain([path.len()]).filter_map(|end| path.get(..end))
}

fn of_file_regex(source: &str, outer: &Area) -> Covered {
    if let Some(globs) = words::globs(source) {
        let names =
            globs
                .texts
                .into_iter()
                .map(|text| match globs.is_anchored && !text.starts_with('*') {
                    true => format!("*/{text}"),
                    false => text,
                });
        return Covered::Areas(vec![Area {
            names: Some(names.collect()),
            ..outer.clone()
        }]);
    }
    // Of the last name in a path.
    let source = source.replace('^', "(?:^|/)");
    match (words::expression(&source, false), &outer.regex) {
        (Some(regex), None) => Covered::Areas(vec![Area {
            regex: Some(regex),
            ..outer.clone()
        }]),
        _ => Covered::Unknown,
    }
}

impl Apache<'_> {
    /// Whether a section, or one in it, says who may come in.
    pub(super) fn keeps_out(line: &ApacheLine) -> bool {
        let is_granted = line.name == "require"
            && line.first().eq_ignore_ascii_case("all")
            && line.word(1).eq_ignore_ascii_case("granted");
        let names = [
            "require",
            "deny",
            "order",
            "requireall",
            "requireany",
            "requirenone",
        ];
        let is_closing = matches!(super::meaning(&line.name), super::ApacheMeaning::Closing(_));
        (names.contains(&line.name.as_str()) && !is_granted)
            || is_closing
            || line.children.iter().flatten().any(Self::keeps_out)
    }
}
