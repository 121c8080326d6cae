//! Templates: text with variables.
//!
//! The idea: a variable is `$name` or `${name}`, a dollar itself `$$`; anything else behind a
//! dollar is a mistake and never passes as text. `$row.NAME` is a column of the row that makes the
//! site. `$1` and `${name}` are groups of a regular
//! expression, where one is in sight. What a map answers is `${NAME:KEY|DEFAULT}`, key
//! and default being templates without maps.

use std::ops::Range;

use super::context::{Finding, problem};
use super::expressions;
use super::value::Value;
use super::values;
use crate::keys;
use crate::model::{MapLookup, Template, TemplatePart, TlsClientFact};

/// What a template is for, hence which bytes its text may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A field's value: no control characters.
    Field,
    /// A redirect's target: visible ASCII.
    Target,
    /// A body: anything.
    Body,
    /// A variable of a program: anything but NUL, which would end it.
    Variable,
    /// What a map is asked, or stands in for its answer: a line, and no map within it.
    Key,
}

/// The variables.
const VARIABLES: &[(&str, TemplatePart)] = &[
    ("host", TemplatePart::Host),
    ("path", TemplatePart::Path),
    ("query", TemplatePart::Query),
    ("uri", TemplatePart::Uri),
    ("request_uri", TemplatePart::RequestUri),
    ("scheme", TemplatePart::Scheme),
    ("client", TemplatePart::Client),
    ("request_id", TemplatePart::RequestId),
    ("method", TemplatePart::Method),
    (
        "tls_client_subject",
        TemplatePart::TlsClient(TlsClientFact::Subject),
    ),
    (
        "tls_client_issuer",
        TemplatePart::TlsClient(TlsClientFact::Issuer),
    ),
    (
        "tls_client_serial",
        TemplatePart::TlsClient(TlsClientFact::Serial),
    ),
    (
        "tls_client_fingerprint",
        TemplatePart::TlsClient(TlsClientFact::Fingerprint),
    ),
    (
        "tls_client_verify",
        TemplatePart::TlsClient(TlsClientFact::Verify),
    ),
    (
        "tls_client_not_before",
        TemplatePart::TlsClient(TlsClientFact::NotBefore),
    ),
    (
        "tls_client_not_after",
        TemplatePart::TlsClient(TlsClientFact::NotAfter),
    ),
    (
        "tls_client_cert",
        TemplatePart::TlsClient(TlsClientFact::EscapedPem),
    ),
];

/// What columns of rows begin with.
const ROW: &str = "row.";

/// What other servers call them.
const OTHERS_VARIABLES: &[(&str, &str)] = &[
    ("http_host", "host"),
    ("server_name", "host"),
    ("document_uri", "path"),
    ("args", "query"),
    ("query_string", "query"),
    ("request_scheme", "scheme"),
    ("remote_addr", "client"),
    ("binary_remote_addr", "client"),
    ("unique_id", "request_id"),
    ("request_method", "method"),
    ("ssl_client_s_dn", "tls_client_subject"),
    ("ssl_client_i_dn", "tls_client_issuer"),
    ("ssl_client_serial", "tls_client_serial"),
    ("ssl_client_fingerprint", "tls_client_fingerprint"),
    ("ssl_client_verify", "tls_client_verify"),
    ("ssl_client_v_start", "tls_client_not_before"),
    ("ssl_client_v_end", "tls_client_not_after"),
    ("ssl_client_cert", "tls_client_cert"),
    ("ssl_client_escaped_cert", "tls_client_cert"),
];

/// A template; `None` after its problems were reported.
pub(crate) fn template(value: &Value<'_>, purpose: Purpose) -> Option<Template> {
    let text = value.text()?;
    let parts = parts(value, text, 0, purpose);
    let illegal = text.char_indices().find(|(_, c)| !allowed(*c, purpose));
    if let Some((at, c)) = illegal {
        let message = format!("{:?} may not stand in `{}`", c, value.name);
        value
            .context
            .report(problem(value.part(at..at + c.len_utf8()), message));
        return None;
    }
    parts.map(|parts| Template { parts })
}

