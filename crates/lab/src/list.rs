//! `nagaya-lab list`: what there is, what it asks, and what it would lack here.

use std::collections::BTreeSet;

use super::find;
use super::model::Experiment;
use super::program::Programs;
use super::reading;

/// The list, and whether every file is well.
pub(crate) fn list() -> (String, bool) {
    let mut text = String::new();
    let mut well = true;
    let files = find::all();
    if files.is_empty() {
        text = format!(
            "no experiments: there is no `{}` below the working directory\n",
            find::DIRECTORY
        );
    }
    for file in files {
        match reading::read(&file) {
            Ok(experiment) => text += &entry(&experiment),
            Err(problems) => {
                well = false;
                text += &format!("{}\n  cannot be read:\n", reading::name_of(&file));
                for line in problems.to_string().lines() {
                    text += &format!("  {line}\n");
                }
            }
        }
    }
    (text, well)
}

fn entry(experiment: &Experiment) -> String {
    let mut text = format!(
        "{}\n  {}: {}\n",
        experiment.name,
        experiment.title,
        first_sentence(&experiment.question)
    );
    let missing = missing(experiment);
    if !missing.is_empty() {
        let missing: Vec<&str> = missing.iter().map(String::as_str).collect();
        text += &format!("  missing here: {}\n", missing.join(", "));
    }
    text
}

fn missing(experiment: &Experiment) -> BTreeSet<String> {
    let programs = Programs::default();
    let services = experiment.variants.iter().chain(&experiment.backends);
    let needs = services.flat_map(|service| &service.needs);
    needs
        .filter(|name| programs.find(name).is_err())
        .cloned()
        .collect()
}

/// Up to the first full stop or question mark that ends a word.
pub(crate) fn first_sentence(text: &str) -> String {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let end = text.char_indices().find(|(index, letter)| {
        let next = text
            .get(index + letter.len_utf8()..)
            .and_then(|rest| rest.chars().next());
        matches!(letter, '.' | '?' | '!') && next.is_none_or(char::is_whitespace)
    });
    match end {
        Some((index, letter)) => text
            .get(..index + letter.len_utf8())
            .unwrap_or_default()
            .to_owned(),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_sentence_ends_where_a_word_ends() {
        for (text, sentence) in [
            ("How fast? In truth.", "How fast?"),
            (
                "\nWhat of PHP 8.2\nand nginx? More.",
                "What of PHP 8.2 and nginx?",
            ),
            ("no end", "no end"),
        ] {
            assert_eq!(first_sentence(text), sentence);
        }
    }
}
