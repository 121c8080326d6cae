//! Templates: text with variables.
//!
//! The idea: a variable is `$name` or `${name}`, a dollar itself `$$`; anything else behind a
//! dollar is a mistake and never passes as text.

use super::context::problem;
use super::value::Value;
use crate::keys;
use crate::model::{Template, TemplatePart};

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
}

/// The variables.
const VARIABLES: &[(&str, TemplatePart)] = &[
    ("host", TemplatePart::Host),
    ("path", TemplatePart::Path),
    ("query", TemplatePart::Query),
    ("uri", TemplatePart::Uri),
    ("scheme", TemplatePart::Scheme),
    ("client", TemplatePart::Client),
    ("request_id", TemplatePart::RequestId),
    ("method", TemplatePart::Method),
];

/// A template; `None` after its problems were reported.
pub(crate) fn template(value: &Value<'_>, purpose: Purpose) -> Option<Template> {
    let text = value.text()?;
    let mut parts = Vec::new();
    let mut fine = true;
    let mut rest = text;
    while !rest.is_empty() {
        let at = text.len() - rest.len();
        let (piece, after) = piece(rest);
        rest = after;
        let span = at..text.len() - rest.len();
        match piece {
            Piece::Text(piece) => push_text(&mut parts, piece),
            Piece::Variable(name) => match VARIABLES.iter().find(|(known, _)| *known == name) {
                Some((_, part)) => parts.push(part.clone()),
                None => {
                    let meant = keys::nearest(name, VARIABLES.iter().map(|(known, _)| *known));
                    let meant = meant.map(|meant| format!("${meant}"));
                    let finding = problem(value.part(span), format!("unknown variable `${name}`"));
                    value.context.report(finding.meant(meant.as_deref()));
                    fine = false;
                }
            },
            Piece::Stray => {
                let finding = problem(value.part(span), "a `$` must begin a variable");
                value
                    .context
                    .report(finding.help("write `$$` for a dollar"));
                fine = false;
            }
        }
    }
    let illegal = text.char_indices().find(|(_, c)| !allowed(*c, purpose));
    if let Some((at, c)) = illegal {
        let message = format!("{:?} may not stand in `{}`", c, value.name);
        value
            .context
            .report(problem(value.part(at..at + c.len_utf8()), message));
        fine = false;
    }
    fine.then_some(Template { parts })
}

/// How a template is written.
pub(crate) fn spell(template: &Template) -> String {
    let mut out = String::new();
    for part in &template.parts {
        match part {
            TemplatePart::Text(text) => out.push_str(&text.replace('$', "$$")),
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
    if let Some((name, rest)) = behind
        .strip_prefix('{')
        .and_then(|inner| inner.split_once('}'))
    {
        return (Piece::Variable(name), rest);
    }
    let named = |c: char| c.is_ascii_alphanumeric() || c == '_';
    match behind.find(|c| !named(c)).unwrap_or(behind.len()) {
        0 => (Piece::Stray, behind),
        end => {
            let (name, rest) = behind.split_at(end);
            (Piece::Variable(name), rest)
        }
    }
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
        Purpose::Field => c == '\t' || !c.is_control(),
        Purpose::Target => ('!'..='~').contains(&c),
    }
}
