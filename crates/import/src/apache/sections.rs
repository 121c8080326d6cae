//! Sections: which requests each is for, and which directories.
//!
//! The idea: what rules are made of is for paths and files that are found; a `<Directory>` is the
//! directory itself, or all of such names, and an expression where it is one. Of locations
//! the last one that says who may come in counts: an earlier one says that it is not for the paths of
//! a later one within.

use super::ApacheLine;
use crate::draft::{TomlItem, member};
use crate::words;

/// Requests that a rule is for; all where it says nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Area {
    /// A path and all below it.
    pub(super) prefix: Option<String>,
    /// An expression for the path.
    pub(super) regex: Option<String>,
    /// What is asked of the file that is found, as a member of `match`.
    pub(super) file: Option<(&'static str, TomlItem)>,
    /// Methods, and whether it is for all others.
    pub(super) methods: Option<(Vec<String>, bool)>,
}

impl Area {
    pub(super) fn is_whole(&self) -> bool {
        *self == Self::default()
    }

    pub(super) fn below(prefix: &str) -> Self {
        let prefix = prefix.trim_end_matches('/');
        Self {
            prefix: (!prefix.is_empty()).then(|| prefix.to_owned()),
            ..Self::default()
        }
    }

    pub(super) fn of_regex(regex: String) -> Self {
        Self {
            regex: Some(regex),
            ..Self::default()
        }
    }

    /// The globs of a path and all below it.
    fn prefix_globs(&self) -> Option<Vec<String>> {
        let prefix = words::glob(self.prefix.as_deref()?)?;
        Some(vec![prefix.clone(), prefix + "/*"])
    }

