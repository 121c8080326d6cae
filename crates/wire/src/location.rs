//! URLs in a reply's fields: `Location`, `Content-Location` and `Refresh`.
//!
//! Only what leads somewhere in one way is read: an absolute URL of HTTP, or a path of the same
//! origin. Anything else (other schemes, relative paths, what a browser mends) is nobody's business
//! here and stays as it came. No decision about a request is made by what stands there.

use std::ops::Range;

use crate::authority::Authority;

/// A URL, or a path of the same origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Location<'a> {
    /// Where a URL leads; `None` where it is a path.
    pub origin: Option<Origin<'a>>,
    /// Path, query and fragment. With an origin it may be empty, else it begins with one `/`.
    pub rest: &'a [u8],
}

/// Scheme, host and port of a URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Origin<'a> {
    /// Whether it is HTTP over TLS.
    pub is_https: bool,
    authority: &'a [u8],
}

impl<'a> Location<'a> {
    /// Reads a field's value; `None` where it is neither.
    #[must_use]
    pub fn parse(value: &'a [u8]) -> Option<Self> {
        if !value.iter().all(|&byte| is_url_byte(byte)) {
            return None;
        }
        if value.starts_with(b"/") {
            // With two slashes it names another host.
            return (!value.starts_with(b"//")).then_some(Self {
                origin: None,
                rest: value,
            });
        }
        let (is_https, after) = match value.split_at_checked(HTTP.len()) {
            Some((scheme, after)) if scheme.eq_ignore_ascii_case(HTTP) => (false, after),
            _ => match value.split_at_checked(HTTPS.len()) {
                Some((scheme, after)) if scheme.eq_ignore_ascii_case(HTTPS) => (true, after),
                _ => return None,
            },
        };
        let end = after.iter().position(|byte| b"/?#".contains(byte));
        let (authority, rest) = after.split_at(end.unwrap_or(after.len()));
        let origin = Origin {
            is_https,
            authority,
        };
        origin.read(authority).map(|_| Self {
            origin: Some(origin),
            rest,
        })
    }
}

impl Origin<'_> {
    /// Whether this `host[:port]`, reached by the same scheme, is the same origin.
    #[must_use]
    pub fn is_at(&self, authority: &[u8]) -> bool {
        let read = self.read(authority);
        read.is_some() && read == self.read(self.authority)
    }

    /// Whether both lead to the same place.
    #[must_use]
    pub fn is_same(&self, other: &Origin<'_>) -> bool {
        self.is_https == other.is_https && self.is_at(other.authority)
    }

    /// A `host[:port]` in its one spelling, without the scheme's own port.
    fn read(&self, authority: &[u8]) -> Option<String> {
        let mut read = Authority::default();
        read.parse(authority).ok()?;
        let port = if self.is_https { ":443" } else { ":80" };
        let text = read.as_str();
        Some(text.strip_suffix(port).unwrap_or(text).to_owned())
    }
}

/// What follows a path's beginning, which ends at the end of a segment; a slash at its own end does
/// not count.
#[must_use]
pub fn cut_prefix<'a>(path: &'a [u8], prefix: &[u8]) -> Option<&'a [u8]> {
    let rest = path.strip_prefix(trim_slashes(prefix))?;
    let is_boundary = rest.first().is_none_or(|byte| b"/?#".contains(byte));
    is_boundary.then_some(rest)
}

/// What [`cut_prefix`] left, behind another beginning: a path, or a URL without query.
#[must_use]
pub fn put_prefix(prefix: &[u8], rest: &[u8]) -> Vec<u8> {
    match trim_slashes(prefix) {
        b"" => {
            // With two slashes in front it would name another host.
            let slashes = rest.iter().take_while(|&&byte| byte == b'/').count();
            [b"/", rest.get(slashes..).unwrap_or_default()].concat()
        }
        prefix => [prefix, rest].concat(),
    }
}

/// Where the URL of a `Refresh` lies in it: `5; url=/there`, with or without quotes.
#[must_use]
pub fn refresh_url(value: &[u8]) -> Option<Range<usize>> {
    let is_number = |byte: &u8| byte.is_ascii_digit() || *byte == b'.';
    let digits = value.iter().take_while(|byte| is_number(byte)).count();
    let mut rest = value
        .get(digits..)
        .filter(|_| digits > 0)?
        .trim_ascii_start();
    rest = rest
        .strip_prefix(b";")
        .or_else(|| rest.strip_prefix(b","))?;
    let (word, after) = rest.trim_ascii_start().split_at_checked(3)?;
    if !word.eq_ignore_ascii_case(b"url") {
        return None;
    }
    let url = after
        .trim_ascii_start()
        .strip_prefix(b"=")?
        .trim_ascii_start();
    let start = value.len() - url.len();
    let quote = url.first().filter(|byte| b"'\"".contains(byte));
    let range = match quote {
        Some(quote) => {
            start + 1..value.len() - usize::from(url.len() > 1 && url.ends_with(&[*quote]))
        }
        None => start..value.len(),
    };
    let url = value.get(range.clone())?;
    (!url.is_empty() && !url.iter().any(|byte| b"'\"".contains(byte))).then_some(range)
}

