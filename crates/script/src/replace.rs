//! What is done with every match in a text: replaced, collected, split at.

use mruby::Datum;

use crate::pattern::{Budget, Pattern, Spans, decode};

/// Longest text that a replacement makes.
const BYTES_MAX: usize = 10 << 20;
/// Parts a text is split into, or matches that are collected.
const PARTS_MAX: usize = 100_000;

/// What is looked for.
pub(crate) enum Sought<'a> {
    /// A pattern.
    Pattern(&'a Pattern),
    /// These bytes.
    Text(&'a [u8]),
}

/// How often.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Times {
    Once,
    All,
}

impl Sought<'_> {
    fn find(&self, text: &[u8], from: usize, budget: &mut Budget) -> Result<Option<Spans>, String> {
        match self {
            Self::Pattern(pattern) => {
                let found = pattern.find(text, from, budget);
                found.map_err(|exhausted| exhausted.to_string())
            }
            Self::Text(wanted) => {
                Ok(position(text, from, wanted).map(|at| Spans::whole_of(at, at + wanted.len())))
            }
        }
    }

    fn number(&self, name: &[u8], spans: &Spans) -> Option<usize> {
        let Self::Pattern(pattern) = self else {
            return None;
        };
        let mut names = pattern.names().iter();
        let (_, groups) = names.find(|(known, _)| known.as_bytes() == name)?;
        let met = groups
            .iter()
            .rev()
            .find(|group| spans.get(**group).is_some());
        met.copied()
    }
}

fn position(text: &[u8], from: usize, wanted: &[u8]) -> Option<usize> {
    let rest = text.get(from..)?;
    let Some(first) = wanted.first() else {
        return Some(from);
    };
    let mut at = 0;
    while let Some(found) = rest.get(at..)?.iter().position(|byte| byte == first) {
        at += found;
        if rest.get(at..)?.starts_with(wanted) {
            return Some(from + at);
        }
        at += 1;
    }
    None
}

/// Where to look on after a match.
fn next(text: &[u8], (from, to): (usize, usize)) -> usize {
    match from == to {
        true => to + decode(text, to).map_or(1, |(_, length)| length),
        false => to,
    }
}

/// The text with matches replaced; `None` where there is none.
pub(crate) fn substitute(
    text: &[u8],
    sought: &Sought<'_>,
    template: &[u8],
    times: Times,
) -> Result<Option<Vec<u8>>, String> {
    let mut budget = Budget::of_text(text.len());
    let mut out: Option<Vec<u8>> = None;
    let (mut done, mut at) = (0, 0);
    while at <= text.len() {
        let Some(spans) = sought.find(text, at, &mut budget)? else {
            break;
        };
        let whole = spans.whole();
        let out = out.get_or_insert_default();
        out.extend_from_slice(text.get(done..whole.0).unwrap_or_default());
        expand(template, text, sought, &spans, out);
        if out.len() > BYTES_MAX {
            return Err("the replaced text would be longer than 10 MiB".to_owned());
        }
        done = whole.1;
        at = next(text, whole);
        if times == Times::Once {
            break;
        }
    }
    if let Some(out) = &mut out {
        out.extend_from_slice(text.get(done..).unwrap_or_default());
    }
    Ok(out)
}

/// Writes a replacement: `\1`, `\k<name>`, `\0`, `\&`, `` \` ``, `\'` and `\\` are what they say.
fn expand(template: &[u8], text: &[u8], sought: &Sought<'_>, spans: &Spans, out: &mut Vec<u8>) {
    let group = |number: usize| {
        let span = spans.get(number);
        span.and_then(|(from, to)| text.get(from..to))
            .unwrap_or_default()
    };
    let (from, to) = spans.whole();
    let mut rest = template;
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        let Some((sign, after)) = after.split_first().filter(|_| *byte == b'\\') else {
            out.push(*byte);
            continue;
        };
        rest = after;
        match sign {
            b'0'..=b'9' => out.extend_from_slice(group(usize::from(sign - b'0'))),
            b'&' => out.extend_from_slice(group(0)),
            b'`' => out.extend_from_slice(text.get(..from).unwrap_or_default()),
            b'\'' => out.extend_from_slice(text.get(to..).unwrap_or_default()),
            b'\\' => out.push(b'\\'),
            b'k' => match name(after) {
                Some((name, after)) => {
                    rest = after;
                    let number = sought.number(name, spans);
                    out.extend_from_slice(number.map(group).unwrap_or_default());
                }
                None => out.extend_from_slice(b"\\k"),
            },
            other => out.extend_from_slice(&[b'\\', *other]),
        }
    }
}