    /// Members of a `match`, but for what other areas say.
    pub(super) fn members(&self, others: &[&Area]) -> Option<Vec<(String, TomlItem)>> {
        let mut members = Vec::new();
        let mut add = |name: &str, item: TomlItem| members.push((name.to_owned(), item));
        let prefix = self.prefix_globs();
        if self.prefix.is_some() && prefix.is_none() {
            return None;
        }
        if let Some(prefix) = prefix {
            add("path", TomlItem::texts(prefix));
        }
        if let Some(regex) = &self.regex {
            add("path_regex", regex.as_str().into());
        }
        if let Some((name, asked)) = &self.file {
            add(name, asked.clone());
        }
        let mut not = Vec::new();
        let names = |methods: &[String]| TomlItem::texts(methods.iter().cloned());
        match &self.methods {
            Some((methods, false)) => add("method", names(methods)),
            Some((methods, true)) => not.push(member("method", names(methods))),
            None => {
                let globs = others.iter().filter_map(|it| it.prefix_globs()).flatten();
                let globs: Vec<String> = globs.collect();
                if !globs.is_empty() {
                    not.push(member("path", TomlItem::texts(globs)));
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
        let is_prefix = other.regex.is_none() && other.file.is_none() && other.methods.is_none();
        let Some(inner) = other.prefix.as_deref().filter(|_| is_prefix) else {
            return false;
        };
        let outer = self.prefix.as_deref().unwrap_or_default();
        let rest = inner.strip_prefix(outer);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }
}

/// Where a `<Directory>` of a site is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SectionPlace {
    /// The directory, or all of such names.
    Directory(String),
    /// Files whose names have this expression.
    Names(String),
}

/// Where a site's files are.
#[derive(Debug, Clone, Default)]
pub(super) struct Roots {
    pub(super) root: Option<String>,
    /// Paths, and the directories there.
    pub(super) mounts: Vec<(String, String)>,
}

impl Roots {
    pub(super) fn has_files(&self) -> bool {
        self.root.is_some() || !self.mounts.is_empty()
    }

    /// The directory that a path leads to.
    pub(super) fn directory_of(&self, path: &str) -> Option<String> {
        let below = |prefix: &str, root: &str| {
            let rest = path.strip_prefix(prefix)?;
            let is_below = rest.is_empty() || rest.starts_with('/');
            is_below.then(|| format!("{}{rest}", root.trim_end_matches('/')))
        };
        let mounts = self.mounts.iter();
        let mounts = mounts.filter_map(|(prefix, root)| Some((prefix.len(), below(prefix, root)?)));
        let innermost = mounts.max_by_key(|(length, _)| *length);
        let innermost = innermost.map(|(_, directory)| directory);
        innermost.or_else(|| below("", self.root.as_deref()?))
    }

    /// The requests that a section is for, within those of the one around it; `None` where nobody
    /// knows.
    pub(super) fn covered(&self, section: &ApacheLine, outer: &Area) -> Option<Area> {
        let (pattern, is_tilde) = pattern_of(section);
        match (section.name.as_str(), is_tilde) {
            ("location", false) if !pattern.contains(WILD) => Some(Area::below(pattern)),
            ("location", false) => {
                let regex = format!("^{}(?:/|$)", glob_expression(pattern)?);
                words::expression(&regex, false).map(Area::of_regex)
            }
            ("location" | "locationmatch", _) => {
                words::expression(pattern, false).map(Area::of_regex)
            }
            ("files" | "filesmatch", _) if !self.has_files() => None,
            ("files" | "filesmatch", _) => {
                let regex = file_expression(section)?;
                Some(Area {
                    file: Some(("file_regex", regex.into())),
                    ..outer.clone()
                })
            }
            ("limit" | "limitexcept", _) => {
                let words = section.words.iter().map(|it| it.to_ascii_uppercase());
                let mut methods: Vec<String> = words.collect();
                if methods.iter().any(|it| it == "GET") {
                    methods.push("HEAD".to_owned());
                }
                let is_method = |it: &String| {
                    !it.is_empty() && it.bytes().all(|byte| byte.is_ascii_uppercase())
                };
                let is_fine = methods.iter().all(is_method) && !methods.is_empty();
                is_fine.then(|| Area {
                    methods: Some((methods, section.name == "limitexcept")),
                    ..outer.clone()
                })
            }
            _ => None,
        }
    }

    /// The parts of a site that a `<Directory>` is for, each with its requests where rules tell
    /// them; none where no site has files there.
    pub(super) fn parts(&self, section: &ApacheLine) -> Vec<(SectionPlace, Option<Area>)> {
        let (pattern, is_tilde) = pattern_of(section);
        let root = self.root.iter().map(|root| ("", root.as_str()));
        let mounts = self.mounts.iter();
        let mut places = root.chain(mounts.map(|(path, root)| (path.as_str(), root.as_str())));
        if is_tilde || section.name == "directorymatch" {
            let is_of = |(_, root): (&str, &str)| may_hold(pattern, root);
            // An end is one of directories as well.
            let ended = pattern.strip_suffix('$').filter(|it| !it.ends_with('\\'));
            let regex = ended.map_or_else(|| pattern.to_owned(), |it| format!("{it}(?:/|$)"));
            let part = (SectionPlace::Names(regex), None);
            return places.any(is_of).then_some(part).into_iter().collect();
        }
        let names: Vec<&str> = names_of(pattern).collect();
        let part = |(path, root): (&str, &str)| -> Option<(SectionPlace, Option<Area>)> {
            let above: Vec<&str> = names_of(root).collect();
            let mut pairs = names.iter().zip(&above);
            if !pairs.all(|(name, real)| is_name(name, real)) {
                return None;
            }
            let (held, rest) = match names.get(above.len()..) {
                None => (above.get(..names.len())?, &[][..]),
                Some(rest) => (&above[..], rest),
            };
            let held: String = held.iter().map(|name| format!("/{name}")).collect();
            let rest: String = rest.iter().map(|name| format!("/{name}")).collect();
            let area = Area::below(&format!("{path}{rest}"));
            let area = Some(area).filter(|_| !rest.contains(WILD));
            let directory = match held.is_empty() && rest.is_empty() {
                true => "/".to_owned(),
                false => held + &rest,
            };
            Some((SectionPlace::Directory(directory), area))
        };
        places.filter_map(part).collect()
    }
}

/// What names have that stand for more than one.
pub(super) const WILD: [char; 3] = ['*', '?', '['];

/// What a section is for, and whether it is said by `~`, an expression.
fn pattern_of(section: &ApacheLine) -> (&str, bool) {
    match section.first() {
        "~" => (section.word(1), true),
        pattern => (pattern, false),
    }
}

/// Whether a directory, or all of such names, is another one or above it.
pub(super) fn holds(outer: &str, inner: &str) -> bool {
    let (outer, mut inner) = (names_of(outer), names_of(inner));
    outer
        .into_iter()
        .all(|name| inner.next().is_some_and(|it| is_name(name, it)))
}

pub(super) fn names_of(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|name| !name.is_empty())
}

fn is_name(pattern: &str, name: &str) -> bool {
    match pattern.contains(WILD) {
        false => pattern == name,
        true => glob_expression(pattern)
            .is_none_or(|source| words::is_found(&format!("^{source}$"), name)),
    }
}

/// A name with wildcards, which leave slashes alone, as an expression.
fn glob_expression(pattern: &str) -> Option<String> {
    let mut out = String::new();
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        match c {
            '*' => out.push_str("[^/]*"),
            '?' => out.push_str("[^/]"),
            '[' => {
                let inner: String = chars.by_ref().take_while(|c| *c != ']').collect();
                let (mark, inner) = match inner.strip_prefix(['!', '^']) {
                    Some(rest) => ("^", rest),
                    None => ("", inner.as_str()),
                };
                let fits = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
                if inner.is_empty() || !inner.chars().all(fits) {
                    return None;
                }
                out.push_str(&format!("[{mark}{inner}]"));
            }
            '\\' => out.push_str(&words::escape(chars.next()?.encode_utf8(&mut [0; 4]))),
            c => out.push_str(&words::escape(c.encode_utf8(&mut [0; 4]))),
        }
    }
    Some(out)
}

