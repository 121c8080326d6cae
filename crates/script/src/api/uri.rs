//! `URI` and `CGI`: texts made fit for a query, a form or a page, and read out of one.

use mruby::{Answer, Datum};

use super::arguments::split_once;
use super::chapter::{Chapter, takes_texts};
use super::entries::{function, in_ruby, module};
use crate::state::NativeCall;

/// Pairs of one form.
const PAIRS_MAX: usize = 1_000;

/// Octets that stand for themselves in a form (`application/x-www-form-urlencoded`), beside letters
/// and digits.
const OF_FORM: &[u8] = b"*-._";
/// The same anywhere in a URI (RFC 3986, 2.3).
pub(super) const OF_URI: &[u8] = b"-._~";

pub(super) const CHAPTER: Chapter = Chapter {
    title: "URI, CGI",
    text: "Names and values of queries, forms and pages. Nothing here takes a URI apart.",
    classes: &[
        module("URI"),
        module("CGI"),
        module("HTTP"),
        module("HTTP::URL"),
    ],
    constants: &[],
    methods: &[
        function(
            &["URI"],
            &["encode_www_form_component"],
            (takes_texts(1, 2), "text"),
            "As a form has it: a blank is `+`, and what is neither letter nor digit nor `*-._` is `%XX`.",
            |call| encoded(call, OF_FORM, b"+"),
        ),
        function(
            &["URI"],
            &["decode_www_form_component"],
            (takes_texts(1, 2), "text"),
            "The inverse; an ArgumentError for a `%` without two digits behind it.",
            |call| decoded(call, Plus::IsBlank),
        ),
        function(
            &["URI"],
            &["encode_uri_component"],
            (takes_texts(1, 2), "text"),
            "The same with `%20` for a blank.",
            |call| encoded(call, OF_FORM, b"%20"),
        ),
        function(
            &["URI"],
            &["decode_uri_component"],
            (takes_texts(1, 2), "text"),
            "The inverse: `+` stays `+`.",
            |call| decoded(call, Plus::IsItself),
        ),
        function(
            &["URI"],
            &["decode_www_form"],
            (takes_texts(1, 1), "text"),
            "The pairs of a form as an Array of `[name, value]`, decoded: at most 1,000.",
            decode_form,
        ),
        function(
            &["CGI"],
            &["escape"],
            (takes_texts(1, 1), "text"),
            "As `URI.encode_www_form_component`, where `*` is `%2A` and `~` stays.",
            |call| encoded(call, OF_URI, b"+"),
        ),
        function(
            &["CGI"],
            &["unescape"],
            (takes_texts(1, 1), "text"),
            "The inverse; a `%` without two digits behind it stays.",
            |call| Answer::Bytes(decode(call.bytes(0).unwrap_or_default(), Plus::IsBlank).0),
        ),
        function(
            &["CGI"],
            &["escapeURIComponent"],
            (takes_texts(1, 1), "text"),
            "What is neither letter nor digit nor `-._~` as `%XX`.",
            |call| encoded(call, OF_URI, b"%20"),
        ),
        function(
            &["CGI"],
            &["unescapeURIComponent"],
            (takes_texts(1, 1), "text"),
            "The inverse; a `%` without two digits behind it stays.",
            |call| Answer::Bytes(decode(call.bytes(0).unwrap_or_default(), Plus::IsItself).0),
        ),
        function(
            &["HTTP::URL"],
            &["encode"],
            (takes_texts(1, 1), "text"),
            "As `CGI.escapeURIComponent`; so mruby-http has it.",
            |call| encoded(call, OF_URI, b"%20"),
        ),
        function(
            &["HTTP::URL"],
            &["decode"],
            (takes_texts(1, 1), "text"),
            "As `CGI.unescapeURIComponent`.",
            |call| Answer::Bytes(decode(call.bytes(0).unwrap_or_default(), Plus::IsItself).0),
        ),
        function(
            &["CGI"],
            &["escapeHTML", "escape_html"],
            (takes_texts(1, 1), "text"),
            "Fit to stand in HTML, in the value of an attribute, too: `&`, `<`, `>`, `\"` and `'` are written as entities.",
            escape_html,
        ),
    ],
    in_ruby: &[in_ruby(
        "URI.encode_www_form",
        "pairs",
        "A form or query of a Hash, or of an Array of pairs; an Array as value is a pair each, and `nil` a name \
         without `=`.",
    )],
    prelude: "
module URI
  def self.encode_www_form(pairs, encoding = nil)
    pairs.map { |name, value|
      name = encode_www_form_component(name)
      next name if value.nil?
      (value.is_a?(Array) ? value : [value]).map { |one|
        one.nil? ? name : \"#{name}=#{encode_www_form_component(one)}\"
      }.join('&')
    }.join('&')
  end
end
",
};

