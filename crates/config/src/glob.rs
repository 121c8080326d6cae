//! Globs: `*` is any bytes including `/`, `?` one byte, `[a-z]` a class, `[!a-z]` its opposite.
//!
//! The idea: the syntax is checked when the configuration is loaded and has no escapes beyond
//! the class (`[*]` is a star; a class cannot hold `]`), so that no pattern can fail later. The
//! matching here serves `include`; requests are matched elsewhere.

/// Says what is wrong with a pattern's syntax.
pub(crate) fn check(pattern: &str) -> Result<(), String> {
    let mut rest = pattern.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = match first {
            0..=0x1f | 0x7f => return Err("it holds a control character".to_owned()),
            b'[' => {
                let unclosed = "the class begun by `[` has no `]`; a bracket itself is `[[]`";
                let (class, after) = class(rest).ok_or(unclosed)?;
                class.check()?;
                after
            }
            _ => after,
        };
    }
    Ok(())
}

/// Whether `pattern` matches the whole of `text`.
pub(crate) fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut pattern, mut text) = (pattern, text);
    // Where to go on after a mismatch: behind the last star, one byte further each time.
    let mut retry: Option<(&[u8], &[u8])> = None;
    loop {
        match (pattern, text) {
            ([b'*', after @ ..], _) => {
                retry = Some((after, text));
                pattern = after;
                continue;
            }
            ([], []) => return true,
            (_, [byte, text_after @ ..]) => {
                if let Some(after) = one(pattern, *byte) {
                    pattern = after;
                    text = text_after;
                    continue;
                }
            }
            _ => {}
        }
        let Some((after_star, [_, from @ ..])) = retry else {
            return false;
        };
        retry = Some((after_star, from));
        pattern = after_star;
        text = from;
    }
}

/// Whether `pattern` is more than literal text.
pub(crate) fn has_wildcard(pattern: &str) -> bool {
    pattern.contains(['*', '?', '['])
}

/// The pattern behind its first element, if that matches `byte`.
fn one(pattern: &[u8], byte: u8) -> Option<&[u8]> {
    match pattern {
        [b'?', after @ ..] => Some(after),
        [b'[', ..] => {
            let (class, after) = class(pattern)?;
            class.holds(byte).then_some(after)
        }
        [literal, after @ ..] => (*literal == byte).then_some(after),
        [] => None,
    }
}

struct Class<'a> {
    negated: bool,
    members: &'a [u8],
}

/// The class at the start of `pattern`, and what follows it.
fn class(pattern: &[u8]) -> Option<(Class<'_>, &[u8])> {
    let inner = pattern.strip_prefix(b"[")?;
    let (negated, inner) = match inner {
        [b'!' | b'^', rest @ ..] => (true, rest),
        _ => (false, inner),
    };
    let end = inner.iter().position(|byte| *byte == b']')?;
    let (members, after) = inner.split_at_checked(end)?;
    Some((Class { negated, members }, after.get(1..)?))
}

impl Class<'_> {
    fn check(&self) -> Result<(), String> {
        let inner = self.members.strip_suffix(b"-").unwrap_or(self.members);
        let inner = inner.strip_prefix(b"-").unwrap_or(inner);
        if self.members.is_empty() {
            return Err("a class `[]` without members matches nothing".to_owned());
        }
        if !self.members.is_ascii() {
            return Err("a class is of single bytes and holds only ASCII".to_owned());
        }
        let mut rest = inner;
        while !rest.is_empty() {
            rest = match rest {
                [low, b'-', high, ..] if low > high || *high == b'-' => {
                    let (low, high) = (char::from(*low), char::from(*high));
                    return Err(format!("the range `{low}-{high}` is upside down"));
                }
                [_, b'-', _, after @ ..] => after,
                [b'-', ..] => return Err("a `-` stands first or last in its class".to_owned()),
                [_, after @ ..] => after,
                [] => break,
            };
        }
        Ok(())
    }

    fn holds(&self, byte: u8) -> bool {
        let mut rest = self.members;
        let mut found = false;
        while !found {
            (found, rest) = match rest {
                [low, b'-', high, after @ ..] => ((*low..=*high).contains(&byte), after),
                [member, after @ ..] => (*member == byte, after),
                [] => break,
            };
        }
        found != self.negated
    }
}
