//! A site and its rules, compiled.

use std::sync::Arc;

use config::model::{self, Condition, Files, Handler, Root, Settings, TryEntry};
use ipnet::IpNet;
use regex::bytes::Regex;
use wire::{EncodedSlash, OddNames, PathRules, Slashes};

use crate::copies::Copies;
use crate::error::{Error, Kind, Result};
use crate::exchange::Request;
use crate::glob::{self, Matcher};
use crate::resolve::{Resolved, SIBLINGS};
use crate::stats::SiteStats;

/// What editors and careful people put behind the name of a copy.
const BACKUPS: [&str; 6] = ["~", ".bak", ".old", ".orig", ".save", ".swp"];

/// Whether a file of this name is what an editor has left behind.
pub fn is_backup(name: &[u8]) -> bool {
    let name = name.to_ascii_lowercase();
    BACKUPS
        .iter()
        .any(|suffix| name.ends_with(suffix.as_bytes()))
}

/// A site, ready to serve.
#[derive(Debug)]
pub struct Site {
    /// Its first host: the name it has in logs and metrics.
    pub name: Box<str>,
    /// How its paths are made canonical.
    pub path_rules: PathRules,
    /// What happens to field names that CGI would fold.
    pub odd_names: OddNames,
    /// Document root; `None` for a site without files.
    pub root: Option<Root>,
    /// Names tried in a directory.
    pub index: Arc<Vec<String>>,
    /// What a path is resolved to.
    pub resolve: Arc<Vec<TryEntry>>,
    /// How files are served.
    pub files: Arc<Files>,
    /// Replaced error pages.
    pub error_pages: std::collections::BTreeMap<u16, model::ErrorPage>,
    /// What every request of the site gets; `None` is nothing.
    pub settings: Option<Box<Settings>>,
    /// What is counted of it.
    pub stats: Arc<SiteStats>,
    /// Its rules in order.
    pub rules: Box<[Rule]>,
    /// Whether a rule looks at the resolved file: then a request is resolved before its rules.
    pub rules_need_file: bool,
    sources: Arc<Vec<Matcher>>,
}

/// A rule, ready to match.
#[derive(Debug)]
pub struct Rule {
    /// Its name in logs.
    pub name: Box<str>,
    /// What answers; `None` adds settings and goes on.
    pub handler: Option<Handler>,
    /// What it adds; `None` is nothing.
    pub settings: Option<Box<Settings>>,
    conditions: Box<[Test]>,
}

/// A compiled condition.
#[derive(Debug)]
enum Test {
    File(Matcher),
    Path(Matcher),
    PathRegex(Regex),
    Method(Box<[Box<[u8]>]>),
    Header(Box<[u8]>, Option<Matcher>),
    Query(Box<[u8]>, Option<Matcher>),
    Client(Box<[IpNet]>),
    Exists(bool),
    Not(Box<[Test]>),
}

impl Site {
    /// Compiles a site into copies; what it shares with the one before is not compiled again.
    ///
    /// # Errors
    /// When a pattern's compiled form is too large.
    pub(crate) fn compile(
        site: &model::Site,
        stats: Arc<SiteStats>,
        before: Option<&Site>,
        copies: &mut Copies,
    ) -> Result<Self> {
        let name = name(site);
        let files = copies.files.of(&site.files);
        let sources = match before {
            Some(before) if Arc::ptr_eq(&before.files, &files) => Arc::clone(&before.sources),
            _ => Arc::new(compile_sources(&files, &name)?),
        };
        let rules_need_file = site.rules.iter().any(|rule| needs_file(&rule.conditions));
        let rules = site.rules.iter();
        Ok(Self {
            name: name.into(),
            path_rules: PathRules {
                slashes: match site.slashes {
                    model::Slashes::Merge => Slashes::Merge,
                    model::Slashes::Keep => Slashes::Keep,
                },
                encoded_slash: match site.encoded_slash {
                    model::EncodedSlash::Refuse => EncodedSlash::Refuse,
                    model::EncodedSlash::Keep => EncodedSlash::Keep,
                },
            },
            odd_names: match site.underscore_fields {
                model::UnderscoreFields::Drop => OddNames::Drop,
                model::UnderscoreFields::Refuse => OddNames::Refuse,
                model::UnderscoreFields::Keep => OddNames::Keep,
            },
            root: site.root.clone(),
            index: copies.index.of(&site.index),
            resolve: copies.resolve.of(&site.resolve),
            files,
            error_pages: site.error_pages.clone(),
            settings: unless_empty(&site.settings),
            stats,
            rules: rules.map(Rule::compile).collect::<Result<_>>()?,
            rules_need_file,
            sources,
        })
    }

    /// Whether a file of this name is a program's source, or a copy of one as compressors and
    /// editors leave them: never served.
    pub fn is_source(&self, name: &[u8]) -> bool {
        let name = name.to_ascii_lowercase();
        let mut copy_of = Some(name.as_slice());
        while let Some(name) = copy_of {
            if self.sources.iter().any(|glob| glob.matches(name)) {
                return true;
            }
            let mut suffixes = SIBLINGS.iter().chain(&BACKUPS);
            copy_of = suffixes.find_map(|suffix| name.strip_suffix(suffix.as_bytes()));
        }
        false
    }
}

/// Most levels set nothing: requests need not look at them.
fn unless_empty(settings: &Settings) -> Option<Box<Settings>> {
    (*settings != Settings::default()).then(|| Box::new(settings.clone()))
}

