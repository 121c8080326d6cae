//! Texts of others as a terminal may be shown them.
//!
//! The idea: a character that is more than itself is a question mark. What HTML or Markdown would take for more
//! is not known here.

/// So much of a text, without what a terminal would take for something else.
pub(super) fn printable(text: &str, chars_max: usize) -> String {
    let is_plain = |it: char| it.escape_debug().len() == 1 || "\"'\\".contains(it);
    let chars = text.chars().take(chars_max);
    chars
        .map(|it| if is_plain(it) { it } else { '?' })
        .collect()
}
