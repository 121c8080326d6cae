//! `limits set`: a limit changed while running, until a reload changes it; and what is told of
//! changes that are kept.
//!
//! What the operator writes is read by the same code that reads the configuration, as the limit
//! would stand there with the change made: so the words, the checks and the complaints are the
//! same.

use std::fmt::Write as _;
use std::sync::Arc;

use config::Sources;
use config::model;
use config::overrides::KEYS;
use limits::{Change, Concurrent, Definition, Keyed, Shared as SharedBy};

use super::compiled::{Kept, Limits};
use super::definitions;
use super::questions::{describe, mode_word, spelled};
use crate::generation::Generation;
use crate::worker::Shared;

/// Carries out `limits set`: `LIMIT KEY=VALUE…`.
///
/// # Errors
/// What is wrong with it, for the operator.
pub(super) fn set(shared: &Shared, order: &str) -> Result<String, String> {
    let (identity, pairs) = taken_apart(shared, order)?;
    let known = CurrentLimit::find(shared, identity)?;
    change(shared, &known, &pairs)
}

fn change(shared: &Shared, known: &CurrentLimit, pairs: &Pairs<'_>) -> Result<String, String> {
    let identity = &*known.configured.identity;
    let (now, _) = shared.limits.in_force(&known.configured);
    let wanted = read(known.limits(), &now, pairs)?;
    if now == wanted {
        return Ok(format!("{identity}: {}, as before\n", describe(&now, None)));
    }
    shared.limits.set(known.limits(), known.at, &wanted);
    tracing::info!(limit = identity, was = %describe(&now, None), is = %describe(&wanted, None), "a limit was changed");
    Ok(format!(
        "{identity}: {} (was {}); until a reload changes this limit, or --keep\n",
        describe(&wanted, None),
        describe(&now, None)
    ))
}

/// Carries out `limits keep`: `LIMIT`, a tab, `KEY=VALUE…`. As [`set`], of a limit whose name will
/// mean it after a reload, too; the name is what the overrides file will say, to the letter.
///
/// # Errors
/// As [`set`], and where the limit stands on a rule without a name.
pub(super) fn set_to_keep(shared: &Shared, order: &str) -> Result<String, String> {
    let (identity, changes) = order.split_once('\t').ok_or(NO_PLACE)?;
    let known = CurrentLimit::find(shared, identity)?;
    match known.limits().is_on_unnamed_rule(known.at) {
        false => change(shared, &known, &changes_of(changes)?),
        true => Err(unnamed(identity)),
    }
}

/// Why a change of a limit on a rule without a name is not kept: `rule HOST/RULE/LIMIT`.
fn unnamed(identity: &str) -> String {
    let rule = identity.strip_prefix("rule ").unwrap_or(identity);
    let (host, rest) = rule.split_once('/').unwrap_or((rule, "it"));
    let (rule, _) = rest.split_once('/').unwrap_or((rest, ""));
    format!(
        "{rule} of {host} has no name, and will be another rule once one is put above it: give it \
         name = \"…\" in the configuration, reload, then keep; nothing was changed, and without \
         --keep it can be, until a reload changes this limit"
    )
}

/// Hears what the overrides file says of a limit now: `FILE:LINE`, `LIMIT` and `KEY=VALUE…`, with
/// tabs between them.
///
/// # Errors
/// As [`set`].
pub(super) fn keep(shared: &Shared, order: &str) -> Result<String, String> {
    let (place, order) = order.split_once('\t').ok_or(NO_PLACE)?;
    let (file, line) = place.rsplit_once(':').ok_or(NO_PLACE)?;
    let line = line.parse().map_err(|_| NO_PLACE)?;
    let (identity, changes) = order.split_once('\t').ok_or(NO_PLACE)?;
    let mut pairs = changes_of(changes)?;
    let known = CurrentLimit::find(shared, identity)?;
    let configured = &known.configured;
    // As at the next start, where they are warned of.
    pairs.retain(|(key, _)| can_be_set(configured, key));
    let kept = Kept {
        definition: read(known.limits(), configured, &pairs)?,
        file: file.into(),
        line,
    };
    let is_covered = |change: &Change| pairs.iter().any(|(key, _)| is_of(change, key));
    shared
        .limits
        .keep(known.limits(), known.at, kept, is_covered);
    let (now, _) = shared.limits.in_force(configured);
    tracing::info!(limit = identity, is = %describe(&now, None), file, line, "a change of a limit was kept");
    Ok(format!(
        "{identity}: {} (configured: {}); kept in {place}\n",
        describe(&now, None),
        describe(configured, None)
    ))
}

