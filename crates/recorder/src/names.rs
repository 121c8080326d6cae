//! Texts of requests, each told once and from then on meant by a number; and what follows from them.
//!
//! The idea: a record is of fixed size and names path, referrer and user agent by hashes. What a text
//! means (a page or not, whose browser, which group of referrers) is found out when it is told, so
//! that a request costs a look into a table. The table has a bound: when it is full it begins anew,
//! and all is told again.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::rc::Rc;

use ipc::ring::TextOf;

use crate::agent::Agent;
use crate::day::cut;

/// Bytes of texts that are held, about; some 40 MB with what is known of them.
const BYTES_MAX: usize = 16 << 20;
/// What an entry takes beside its text, about.
const ENTRY_BYTES: usize = 120;
/// Endings of paths that are pages.
const PAGE_ENDINGS: [&str; 12] = [
    "asp", "aspx", "cfm", "cgi", "do", "htm", "html", "jsp", "php", "pl", "shtml", "xhtml",
];
/// What nobody looks at, although it looks like a page.
const NO_PAGES: [&str; 6] = [
    "/wp-admin/admin-ajax.php",
    "/wp-cron.php",
    "/wp-json/",
    "/xmlrpc.php",
    "/.well-known/",
    "/cgi-sys/",
];
/// Groups of referrers, by a part of their host between points.
const GROUPS: [(&str, &str); 28] = [
    ("google", "Google"),
    ("bing", "Bing"),
    ("yahoo", "Yahoo!"),
    ("duckduckgo", "DuckDuckGo"),
    ("baidu", "Baidu"),
    ("yandex", "Yandex"),
    ("ecosia", "Ecosia"),
    ("qwant", "Qwant"),
    ("naver", "Naver"),
    ("startpage", "Startpage"),
    ("chatgpt", "ChatGPT"),
    ("openai", "ChatGPT"),
    ("perplexity", "Perplexity"),
    ("claude", "Claude"),
    ("facebook", "Facebook"),
    ("instagram", "Instagram"),
    ("twitter", "X"),
    ("t.co", "X"),
    ("x.com", "X"),
    ("linkedin", "LinkedIn"),
    ("lnkd", "LinkedIn"),
    ("reddit", "Reddit"),
    ("youtube", "YouTube"),
    ("pinterest", "Pinterest"),
    ("hatena", "Hatena"),
    ("qiita", "Qiita"),
    ("github", "GitHub"),
    ("ycombinator", "Hacker News"),
];

/// A text that was told.
#[derive(Debug, Clone)]
pub(crate) struct Name {
    pub(crate) text: Rc<str>,
    pub(crate) meaning: Meaning,
}

#[derive(Debug, Clone)]
pub(crate) enum Meaning {
    Page,
    Plain,
    Referrer(Rc<Referrer>),
    Agent(Agent),
}

/// Where somebody came from.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Referrer {
    /// Its host, without `www.`.
    pub(crate) host: Box<str>,
    /// What it counts as.
    pub(crate) group: Rc<str>,
    /// Host and path; queries are not kept.
    pub(crate) page: Rc<str>,
}

/// A number that is a hash already.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct AsIs(u64);

impl Hasher for AsIs {
    fn finish(&self) -> u64 {
        // A table looks at the highest bits and at the lowest; a visitor's are only in the middle.
        self.0.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, number: u64) {
        // Of two that are joined both count.
        self.0 = self.0.rotate_left(17) ^ number;
    }
}

pub(crate) type ByHash<K, T> = HashMap<K, T, BuildHasherDefault<AsIs>>;

/// All that was told.
#[derive(Debug, Default)]
pub(crate) struct Names {
    known: ByHash<u64, Name>,
    bytes: usize,
    /// Pairs of a text that referrers may contain and the group they are in then.
    groups: Vec<(String, String)>,
}

impl Names {
    pub(crate) fn new(groups: Vec<(String, String)>) -> Names {
        Names {
            groups,
            ..Names::default()
        }
    }

    pub(crate) fn knows(&self, hash: u64) -> bool {
        self.known.contains_key(&hash)
    }

    /// What was told; of 0, which means no text, nothing.
    pub(crate) fn get(&self, hash: u64) -> Option<&Name> {
        match hash {
            0 => None,
            hash => self.known.get(&hash),
        }
    }

    /// Begins anew where there are too many; whether it did.
    pub(crate) fn make_room(&mut self) -> bool {
        let is_full = self.bytes > BYTES_MAX;
        if is_full {
            self.known.clear();
            self.bytes = 0;
        }
        is_full
    }

