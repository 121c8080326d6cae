//! Programs that the configuration names, each with its arguments.

use super::value::Value;

/// Arguments of a program, and bytes of all.
const ARGUMENTS_MAX: usize = 100;
const COMMAND_BYTES_MAX: usize = 32 * 1024;
/// What stands before a program in Apache.
const APACHES: &str = "prg:";

/// A program and its arguments.
pub(super) fn command(value: Value<'_>) -> Vec<String> {
    let name = value.name;
    if value.is_text() {
        let line = value.text().unwrap_or_default();
        value.report_help(
            format!("`{name}` must be a list, not a text"),
            format!("write {}", apart(line)),
        );
        return Vec::new();
    }
    let Some(elements) = value.list() else {
        return Vec::new();
    };
    let words: Vec<String> = elements
        .iter()
        .filter_map(|element| element.text().map(str::to_owned))
        .collect();
    let bytes: usize = words.iter().map(String::len).sum();
    if elements.is_empty() || words.first().is_some_and(String::is_empty) {
        value.report(format!("`{name}` names no program"));
    } else if words.iter().any(|word| word.contains('\0')) {
        value.report(format!("no word of `{name}` may hold a NUL"));
    } else if words.len() > ARGUMENTS_MAX || bytes > COMMAND_BYTES_MAX {
        value.report(format!(
            "`{name}` has more than {ARGUMENTS_MAX} words or {COMMAND_BYTES_MAX} bytes"
        ));
    }
    let first = words.first().map_or("", String::as_str);
    if first.starts_with(APACHES) {
        value.report_help(
            "`prg:` is Apache's word for a program",
            format!("leave out `prg:`: {:?}", without_apaches(first)),
        );
    } else if words.len() == 1 && first.contains(' ') && !first.contains('/') {
        value.report_help(
            format!("`{name}` is one word with spaces in it"),
            format!("write each word apart: {}", apart(first)),
        );
    }
    words
}

/// A line of words as the list it is meant to be.
fn apart(line: &str) -> String {
    let words = without_apaches(line).split_whitespace();
    let words: Vec<String> = words.map(|word| format!("{word:?}")).collect();
    format!("[{}]", words.join(", "))
}

fn without_apaches(word: &str) -> &str {
    word.strip_prefix(APACHES).unwrap_or(word)
}
