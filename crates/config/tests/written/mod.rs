//! Configurations as tests write them, and what is made of them.

#![allow(dead_code, reason = "each test uses its part")]

use config::model::Model;
use config::{Sources, dump, load};

/// What no configuration may lack.
pub(crate) const LISTEN: &str = "[[listen]]\naddress = \"127.0.0.1:8080\"\n";
/// A site for every host.
pub(crate) const SITE: &str = "[[sites]]\nhosts = [\"*\"]\nroot = \"/srv\"\n";

/// What a configuration says; what is printed of it says the same.
pub(crate) fn model(text: &str) -> Model {
    let model = loaded(text);
    let printed = dump(&model);
    assert_eq!(loaded(&printed), model, "{printed}");
    model
}

pub(crate) fn loaded(text: &str) -> Model {
    load(&Sources::from_text("nagaya.toml", text))
        .unwrap_or_else(|problems| panic!("{text}\n{problems}"))
}

/// What is wrong with it.
pub(crate) fn problems(sources: &Sources) -> String {
    load(sources).expect_err("a problem").to_string()
}