    /// Learns a text.
    pub(crate) fn tell(&mut self, hash: u64, of: TextOf, text: &str) {
        let meaning = match of {
            TextOf::Path if is_page(text) => Meaning::Page,
            TextOf::Agent => Meaning::Agent(Agent::of(text)),
            TextOf::Referrer => match Referrer::of(text, &self.groups) {
                Some(referrer) => Meaning::Referrer(Rc::new(referrer)),
                None => Meaning::Plain,
            },
            TextOf::Path | TextOf::Site | TextOf::Name => Meaning::Plain,
        };
        // Of user agents and referrers nothing is asked but what they mean.
        let text: Rc<str> = match of {
            TextOf::Agent | TextOf::Referrer => "".into(),
            TextOf::Path | TextOf::Site | TextOf::Name => cut(text).into(),
        };
        self.bytes += text.len() + ENTRY_BYTES;
        self.known.insert(hash, Name { text, meaning });
    }
}

/// Whether a path is what people look at, and no picture, style or the like.
fn is_page(path: &str) -> bool {
    if NO_PAGES.iter().any(|begin| path.starts_with(begin)) {
        return false;
    }
    let last = path.rsplit('/').next().unwrap_or_default();
    match last.rsplit_once('.') {
        None => true,
        // A number behind a point is no ending: /release-1.2.
        Some((_, ending)) => {
            PAGE_ENDINGS
                .iter()
                .any(|it| ending.eq_ignore_ascii_case(it))
                || ending.bytes().all(|byte| byte.is_ascii_digit())
        }
    }
}

impl Referrer {
    /// Reads a `Referer`; none where it says nothing.
    fn of(sent: &str, groups: &[(String, String)]) -> Option<Referrer> {
        let (_, rest) = sent.split_once("://")?;
        let rest = rest.split(['?', '#']).next().unwrap_or_default();
        let end = rest.find('/').unwrap_or(rest.len());
        let (authority, path) = rest.split_at_checked(end)?;
        let authority = authority.rsplit('@').next().unwrap_or_default();
        let host = authority.to_ascii_lowercase();
        let host = bare_host(&host);
        let is_host = |byte: u8| byte.is_ascii_alphanumeric() || b"-._[]:".contains(&byte);
        if host.is_empty() || host.len() > 253 || !host.bytes().all(is_host) {
            return None;
        }
        let page = format!("{host}{}", if path.is_empty() { "/" } else { path });
        let page: Rc<str> = cut(&page).into();
        let own = groups.iter().find(|(part, _)| page.contains(part.as_str()));
        let group = match own {
            Some((_, group)) => group.as_str(),
            None => known_group(host).unwrap_or(host),
        };
        Some(Referrer {
            host: host.into(),
            group: group.into(),
            page,
        })
    }
}

/// The group of a host that many know: by its name, or by one label of it but the last.
fn known_group(host: &str) -> Option<&'static str> {
    let labels = host.rsplit_once('.').map_or("", |(labels, _)| labels);
    let is_named = |name: &str| match name.contains('.') {
        true => host == name,
        false => labels.split('.').any(|label| label == name),
    };
    let found = GROUPS.iter().find(|(name, _)| is_named(name));
    found.map(|(_, group)| *group)
}

/// A host without its port and `www.`.
pub(crate) fn bare_host(host: &str) -> &str {
    let host = match host.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => host,
    };
    host.strip_prefix("www.").unwrap_or(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_told_from_what_belongs_to_them() {
        for (path, is) in [
            ("/", true),
            ("/blog/an-entry", true),
            ("/index.PHP", true),
            ("/release-1.2", true),
            ("/a.png", false),
            ("/feed.xml", false),
            ("/wp-admin/admin-ajax.php", false),
            ("/.well-known/acme-challenge/x", false),
            ("", true),
        ] {
            assert_eq!(is_page(path), is, "{path}");
        }
    }

    #[test]
    fn referrers_lose_their_queries_and_are_grouped() {
        let own = [("example.org/press".to_owned(), "Press".to_owned())];
        for (sent, told) in [
            (
                "https://www.google.co.jp/search?q=secret",
                Some(("Google", "google.co.jp/search")),
            ),
            ("https://t.co/abc", Some(("X", "t.co/abc"))),
            ("https://my.t.co/abc", Some(("my.t.co", "my.t.co/abc"))),
            (
                "http://user:pw@Example.org:8080/press/1?a#b",
                Some(("Press", "example.org/press/1")),
            ),
            (
                "https://googleish.example/",
                Some(("googleish.example", "googleish.example/")),
            ),
            (
                "https://blog.example",
                Some(("blog.example", "blog.example/")),
            ),
            ("-", None),
            ("", None),
            ("https://<script>/", None),
            ("https:///x", None),
        ] {
            let found = Referrer::of(sent, &own);
            let found = found.as_ref().map(|it| (&*it.group, &*it.page));
            assert_eq!(found, told, "{sent}");
        }
    }

    #[test]
    fn more_names_than_there_is_room_for_begin_anew() {
        let mut names = Names::default();
        let text = "x".repeat(200);
        for number in 0..200_000 {
            names.make_room();
            names.tell(number, TextOf::Path, &text);
        }
        assert!(names.known.len() < BYTES_MAX / ENTRY_BYTES);
        assert!(names.knows(199_999));
    }
}
