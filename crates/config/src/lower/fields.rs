//! Header changes and `env`.
//!
//! The idea: a name or value that could change a message's framing, or that a peer would read
//! otherwise than it is written, does not get past here.

use std::collections::BTreeMap;

use super::conditions::{SiteFiles, conditions};
use super::context::{Finding, Spot, problem};
use super::table::Table;
use super::template::{Purpose, template};
use super::value::{Entry, Value};
use crate::keys;
use crate::model::{Condition, FieldEdits, Template, Variable};

/// Which messages are changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// Requests.
    Request,
    /// Replies.
    Reply,
}

/// Fields that frame a message or belong to one connection: the gateway's own business.
const OWN: &[&str] = &[
    "connection",
    "content-length",
    "expect",
    "host",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Header changes; none if the key is not set.
pub(crate) fn edits(value: Option<Value<'_>>, side: Side) -> FieldEdits {
    let Some(table) = value.and_then(|value| value.table(&keys::EDITS)) else {
        return FieldEdits::default();
    };
    FieldEdits {
        set: single(&table, "set", side),
        add: add(&table, side),
        remove: remove(&table, side),
        default: single(&table, "default", side),
    }
}

/// `env = { … }`.
pub(crate) fn env(entries: Vec<Entry<'_>>, files: SiteFiles) -> Vec<Variable> {
    let mut env = Vec::new();
    for entry in entries {
        if let Some(finding) = wrong_variable(entry.name, &entry.name_spot) {
            entry.value.context.report(finding);
            continue;
        }
        let values = entry.value.one_or_list();
        env.extend(values.iter().filter_map(|value| variable(value, files)));
    }
    env
}

/// What a variable holds: a text, or `false` for nothing; in a table where that depends on the
/// request.
fn variable(value: &Value<'_>, files: SiteFiles) -> Option<Variable> {
    let plain = |value: &Value<'_>, expected: &str| match value.as_flag() {
        Some(false) => Some(None),
        None if value.is_text() => template(value, Purpose::Field).map(Some),
        _ => {
            value.mistyped(expected);
            None
        }
    };
    let name = value.name.to_owned();
    if !value.is_table() {
        return Some(Variable {
            name,
            value: plain(
                value,
                "a text, `false`, or a table with `value` and `match`",
            )?,
            conditions: Vec::new(),
        });
    }
    let table = value.table(&keys::VARIABLE)?;
    let asked = table.get("match");
    let conditions = asked.as_ref().map(|value| conditions(value, files, 0));
    let conditions = conditions.unwrap_or_default();
    if let Some(asked) = asked.filter(|_| conditions.iter().any(Condition::asks_map)) {
        let help = "ask it in a rule's `match`, and set the variable there";
        asked.report_help("no map is asked for a variable", help);
    }
    let value = plain(&table.required("value")?, "a text or `false`")?;
    Some(Variable {
        name,
        value,
        conditions,
    })
}

/// What is wrong with the name of a variable that programs are given.
pub(crate) fn wrong_variable(name: &str, spot: &Spot) -> Option<Finding> {
    variable_fault(name).map(|message| problem(spot.clone(), message))
}

fn variable_fault(name: &str) -> Option<String> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let first_fits = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    if !first_fits || !name.bytes().all(fits) {
        return Some(format!(
            "`{name}` is no variable name: letters, digits and `_` are"
        ));
    }
    if name == "CONTENT_LENGTH" {
        return Some("`CONTENT_LENGTH` is the gateway's own and cannot be changed".into());
    }
    // A client's field `Proxy` would reroute a program's requests; the loader runs what it is told.
    let is_never_given = name.eq_ignore_ascii_case("HTTP_PROXY") || name.starts_with("LD_");
    is_never_given.then(|| format!("`{name}` is never given to a program"))
}

/// Whether `env` may set a variable of this name.
#[must_use]
pub fn is_variable_name(name: &str) -> bool {
    variable_fault(name).is_none()
}

/// Whether a field of this name may be changed: it is a name, and not the gateway's own.
#[must_use]
pub fn is_changeable_field(name: &str) -> bool {
    is_token(name) && !is_own(name)
}

fn is_own(name: &str) -> bool {
    OWN.contains(&name.to_ascii_lowercase().as_str())
}

/// Whether `name` can be a field's name.
pub(crate) fn is_token(name: &str) -> bool {
    let extra = b"!#$%&'*+-.^_`|~";
    !name.is_empty()
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || extra.contains(&byte))
}

/// Fields of which each has one value.
fn single(table: &Table<'_>, key: &'static str, side: Side) -> Vec<(String, Template)> {
    let mut seen: BTreeMap<String, Spot> = BTreeMap::new();
    let mut set = Vec::new();
    for entry in table.entries(key) {
        if !name_fits(entry.name, &entry.name_spot, &entry.value, side) {
            continue;
        }
        if let Some(first) = seen.insert(entry.name.to_ascii_lowercase(), entry.name_spot.clone()) {
            let finding = problem(
                entry.name_spot,
                format!("field `{}` is set twice", entry.name),
            );
            table.context.report(finding.other("the first", first));
        }
        if let Some(template) = template(&entry.value, Purpose::Field) {
            set.push((entry.name.to_owned(), template));
        }
    }
    set
}

fn add(table: &Table<'_>, side: Side) -> Vec<(String, Template)> {
    let mut add = Vec::new();
    for entry in table.entries("add") {
        if !name_fits(entry.name, &entry.name_spot, &entry.value, side) {
            continue;
        }
        let templates = entry.value.one_or_list().into_iter();
        let templates = templates.filter_map(|value| template(&value, Purpose::Field));
        add.extend(templates.map(|template| (entry.name.to_owned(), template)));
    }
    add
}

fn remove(table: &Table<'_>, side: Side) -> Vec<String> {
    let names = table.list("remove").into_iter();
    let fitting = names.filter_map(|value| {
        let name = value.text()?;
        name_fits(name, &value.spot(), &value, side).then(|| name.to_ascii_lowercase())
    });
    fitting.collect()
}

fn name_fits(name: &str, spot: &Spot, value: &Value<'_>, side: Side) -> bool {
    if !is_token(name) {
        value.context.report(problem(
            spot.clone(),
            format!("{name:?} cannot be a field's name"),
        ));
        return false;
    }
    if is_own(name) {
        let message = format!("field `{name}` is the gateway's own and cannot be changed");
        let finding = problem(spot.clone(), message);
        let host = side == Side::Request && name.eq_ignore_ascii_case("host");
        let help = "the `host` of `proxy = { … }` says which `Host` is sent";
        value
            .context
            .report(if host { finding.help(help) } else { finding });
        return false;
    }
    true
}