/// What `+` stands for in a text that is decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Plus {
    IsBlank,
    IsItself,
}

/// Appends a text with everything but letters, digits and `kept` as `%XX`.
pub(super) fn encode(text: &[u8], kept: &[u8], out: &mut String) {
    for byte in text {
        match byte {
            byte if byte.is_ascii_alphanumeric() || kept.contains(byte) => {
                out.push(char::from(*byte));
            }
            byte => {
                // Not formatted: a long text of a client is not to hold a worker.
                let digit = |half: u8| char::from_digit(u32::from(half), 16).unwrap_or('0');
                out.push('%');
                out.push(digit(byte >> 4).to_ascii_uppercase());
                out.push(digit(byte & 15).to_ascii_uppercase());
            }
        }
    }
}

fn encoded(call: &mut NativeCall<'_>, kept: &[u8], blank: &[u8]) -> Answer {
    let mut out = String::new();
    for (number, word) in call
        .bytes(0)
        .unwrap_or_default()
        .split(|byte| *byte == b' ')
        .enumerate()
    {
        if number > 0 {
            out.push_str(std::str::from_utf8(blank).unwrap_or_default());
        }
        encode(word, kept, &mut out);
    }
    Answer::Bytes(out.into_bytes())
}

/// A text decoded, and whether each `%` had its digits; one that has none stays.
fn decode(text: &[u8], plus: Plus) -> (Vec<u8>, bool) {
    let mut out = Vec::with_capacity(text.len());
    let (mut left, mut is_whole) = (text, true);
    while let Some((first, rest)) = left.split_first() {
        left = rest;
        out.push(match first {
            b'+' if plus == Plus::IsBlank => b' ',
            b'%' => match rest.split_first_chunk().and_then(octet) {
                Some((octet, rest)) => {
                    left = rest;
                    octet
                }
                None => {
                    is_whole = false;
                    b'%'
                }
            },
            other => *other,
        });
    }
    (out, is_whole)
}

fn octet<'a>(([high, low], rest): (&[u8; 2], &'a [u8])) -> Option<(u8, &'a [u8])> {
    let digit = |byte: &u8| char::from(*byte).to_digit(16);
    let octet = digit(high)? * 16 + digit(low)?;
    Some((u8::try_from(octet).ok()?, rest))
}

fn decoded(call: &mut NativeCall<'_>, plus: Plus) -> Answer {
    match decode(call.bytes(0).unwrap_or_default(), plus) {
        (text, true) => Answer::Bytes(text),
        (_, false) => Answer::argument_error("a % in the text has no two digits behind it"),
    }
}

fn decode_form(call: &mut NativeCall<'_>) -> Answer {
    let text = call.bytes(0).unwrap_or_default();
    let parts = text.split(|byte| *byte == b'&');
    let parts = parts.filter(|part| !part.is_empty()).take(PAIRS_MAX);
    let mut pairs = Vec::new();
    for part in parts {
        let (name, value) = split_once(part, b'=').unwrap_or((part, b""));
        let [(name, true), (value, true)] = [name, value].map(|text| decode(text, Plus::IsBlank))
        else {
            return Answer::argument_error("a % in the form has no two digits behind it");
        };
        pairs.push(Datum::Array(vec![name.into(), value.into()]));
    }
    Answer::Datum(Datum::Array(pairs))
}

fn escape_html(call: &mut NativeCall<'_>) -> Answer {
    let text = call.bytes(0).unwrap_or_default();
    let mut out = Vec::with_capacity(text.len());
    for byte in text {
        match byte {
            b'&' => out.extend_from_slice(b"&amp;"),
            b'<' => out.extend_from_slice(b"&lt;"),
            b'>' => out.extend_from_slice(b"&gt;"),
            b'"' => out.extend_from_slice(b"&quot;"),
            b'\'' => out.extend_from_slice(b"&#39;"),
            byte => out.push(*byte),
        }
    }
    Answer::Bytes(out)
}