/// Makes a limit what the configuration says, once the overrides file says nothing of it: the line
/// that is gone from it, or 0; a tab; the limit.
///
/// # Errors
/// As [`set`].
pub(super) fn forget(shared: &Shared, order: &str) -> Result<String, String> {
    let (line, identity) = order.split_once('\t').ok_or(NO_PLACE)?;
    let line = line.parse().map_err(|_| NO_PLACE)?;
    if line > 0 {
        shared.limits.move_up_from(line);
    }
    let known = match CurrentLimit::find(shared, identity) {
        Err(_) if line > 0 => return Ok(format!("{identity}: no limit is called so any more\n")),
        found => found?,
    };
    let configured = &known.configured;
    let (was, _) = shared.limits.in_force(configured);
    shared.limits.forget(known.limits(), known.at);
    tracing::info!(limit = identity, was = %describe(&was, None), "a limit is as configured again");
    Ok(format!(
        "{identity}: {}, as configured (was {})\n",
        describe(configured, None),
        describe(&was, None)
    ))
}

/// What is said where an order does not begin as it has to.
const NO_PLACE: &str = "nagaya limits set --keep and --forget say this, nobody else";

/// A limit of the generation in force.
struct CurrentLimit {
    generation: Arc<Generation>,
    at: usize,
    configured: Definition,
}

impl CurrentLimit {
    fn find(shared: &Shared, identity: &str) -> Result<Self, String> {
        let generation = shared.generation();
        let generation = generation.ok_or("no configuration is in force yet")?;
        let limits = &generation.limits;
        let known = limits.position(identity).and_then(|at| {
            let configured = limits.definitions().get(at)?.clone();
            Some((at, configured))
        });
        let Some((at, configured)) = known else {
            let definitions = limits.definitions().iter();
            return Err(unknown(
                identity,
                definitions.map(|it| it.identity.as_str()),
            ));
        };
        if limits.is_of_caps(at) {
            return Err(format!(
                "{identity} follows caps or a cgroup: change those in the configuration and reload"
            ));
        }
        Ok(Self {
            generation,
            at,
            configured,
        })
    }

    fn limits(&self) -> &Limits {
        &self.generation.limits
    }
}

type Pairs<'a> = Vec<(&'a str, &'a str)>;

/// What limit of the generation in force an order means, and what is to be set of it.
fn taken_apart<'a>(shared: &Shared, order: &'a str) -> Result<(&'a str, Pairs<'a>), String> {
    let generation = shared.generation();
    let known = generation.iter().flat_map(|it| it.limits.definitions());
    split(order, known.map(|it| it.identity.as_str()))
}

/// Takes an order apart. An identity may hold spaces and `=`, so the longest known one that is
/// followed by changes alone is meant. Where none is, what ends the order as `KEY=VALUE` is taken
/// for the changes.
fn split<'a, 'b>(
    order: &'a str,
    known: impl Iterator<Item = &'b str>,
) -> Result<(&'a str, Pairs<'a>), String> {
    let order = order.trim_end();
    let after = |identity: &str| {
        let rest = order.strip_prefix(identity)?;
        let mut words = rest.split(' ');
        let ends = words.next() == Some("");
        (ends && words.all(|word| word.is_empty() || word.contains('='))).then_some(rest)
    };
    let meant = known.filter_map(after).min_by_key(|rest| rest.len());
    let rest = meant.unwrap_or_else(|| ending(order));
    let identity = order.strip_suffix(rest).unwrap_or(order);
    Ok((identity, changes_of(rest)?))
}

fn changes_of(words: &str) -> Result<Pairs<'_>, String> {
    let pairs = words.split_ascii_whitespace().map(pair);
    let pairs = pairs.collect::<Result<Pairs<'_>, String>>()?;
    match pairs.is_empty() {
        true => Err("say what to set: limits set LIMIT concurrent=4 queue=10".to_owned()),
        false => Ok(pairs),
    }
}

