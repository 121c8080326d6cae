//! Content negotiation, as far as this gateway negotiates: codings and the format of error replies.

use crate::octets::list;

/// How much a client wants a content coding: 0 (not at all) to 1000.
///
/// Without the field only `identity` is wanted: a client that takes compressed content says so.
pub fn coding_quality(accept_encoding: Option<&[u8]>, coding: &str) -> u16 {
    let is_identity = coding.eq_ignore_ascii_case("identity");
    let Some(field) = accept_encoding else {
        return if is_identity { 1000 } else { 0 };
    };
    let quality_of =
        |name: &[u8]| best_quality(field, |element| element.eq_ignore_ascii_case(name));
    quality_of(coding.as_bytes())
        .or_else(|| quality_of(b"*"))
        .unwrap_or(if is_identity { 1000 } else { 0 })
}

/// Whether a client would rather read an error as JSON than as HTML.
pub fn prefers_json(accept: Option<&[u8]>) -> bool {
    let Some(field) = accept else { return false };
    let json = best_quality(field, |range| {
        range.eq_ignore_ascii_case(b"application/json") || ends_with_folded(range, b"+json")
    });
    let html = best_quality(field, |range| {
        [&b"text/html"[..], b"text/*", b"application/xhtml+xml"]
            .iter()
            .any(|html| range.eq_ignore_ascii_case(html))
    });
    json.unwrap_or(0) > html.unwrap_or(0)
}

/// Whether a client asks for HTML by name, as browsers do that open a page.
pub fn names_html(accept: Option<&[u8]>) -> bool {
    let named = |range: &[u8]| range.eq_ignore_ascii_case(b"text/html");
    accept.is_some_and(|field| best_quality(field, named) > Some(0))
}

fn ends_with_folded(range: &[u8], suffix: &[u8]) -> bool {
    let start = range.len().saturating_sub(suffix.len());
    range
        .get(start..)
        .is_some_and(|end| end.eq_ignore_ascii_case(suffix))
}

/// The highest quality among the elements of `field` that are named so.
fn best_quality(field: &[u8], named: impl Fn(&[u8]) -> bool) -> Option<u16> {
    list(field)
        .filter_map(|element| {
            let mut parts = element.split(|&byte| byte == b';').map(<[u8]>::trim_ascii);
            let name = parts.next()?;
            named(name).then(|| parts.find_map(weight).unwrap_or(1000))
        })
        .max()
}

/// The weight of a `q` parameter; 0 if it is malformed. `None` for another parameter.
fn weight(parameter: &[u8]) -> Option<u16> {
    let ([b'q' | b'Q', b'='], digits) = parameter.split_at_checked(2)? else {
        return None;
    };
    Some(match digits {
        [b'0'] | [b'0', b'.'] => 0,
        [b'1']
        | [b'1', b'.']
        | [b'1', b'.', b'0']
        | [b'1', b'.', b'0', b'0']
        | [b'1', b'.', b'0', b'0', b'0'] => 1000,
        [b'0', b'.', fraction @ ..]
            if fraction.len() <= 3 && fraction.iter().all(u8::is_ascii_digit) =>
        {
            let digit = |index: usize| fraction.get(index).map_or(0, |byte| u16::from(byte - b'0'));
            digit(0) * 100 + digit(1) * 10 + digit(2)
        }
        _ => 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codings_are_weighed() {
        for (field, coding, quality) in [
            ("gzip", "gzip", 1000),
            ("GZIP", "gzip", 1000),
            ("gzip;q=0.5, br", "gzip", 500),
            ("gzip ; q=0.05", "gzip", 50),
            ("gzip;q=1.000", "gzip", 1000),
            ("gzip;q=0", "gzip", 0),
            ("gzip;q=0.000", "gzip", 0),
            ("gzip;q=2", "gzip", 0),
            ("gzip;q=0.1234", "gzip", 0),
            ("gzip;q=nan", "gzip", 0),
            ("br", "gzip", 0),
            ("xgzip", "gzip", 0),
            ("*", "gzip", 1000),
            ("*;q=0.3, gzip;q=0.9", "gzip", 900),
            ("*;q=0", "identity", 0),
            ("gzip", "identity", 1000),
            ("identity;q=0", "identity", 0),
            ("", "gzip", 0),
            ("", "identity", 1000),
        ] {
            assert_eq!(
                coding_quality(Some(field.as_bytes()), coding),
                quality,
                "{field} for {coding}"
            );
        }
        assert_eq!(coding_quality(None, "gzip"), 0);
        assert_eq!(coding_quality(None, "identity"), 1000);
    }

    #[test]
    fn json_is_for_those_who_ask_for_it() {
        for (field, json) in [
            ("application/json", true),
            ("application/problem+json, */*;q=0.1", true),
            ("application/json, text/plain, */*", true),
            ("text/html, application/json;q=0.9", false),
            ("text/html;q=0.5, application/json", true),
            (
                "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
                false,
            ),
            ("application/json, text/html", false),
            ("application/json;q=0", false),
            ("*/*", false),
            ("", false),
        ] {
            assert_eq!(prefers_json(Some(field.as_bytes())), json, "{field}");
        }
        assert!(!prefers_json(None));
    }
}
