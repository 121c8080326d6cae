//! Configurations as tests write them, and what is made of them.

#![allow(dead_code, reason = "each test uses its part")]

use config::model::Model;
use config::{Sources, dump, load, load_and_warn};

/// What no configuration may lack.
pub(crate) const LISTEN: &str = "[[listen]]\naddress = \"127.0.0.1:8080\"\n";
/// A site for every host.
pub(crate) const SITE: &str = "[[sites]]\nhosts = [\"*\"]\nroot = \"/srv\"\n";

pub(crate) fn sources(text: &str) -> Sources {
    Sources::from_text("nagaya.toml", text)
}

/// What a configuration says; what is printed of it says the same.
pub(crate) fn model(text: &str) -> Model {
    model_of(&sources(text))
}

/// The same of one with something beside it, which what is printed does without.
pub(crate) fn model_of(sources: &Sources) -> Model {
    let model = load(sources).unwrap_or_else(|problems| panic!("{problems}"));
    let printed = dump(&model);
    assert_eq!(loaded(&printed), model, "{printed}");
    model
}

pub(crate) fn loaded(text: &str) -> Model {
    load(&sources(text)).unwrap_or_else(|problems| panic!("{text}\n{problems}"))
}

/// What is hardly meant in it.
pub(crate) fn warnings(sources: &Sources) -> String {
    let loaded = load_and_warn(sources);
    let (_, warnings) = loaded.unwrap_or_else(|problems| panic!("{problems}"));
    warnings.to_string()
}

/// What is wrong with it.
pub(crate) fn problems(sources: &Sources) -> String {
    load(sources).expect_err("a problem").to_string()
}