/// The pieces of `text`, which begins at this byte of the value's; `None` once a problem of one
/// was reported.
fn parts(
    value: &Value<'_>,
    text: &str,
    begins: usize,
    purpose: Purpose,
) -> Option<Vec<TemplatePart>> {
    let mut parts = Vec::new();
    let mut fine = true;
    let mut rest = text;
    while !rest.is_empty() {
        let at = begins + text.len() - rest.len();
        let (piece, after) = piece(rest);
        rest = after;
        let end = begins + text.len() - rest.len();
        let part = match piece {
            Piece::Text(piece) => {
                fine &= !has_apaches(value, piece, at, purpose);
                push_text(&mut parts, piece);
                continue;
            }
            Piece::Variable(name) => variable(value, name, at..end),
            Piece::Row(name) => column(value, name, at..end),
            Piece::Braced(inner) => match inner.split_once(':') {
                // Behind `${`.
                Some((name, asked)) => lookup(value, (name, asked), at + 2, purpose),
                None => match inner.strip_prefix(ROW) {
                    Some(name) => column(value, name, at..end),
                    None => variable(value, inner, at..end),
                },
            },
            Piece::Unclosed => {
                let finding = problem(value.part(at..end), "a `}` is missing that ends this `${`");
                value
                    .context
                    .report(finding.help("write `$$` for a dollar, if no variable is meant"));
                None
            }
            Piece::Stray => {
                let finding = problem(value.part(at..end), "a `$` must begin a variable");
                value
                    .context
                    .report(finding.help("write `$$` for a dollar"));
                None
            }
        };
        fine &= part.is_some();
        parts.extend(part);
    }
    fine.then_some(parts)
}

/// A column of the row that makes the site.
fn column(value: &Value<'_>, name: &str, at: Range<usize>) -> Option<TemplatePart> {
    if !value.context.has_rows.get() {
        let message = format!("`$row.{name}` says nothing here: no row makes this");
        let help = "rows make sites with `hosts = { directory = \"NAME\" }`";
        let finding = problem(value.part(at), message);
        value.context.report(finding.help(help));
        return None;
    }
    if name.is_empty() || !name.bytes().all(is_column_byte) {
        let message = format!("`{name}` is no name of a column: letters, digits and `_` are");
        value.context.report(problem(value.part(at), message));
        return None;
    }
    value.context.columns.borrow_mut().insert(name.to_owned());
    Some(TemplatePart::Row(name.to_owned()))
}

/// Whether a name of a column may hold it.
pub(crate) fn is_column_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

fn variable(value: &Value<'_>, name: &str, at: Range<usize>) -> Option<TemplatePart> {
    let found = VARIABLES.iter().find(|(known, _)| *known == name);
    let found = found.map(|(_, part)| part.clone());
    let found = found.or_else(|| expressions::group(value, name).map(TemplatePart::Capture));
    if found.is_none() {
        let finding = match name.bytes().all(|byte| byte.is_ascii_digit()) {
            true => expressions::no_group(value, name, at),
            false => {
                let finding = problem(value.part(at), format!("unknown variable `${name}`"));
                advised(finding, name)
            }
        };
        value.context.report(finding);
    }
    found
}

/// Adds what a variable is called here that is not known by this name, or else those there are.
fn advised(finding: Finding, name: &str) -> Finding {
    let lower = name.to_ascii_lowercase();
    let equal = OTHERS_VARIABLES.iter().find(|(other, _)| *other == lower);
    let known = || VARIABLES.iter().map(|(known, _)| *known);
    let meant = equal.map(|(_, here)| *here);
    let meant = meant.or_else(|| known().find(|known| *known == lower));
    let meant = meant.or_else(|| keys::nearest(name, known()));
    match meant.map(|meant| format!("${meant}")) {
        Some(meant) => finding.meant(Some(&meant)),
        None => {
            let known: Vec<String> = known().map(|name| format!("`${name}`")).collect();
            finding.help(format!("known are {}", known.join(", ")))
        }
    }
}

/// Reports Apache's `%{NAME}` where it would pass for text: it ends a `${NAME:KEY}` too early, and
/// is no part of a URL.
fn has_apaches(value: &Value<'_>, text: &str, begins: usize, purpose: Purpose) -> bool {
    if !matches!(purpose, Purpose::Key | Purpose::Target) {
        return false;
    }
    let Some((before, behind)) = text.split_once("%{") else {
        return false;
    };
    let named = |c: char| c.is_ascii_alphanumeric() || "_-:".contains(c);
    let name = behind.split(|c| !named(c)).next().unwrap_or_default();
    let at = begins + before.len();
    let spot = value.part(at..at + 2 + name.len());
    let finding = problem(
        spot,
        format!("`%{{{name}}}` is Apache's: variables are `$NAME`"),
    );
    value.context.report(advised(finding, name));
    true
}

/// `NAME:KEY|DEFAULT`, which begins at this byte of the value's text.
fn lookup(
    value: &Value<'_>,
    (name, asked): (&str, &str),
    begins: usize,
    purpose: Purpose,
) -> Option<TemplatePart> {
    let whole = begins..begins + name.len() + 1 + asked.len();
    if purpose == Purpose::Key {
        let message = "a map's key and default hold no other map";
        value.context.report(problem(value.part(whole), message));
        return None;
    }
    let map = values::map_named(value, name, value.part(whole));
    let (key, default) = asked.split_once('|').unwrap_or((asked, ""));
    let key_at = begins + name.len() + 1;
    let key_parts = parts(value, key, key_at, Purpose::Key);
    let default_parts = parts(value, default, key_at + key.len() + 1, Purpose::Key);
    if key.chars().any(|c| !allowed(c, Purpose::Key)) {
        let message = format!("the key of map `{name}` must be a line of text");
        value
            .context
            .report(problem(value.part(key_at..key_at + key.len()), message));
        return None;
    }
    Some(TemplatePart::Map(Box::new(MapLookup {
        map: map?,
        name: name.to_owned(),
        key: Template { parts: key_parts? },
        default: Template {
            parts: default_parts?,
        },
    })))
}

