//! Conditions as TOML: the `match` of rules, limits and shedding.

use std::collections::BTreeMap;

use super::write::{braces, list, quote};
use crate::lower::template::spell;
use crate::model::{Condition, Glob, MapMatch, TextMatch};
use crate::units;

/// A `match`.
pub(super) fn conditions(conditions: &[Condition]) -> String {
    let mut single = Vec::new();
    let mut nots = Vec::new();
    let mut tables: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for condition in conditions {
        match condition {
            Condition::File(any) => single.push(format!("file = {}", globs(any))),
            Condition::FileRegex(regex) => single.push(format!("file_regex = {}", quote(regex))),
            Condition::Path(any) => single.push(format!("path = {}", globs(any))),
            Condition::PathRegex(regex) => single.push(format!("path_regex = {}", quote(regex))),
            Condition::Method(methods) => single.push(format!("method = {}", list(methods, quote))),
            Condition::Client(networks) => {
                single.push(format!("client = {}", list(networks, quote)))
            }
            Condition::Exists(exists) => single.push(format!("exists = {exists}")),
            Condition::ServerEnv(name) => single.push(format!("server_env = {}", quote(name))),
            Condition::CostAbove(ms) => {
                single.push(format!("cost_above = {}", quote(units::duration(*ms))))
            }
            Condition::Row(name) => single.push(format!("row = {}", quote(name))),
            Condition::Map(asked) => single.extend(of_map(asked)),
            Condition::Not(inner) => nots.push(self::conditions(inner)),
            Condition::Header(name, text) => tables
                .entry("header")
                .or_default()
                .push(presence(name, text)),
            Condition::Query(name, text) => tables
                .entry("query")
                .or_default()
                .push(presence(name, text)),
            Condition::Cookie(name, text) => tables
                .entry("cookie")
                .or_default()
                .push(presence(name, text)),
        }
    }
    match nots.as_slice() {
        [] => {}
        [only] => single.push(format!("not = {only}")),
        several => single.push(format!("not = {}", list(several, String::clone))),
    }
    let tables = tables
        .into_iter()
        .map(|(name, entries)| format!("{name} = {}", braces(entries)));
    braces(single.into_iter().chain(tables))
}

fn globs(globs: &[Glob]) -> String {
    match globs {
        [only] => quote(&only.0),
        several => list(several, |glob| quote(&glob.0)),
    }
}

fn presence(name: &str, text: &Option<TextMatch>) -> String {
    let value = match text {
        None => "true".to_owned(),
        Some(TextMatch::Glob(glob)) => quote(&glob.0),
        Some(TextMatch::Regex(regex)) => format!("{{ regex = {} }}", quote(regex)),
    };
    format!("{} = {value}", quote(name))
}

/// The entries of a `match` that asks a map.
fn of_map(asked: &MapMatch) -> Vec<String> {
    let mut entries = vec![format!("map = {}", quote(&asked.name))];
    if !asked.key.parts.is_empty() {
        entries.push(format!("key = {}", quote(spell(&asked.key))));
    }
    if !asked.answered {
        entries.push("answered = false".to_owned());
    }
    // Debug keeps the point that makes it a fraction again, and every digit.
    entries.extend(asked.above.map(|above| format!("above = {above:?}")));
    entries.extend(asked.below.map(|below| format!("below = {below:?}")));
    let equals = asked.equals.as_ref();
    entries.extend(equals.map(|text| format!("equals = {}", quote(text))));
    entries
}
