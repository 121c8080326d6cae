//! `class = [ … ]` of a tenant: which of its requests come before which.

use std::collections::HashSet;
use std::sync::Arc;

use super::conditions::{SiteFiles, conditions};
use super::context::problem;
use super::table::Table;
use super::value::Value;
use crate::keys;
use crate::model::{CLASSES_MAX, RequestClass};

/// Longest name.
const NAME_BYTES_MAX: usize = 64;

/// The classes of a tenant.
pub(crate) fn classes(table: &Table<'_>) -> Arc<[RequestClass]> {
    let entries = table.list("class");
    if let Some(value) = table.get("class").filter(|_| entries.len() > CLASSES_MAX) {
        let count = entries.len();
        value.report(format!(
            "{count} classes stand here, and a tenant can have {CLASSES_MAX} at most"
        ));
    }
    let mut names = HashSet::new();
    let classes = (1..).zip(&entries);
    let classes = classes.filter_map(|(number, value)| class(value, number, &mut names));
    classes.take(CLASSES_MAX).collect()
}

fn class(value: &Value<'_>, number: usize, names: &mut HashSet<String>) -> Option<RequestClass> {
    let table = value.table(&keys::CLASS)?;
    let name = name(&table).unwrap_or_else(|| format!("class {number}"));
    if !names.insert(name.clone()) {
        table.report_at(&["name"], format!("two classes are called `{name}`"));
    }
    let wanted = table.required("match")?;
    Some(RequestClass {
        name,
        conditions: conditions(&wanted, SiteFiles::Rooted, 0),
        weight: table.count("weight") as u32,
    })
}

fn name(table: &Table<'_>) -> Option<String> {
    let value = table.get("name")?;
    let name = value.text()?;
    let fits = (1..=NAME_BYTES_MAX).contains(&name.len()) && !name.chars().any(char::is_control);
    if !fits {
        let finding = problem(
            value.spot(),
            "a class's `name` must be a short text without control characters",
        );
        value.context.report(finding);
        return None;
    }
    Some(name.to_owned())
}