/// How a template is written.
pub(crate) fn spell(template: &Template) -> String {
    let mut out = String::new();
    for part in &template.parts {
        match part {
            TemplatePart::Text(text) => out.push_str(&text.replace('$', "$$")),
            TemplatePart::Map(lookup) => {
                let (name, key) = (&lookup.name, spell(&lookup.key));
                out.push_str(&format!("${{{name}:{key}"));
                if !lookup.default.parts.is_empty() {
                    out.push('|');
                    out.push_str(&spell(&lookup.default));
                }
                out.push('}');
            }
            TemplatePart::Capture(group) => out.push_str(&format!("${{{group}}}")),
            TemplatePart::Row(name) => out.push_str(&format!("${{{ROW}{name}}}")),
            variable => {
                let name = VARIABLES.iter().find(|(_, part)| part == variable);
                out.push_str(&format!("${{{}}}", name.map_or("", |(name, _)| name)));
            }
        }
    }
    out
}

enum Piece<'a> {
    Text(&'a str),
    Variable(&'a str),
    /// `$row.NAME`.
    Row(&'a str),
    /// What stands between `${` and its `}`.
    Braced(&'a str),
    /// `${` without its `}`.
    Unclosed,
    Stray,
}

/// The first piece of `text` and what follows it.
fn piece(text: &str) -> (Piece<'_>, &str) {
    let Some(behind) = text.strip_prefix('$') else {
        let end = text.find('$').unwrap_or(text.len());
        let (piece, rest) = text.split_at(end);
        return (Piece::Text(piece), rest);
    };
    if let Some(rest) = behind.strip_prefix('$') {
        return (Piece::Text("$"), rest);
    }
    if let Some(behind) = behind.strip_prefix('{') {
        return match until_closed(behind) {
            Some((inner, rest)) => (Piece::Braced(inner), rest),
            None => (Piece::Unclosed, behind),
        };
    }
    // A group's number ends with its digits.
    let is_number = behind.starts_with(|c: char| c.is_ascii_digit());
    let named = |c: char| match is_number {
        true => c.is_ascii_digit(),
        false => c.is_ascii_alphanumeric() || c == '_',
    };
    match behind.find(|c| !named(c)).unwrap_or(behind.len()) {
        0 => (Piece::Stray, behind),
        end => {
            let (name, rest) = behind.split_at(end);
            let column = behind.strip_prefix(ROW).unwrap_or_default();
            let column_end = column
                .bytes()
                .take_while(|byte| is_column_byte(*byte))
                .count();
            match column.split_at_checked(column_end) {
                Some((column, rest)) if !column.is_empty() => (Piece::Row(column), rest),
                _ => (Piece::Variable(name), rest),
            }
        }
    }
}

/// What stands before the `}` that closes, and what follows it.
fn until_closed(text: &str) -> Option<(&str, &str)> {
    let mut depth = 0_usize;
    let mut last = '\0';
    for (at, c) in text.char_indices() {
        match c {
            '{' if last == '$' => depth += 1,
            '}' if depth == 0 => return Some((text.get(..at)?, text.get(at + 1..)?)),
            '}' => depth -= 1,
            _ => {}
        }
        last = c;
    }
    None
}

fn push_text(parts: &mut Vec<TemplatePart>, piece: &str) {
    match parts.last_mut() {
        Some(TemplatePart::Text(text)) => text.push_str(piece),
        _ => parts.push(TemplatePart::Text(piece.to_owned())),
    }
}

fn allowed(c: char, purpose: Purpose) -> bool {
    match purpose {
        Purpose::Body => true,
        Purpose::Variable => c != '\0',
        Purpose::Key => !c.is_control(),
        Purpose::Field => c == '\t' || !c.is_control(),
        Purpose::Target => ('!'..='~').contains(&c),
    }
}

/// Whether a target begins as a path or a URL does.
pub(crate) fn leads_somewhere(target: &Template) -> bool {
    match target.parts.first() {
        Some(TemplatePart::Text(text)) => ["/", "http://", "https://"]
            .iter()
            .any(|start| text.starts_with(start)),
        Some(
            TemplatePart::Path
            | TemplatePart::Uri
            | TemplatePart::RequestUri
            | TemplatePart::Scheme
            | TemplatePart::Capture(_)
            | TemplatePart::Row(_)
            | TemplatePart::Map(_),
        ) => true,
        _ => false,
    }
}