/// Whether an expression for names of directories may find some at, above or below a root.
fn may_hold(source: &str, root: &str) -> bool {
    let Some(rest) = source.strip_prefix('^').filter(|it| !it.contains('|')) else {
        return true;
    };
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/_-".contains(c);
    let end = rest.find(|c: char| !is_plain(c)).unwrap_or(rest.len());
    // What follows may be about the last of them: none, or many.
    let plain = rest.get(..end.saturating_sub(1)).unwrap_or_default();
    root.starts_with(plain) || plain.starts_with(root)
}

/// The expression of `<Files>` or `<FilesMatch>` for a file with the directories before it.
fn file_expression(section: &ApacheLine) -> Option<String> {
    let (pattern, is_tilde) = pattern_of(section);
    if section.name == "files" && !is_tilde {
        let regex = format!("(?:^|/){}$", glob_expression(pattern)?);
        return words::expression(&regex, false);
    }
    let (begin, rest) = match pattern.strip_prefix('^') {
        Some(rest) => ("(?:^|/)", rest),
        None => ("", pattern),
    };
    // A beginning elsewhere than in front would be another one.
    let is_fine = !rest.replace("[^", "").replace("\\^", "").contains('^');
    let is_one = begin.is_empty() || !rest.contains('|') || is_grouped(rest);
    let regex = format!("{begin}{rest}");
    words::expression(&regex, false).filter(|_| is_fine && is_one)
}

/// Whether all choices of an expression are within parentheses.
fn is_grouped(source: &str) -> bool {
    let mut depth = 0_usize;
    source
        .replace("\\(", "")
        .replace("\\)", "")
        .chars()
        .all(|c| {
            match c {
                '(' => depth += 1,
                ')' => depth = depth.saturating_sub(1),
                _ => {}
            }
            c != '|' || depth > 0
        })
}