/// `<name>`, and what comes after.
fn name(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let inner = text.strip_prefix(b"<")?;
    let end = inner.iter().position(|byte| *byte == b'>')?;
    Some((inner.get(..end)?, inner.get(end + 1..)?))
}

/// Every match; where there are groups, those of each.
pub(crate) fn scan(text: &[u8], sought: &Sought<'_>) -> Result<Vec<Datum>, String> {
    let mut budget = Budget::of_text(text.len());
    let mut all = Vec::new();
    let mut at = 0;
    while at <= text.len() {
        let Some(spans) = sought.find(text, at, &mut budget)? else {
            break;
        };
        let piece = |span: Option<(usize, usize)>| match span {
            Some((from, to)) => Datum::from(text.get(from..to).unwrap_or_default()),
            None => Datum::Nil,
        };
        let groups: Vec<Datum> = spans.iter().skip(1).map(piece).collect();
        all.push(match groups.is_empty() {
            true => piece(spans.get(0)),
            false => Datum::Array(groups),
        });
        check(&all)?;
        at = next(text, spans.whole());
    }
    Ok(all)
}

fn check(parts: &[Datum]) -> Result<(), String> {
    match parts.len() > PARTS_MAX {
        true => Err(format!("more than {PARTS_MAX} parts")),
        false => Ok(()),
    }
}

/// The text between matches, with what their groups matched. `limit` as in Ruby: 0 leaves empty
/// parts at the end out, more is the most parts, less keeps all.
pub(crate) fn split(text: &[u8], sought: &Sought<'_>, limit: i64) -> Result<Vec<Datum>, String> {
    let mut budget = Budget::of_text(text.len());
    let piece = |from: usize, to: usize| Datum::from(text.get(from..to).unwrap_or_default());
    let mut parts = Vec::new();
    if text.is_empty() {
        return Ok(parts);
    }
    let (mut begin, mut at, mut count) = (0, 0, 1);
    while at <= text.len() && (limit <= 0 || count < limit) {
        let Some(spans) = sought.find(text, at, &mut budget)? else {
            break;
        };
        let (from, to) = spans.whole();
        at = next(text, (from, to));
        if from == to && (from == begin || from >= text.len()) {
            // Nothing was matched where a part begins: it has a character at least.
            continue;
        }
        parts.push(piece(begin, from));
        parts.extend(
            spans
                .iter()
                .skip(1)
                .flatten()
                .map(|(from, to)| piece(from, to)),
        );
        check(&parts)?;
        begin = to;
        count += 1;
    }
    parts.push(piece(begin, text.len()));
    while limit == 0 && parts.last() == Some(&Datum::Bytes(Vec::new())) {
        parts.pop();
    }
    Ok(parts)
}

/// Where a character stands, counted from the end if negative; `None` outside.
pub(crate) fn byte_of(text: &[u8], pos: i64) -> Option<usize> {
    let starts = || {
        let mut at = Some(0);
        std::iter::from_fn(move || {
            let here = at?;
            at = decode(text, here).map(|(_, length)| here + length);
            Some(here)
        })
    };
    let pos = match pos < 0 {
        true => i64::try_from(starts().count() - 1).ok()?.checked_add(pos)?,
        false => pos,
    };
    starts().nth(usize::try_from(pos).ok()?)
}

/// The source of a pattern that matches just this.
pub(crate) fn escape(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    for byte in text {
        let letter = match byte {
            b'\n' => b'n',
            b'\t' => b't',
            b'\r' => b'r',
            0x0c => b'f',
            0x0b => b'v',
            b'[' | b']' | b'{' | b'}' | b'(' | b')' | b'|' | b'-' | b'*' | b'.' | b'\\' | b'?'
            | b'+' | b'^' | b'$' | b'#' | b' ' => *byte,
            other => {
                out.push(*other);
                continue;
            }
        };
        out.extend_from_slice(&[b'\\', letter]);
    }
    out
}
