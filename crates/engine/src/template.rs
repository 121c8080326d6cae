//! The texts of a configuration, their variables filled in.
//!
//! What a group of a regular expression holds is a piece of the decoded path, without control bytes.
//! In a field, a variable or a key it stands as it is; in a URL it is escaped so that it cannot end
//! the place it was meant for: no path becomes a query, no value two, no path another host. In a body,
//! which may be a page, neither it nor another piece of a target ends a text of the page.

use config::model::{Template, TemplatePart};
use pattern::Spans;
use wire::EncodedSlash;

use crate::exchange::request::Request;
use crate::maps::answers::Answers;

/// What variables are filled in from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Values<'a> {
    pub(crate) request: &'a Request,
    pub(crate) answers: &'a Answers,
    /// What the expression has found whose groups the text may name.
    pub(crate) captured: Option<&'a Captured>,
}

/// What a regular expression and its groups have found of a canonical path.
#[derive(Debug)]
pub(crate) struct Captured {
    path: Box<[u8]>,
    spans: Spans,
    /// Whether a `%2F` in it is an escaped slash, as a client has written it.
    keeps_slashes: bool,
}

impl Captured {
    pub(crate) fn new(path: &[u8], spans: Spans, encoded_slash: EncodedSlash) -> Self {
        Self {
            path: path.into(),
            spans,
            keeps_slashes: encoded_slash == EncodedSlash::Keep,
        }
    }

    /// What a group holds; nothing where it was not met.
    pub(crate) fn get(&self, group: usize) -> &[u8] {
        let span = self.spans.get(group);
        let text = span.and_then(|(from, to)| self.path.get(from..to));
        text.unwrap_or_default()
    }

    /// Appends what a group holds to a URL that begins with `out`, or to a page.
    fn push_url(&self, group: usize, escaping: Escaping, out: &mut Vec<u8>) {
        push_piece_of_url(self.get(group), escaping, self.keeps_slashes, out);
    }
}

/// Appends a text that is not the configuration's to a URL that begins with `out`, or to a page.
fn push_piece_of_url(text: &[u8], escaping: Escaping, keeps_slashes: bool, out: &mut Vec<u8>) {
    let is_query = out.contains(&b'?');
    let mut rest = text;
    // Two slashes at a path's beginning would begin a host.
    let has_slash = out.last() == Some(&b'/');
    while !is_query
        && (rest.starts_with(b"//") || (has_slash && rest.starts_with(b"/")))
        && let Some((_, tail)) = rest.split_first()
    {
        rest = tail;
    }
    while let Some((byte, tail)) = rest.split_first() {
        let is_kept_slash = keeps_slashes && rest.starts_with(b"%2F");
        let stays = byte.is_ascii_alphanumeric()
            || b"-._~/!$*,:@".contains(byte)
            || (escaping == Escaping::Url && b"'()".contains(byte))
            || (escaping == Escaping::Url && !is_query && b"&=+;".contains(byte))
            || is_kept_slash;
        match stays {
            true => out.push(*byte),
            false => push_escaped(*byte, out),
        }
        rest = tail;
    }
}

/// How what a request says is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Escaping {
    /// As it is: in a field, a variable, a key.
    Plain,
    /// As in a URL, where pieces of a target are escaped already.
    Url,
    /// As in a page: as in a URL, and without quotes and brackets.
    Page,
}

/// Appends a template's text, its variables filled in from the request, and what it asks of maps
/// from what was answered.
pub(crate) fn expand(template: &Template, values: Values<'_>, out: &mut Vec<u8>) {
    expand_in(template, values, Escaping::Plain, out);
}

/// The same for a URL.
pub(crate) fn expand_url(template: &Template, values: Values<'_>, out: &mut Vec<u8>) {
    expand_in(template, values, Escaping::Url, out);
}

/// The same for a body.
pub(crate) fn expand_page(template: &Template, values: Values<'_>, out: &mut Vec<u8>) {
    expand_in(template, values, Escaping::Page, out);
}

fn expand_in(template: &Template, values: Values<'_>, escaping: Escaping, out: &mut Vec<u8>) {
    let Values {
        request,
        answers,
        captured,
    } = values;
    let head = &request.head;
    for part in &template.parts {
        match part {
            TemplatePart::Text(text) => out.extend_from_slice(text.as_bytes()),
            TemplatePart::Host => out.extend_from_slice(head.host().as_bytes()),
            TemplatePart::Path => push_piece(head.path_wire(), escaping, out),
            TemplatePart::Query => push_piece(head.query().unwrap_or_default(), escaping, out),
            TemplatePart::Uri => push_target(head.path_wire(), head.query(), escaping, out),
            TemplatePart::RequestUri => {
                push_target(head.sent_path_wire(), head.sent_query(), escaping, out);
            }
            TemplatePart::Scheme => out.extend_from_slice(request.scheme_word()),
            TemplatePart::Client => out.extend_from_slice(request.client.to_string().as_bytes()),
            TemplatePart::RequestId => out.extend_from_slice(request.id.as_bytes()),
            TemplatePart::TlsClient(fact) => {
                if let Some(tls) = &request.tls {
                    tls.push_client(*fact, out);
                }
            }
            TemplatePart::Method => out.extend_from_slice(head.method_bytes()),
            TemplatePart::Row(name) => push_column(request.column(name), escaping, out),
            TemplatePart::Capture(group) => match (captured, escaping) {
                (None, _) => {}
                (Some(captured), Escaping::Plain) => out.extend_from_slice(captured.get(*group)),
                (Some(captured), _) => captured.push_url(*group, escaping, out),
            },
            TemplatePart::Map(lookup) => {
                let mut key = Vec::new();
                expand(&lookup.key, values, &mut key);
                match answers.find(lookup.map, &key).flatten() {
                    Some(answer) => out.extend_from_slice(answer),
                    None => expand_in(&lookup.default, values, escaping, out),
                }
            }
        }
    }
}

