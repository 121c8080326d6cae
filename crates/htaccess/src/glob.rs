//! Names with `*`, `?` and `[a-z]`, as `fnmatch` has them.

/// Whether a slash is a character like others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Slashes {
    Plain,
    Apart,
}

/// Whether a directory is one that a pattern means, in which no star takes a slash.
pub fn is_directory(pattern: &[u8], directory: &[u8]) -> bool {
    matches(pattern, directory, Slashes::Apart, false)
}

/// Whether the text is one the pattern means, in steps bounded by the product of their lengths.
pub(crate) fn matches(pattern: &[u8], text: &[u8], slashes: Slashes, folds: bool) -> bool {
    let (mut p, mut t) = (0, 0);
    // Where the last star stands, and the text it has taken so far.
    let mut star: Option<(usize, usize)> = None;
    loop {
        if pattern.get(p) == Some(&b'*') {
            p += 1;
            star = Some((p, t));
            continue;
        }
        match text.get(t) {
            None if p == pattern.len() => return true,
            None => return false,
            Some(byte) => {
                if let Some(width) =
                    one(pattern.get(p..).unwrap_or_default(), *byte, slashes, folds)
                {
                    p += width;
                    t += 1;
                    continue;
                }
            }
        }
        // The star takes one more.
        match star {
            Some((after, taken)) if slashes == Slashes::Plain || text.get(taken) != Some(&b'/') => {
                star = Some((after, taken + 1));
                p = after;
                t = taken + 1;
            }
            _ => return false,
        }
    }
}

/// How many bytes of the pattern mean this byte.
fn one(pattern: &[u8], byte: u8, slashes: Slashes, folds: bool) -> Option<usize> {
    let is_same = |wanted: u8| wanted == byte || (folds && wanted.eq_ignore_ascii_case(&byte));
    let is_apart = byte == b'/' && slashes == Slashes::Apart;
    match pattern {
        [] => None,
        [b'?', ..] => (!is_apart).then_some(1),
        [b'[', set @ ..] => {
            let (holds, width) = in_set(set, byte, folds)?;
            (holds && !is_apart).then_some(width + 1)
        }
        [b'\\', wanted, ..] => is_same(*wanted).then_some(2),
        [wanted, ..] => is_same(*wanted).then_some(1),
    }
}

/// Whether a set that begins here has the byte, and its length with the bracket that ends it.
fn in_set(set: &[u8], byte: u8, folds: bool) -> Option<(bool, usize)> {
    let is_negated = matches!(set.first(), Some(b'!' | b'^'));
    let mut at = usize::from(is_negated);
    let begin = at;
    let mut holds = false;
    loop {
        let mut from = *set.get(at)?;
        if from == b']' && at > begin {
            return Some((holds != is_negated, at + 1));
        }
        if from == b'\\' {
            at += 1;
            from = *set.get(at)?;
        }
        let (mut to, mut width) = (from, 1);
        if set.get(at + 1) == Some(&b'-') && set.get(at + 2).is_some_and(|end| *end != b']') {
            (to, width) = (*set.get(at + 2)?, 3);
        }
        let has = |byte: u8| (from..=to).contains(&byte);
        holds |= has(byte);
        holds |= folds && (has(byte.to_ascii_lowercase()) || has(byte.to_ascii_uppercase()));
        at += width;
    }
}
