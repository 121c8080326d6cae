//! `limits set`: a limit changed while running, until a reload changes it.
//!
//! What the operator writes is read by the same code that reads the configuration, as the limit
//! would stand there with the change made: so the words, the checks and the complaints are the
//! same.

use std::fmt::Write as _;

use config::Sources;
use config::model;
use limits::{Change, Concurrent, Definition, Keyed, Shared as SharedBy};

use super::compiled;
use super::questions::{describe, mode_word, spelled};
use crate::worker::Shared;

/// Keys that can be changed.
const KEYS: [&str; 6] = ["concurrent", "queue", "wait", "rate", "burst", "mode"];

/// Carries out an order: `LIMIT KEY=VALUE…`.
///
/// # Errors
/// What is wrong with it, for the operator.
pub(super) fn set(shared: &Shared, order: &str) -> Result<String, String> {
    let (identity, pairs) = split(order)?;
    let generation = shared.generation();
    let generation = generation.ok_or("no configuration is in force yet")?;
    let limits = &generation.limits;
    let known = limits.definitions().iter();
    let configured = known
        .clone()
        .find(|it| it.identity == identity)
        .ok_or_else(|| unknown(identity, known.map(|it| it.identity.as_str())))?;
    let now = shared.limits.changed(configured);
    let now = now.unwrap_or_else(|| configured.clone());
    let wanted = read(&now, &pairs)?;
    let changes = changes(&now, &wanted);
    if changes.is_empty() {
        return Ok(format!("{identity}: {}, as before\n", describe(&now, None)));
    }
    if !shared.limits.change(limits, identity, &changes) {
        return Err(format!(
            "the limit `{identity}` has just gone: see limits list"
        ));
    }
    tracing::info!(limit = identity, was = %describe(&now, None), is = %describe(&wanted, None), "a limit was changed");
    Ok(format!(
        "{identity}: {} (was {}); until a reload changes this limit\n",
        describe(&wanted, None),
        describe(&now, None)
    ))
}

type Pairs<'a> = Vec<(&'a str, &'a str)>;

/// An identity may hold spaces; what follows it is `KEY=VALUE`.
fn split(order: &str) -> Result<(&str, Pairs<'_>), String> {
    let (mut rest, mut pairs) = (order.trim_end(), Vec::new());
    while let Some((before, last)) = rest.rsplit_once(' ') {
        let Some((key, value)) = last.split_once('=') else {
            break;
        };
        if !KEYS.contains(&key) {
            let known = KEYS.join(", ");
            return Err(format!("`{key}` cannot be set; what can is: {known}"));
        }
        pairs.push((key, value));
        rest = before.trim_end();
    }
    match pairs.is_empty() {
        true => Err("say what to set: limits set LIMIT concurrent=4 queue=10".to_owned()),
        false => Ok((rest, pairs)),
    }
}

fn unknown<'a>(identity: &str, known: impl Iterator<Item = &'a str>) -> String {
    let name = |known: &&str| known.rsplit('/').next() == identity.rsplit('/').next();
    match known.into_iter().find(name) {
        Some(like) => format!("there is no limit `{identity}`; is `{like}` meant?"),
        None => format!("there is no limit `{identity}`: see limits list"),
    }
}

/// The limit as it would be, read as the configuration is.
fn read(now: &Definition, pairs: &Pairs<'_>) -> Result<Definition, String> {
    for (key, is_there) in [
        ("concurrent", now.concurrent.is_some()),
        ("queue", now.concurrent.is_some()),
        ("wait", now.concurrent.is_some()),
        ("rate", now.rate.is_some()),
        ("burst", now.rate.is_some()),
    ] {
        if !is_there && pairs.iter().any(|(named, _)| *named == key) {
            let why = "the configuration gives it none; add it there and reload";
            return Err(format!("`{key}` of this limit cannot be set: {why}"));
        }
    }
    let text = as_configuration(now, pairs);
    let model = config::load(&Sources::from_text("limits set", &text))
        .map_err(|problems| problems.to_string())?;
    let limit = model.limits.first().ok_or("nothing was read")?;
    if limit.concurrent == Some(model::Concurrent::Auto)
        && !matches!(now.concurrent, Some(Concurrent::Auto { .. }))
        && (now.keyed == Keyed::Dynamic || now.shared == SharedBy::OneTenant)
    {
        return Err("concurrent = \"auto\" is for the process and upstreams only".to_owned());
    }
    Ok(compiled::changed(now, limit, model.workers))
}

/// A configuration with nothing but this limit, and the pairs in place of what it has.
fn as_configuration(now: &Definition, pairs: &Pairs<'_>) -> String {
    let mut values: Vec<(&str, String)> = Vec::new();
    match now.concurrent {
        None => {}
        Some(Concurrent::Fixed(count)) => values.push(("concurrent", count.to_string())),
        Some(Concurrent::Auto { .. }) => values.push(("concurrent", "auto".to_owned())),
    }
    if now.concurrent.is_some() {
        values.push(("queue", now.queue.to_string()));
        values.push(("wait", spelled(now.wait)));
    }
    if let Some(rate) = &now.rate {
        values.push(("rate", rate.to_string()));
        values.push(("burst", rate.burst.to_string()));
    }
    values.push(("mode", mode_word(now.mode).to_owned()));
    let mut text = String::from("limits = [{ key = \"process\"");
    for (key, value) in &values {
        let given = pairs.iter().find(|(named, _)| named == key);
        let value = given.map_or(value.as_str(), |(_, value)| *value);
        // Writing to memory does not fail.
        let _ = match value.parse::<u64>() {
            Ok(number) => write!(text, ", {key} = {number}"),
            Err(_) => write!(text, ", {key} = {value:?}"),
        };
    }
    text.push_str(" }]\n[[listen]]\naddress = \"127.0.0.1:1\"\n[[sites]]\nhosts = [\"*\"]\n");
    text.push_str("rules = [{ handler = { respond = { status = 200, body = \"\" } } }]\n");
    text
}

fn changes(now: &Definition, wanted: &Definition) -> Vec<Change> {
    let mut changes = Vec::new();
    if now.concurrent != wanted.concurrent {
        changes.push(Change::Concurrent(wanted.concurrent));
    }
    if now.queue != wanted.queue {
        changes.push(Change::Queue(wanted.queue));
    }
    if now.wait != wanted.wait {
        changes.push(Change::Wait(wanted.wait));
    }
    if now.rate != wanted.rate {
        changes.push(Change::Rate(wanted.rate));
    }
    if now.mode != wanted.mode {
        changes.push(Change::Mode(wanted.mode));
    }
    changes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_names_a_limit_and_what_to_set() {
        let (identity, pairs) = split("site a.jp/heavy files  concurrent=4 queue=10").unwrap();
        assert_eq!(identity, "site a.jp/heavy files");
        assert_eq!(pairs, [("queue", "10"), ("concurrent", "4")]);
        assert!(split("site a.jp/x").unwrap_err().contains("what to set"));
        let error = split("site a.jp/x colour=red").unwrap_err();
        assert!(error.contains("`colour`") && error.contains("concurrent"));
    }
}
