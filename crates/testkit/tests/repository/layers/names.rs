//! Names: what code defines is read line by line, as rustfmt lays it out.

use std::collections::BTreeMap;
use std::path::Path;

use crate::tree::{lines_but_tests, read, root, shown, sources};

/// One word may name so many types, less one: it says of none what it is of.
const TYPES_OF_A_NAME: usize = 8;

/// A name that is defined: its keyword and itself.
fn defined(line: &str) -> Option<(&str, &str)> {
    let mut words = line.split_ascii_whitespace();
    let keyword = words.by_ref().find(|word| {
        !(word.starts_with("pub") || ["async", "unsafe", "extern", "\"C\""].contains(word))
    })?;
    let kinds = [
        "struct", "enum", "union", "trait", "type", "fn", "mod", "const", "static",
    ];
    let keyword = kinds.into_iter().find(|kind| *kind == keyword)?;
    let name = words.next()?;
    let end = name.find(|byte: char| !byte.is_alphanumeric() && byte != '_');
    Some((keyword, end.map_or(name, |end| &name[..end])))
}

/// `LoadTable` and `LOAD_TABLE` as `load_table`.
fn in_snake_case(name: &str) -> String {
    let mut words = String::new();
    let mut before = 'A';
    for letter in name.chars() {
        if letter.is_uppercase() && before.is_lowercase() {
            words.push('_');
        }
        words.extend(letter.to_lowercase());
        before = letter;
    }
    words
}

fn sources_without_tests() -> impl Iterator<Item = (String, Vec<String>)> {
    let of_crates = |file: &Path| file.components().any(|part| part.as_os_str() == "src");
    let files = sources().into_iter().filter(move |file| of_crates(file));
    files.map(|file| (shown(&file), lines_but_tests(&read(&file))))
}

#[test]
fn no_name_is_that_of_many_types() {
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (file, lines) in sources_without_tests() {
        // A type that is indented belongs to a trait, which has named it.
        let lines = lines.iter().filter(|line| !line.starts_with(' '));
        for (keyword, name) in lines.filter_map(|line| defined(line)) {
            if ["struct", "enum", "union", "trait", "type"].contains(&keyword) {
                places
                    .entry(name.to_owned())
                    .or_default()
                    .push(file.clone());
            }
        }
    }
    assert!(places.contains_key("Exchange"), "types are found");
    places.retain(|_, files| files.len() >= TYPES_OF_A_NAME);
    assert!(places.is_empty(), "{places:#?}");
}

#[test]
fn nothing_is_named_by_a_word_that_the_lexicon_rules_out() {
    let lexicon = read(&root().join("docs/architecture/lexicon.md"));
    let rows = lexicon.lines().filter(|line| line.starts_with("| "));
    let ruled_out: Vec<String> = rows
        .skip(1)
        .filter_map(|row| row.trim_end_matches(" |").rsplit(" | ").next())
        .flat_map(|words| words.split(", "))
        .filter(|word| !word.ends_with('*'))
        .map(|word| word.to_lowercase().replace([' ', '-'], "_"))
        .collect();
    assert!(
        ruled_out.iter().any(|word| word == "watchdog"),
        "words are found"
    );
    let mut breaches = Vec::new();
    for (file, lines) in sources_without_tests() {
        for (_, name) in lines.iter().filter_map(|line| defined(line)) {
            let words = format!("_{}_", in_snake_case(name));
            let found = ruled_out.iter().find(|word| {
                words.contains(&format!("_{word}_")) || words.contains(&format!("_{word}s_"))
            });
            breaches.extend(found.map(|word| format!("{file}: {name} ({word})")));
        }
    }
    assert!(breaches.is_empty(), "{breaches:#?}");
}

#[test]
fn a_definition_is_told_by_its_first_words() {
    for (line, found) in [
        (
            "pub(crate) struct LoadTable<'a> {",
            Some(("struct", "LoadTable")),
        ),
        ("    pub async fn serve(&self) {", Some(("fn", "serve"))),
        ("const MAX: usize = 1;", Some(("const", "MAX"))),
        ("// a struct of its own", None),
        ("let fn_ = 1;", None),
    ] {
        assert_eq!(defined(line), found, "{line}");
    }
    assert_eq!(in_snake_case("LoadTable"), "load_table");
    assert_eq!(in_snake_case("LOAD_TABLE"), "load_table");
}