/// Appends what a row says: anybody may have written it, so it is a piece of a value and never ends a field's line.
fn push_column(text: &str, escaping: Escaping, out: &mut Vec<u8>) {
    match escaping {
        Escaping::Plain => {
            let bytes = text.bytes();
            out.extend(bytes.filter(|byte| !byte.is_ascii_control()));
        }
        Escaping::Url | Escaping::Page => push_piece_of_url(text.as_bytes(), escaping, false, out),
    }
}

fn push_target(path: &[u8], query: Option<&[u8]>, escaping: Escaping, out: &mut Vec<u8>) {
    push_piece(path, escaping, out);
    if let Some(query) = query {
        out.push(b'?');
        push_piece(query, escaping, out);
    }
}

/// Appends a piece of a target.
fn push_piece(piece: &[u8], escaping: Escaping, out: &mut Vec<u8>) {
    if escaping != Escaping::Page {
        return out.extend_from_slice(piece);
    }
    for byte in piece {
        match b"'\"`<>".contains(byte) {
            true => push_escaped(*byte, out),
            false => out.push(*byte),
        }
    }
}

fn push_escaped(byte: u8, out: &mut Vec<u8>) {
    out.extend_from_slice(format!("%{byte:02X}").as_bytes());
}

#[cfg(test)]
mod tests {
    use pattern::Expression;
    use proptest::prelude::*;

    use super::*;

    fn captured(source: &str, path: &str, encoded_slash: EncodedSlash) -> Captured {
        let expression = Expression::new(source).expect(source);
        let spans = expression.find(path.as_bytes()).expect("few steps");
        Captured::new(path.as_bytes(), spans.expect("a match"), encoded_slash)
    }

    fn url(begin: &str, group: &str) -> String {
        let captured = captured("(?s)(.*)", group, EncodedSlash::Refuse);
        let mut out = begin.as_bytes().to_vec();
        captured.push_url(1, Escaping::Url, &mut out);
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn a_group_stays_where_it_was_put() {
        for (begin, group, expected) in [
            ("/new", "/a b?c#d%e", "/new/a%20b%3Fc%23d%25e"),
            ("/new/", "/a", "/new/a"),
            ("/", "/evil.test/", "/evil.test/"),
            ("", "//evil.test", "/evil.test"),
            ("/", "\\evil.test", "/%5Cevil.test"),
            ("/a", "b&c=d+e", "/ab&c=d+e"),
            ("/a?x=", "b&c=d+e//f", "/a?x=b%26c%3Dd%2Be//f"),
            ("/", "é", "/%C3%A9"),
        ] {
            assert_eq!(url(begin, group), expected, "{begin} {group}");
        }
    }

    #[test]
    fn an_escaped_slash_that_is_kept_is_not_escaped_once_more() {
        for (rule, expected) in [
            (EncodedSlash::Keep, "/a%2Fb%252f"),
            (EncodedSlash::Refuse, "/a%252Fb%252f"),
        ] {
            let mut out = b"/".to_vec();
            captured("^/(.*)", "/a%2Fb%2f", rule).push_url(1, Escaping::Url, &mut out);
            assert_eq!(out, expected.as_bytes());
        }
    }

    #[test]
    fn a_group_that_was_not_met_is_empty() {
        let captured = captured("^/(a)?(b)?", "/b", EncodedSlash::Refuse);
        let groups = [0, 1, 2, 3].map(|group| captured.get(group));
        assert_eq!(groups, [&b"/b"[..], b"", b"b", b""]);
    }

    proptest! {
        #[test]
        fn no_group_makes_a_path_a_query_a_value_two_or_a_target_a_line(
            group in "[ -~]{0,20}",
            begin in prop::sample::select(vec!["/", "/a", "/a/b", "/a?b=", "/a?b=c&d="]),
        ) {
            let url = url(begin, &group);
            let added = &url[begin.len()..];
            prop_assert!(added.bytes().all(|byte| byte.is_ascii_graphic()));
            prop_assert!(!added.contains(['?', '#', '\\', '"', '<', '>']));
            prop_assert!(!url.starts_with("//"));
            prop_assert!(!begin.contains('?') || !added.contains(['&', '=', '+', '#']));
        }
    }
}
