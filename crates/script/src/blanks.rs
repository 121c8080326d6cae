//! Blanks that are none to Ruby: what web pages and word processors put between words.
//!
//! Ruby takes each for a letter of a name, so that what is wrong is told in words that nobody can
//! tell apart on the screen. Where a script fails and such a letter may be why, it is named.
//!
//! Left out: to know strings and comments exactly. A string over several lines may be taken for code,
//! and one more remark is all that comes of it.

/// What they are called.
const BLANKS: &[(char, &str)] = &[
    ('\u{a0}', "a no-break space"),
    ('\u{2007}', "a figure space"),
    ('\u{202f}', "a narrow no-break space"),
    ('\u{3000}', "an ideographic space"),
    ('\u{200b}', "a zero-width space"),
    ('\u{200c}', "a zero-width non-joiner"),
    ('\u{200d}', "a zero-width joiner"),
    ('\u{2060}', "a word joiner"),
    ('\u{feff}', "a byte order mark"),
    ('\u{ad}', "a soft hyphen"),
];

fn named(letter: char) -> Option<&'static str> {
    if matches!(letter, '\u{2000}'..='\u{2006}' | '\u{2008}'..='\u{200a}') {
        return Some("a typographic space");
    }
    let mut known = BLANKS.iter();
    known
        .find(|(blank, _)| *blank == letter)
        .map(|(_, name)| *name)
}

fn advice(letter: char) -> &'static str {
    match letter {
        '\u{a0}' | '\u{202f}' | '\u{3000}' | '\u{2000}'..='\u{200a}' => "replace it by a blank",
        _ => "take it out",
    }
}

/// Says of a message that such a letter stands in it, as it does where a name is unknown.
pub(crate) fn in_message(message: &str) -> Option<String> {
    let (letter, name) = message.chars().find_map(with_name)?;
    Some(format!(
        "the name holds {name} (U+{:04X}), which Ruby takes for a letter: {}",
        u32::from(letter),
        advice(letter)
    ))
}

/// Says where the first one stands in a text that is no Ruby, outside of strings and comments as far
/// as a line tells; `line` is the number of the text's first.
pub(crate) fn in_text(text: &[u8], line: u16) -> Option<String> {
    let text = std::str::from_utf8(text).ok()?;
    let found = (usize::from(line)..)
        .zip(text.lines())
        .find_map(|(number, line)| Some((number, in_line(line)?)));
    let (number, (column, letter, name)) = found?;
    Some(format!(
        "line {number} column {column} holds {name} (U+{:04X}), which Ruby takes for a letter: {}",
        u32::from(letter),
        advice(letter)
    ))
}

fn in_line(line: &str) -> Option<(usize, char, &'static str)> {
    let mut quote = None;
    let mut letters = (1..).zip(line.chars());
    while let Some((column, letter)) = letters.next() {
        match (quote, letter) {
            (_, '\\') => {
                letters.next();
            }
            (Some(begun), letter) if begun == letter => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'' | '`') => quote = Some(letter),
            (None, '#') => return None,
            (None, _) => {
                if let Some((letter, name)) = with_name(letter) {
                    return Some((column, letter, name));
                }
            }
        }
    }
    None
}

fn with_name(letter: char) -> Option<(char, &'static str)> {
    Some((letter, named(letter)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_blank_that_is_none_is_found_outside_of_strings_and_comments() {
        for (text, expected) in [
            ("x = 1\nend", None),
            (
                "x\u{a0}= 1",
                Some("line 7 column 2 holds a no-break space (U+00A0)"),
            ),
            (
                "a\n\n  \u{3000}b",
                Some("line 9 column 3 holds an ideographic space (U+3000)"),
            ),
            (
                "\u{feff}a",
                Some("line 7 column 1 holds a byte order mark (U+FEFF)"),
            ),
            (
                "a\u{2009}b",
                Some("line 7 column 2 holds a typographic space (U+2009)"),
            ),
            ("'\u{a0}' + \"\\\"\u{a0}\" # \u{a0}", None),
            (
                "'a' +\u{200b} 'b'",
                Some("line 7 column 6 holds a zero-width space (U+200B)"),
            ),
        ] {
            let told = in_text(text.as_bytes(), 7);
            let told = told.as_deref();
            assert_eq!(told.is_some(), expected.is_some(), "{text:?}: {told:?}");
            assert!(
                told.unwrap_or_default()
                    .starts_with(expected.unwrap_or_default()),
                "{told:?}"
            );
        }
        assert_eq!(in_text(b"\xa0 = 1", 1), None);
    }

    #[test]
    fn a_name_with_such_a_blank_is_told() {
        let told = in_message("undefined method '\u{a0}puts' for main");
        let expected = "the name holds a no-break space (U+00A0), which Ruby takes for a letter: replace it by a blank";
        assert_eq!(told.as_deref(), Some(expected));
        assert_eq!(in_message("undefined method 'puts' for main"), None);
    }
}
