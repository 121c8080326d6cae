//! nginx's variables in texts, as those of ours.

use crate::words;

/// Variables that have a counterpart.
const VARIABLES: [(&str, &str); 15] = [
    ("host", "host"),
    ("http_host", "host"),
    ("uri", "path"),
    ("document_uri", "path"),
    ("request_uri", "uri"),
    ("args", "query"),
    ("query_string", "query"),
    ("scheme", "scheme"),
    ("request_scheme", "scheme"),
    ("remote_addr", "client"),
    ("realip_remote_addr", "client"),
    ("request_method", "method"),
    ("request_id", "request_id"),
    ("ssl_client_s_dn", "tls_client_subject"),
    ("ssl_client_verify", "tls_client_verify"),
];

/// A piece of a text.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Piece<'t> {
    Text(&'t str),
    Variable(&'t str),
}

/// The pieces of a text; a `$` that begins no variable is text.
pub(super) fn pieces(mut text: &str) -> Vec<Piece<'_>> {
    let mut pieces = Vec::new();
    while !text.is_empty() {
        let Some(at) = text.find('$') else {
            pieces.push(Piece::Text(text));
            break;
        };
        let (before, behind) = text.split_at(at);
        if !before.is_empty() {
            pieces.push(Piece::Text(before));
        }
        let behind = behind.get(1..).unwrap_or_default();
        if let Some((name, rest)) = behind.strip_prefix('{').and_then(|it| it.split_once('}')) {
            pieces.push(Piece::Variable(name));
            text = rest;
            continue;
        }
        let is_group = behind.starts_with(|c: char| c.is_ascii_digit());
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let end = match is_group {
            true => 1,
            false => behind.find(|c| !is_name(c)).unwrap_or(behind.len()),
        };
        let (name, rest) = behind.split_at(end);
        pieces.push(match name {
            "" => Piece::Text("$"),
            name => Piece::Variable(name),
        });
        text = rest;
    }
    pieces
}

/// A text with our variables, groups being those of an expression; `None` where one has no
/// counterpart, or a byte may not stand in a field or a URL.
pub(super) fn template(text: &str, regex: Option<&str>) -> Option<String> {
    // With a query or without one.
    let text = text
        .replace("$uri$is_args$args", "$request_uri")
        .replace("$uri$is_args$query_string", "$request_uri")
        .replace("$is_args$args", "?$args")
        .replace("$is_args$query_string", "?$args");
    let mut out = String::new();
    for piece in pieces(&text) {
        match piece {
            Piece::Text(text) => out.push_str(&text.replace('$', "$$")),
            Piece::Variable(name) => {
                let known = VARIABLES.iter().find(|(known, _)| *known == name);
                let ours = known.map(|(_, ours)| (*ours).to_owned());
                let ours = ours.or_else(|| group(name, regex?))?;
                out.push_str(&format!("${{{ours}}}"));
            }
        }
    }
    (!out.chars().any(char::is_control)).then_some(out)
}

fn group(name: &str, regex: &str) -> Option<String> {
    let is_group = match name.parse::<usize>() {
        Ok(number) => (1..=words::groups(regex)).contains(&number),
        Err(_) => regex.contains(&format!("<{name}>")),
    };
    is_group.then(|| name.to_owned())
}

/// As [`template`], for a URL: visible ASCII that leads somewhere.
pub(super) fn target(text: &str, regex: Option<&str>) -> Option<String> {
    let target = template(text, regex)?;
    let begins = [
        "/",
        "http://",
        "https://",
        "${scheme}://",
        "${uri}",
        "${path}",
    ];
    let leads = begins.iter().any(|begin| target.starts_with(begin));
    let authority = target.split_once("://").map(|(_, rest)| rest);
    let end = |rest: &str| rest.find(['/', '?']).unwrap_or(rest.len());
    // A group may not say which host it is.
    let host = authority
        .and_then(|rest| rest.get(..end(rest)))
        .unwrap_or_default();
    let host = host
        .replace("${host}", "")
        .replace("${uri}", "")
        .replace("${path}", "");
    let is_visible = target.bytes().all(|byte| (b'!'..=b'~').contains(&byte));
    let fits = leads && is_visible && !target.contains("%{") && !host.contains('$');
    (fits && !target.starts_with("//")).then_some(target)
}
