//! What is done with every match in a text: replaced, collected, split at.

use memchr::memmem::Finder;
use mruby::Datum;
use pattern::{Budget, Pattern, Spans, decode};

/// Longest text that a replacement makes.
const BYTES_MAX: usize = 10 << 20;
/// Parts a text is split into, or matches that are collected.
const PARTS_MAX: usize = 100_000;
/// Bytes of all of them: groups may hold the same text again and again.
const PARTS_BYTES_MAX: usize = 32 << 20;

/// What is looked for.
pub(crate) enum Sought<'a> {
    /// A pattern.
    Pattern(&'a Pattern),
    /// These bytes.
    Text(&'a Finder<'a>),
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
            Self::Text(finder) => {
                let found = finder.find(text.get(from..).unwrap_or_default());
                let length = finder.needle().len();
                Ok(found.map(|at| Spans::whole_of(from + at, from + at + length)))
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
        expand(template, text, sought, &spans, out)?;
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
fn expand(
    template: &[u8],
    text: &[u8],
    sought: &Sought<'_>,
    spans: &Spans,
    out: &mut Vec<u8>,
) -> Result<(), String> {
    let group = |number: usize| {
        let span = spans.get(number);
        span.and_then(|(from, to)| text.get(from..to))
            .unwrap_or_default()
    };
    let (from, to) = spans.whole();
    let mut rest = template;
    while let Some((byte, after)) = rest.split_first() {
        if out.len() > BYTES_MAX {
            return Err("the replaced text would be longer than 10 MiB".to_owned());
        }
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
    Ok(())
}

/// `<name>`, and what comes after.
fn name(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let inner = text.strip_prefix(b"<")?;
    let end = inner.iter().position(|byte| *byte == b'>')?;
    Some((inner.get(..end)?, inner.get(end + 1..)?))
}

/// Pieces of a text, within bounds.
#[derive(Default)]
struct Parts {
    all: Vec<Datum>,
    bytes: usize,
}

impl Parts {
    fn piece(&mut self, text: &[u8], (from, to): (usize, usize)) -> Result<Datum, String> {
        let piece = text.get(from..to).unwrap_or_default();
        self.bytes += piece.len();
        match self.bytes > PARTS_BYTES_MAX {
            true => Err(format!("parts of more than {PARTS_BYTES_MAX} bytes")),
            false => Ok(Datum::from(piece)),
        }
    }

    fn push(&mut self, part: Datum) -> Result<(), String> {
        self.all.push(part);
        match self.all.len() > PARTS_MAX {
            true => Err(format!("more than {PARTS_MAX} parts")),
            false => Ok(()),
        }
    }
}

/// Every match; where there are groups, those of each.
pub(crate) fn scan(text: &[u8], sought: &Sought<'_>) -> Result<Vec<Datum>, String> {
    let mut budget = Budget::of_text(text.len());
    let mut parts = Parts::default();
    let mut at = 0;
    while at <= text.len() {
        let Some(spans) = sought.find(text, at, &mut budget)? else {
            break;
        };
        let mut groups = Vec::new();
        for span in spans.iter().skip(1) {
            groups.push(match span {
                Some(span) => parts.piece(text, span)?,
                None => Datum::Nil,
            });
        }
        let part = match groups.is_empty() {
            true => parts.piece(text, spans.whole())?,
            false => Datum::Array(groups),
        };
        parts.push(part)?;
        at = next(text, spans.whole());
    }
    Ok(parts.all)
}

/// The text between matches, with what their groups matched. `limit` as in Ruby: 0 leaves empty
/// parts at the end out, more is the most parts, less keeps all.
pub(crate) fn split(text: &[u8], sought: &Sought<'_>, limit: i64) -> Result<Vec<Datum>, String> {
    let mut budget = Budget::of_text(text.len());
    let mut parts = Parts::default();
    if text.is_empty() {
        return Ok(parts.all);
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
        for span in std::iter::once((begin, from)).chain(spans.iter().skip(1).flatten()) {
            let part = parts.piece(text, span)?;
            parts.push(part)?;
        }
        begin = to;
        count += 1;
    }
    let last = parts.piece(text, (begin, text.len()))?;
    parts.push(last)?;
    while limit == 0 && parts.all.last() == Some(&Datum::Bytes(Vec::new())) {
        parts.all.pop();
    }
    Ok(parts.all)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_bytes_are_found_where_they_are() {
        for (wanted, expected) in [("a", "--b--"), ("aa", "-b-"), ("", "-a-a-b-a-a-")] {
            let finder = Finder::new(wanted);
            let sought = Sought::Text(&finder);
            let replaced = substitute(b"aabaa", &sought, b"-", Times::All);
            assert_eq!(replaced, Ok(Some(expected.into())), "{wanted:?}");
        }
    }

    #[test]
    fn what_is_looked_for_costs_no_more_than_the_text_is_long() {
        let text = vec![b'a'; 1 << 20];
        let wanted = [&text[..1 << 19], b"b"].concat();
        let finder = Finder::new(&wanted);
        let sought = Sought::Text(&finder);
        assert_eq!(substitute(&text, &sought, b"", Times::All), Ok(None));
    }

    #[test]
    fn a_replacement_that_grows_without_end_is_given_up() {
        let text = vec![b'a'; 1 << 20];
        let template = b"\\'".repeat(1 << 20);
        let finder = Finder::new(b"a");
        let sought = Sought::Text(&finder);
        let replaced = substitute(&text, &sought, &template, Times::Once);
        assert!(replaced.is_err_and(|why| why.contains("longer than 10 MiB")));
    }

    #[test]
    fn groups_that_hold_the_same_text_again_and_again_are_bounded() {
        let text = vec![b'a'; 1 << 20];
        let source = format!("{}.*{}", "(".repeat(50), ")".repeat(50));
        let pattern = Pattern::new(&source, pattern::Flags::default());
        let pattern = pattern.expect("a pattern");
        let sought = Sought::Pattern(&pattern);
        assert!(scan(&text, &sought).is_err_and(|why| why.contains("bytes")));
        assert!(split(&text, &sought, 0).is_err_and(|why| why.contains("bytes")));
    }
}
