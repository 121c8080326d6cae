//! Texts with `$1`, `%1` and `%{NAME}` in them.

use super::RESULT_BYTES_MAX;
use super::escape::percent;
use crate::pattern::Groups;
use crate::request::Stop;
use crate::variable::{Scope, Variable};
use crate::work::steps_of;

/// A text that is expanded for a request.
#[derive(Debug, Default)]
pub(super) struct Template {
    pieces: Vec<Piece>,
    raw: Box<[u8]>,
}

#[derive(Debug)]
enum Piece {
    Text(Vec<u8>),
    /// `$1`: of the rule's pattern.
    Rule(u8),
    /// `%1`: of the last condition that matched.
    Condition(u8),
    Variable(Variable),
}

/// How captures are escaped.
#[derive(Debug, Clone, Default)]
pub(super) struct Escaping {
    /// Only these; all but letters and digits where it is none.
    pub(super) only: Option<Vec<u8>>,
    pub(super) never: Vec<u8>,
    pub(super) no_plus: bool,
    /// Without `only`: control bytes and blanks alone.
    pub(super) controls: bool,
}

/// What templates are expanded with.
pub(super) struct Captured<'g> {
    pub(super) rule: &'g Groups,
    pub(super) condition: &'g Groups,
}

/// An expanded text.
#[derive(Debug, Default)]
pub(super) struct Expanded {
    pub(super) text: Vec<u8>,
    /// Whether the first `?` came of what was asked; none where there is none.
    pub(super) first_is_asked: Option<bool>,
    /// The same of the last one.
    pub(super) last_is_asked: Option<bool>,
}

impl Template {
    pub(super) fn new(raw: &[u8]) -> Self {
        let mut pieces = Vec::new();
        let mut text = Vec::new();
        let mut rest = raw;
        loop {
            let (piece, after) = match rest {
                [] => break,
                [b'\\', byte, after @ ..] => {
                    text.push(*byte);
                    rest = after;
                    continue;
                }
                [b'$', digit @ b'0'..=b'9', after @ ..] => (Piece::Rule(digit - b'0'), after),
                [b'%', digit @ b'0'..=b'9', after @ ..] => (Piece::Condition(digit - b'0'), after),
                [sign @ (b'%' | b'$'), b'{', inner @ ..] => match braced(*sign, inner) {
                    Some(found) => found,
                    None => {
                        text.extend_from_slice(&[*sign, b'{']);
                        rest = inner;
                        continue;
                    }
                },
                [byte, after @ ..] => {
                    text.push(*byte);
                    rest = after;
                    continue;
                }
            };
            if !text.is_empty() {
                pieces.push(Piece::Text(std::mem::take(&mut text)));
            }
            pieces.push(piece);
            rest = after;
        }
        if !text.is_empty() {
            pieces.push(Piece::Text(text));
        }
        Self {
            pieces,
            raw: raw.into(),
        }
    }

    /// The text as it is written.
    pub(super) fn raw(&self) -> &[u8] {
        &self.raw
    }

    /// Whether a variable stands in it.
    pub(super) fn is_by_env(&self) -> bool {
        let is_env = |piece: &Piece| matches!(piece, Piece::Variable(Variable::Env(_)));
        self.pieces.iter().any(is_env)
    }

    /// Whether what is not had here stands in it: a lookup, or a map.
    pub(super) fn is_unsupported(&self) -> bool {
        let is_unsupported =
            |piece: &Piece| matches!(piece, Piece::Variable(Variable::Unsupported));
        self.pieces.iter().any(is_unsupported)
    }

    pub(super) fn expand(
        &self,
        captured: &Captured<'_>,
        escaping: Option<&Escaping>,
        scope: &Scope<'_>,
    ) -> Result<Expanded, Stop> {
        let mut expanded = Expanded::default();
        for piece in &self.pieces {
            let asked = match piece {
                Piece::Text(text) => {
                    expanded.push(text, false)?;
                    continue;
                }
                Piece::Rule(number) => group(captured.rule, *number, escaping, scope)?,
                Piece::Condition(number) => group(captured.condition, *number, escaping, scope)?,
                Piece::Variable(variable) => variable.value(scope)?,
            };
            scope.asker.spend(steps_of(asked.len()))?;
            expanded.push(&asked, true)?;
        }
        Ok(expanded)
    }
}

impl Expanded {
    fn push(&mut self, text: &[u8], is_asked: bool) -> Result<(), Stop> {
        if text.contains(&b'?') {
            self.first_is_asked.get_or_insert(is_asked);
            self.last_is_asked = Some(is_asked);
        }
        self.text.extend_from_slice(text);
        match self.text.len() <= RESULT_BYTES_MAX {
            true => Ok(()),
            false => Err(Stop::new(500, "htaccess_loop")),
        }
    }
}

fn group(
    groups: &Groups,
    number: u8,
    escaping: Option<&Escaping>,
    scope: &Scope<'_>,
) -> Result<Vec<u8>, Stop> {
    let text = groups.get(usize::from(number));
    let Some(escaping) = escaping else {
        return Ok(text.to_vec());
    };
    let chosen = escaping.never.len() + escaping.only.as_ref().map_or(0, Vec::len);
    scope.asker.spend(text.len() * (4 + chosen) / 64)?;
    Ok(escaping.escape(text))
}

impl Escaping {
    fn escape(&self, text: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(text.len());
        for byte in text {
            let is_chosen = match (&self.only, self.controls) {
                (Some(only), false) => only.contains(byte),
                (Some(only), true) => only.contains(byte) || *byte <= b' ' || *byte == 127,
                (None, true) => *byte <= b' ' || *byte == 127,
                (None, false) => true,
            };
            if !is_chosen
                || self.never.contains(byte)
                || byte.is_ascii_alphanumeric()
                || *byte == b'_'
            {
                out.push(*byte);
            } else if *byte == b' ' && !self.no_plus {
                out.push(b'+');
            } else {
                percent(*byte, &mut out);
            }
        }
        out
    }
}

/// What stands in `%{ }` or `${ }`, and what follows; none where the bracket is not closed. A map is
/// the site's to have, and is not had here.
fn braced(sign: u8, inner: &[u8]) -> Option<(Piece, &[u8])> {
    let mut open = 1usize;
    let end = inner.iter().position(|byte| {
        open += usize::from(*byte == b'{');
        open -= usize::from(*byte == b'}');
        open == 0
    });
    let (name, after) = inner.split_at(end?);
    let variable = match sign {
        b'%' => Variable::of_name(name),
        _ if name.contains(&b':') => Variable::Unsupported,
        _ => return None,
    };
    Some((
        Piece::Variable(variable),
        after.get(1..).unwrap_or_default(),
    ))
}
