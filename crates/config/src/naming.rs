//! Where a configuration names files and directories, for those who find out what is wrong with one.
//!
//! The idea: a model keeps no places, and nothing is wrong with most files, so who has something to
//! say of one looks into the sources again. What counts is the key that names it, wherever that
//! stands, and not whether the rest can be understood.

use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::diagnostics::Place;
use crate::sources::Sources;

/// The keys that are looked at.
const KEYS: [&str; 5] = ["certificates", "directory", "root", "see", "within"];

/// Where paths are named.
#[derive(Debug)]
pub struct Naming<'a> {
    sources: &'a Sources,
    /// By key and path; of several the first.
    spots: HashMap<(&'static str, PathBuf), Bytes>,
    pairs: Vec<Pair>,
    /// Which pairs a file is in.
    pairs_of: HashMap<PathBuf, Vec<usize>>,
}

/// A file, and the bytes of a value.
type Bytes = (usize, Range<usize>);

/// A certificate and its key, which may be the same file, and where each is named.
#[derive(Debug)]
struct Pair {
    certificate: (PathBuf, Bytes),
    key: (PathBuf, Bytes),
}

impl<'a> Naming<'a> {
    /// What these sources name.
    #[must_use]
    pub fn of(sources: &'a Sources) -> Naming<'a> {
        let mut naming = Naming {
            sources,
            spots: HashMap::new(),
            pairs: Vec::new(),
            pairs_of: HashMap::new(),
        };
        for (number, file) in sources.files.iter().enumerate() {
            let (document, _) = DeTable::parse_recoverable(&file.text);
            naming.note(number, document.get_ref());
        }
        naming
    }

    /// Where one of these keys names a path, which is absolute.
    #[must_use]
    pub fn place(&self, keys: &[&'static str], path: &Path) -> Option<Place> {
        let spots = keys.iter().map(|key| (*key, path.to_owned()));
        let mut spots = spots.filter_map(|key| self.spots.get(&key));
        self.shown(spots.next()?)
    }

    /// Where a key names a pattern that, as far as it has no wildcard, leads to a path.
    #[must_use]
    pub fn place_of_pattern(&self, key: &str, path: &Path) -> Option<Place> {
        let path = path.to_str()?;
        let led = |pattern: &Path| {
            let beginning = pattern.to_str()?.split(['*', '?', '[']).next()?;
            path.starts_with(beginning).then_some(beginning.len())
        };
        let spots = self.spots.iter().filter(|((of, _), _)| *of == key);
        let found = spots.filter_map(|((_, pattern), spot)| Some((led(pattern)?, pattern, spot)));
        // Of several, the one that leads farthest.
        let found = found.max_by_key(|(bytes, pattern, _)| (*bytes, *pattern));
        self.shown(found?.2)
    }

    /// Files of certificates, each with that of its key, which may be the same.
    pub fn certificates(&self) -> impl Iterator<Item = (&Path, &Path)> {
        let pairs = self.pairs.iter();
        pairs.map(|pair| (pair.certificate.0.as_path(), pair.key.0.as_path()))
    }

    /// Where the certificate or the key is named that a problem begins with; the one beside the
    /// other where the problem names both.
    #[must_use]
    pub fn place_of_certificate(&self, problem: &str) -> Option<Place> {
        let (file, rest) = problem.split_once(": ")?;
        let file = Path::new(file);
        let pairs = || {
            let pairs = self.pairs_of.get(file).into_iter().flatten();
            pairs.filter_map(|at| self.pairs.get(*at))
        };
        let is_whole = |pair: &&Pair| {
            let mut names = [&pair.certificate.0, &pair.key.0].into_iter();
            names.all(|name| name == file || rest.contains(&*name.to_string_lossy()))
        };
        let pair = pairs().find(is_whole).or_else(|| pairs().next())?;
        let (_, spot) = match pair.certificate.0 == file {
            true => &pair.certificate,
            false => &pair.key,
        };
        self.shown(spot)
    }

    /// Where a rule begins: of the first site with this host the rule of this name, or of this
    /// number, from 1, as records call it (`rule 1`).
    #[must_use]
    pub fn place_of_rule(&self, host: &str, rule: &str) -> Option<Place> {
        let files = self.sources.files.iter().enumerate();
        files.into_iter().find_map(|(number, file)| {
            let (document, _) = DeTable::parse_recoverable(&file.text);
            let mut sites = tables(document.get_ref(), "sites");
            let (_, site) = sites.find(|(_, site)| {
                let hosts = site.get("hosts").and_then(|it| it.get_ref().as_array());
                let mut hosts = hosts.into_iter().flat_map(|hosts| hosts.iter());
                hosts.any(|it| it.get_ref().as_str() == Some(host))
            })?;
            let mut rules = tables(site, "rules").enumerate();
            let (_, (span, _)) = rules.find(|(at, (_, table))| {
                let name = table.get("name").and_then(|it| it.get_ref().as_str());
                name.map_or_else(|| rule == format!("rule {}", at + 1), |name| name == rule)
            })?;
            self.shown(&(number, span))
        })
    }

    /// The lines of comment right above a rule, which is found as by [`Naming::place_of_rule`], without
    /// their marks: what an import has made it of.
    #[must_use]
    pub fn comments_of_rule(&self, host: &str, rule: &str) -> Vec<String> {
        let Some(place) = self.place_of_rule(host, rule) else {
            return Vec::new();
        };
        let mut files = self.sources.files.iter();
        let file = files.find(|file| file.name == place.file);
        let lines = file.map(|file| file.text.lines().take(place.line.saturating_sub(1)));
        let lines: Vec<&str> = lines.into_iter().flatten().collect();
        let comments = lines
            .iter()
            .rev()
            .map_while(|line| line.trim().strip_prefix('#'));
        let mut comments: Vec<String> = comments.map(|line| line.trim().to_owned()).collect();
        comments.reverse();
        comments
    }

    fn shown(&self, (file, span): &Bytes) -> Option<Place> {
        let file = self.sources.file(*file)?;
        Some(Place::new(&file.name, &file.text, span.clone()))
    }

    fn note(&mut self, file: usize, table: &DeTable<'_>) {
        for (key, value) in table.iter() {
            let known = KEYS.iter().find(|known| **known == *key.get_ref());
            self.note_value(file, known.copied(), value);
        }
        let file_at = |key: &str| {
            let value = table.get(key)?;
            let path = self.sources.resolve(file, value.get_ref().as_str()?);
            Some((path, (file, value.span())))
        };
        if let Some(certificate) = file_at("certificate") {
            let key = file_at("key").unwrap_or_else(|| certificate.clone());
            for path in [&certificate.0, &key.0] {
                let pairs = self.pairs_of.entry(path.clone()).or_default();
                pairs.push(self.pairs.len());
            }
            self.pairs.push(Pair { certificate, key });
        }
    }

    fn note_value(&mut self, file: usize, key: Option<&'static str>, value: &Spanned<DeValue<'_>>) {
        match (value.get_ref(), key) {
            (DeValue::Table(table), _) => self.note(file, table),
            (DeValue::Array(values), _) => {
                for value in values.iter() {
                    self.note_value(file, key, value);
                }
            }
            (DeValue::String(text), Some(key)) => {
                let path = self.sources.resolve(file, text);
                let spot = (file, value.span());
                self.spots.entry((key, path)).or_insert(spot);
            }
            _ => {}
        }
    }
}

/// The tables of an array of them, each with where it begins.
fn tables<'t>(
    table: &'t DeTable<'_>,
    key: &str,
) -> impl Iterator<Item = (Range<usize>, &'t DeTable<'t>)> {
    let array = table.get(key).and_then(|it| it.get_ref().as_array());
    let values = array.into_iter().flat_map(|array| array.iter());
    values.filter_map(|it| Some((it.span(), it.get_ref().as_table()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_found_where_its_key_names_it_whatever_else_is_wrong() {
        let sources = Sources::from_text(
            "etc/a.toml",
            "user =\n[tls]\ncertificates = [\"live/*/\", \"live/y*/\"]\n[[sites]]\nroot = \"./www\"\n\
             tls = { certificate = \"a.pem\", key = \"a.key\" }\n",
        );
        let sources = sources.with_include(
            "b.toml",
            "[[sites]]\ntls.certificate = \"/c.pem\"\n[[sites]]\n\
             tls = {      certificate = \"/c.pem\",  key = \"/etc/a.key\" }\n",
        );
        let naming = Naming::of(&sources);
        let place = |keys: &[&'static str], path: &str| {
            let place = naming.place(keys, Path::new(path))?;
            Some((place.file, place.line, place.column))
        };
        let at = |file: &str, line, column| Some((file.to_owned(), line, column));
        assert_eq!(place(&["root"], "/etc/www"), at("etc/a.toml", 5, 8));
        assert_eq!(place(&["see"], "/etc/www"), None);
        for (problem, expected) in [
            ("/etc/a.key: not the key of /c.pem", at("b.toml", 4, 45)),
            (
                "/etc/a.key: not the key of /etc/a.pem",
                at("etc/a.toml", 6, 38),
            ),
            ("/etc/a.key: no key", at("etc/a.toml", 6, 38)),
            ("/etc/a.pem: no file", at("etc/a.toml", 6, 23)),
            ("/c.pem: no file", at("b.toml", 2, 19)),
            ("/d.pem: no file", None),
        ] {
            let place = naming.place_of_certificate(problem);
            let place = place.map(|it| (it.file, it.line, it.column));
            assert_eq!(place, expected, "{problem}");
        }
        let pairs: Vec<_> = naming.certificates().collect();
        let pair = |one, other| (Path::new(one), Path::new(other));
        let (a, c) = (pair("/etc/a.pem", "/etc/a.key"), pair("/c.pem", "/c.pem"));
        assert_eq!(pairs, [a, c, pair("/c.pem", "/etc/a.key")]);
        let found = |path: &str| {
            let place = naming.place_of_pattern("certificates", Path::new(path))?;
            Some((place.line, place.column))
        };
        assert_eq!(found("/etc/live/x/fullchain.pem"), Some((3, 17)));
        assert_eq!(found("/etc/live/y1/fullchain.pem"), Some((3, 28)));
        assert_eq!(found("/etc/other/x.pem"), None);
    }

    #[test]
    fn a_rule_is_found_by_the_host_and_the_word_of_records() {
        let sources = Sources::from_text(
            "a.toml",
            "[[sites]]\nhosts = [\"a.jp\"]\n[[sites.rules]]\nhandler = { respond = {} }\n\
             [[sites]]\nhosts = [\"b.jp\", \"www.b.jp\"]\n# a.conf:3: Deny\n# closed\n\
             [[sites.rules]]\ndeny = \"all\"\n\
             [[sites.rules]]\nname = \"php\"\n",
        );
        let naming = Naming::of(&sources);
        let line = |host: &str, rule: &str| Some(naming.place_of_rule(host, rule)?.line);
        assert_eq!(line("a.jp", "rule 1"), Some(3));
        assert_eq!(line("www.b.jp", "rule 1"), Some(9));
        assert_eq!(line("b.jp", "php"), Some(11));
        assert_eq!(line("b.jp", "rule 2"), None);
        assert_eq!(line("c.jp", "rule 1"), None);
        let comments = |rule: &str| naming.comments_of_rule("b.jp", rule);
        assert_eq!(comments("rule 1"), ["a.conf:3: Deny", "closed"]);
        assert_eq!(comments("php"), [""; 0]);
    }
}
