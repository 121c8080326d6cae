//! The table of keys is complete and true: examples load and do something, defaults are the
//! defaults, and whatever loads is printed so that it loads again.

use proptest::prelude::*;

use super::frames::{frame, framed};
use super::{Fallback, Key, SECTIONS, Section};
use crate::model::Model;
use crate::{Sources, dump, load};

const HTPASSWD: &[u8] = b"alice:{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g=\n";
const GROUPS: &[u8] = b"staff: alice\nothers: bob\n";

/// Keys whose example the model does not show: `include` and what it says act before it.
const SILENT: &[&str] = &["include", "broken"];

fn sources(text: &str) -> Sources {
    Sources::from_text("/etc/nagaya/nagaya.toml", text)
        .with_file("/etc/nagaya/htpasswd", HTPASSWD)
        .with_file("/etc/nagaya/groups", GROUPS)
        .with_file("/etc/nagaya/console.key", &[b'k'; 32])
        .with_file("/etc/nagaya/other.key", &[b'o'; 64])
        .with_file("/etc/nagaya/other-groups", GROUPS)
        .with_php("8.2", "/usr/sbin/php-fpm8.2")
        .with_file("/etc/ssl/certs/ca-certificates.crt", b"PEM")
        .with_file("/etc/nagaya/certs/internal.pem", b"PEM")
        .with_file("/etc/nagaya/hooks/init.rb", b"p 1")
        .with_file("/etc/nagaya/certs/staff.pem", b"authorities")
        .with_file("/etc/nagaya/certs/other.pem", b"others")
        .with_file("/etc/nagaya/pages/404.html", b"gone")
        .with_file("/etc/nagaya/pages/busy.html", b"busy")
}

fn model(text: &str) -> Model {
    load(&sources(text)).unwrap_or_else(|problems| panic!("{text}\n{problems}"))
}

fn every_key() -> impl Iterator<Item = (&'static Section, &'static Key)> {
    SECTIONS
        .iter()
        .flat_map(|section| section.keys.iter().map(move |key| (*section, key)))
}

#[test]
fn every_key_is_described() {
    for (section, key) in every_key() {
        let name = format!("{} {}", section.title, key.name);
        assert!(key.about.ends_with('.'), "{name}: description");
        assert!(key.example.contains(key.name), "{name}: example");
        let default = match key.default {
            Fallback::Required => "required",
            Fallback::Value(text) | Fallback::Absent(text) => text,
        };
        let empty_text =
            matches!(key.default, Fallback::Value("")) && matches!(key.kind, super::Kind::Text);
        assert!(!default.is_empty() || empty_text, "{name}: default");
        assert_eq!(
            section
                .keys
                .iter()
                .filter(|other| other.name == key.name)
                .count(),
            1,
            "{name}: twice"
        );
    }
}

#[test]
fn every_example_loads_and_does_something() {
    for (section, key) in every_key() {
        let with = model(&framed(section, &[key.example]));
        assert_eq!(
            model(&dump(&with)),
            with,
            "{} is printed otherwise",
            key.example
        );
        if matches!(key.default, Fallback::Required) || SILENT.contains(&key.name) {
            continue;
        }
        let bare = match section.title {
            // Without an example there would be no handler or condition at all.
            "handler = { … }" => framed(section, &["redirect = \"/other\""]),
            "match = { … }" => framed(section, &["path = \"/other\""]),
            _ => framed(section, &[]),
        };
        assert_ne!(
            with,
            model(&bare),
            "{} {} does nothing",
            section.title,
            key.name
        );
    }
}

#[test]
fn every_default_is_what_leaving_the_key_out_means() {
    for (section, key) in every_key() {
        let Fallback::Value(value) = key.default else {
            continue;
        };
        let line = format!("{} = {}", key.name, key.kind.quoted(value));
        let (with, bare) = match (section.title, key.name) {
            ("handler = { … }", _) => (
                vec!["redirect = \"/\"".to_owned(), line],
                vec!["redirect = \"/\""],
            ),
            _ => (vec![line], vec![]),
        };
        let with: Vec<&str> = with.iter().map(String::as_str).collect();
        let with = model(&framed(section, &with));
        assert_eq!(
            with,
            model(&framed(section, &bare)),
            "{} {}",
            section.title,
            key.name
        );
    }
}

