//! How wide text will be, without the font: an estimate on the wide side.
//!
//! The reader's system chooses the font, so a chart leaves room for the widest of the usual ones.

/// Width of a text in pixels.
pub(super) fn width(text: &str, size: f64) -> f64 {
    text.chars().map(advance).sum::<f64>() * size
}

/// Of a character, in ems.
fn advance(character: char) -> f64 {
    match character {
        'i' | 'j' | 'l' | '\'' | '|' | '!' | '.' | ',' | ':' | ';' | ' ' | 'I' => 0.36,
        'f' | 't' | 'r' | '(' | ')' | '[' | ']' | '/' | '-' | '–' => 0.43,
        'm' | 'w' | 'W' | 'M' | '@' | '%' | '—' | '…' => 0.99,
        'A'..='Z' => 0.74,
        // Ideographs, full-width forms and pictures.
        '\u{1100}'..='\u{11ff}' | '\u{2e80}'..='\u{d7ff}' | '\u{f900}'..='\u{faff}' => 1.05,
        '\u{fe30}'..='\u{fe6f}' | '\u{ff00}'..='\u{ffef}' | '\u{1f000}'.. => 1.15,
        _ => 0.635,
    }
}

/// Bold letters are so much wider, at most.
pub(super) const BOLD: f64 = 1.16;

/// As much of a text as fits; what is left out becomes an ellipsis.
pub(super) fn fitted(text: &str, size: f64, room: f64) -> String {
    let text: String = text
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    if width(&text, size) <= room {
        return text;
    }
    let mut out = String::new();
    let mut used = advance('…') * size;
    for character in text.chars() {
        used += advance(character) * size;
        if used > room {
            break;
        }
        out.push(character);
    }
    format!("{}…", out.trim_end())
}

/// Broken at spaces; a word longer than a line is cut.
pub(super) fn lines(text: &str, size: f64, room: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if width(line, size) + width(" ", size) + width(word, size) <= room => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(fitted(word, size, room)),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_ends_in_an_ellipsis() {
        assert_eq!(fitted("nginx", 13.0, 100.0), "nginx");
        let short = fitted(&"nginx ".repeat(40), 13.0, 100.0);
        assert!(
            short.ends_with('…') && width(&short, 13.0) <= 100.0,
            "{short}"
        );
        assert_eq!(fitted("a\nb", 13.0, 100.0), "a b");
        assert_eq!(fitted("wide", 13.0, 0.0), "…");
        assert_eq!(lines("one two three", 10.0, 45.0), ["one two", "three"]);
        assert!(lines("", 10.0, 45.0).is_empty());
    }
}
