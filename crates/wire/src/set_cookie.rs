//! `Set-Cookie` (RFC 6265): its domain and path, and nothing else of it.
//!
//! Everything but the two is copied as it came. A cookie that browsers could read in two ways stays
//! as it is: one without a name, or with an attribute twice.

use std::ops::Range;

use crate::octets::{field_name_ok, field_value_ok};

/// What becomes of an attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// It stays.
    Keep,
    /// This is its value.
    Value(Vec<u8>),
    /// It goes.
    Remove,
}

/// The cookie with other attributes; `None` where it stays as it is, because nothing is to be
/// changed, or because it is no cookie.
pub fn rewritten(
    value: &[u8],
    domain: impl Fn(&[u8]) -> Change,
    path: impl Fn(&[u8]) -> Change,
) -> Option<Vec<u8>> {
    let cookie = Attributes::read(value)?;
    let start = value.get(..HOST_PREFIX.len()).unwrap_or_default();
    if start.eq_ignore_ascii_case(HOST_PREFIX) {
        return None;
    }
    let change = |attribute: &Option<Attribute>, by: &dyn Fn(&[u8]) -> Change| {
        let Some(attribute) = attribute else {
            return Change::Keep;
        };
        match by(value.get(attribute.value.clone()).unwrap_or_default()) {
            Change::Value(value) if !fits(&value) => Change::Keep,
            change => change,
        }
    };
    let domain = (change(&cookie.domain, &domain), cookie.domain);
    let path = (change(&cookie.path, &path), cookie.path);
    let mut edits = [domain, path].map(|(change, attribute)| match (change, attribute) {
        (Change::Value(value), Some(attribute)) => (attribute.value, value),
        (Change::Remove, Some(attribute)) => (attribute.whole, Vec::new()),
        _ => (0..0, Vec::new()),
    });
    edits.sort_by_key(|(place, _)| std::cmp::Reverse(place.start));
    let mut out = value.to_vec();
    for (place, text) in edits {
        // The last comes first, so that the places of those before it hold.
        if !place.is_empty() && place.end <= out.len() {
            out.splice(place, text);
        }
    }
    (out != value).then_some(out)
}

/// A cookie of this name has no domain and the path `/`, or browsers drop it.
const HOST_PREFIX: &[u8] = b"__Host-";

/// Where the attributes lie in a cookie.
struct Attributes {
    domain: Option<Attribute>,
    path: Option<Attribute>,
}

struct Attribute {
    /// With the semicolon before it.
    whole: Range<usize>,
    /// Not empty.
    value: Range<usize>,
}

impl Attributes {
    fn read(value: &[u8]) -> Option<Self> {
        let mut parts = value.split(|&byte| byte == b';');
        let pair = parts.next()?;
        let equals = pair.iter().position(|&byte| byte == b'=')?;
        if !field_name_ok(pair.get(..equals)?.trim_ascii()) {
            return None;
        }
        let (mut domain, mut path) = (None, None);
        let mut start = pair.len();
        for part in parts {
            let whole = start..start + 1 + part.len();
            start = whole.end;
            let name_bytes = part.iter().position(|&byte| byte == b'=');
            let name = part.get(..name_bytes.unwrap_or(part.len()))?.trim_ascii();
            let slot = match name {
                _ if name.eq_ignore_ascii_case(b"domain") => &mut domain,
                _ if name.eq_ignore_ascii_case(b"path") => &mut path,
                _ => continue,
            };
            if slot.is_some() {
                return None;
            }
            let text = part.get(name_bytes.map_or(part.len(), |at| at + 1)..)?;
            let end = whole.end - (text.len() - text.trim_ascii_end().len());
            let begin = end - text.trim_ascii().len();
            *slot = Some(Attribute {
                whole,
                value: begin..end,
            });
        }
        let is_given = |attribute: &Attribute| !attribute.value.is_empty();
        Some(Self {
            domain: domain.filter(is_given),
            path: path.filter(is_given),
        })
    }
}

/// Whether a text can be an attribute's value.
fn fits(value: &[u8]) -> bool {
    !value.is_empty() && field_value_ok(value) && !value.contains(&b';')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(cookie: &str, domain: Change, path: Change) -> Option<String> {
        let out = rewritten(
            cookie.as_bytes(),
            |value| match value {
                b"a.example" => domain.clone(),
                _ => Change::Keep,
            },
            |value| match value {
                b"/two" => path.clone(),
                _ => Change::Keep,
            },
        );
        out.map(|out| String::from_utf8(out).expect("text"))
    }

    fn to(value: &str) -> Change {
        Change::Value(value.into())
    }

    #[test]
    fn domain_and_path_are_changed_and_the_rest_is_copied() {
        for (cookie, domain, path, expected) in [
            (
                "s=1; Path=/two; HttpOnly",
                Change::Keep,
                to("/one"),
                "s=1; Path=/one; HttpOnly",
            ),
            ("s=1;path=/two", Change::Keep, to("/"), "s=1;path=/"),
            (
                "s=\"x y\"; PATH = /two ; Domain=a.example; Secure",
                to("b.example"),
                to("/longer"),
                "s=\"x y\"; PATH = /longer ; Domain=b.example; Secure",
            ),
            (
                "s=1; domain=a.example; Path=/two",
                Change::Remove,
                to("/one"),
                "s=1; Path=/one",
            ),
            (
                "s=; Path=/two; Max-Age=3",
                Change::Keep,
                Change::Remove,
                "s=; Max-Age=3",
            ),
        ] {
            assert_eq!(
                changed(cookie, domain, path).as_deref(),
                Some(expected),
                "{cookie}"
            );
        }
    }

    #[test]
    fn what_is_no_cookie_or_would_be_none_stays() {
        for cookie in [
            "",
            "s",
            "=1; Path=/two",
            "s t=1; Path=/two",
            "s; Path=/two",
            "s=1",
            "s=1; Path",
            "s=1; Path=",
            "s=1; Path=/other; Domain=b.example",
            "s=1; Path=/two; Path=/two",
            "s=1; Domain=a.example; Path=/two; domain=",
            "__Host-s=1; Secure; Path=/two; Domain=a.example",
        ] {
            let out = changed(cookie, to("b.example"), to("/one"));
            assert_eq!(out, None, "{cookie}");
        }
        for value in ["", "/a;b", "/a\r\nb", " /a"] {
            let out = changed("s=1; Path=/two; Domain=a.example", to(value), to(value));
            assert_eq!(out, None, "{value:?}");
        }
    }
}