#[test]
fn every_required_key_is_missed() {
    for (section, key) in every_key().filter(|(_, key)| matches!(key.default, Fallback::Required)) {
        let frame = frame(section);
        let own = frame.own.iter().filter(|line| !line.starts_with(key.name));
        let own: Vec<&str> = own.copied().collect();
        let text = frame.around(&own);
        let problems = load(&sources(&text)).expect_err(&text).to_string();
        let missing = format!("`{}` is missing in `{}`", key.name, section.title);
        let nothing = format!("there is no `[[{}]]`", key.name);
        assert!(
            problems.contains(&missing) || problems.contains(&nothing),
            "{text}\n{problems}"
        );
    }
}

#[test]
fn a_choice_lists_the_words_that_are_read() {
    for (section, key) in every_key() {
        let super::Kind::Choice(words) = key.kind else {
            continue;
        };
        for word in words {
            model(&framed(section, &[&format!("{} = {word:?}", key.name)]));
        }
        let wrong = framed(section, &[&format!("{} = \"{}\"", key.name, "zzzzzz")]);
        let problems = load(&sources(&wrong)).expect_err(&wrong).to_string();
        for word in words {
            assert!(
                problems.contains(&format!("`{word}`")),
                "{word}: {problems}"
            );
        }
    }
}

#[test]
fn a_letter_too_few_is_understood() {
    for (section, key) in every_key().filter(|(_, key)| key.name.len() > 3) {
        let misspelt = &key.name[..key.name.len() - 1];
        if section.key(misspelt).is_some() {
            continue;
        }
        let text = framed(section, &[&format!("{misspelt} = true")]);
        let problems = load(&sources(&text)).expect_err(&text).to_string();
        let unknown = format!("unknown key `{misspelt}`");
        assert!(problems.contains(&unknown), "{problems}");
        assert!(
            problems.contains(&format!("did you mean `{}`?", key.name)),
            "{problems}"
        );
    }
}

#[test]
fn the_reference_is_up_to_date() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/reference/config.md"
    );
    let committed = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        committed == crate::reference(),
        "run `cargo run -p config --example reference > docs/reference/config.md`"
    );
}

#[test]
fn the_page_of_sensors_is_up_to_date() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/reference/sensors.md"
    );
    let committed = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        committed == crate::sensor_reference(),
        "run `cargo run -p config --example sensors > docs/reference/sensors.md`"
    );
}

/// Examples of the section, some taken, as lines of one table.
fn some_examples(section: &'static Section) -> impl Strategy<Value = Vec<&'static str>> {
    let examples: Vec<&str> = section.keys.iter().map(|key| key.example).collect();
    let count = examples.len();
    proptest::sample::subsequence(examples, 0..=count)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn what_is_printed_loads_to_the_same(
        (section, lines) in proptest::sample::select(SECTIONS.to_vec())
            .prop_flat_map(|section| (Just(section), some_examples(section)))
    ) {
        // Some subsets say too little or too much (two handlers): they are the broken table's.
        if let Ok(model) = load(&sources(&framed(section, &lines))) {
            let printed = dump(&model);
            let again = load(&sources(&printed));
            let again = again.map_err(|problems| TestCaseError::fail(format!("{printed}\n{problems}")))?;
            prop_assert_eq!(&again, &model, "{}", printed);
            prop_assert_eq!(dump(&again), printed);
        }
    }

    #[test]
    fn broken_examples_never_panic(
        (section, lines) in proptest::sample::select(SECTIONS.to_vec())
            .prop_flat_map(|section| (Just(section), some_examples(section))),
        cut in any::<proptest::sample::Index>(),
        put in ".{0,3}",
    ) {
        let mut text = framed(section, &lines);
        let mut at = cut.index(text.len());
        while !text.is_char_boundary(at) { at -= 1; }
        let next = text[at..].chars().next().map_or(0, char::len_utf8);
        text.replace_range(at..at + next, &put);
        if let Err(problems) = load(&sources(&text)) {
            prop_assert!(problems.count() > 0);
            prop_assert!(!problems.to_string().is_empty());
        }
    }

    #[test]
    fn any_text_is_refused_or_loaded(text in "\\PC{0,200}|([\\[\\]{}=\"',.#\n a-z0-9]|sites|hosts|match|\"\"\"){0,80}") {
        let _ = load(&sources(&text)).map_err(|problems| problems.to_string());
    }

    #[test]
    fn sources_survive_packing(text in "\\PC{0,80}", cut in any::<proptest::sample::Index>()) {
        let sources = sources(&text).with_include("sites.d/a.toml", &text);
        let bytes = sources.to_bytes();
        let unpacked = Sources::from_bytes(&bytes);
        prop_assert_eq!(unpacked.as_ref(), Ok(&sources));
        let short = bytes.get(..cut.index(bytes.len())).unwrap_or_default();
        prop_assert!(Sources::from_bytes(short).is_err());
    }
}