fn trim_slashes(mut prefix: &[u8]) -> &[u8] {
    while let Some(shorter) = prefix.strip_suffix(b"/") {
        prefix = shorter;
    }
    prefix
}

/// No blank, no control byte, no quote, and no backslash, which browsers take for a slash.
fn is_url_byte(byte: u8) -> bool {
    byte > b' ' && byte != 0x7f && !b"\"<>\\".contains(&byte)
}

const HTTP: &[u8] = b"http://";
const HTTPS: &[u8] = b"https://";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_and_paths_are_told_from_what_is_neither() {
        for (value, rest) in [
            ("/", "/"),
            ("/a/b?c#d", "/a/b?c#d"),
            ("/a//b", "/a//b"),
            ("http://a", ""),
            ("HTTP://A.example:80/x", "/x"),
            ("https://a?b", "?b"),
            ("http://[::1]:81#c", "#c"),
            ("/\u{e9}", "/\u{e9}"),
        ] {
            let location = Location::parse(value.as_bytes());
            assert_eq!(location.map(|it| it.rest), Some(rest.as_bytes()), "{value}");
        }
        for value in [
            "",
            "a",
            "../a",
            "?a",
            "//b.example/",
            "/\\b.example/",
            "http:/a",
            "http:///a",
            "http://a b/",
            "http://user@a/",
            "http://a:99999/",
            "http://a%2e/",
            "ftp://a/",
            "javascript:alert(1)",
            "/a b",
            "/a\tb",
            "/a\"",
        ] {
            assert_eq!(Location::parse(value.as_bytes()), None, "{value}");
        }
    }

    #[test]
    fn one_origin_has_many_spellings() {
        for (url, authority, expected) in [
            ("http://a.example/x", "A.Example:80", true),
            ("http://A.EXAMPLE.:80", "a.example", true),
            ("https://a:443", "a", true),
            ("https://a", "a:80", false),
            ("http://a:8080", "a", false),
            ("http://a", "b", false),
            ("http://a", "unix:/run/a.sock", false),
            ("http://a", "", false),
            ("http://[0:0::1]", "[::1]:80", true),
        ] {
            let origin = Location::parse(url.as_bytes()).and_then(|it| it.origin);
            let origin = origin.expect("a URL");
            assert_eq!(
                origin.is_at(authority.as_bytes()),
                expected,
                "{url} {authority}"
            );
        }
    }

    #[test]
    fn beginnings_are_changed_at_the_end_of_a_segment() {
        for (path, from, to, expected) in [
            ("/two/x", "/two/", "/one/", Some("/one/x")),
            ("/two/x", "/two", "/one", Some("/one/x")),
            ("/two", "/two/", "/one/", Some("/one")),
            ("/two?q", "/two", "/", Some("/?q")),
            ("/two", "/two", "/", Some("/")),
            ("/twofold", "/two", "/one", None),
            ("/x#y", "/", "/one", Some("/one/x#y")),
            ("", "/", "/one", Some("/one")),
            ("", "", "", Some("/")),
            ("//b.example/", "/", "/", Some("/b.example/")),
            ("/two//b.example/", "/two", "/", Some("/b.example/")),
            ("/two/x", "/two", "https://b/c/", Some("https://b/c/x")),
        ] {
            let rest = cut_prefix(path.as_bytes(), from.as_bytes());
            let changed = rest.map(|rest| put_prefix(to.as_bytes(), rest));
            let changed = changed.map(|changed| String::from_utf8(changed).expect("text"));
            assert_eq!(changed.as_deref(), expected, "{path}: {from} to {to}");
        }
    }

    #[test]
    fn a_refreshs_url_is_found() {
        for (value, url) in [
            ("5; url=/a", Some("/a")),
            ("0;URL=http://a/b?c=d", Some("http://a/b?c=d")),
            ("1.5 , Url = '/a'", Some("/a")),
            ("5; url=\"/a\"", Some("/a")),
            ("5; url=\"/a", Some("/a")),
            ("5", None),
            ("5; /a", None),
            ("; url=/a", None),
            ("5; url=", None),
            ("5; url='", None),
            ("5; url=''", None),
            ("5; url='/a'b'", None),
            ("x; url=/a", None),
        ] {
            let found = refresh_url(value.as_bytes());
            assert_eq!(found.map(|range| &value[range]), url, "{value}");
        }
    }
}