/// The last words of an order, as far back as they have a `=`.
fn ending(order: &str) -> &str {
    let mut identity = order;
    while let Some((before, last)) = identity.rsplit_once(' ')
        && last.contains('=')
    {
        identity = before.trim_end();
    }
    order.get(identity.len()..).unwrap_or_default()
}

fn pair(word: &str) -> Result<(&str, &str), String> {
    let (key, value) = word.split_once('=').unwrap_or((word, ""));
    match KEYS.contains(&key) {
        true => Ok((key, value)),
        false => Err(format!(
            "`{key}` cannot be set; what can is: {}",
            KEYS.join(", ")
        )),
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
fn read(limits: &Limits, now: &Definition, pairs: &Pairs<'_>) -> Result<Definition, String> {
    if let Some((key, _)) = pairs.iter().find(|(key, _)| !can_be_set(now, key)) {
        let why = "the configuration gives it none; add it there and reload";
        return Err(format!("`{key}` of this limit cannot be set: {why}"));
    }
    let text = as_configuration(now, pairs);
    let model = config::load(&Sources::from_text("limits set", &text)).map_err(|problems| {
        // Their places are in a configuration that nobody wrote.
        let problems: Vec<String> = problems
            .problems()
            .iter()
            .map(|it| it.to_string())
            .collect();
        problems.join("; ")
    })?;
    let limit = model.limits.first().ok_or("nothing was read")?;
    if limit.concurrent == Some(model::Concurrent::Auto) && now.fleet.is_some() {
        return Err(
            "concurrent = \"auto\" is for limits that one machine counts by itself".to_owned(),
        );
    }
    if limit.concurrent == Some(model::Concurrent::Auto)
        && !matches!(now.concurrent, Some(Concurrent::Auto { .. }))
        && (now.keyed == Keyed::Dynamic || now.shared == SharedBy::OneTenant)
    {
        return Err("concurrent = \"auto\" is for the process and upstreams only".to_owned());
    }
    // Not of what was read, which says nothing of workers.
    Ok(definitions::changed(now, limit, limits.workers))
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
        values.push(("late", spelled(now.late.unwrap_or_default())));
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

/// Whether a limit has something of this name.
fn can_be_set(limit: &Definition, key: &str) -> bool {
    match key {
        "rate" | "burst" => limit.rate.is_some(),
        "mode" => true,
        _ => limit.concurrent.is_some(),
    }
}

/// Whether a change is one of what has this name.
fn is_of(change: &Change, key: &str) -> bool {
    match change {
        Change::Concurrent(_) => key == "concurrent",
        Change::Queue(_) => key == "queue",
        Change::Wait(_) => key == "wait",
        Change::Late(_) => key == "late",
        Change::Rate(_) => matches!(key, "rate" | "burst"),
        Change::Mode(_) => key == "mode",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_names_a_limit_and_what_to_set() {
        let (identity, pairs) = split(
            "site a.jp/heavy files  concurrent=4 queue=10",
            [].into_iter(),
        )
        .unwrap();
        assert_eq!(identity, "site a.jp/heavy files");
        assert_eq!(pairs, [("concurrent", "4"), ("queue", "10")]);
        let wrong = |order| split(order, ["site a.jp/x"].into_iter()).unwrap_err();
        assert!(wrong("site a.jp/x").contains("what to set"));
        assert!(wrong("site a.jp/y").contains("what to set"));
        assert!(wrong("site a.jp/x colour").contains("what to set"));
        let error = wrong("site a.jp/x colour=red");
        assert!(error.contains("`colour`") && error.contains("concurrent"));
    }

    #[test]
    fn the_longest_known_limit_that_an_order_begins_with_is_meant() {
        let known = [
            "rule a/rule 1/p",
            "rule a/rule 1/p=1",
            "site a/const:/x?a=1",
        ];
        for (order, meant) in [
            ("rule a/rule 1/p=1 rate=2/d", "rule a/rule 1/p=1"),
            ("rule a/rule 1/p rate=2/d", "rule a/rule 1/p"),
            ("site a/const:/x?a=1  rate=2/d ", "site a/const:/x?a=1"),
            ("rule a/rule 1/p 2 rate=2/d", "rule a/rule 1/p 2"),
        ] {
            let (identity, pairs) = split(order, known.into_iter()).expect(order);
            assert_eq!((identity, pairs), (meant, vec![("rate", "2/d")]));
        }
    }
}