impl Rule {
    fn compile(rule: &model::Rule) -> Result<Self> {
        let conditions = compile_all(&rule.conditions);
        Ok(Self {
            conditions: conditions.map_err(|error| too_large(&rule.name, &error))?,
            name: rule.name.as_str().into(),
            handler: rule.handler.clone(),
            settings: unless_empty(&rule.settings),
        })
    }

    /// Whether all its conditions hold.
    pub fn matches(&self, request: &Request, file: Option<&Resolved>) -> bool {
        self.conditions.iter().all(|test| test.holds(request, file))
    }
}

impl Test {
    fn holds(&self, request: &Request, file: Option<&Resolved>) -> bool {
        let head = &request.head;
        match self {
            // A site without a root has no files: there the path stands for them.
            Self::File(glob) => match file {
                None => glob.matches(head.path()),
                Some(file) => file.exists() && glob.matches(file.name()),
            },
            Self::Path(glob) => glob.matches(head.path()),
            Self::PathRegex(regex) => regex.is_match(head.path()),
            Self::Method(methods) => methods
                .iter()
                .any(|method| **method == *head.method_bytes()),
            Self::Header(name, None) => head.fields.get_named(name).is_some(),
            Self::Header(name, Some(glob)) => {
                head.fields.all_named(name).any(|value| glob.matches(value))
            }
            Self::Query(name, value) => query_values(head.query().unwrap_or_default(), name)
                .any(|found| value.as_ref().is_none_or(|glob| glob.matches(&found))),
            Self::Client(nets) => nets.iter().any(|net| net.contains(&request.client)),
            Self::Exists(wanted) => file.is_some_and(Resolved::exists) == *wanted,
            Self::Not(tests) => !tests.iter().all(|test| test.holds(request, file)),
        }
    }
}

/// The decoded values of a query parameter.
fn query_values<'a>(query: &'a [u8], name: &'a [u8]) -> impl Iterator<Item = Vec<u8>> + 'a {
    query.split(|byte| *byte == b'&').filter_map(move |pair| {
        let mut halves = pair.splitn(2, |byte| *byte == b'=');
        let found = decode(halves.next()?);
        (found == name).then(|| decode(halves.next().unwrap_or_default()))
    })
}

/// Undoes `application/x-www-form-urlencoded`; a broken escape stays as it is.
fn decode(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, tail @ ..] = rest {
        rest = tail;
        match (first, tail) {
            (b'+', _) => out.push(b' '),
            (b'%', [high, low, after @ ..]) => match (hex(*high), hex(*low)) {
                (Some(high), Some(low)) => {
                    out.push(high << 4 | low);
                    rest = after;
                }
                _ => out.push(b'%'),
            },
            _ => out.push(*first),
        }
    }
    out
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit)
        .to_digit(16)
        .and_then(|value| u8::try_from(value).ok())
}

/// The name of a site: its first host.
pub(crate) fn name(site: &model::Site) -> String {
    match site.hosts.first() {
        Some(model::HostPattern::Exact(host)) => host.clone(),
        Some(model::HostPattern::Below(host)) => format!("*.{host}"),
        _ => "*".to_owned(),
    }
}

fn compile_sources(files: &Files, site: &str) -> Result<Vec<Matcher>> {
    let sources = files.sources.iter();
    let sources = sources.map(|glob| Matcher::new(&glob.to_ascii_lowercase()));
    let sources = sources.collect::<std::result::Result<_, _>>();
    sources.map_err(|error| too_large(site, &error))
}

fn needs_file(conditions: &[Condition]) -> bool {
    conditions.iter().any(|condition| match condition {
        Condition::File(_) | Condition::Exists(_) => true,
        Condition::Not(inner) => needs_file(inner),
        _ => false,
    })
}

fn compile_all(conditions: &[Condition]) -> std::result::Result<Box<[Test]>, regex::Error> {
    conditions.iter().map(compile).collect()
}

fn too_large(place: &str, error: &regex::Error) -> Error {
    Error::new(
        Kind::Internal,
        "pattern_too_large",
        format!("{place}: {error}"),
    )
}

fn compile(condition: &Condition) -> std::result::Result<Test, regex::Error> {
    let bytes = |text: &String| Box::from(text.as_bytes());
    let value = |glob: &Option<model::Glob>| {
        let glob = glob.as_ref().map(|glob| Matcher::whole(&glob.0));
        glob.transpose()
    };
    Ok(match condition {
        Condition::File(pattern) => Test::File(Matcher::new(&pattern.0)?),
        Condition::Path(pattern) => Test::Path(Matcher::new(&pattern.0)?),
        Condition::PathRegex(pattern) => Test::PathRegex(glob::compile(pattern)?),
        Condition::Method(methods) => Test::Method(methods.iter().map(bytes).collect()),
        Condition::Header(name, glob) => Test::Header(bytes(name), value(glob)?),
        Condition::Query(name, glob) => Test::Query(bytes(name), value(glob)?),
        Condition::Client(nets) => Test::Client(nets.as_slice().into()),
        Condition::Exists(wanted) => Test::Exists(*wanted),
        Condition::Not(inner) => Test::Not(compile_all(inner)?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_parameters_are_decoded_before_they_are_compared() {
        let values: Vec<_> = query_values(b"a=1&b=x%20y&a=%31+2&c", b"a").collect();
        assert_eq!(values, [b"1".to_vec(), b"1 2".to_vec()]);
        assert_eq!(query_values(b"c", b"c").count(), 1);
        assert_eq!(decode(b"%zz%4"), b"%zz%4");
    }
}
