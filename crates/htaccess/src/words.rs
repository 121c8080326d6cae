//! The words of a line: how Apache takes an argument off it, quotes and all.
//!
//! There are two ways. Most directives have quotes in which a backslash hides a quote or another
//! backslash; `RewriteRule` and `RewriteCond` leave backslashes to the pattern they may be part of.

/// Bytes of most words: room for them is made at once.
const USUAL_WORD_BYTES: usize = 32;

/// Takes the next word off a line; none where nothing but blanks is left.
pub fn next_word(line: &mut &[u8]) -> Option<Vec<u8>> {
    *line = line.trim_ascii_start();
    let (first, _) = line.split_first()?;
    let quote = matches!(first, b'"' | b'\'').then_some(*first);
    let mut rest = line.get(usize::from(quote.is_some())..)?;
    let mut word = Vec::with_capacity(rest.len().min(USUAL_WORD_BYTES));
    loop {
        match (rest, quote) {
            ([], _) => break,
            ([byte, after @ ..], Some(quote)) if *byte == quote => {
                rest = after;
                break;
            }
            ([byte, ..], None) if byte.is_ascii_whitespace() => break,
            ([b'\\', next, after @ ..], _) if *next == b'\\' || Some(*next) == quote => {
                word.push(*next);
                rest = after;
            }
            ([byte, after @ ..], _) => {
                word.push(*byte);
                rest = after;
            }
        }
    }
    *line = rest.trim_ascii_start();
    Some(word)
}

/// All words of a line.
pub fn all_words(mut line: &[u8]) -> Vec<Vec<u8>> {
    let mut words = Vec::new();
    while let Some(word) = next_word(&mut line) {
        words.push(word);
    }
    words
}

/// A pattern or text, what goes with it, and flags.
pub type RewriteArguments = (Vec<u8>, Vec<u8>, Option<Vec<u8>>);

/// The two or three arguments of `RewriteRule` and `RewriteCond`; what follows them counts not.
pub fn rewrite_arguments(mut line: &[u8]) -> Option<RewriteArguments> {
    let first = raw_word(&mut line)?;
    let second = raw_word(&mut line)?;
    Some((first, second, raw_word(&mut line)))
}

/// A word in which a backslash does nothing but keep a blank that follows it.
fn raw_word(line: &mut &[u8]) -> Option<Vec<u8>> {
    *line = line.trim_ascii_start();
    let (first, _) = line.split_first()?;
    let quote = matches!(first, b'"' | b'\'').then_some(*first);
    let from = usize::from(quote.is_some());
    let mut at = from;
    while let Some(byte) = line.get(at) {
        let is_end = match quote {
            Some(quote) => *byte == quote,
            None => byte.is_ascii_whitespace(),
        };
        if is_end {
            break;
        }
        let hides = *byte == b'\\' && line.get(at + 1).is_some_and(u8::is_ascii_whitespace);
        at += if hides { 2 } else { 1 };
    }
    let at = at.min(line.len());
    let word = line.get(from..at).unwrap_or_default().to_vec();
    *line = line.get(at + 1..).unwrap_or_default();
    Some(word)
}
