//! `match`: the conditions of rules, limits and shedding.

use std::collections::BTreeSet;

use super::context::problem;
use super::expressions::expression;
use super::table::Table;
use super::template::{Purpose, is_column_byte, template};
use super::value::{Entry, Value};
use super::{fields, values};
use crate::keys;
use crate::model::{Condition, Glob, MapMatch, Template, TextMatch};

/// Levels of `not` within each other.
const NESTED_MAX: usize = 8;

/// Keys of a match that say something beside `map` alone.
const OF_MAPS: [&str; 5] = ["key", "above", "below", "equals", "answered"];

/// What of its site a rule must know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SiteFiles {
    /// The site has a `root`.
    Rooted,
    /// It has none.
    Rootless,
}

/// Conditions of a rule or a limit.
pub(crate) fn conditions(value: &Value<'_>, files: SiteFiles, depth: usize) -> Vec<Condition> {
    if depth > NESTED_MAX {
        value.report(format!(
            "`not` stands in `not` more than {NESTED_MAX} times"
        ));
        return Vec::new();
    }
    let Some(table) = value.table(&keys::MATCH) else {
        return Vec::new();
    };
    for name in ["file", "file_regex", "exists", "cost_above"] {
        if let Some(value) = table.get(name).filter(|_| files == SiteFiles::Rootless) {
            let finding = problem(value.spot(), format!("`{name}` needs a `root` in the site"));
            value.context.report(finding.absence());
        }
    }
    let mut found: Vec<Option<Condition>> = vec![
        table
            .get("file")
            .and_then(|value| globs(&value).map(Condition::File)),
        table
            .get("file_regex")
            .and_then(|value| expression(&value).map(Condition::FileRegex)),
        table.get("path").and_then(|value| paths(&value)),
        table
            .get("path_regex")
            .and_then(|value| expression(&value).map(Condition::PathRegex)),
        table.get("method").and_then(|value| methods(&value)),
        table.get("client").and_then(|value| clients(&value)),
        table
            .get("exists")
            .and_then(|value| value.flag().map(Condition::Exists)),
        table
            .get("server_env")
            .and_then(|value| Some(Condition::ServerEnv(value.text()?.to_owned()))),
        table.some_number("cost_above").map(Condition::CostAbove),
        table.get("row").and_then(|value| row(&value)),
    ];
    found.extend(headers(&table));
    found.extend(queries(&table));
    found.extend(cookies(&table));
    found.push(of_map(&table));
    if let Some(value) = table.get("not") {
        let nots = value.one_or_list();
        if nots.is_empty() {
            value.report("`not` is empty: leave it out");
        }
        for not in nots {
            let inner = conditions(&not, files, depth + 1);
            found.push((!inner.is_empty()).then_some(Condition::Not(inner)));
        }
    }
    if found.iter().all(Option::is_none) && !table.has_anything() {
        value.report_help(
            format!("`{}` is empty", value.name),
            "leave it out to match every request",
        );
    }
    found.into_iter().flatten().collect()
}

/// A column in which the row that makes the site says something.
fn row(value: &Value<'_>) -> Option<Condition> {
    let name = value.text()?;
    if !value.context.has_rows.get() {
        let help = "rows make sites with `hosts = { directory = \"NAME\" }`";
        value.report_help("`row` says nothing here: no row makes this", help);
        return None;
    }
    if name.is_empty() || !name.bytes().all(is_column_byte) {
        value.report(format!("{name:?} is no name of a column"));
        return None;
    }
    value.context.columns.borrow_mut().insert(name.to_owned());
    Some(Condition::Row(name.to_owned()))
}

fn headers(table: &Table<'_>) -> Vec<Option<Condition>> {
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for entry in some_entries(table, "header") {
        let name = entry.name.to_ascii_lowercase();
        if !fields::is_token(&name) {
            let message = format!("{name:?} cannot be a field's name");
            table.context.report(problem(entry.name_spot, message));
        } else if !seen.insert(name.clone()) {
            let message = format!("field `{}` is matched twice", entry.name);
            table.context.report(problem(entry.name_spot, message));
        } else {
            found.push(text_or_true(&entry.value).map(|text| Condition::Header(name, text)));
        }
    }
    found
}

fn queries(table: &Table<'_>) -> Vec<Option<Condition>> {
    let condition = |entry: Entry<'_>| {
        let text = text_or_true(&entry.value)?;
        Some(Condition::Query(entry.name.to_owned(), text))
    };
    some_entries(table, "query")
        .into_iter()
        .map(condition)
        .collect()
}

fn cookies(table: &Table<'_>) -> Vec<Option<Condition>> {
    let condition = |entry: Entry<'_>| {
        if !fields::is_token(entry.name) {
            let message = format!("{:?} cannot be a cookie's name", entry.name);
            table.context.report(problem(entry.name_spot, message));
            return None;
        }
        let text = text_or_true(&entry.value)?;
        Some(Condition::Cookie(entry.name.to_owned(), text))
    };
    some_entries(table, "cookie")
        .into_iter()
        .map(condition)
        .collect()
}

/// The entries of a table that must not be empty: without a condition a rule would match everything.
fn some_entries<'a>(table: &Table<'a>, name: &'static str) -> Vec<Entry<'a>> {
    let entries = table.entries(name);
    if let Some(value) = table
        .get(name)
        .filter(|value| value.is_table() && entries.is_empty())
    {
        value.report(format!("`{name}` is empty"));
    }
    entries
}

/// A glob, or a list of which one has to match.
fn globs(value: &Value<'_>) -> Option<Vec<Glob>> {
    let elements = value.one_or_list();
    if elements.is_empty() {
        value.report(format!("`{}` names no pattern", value.name));
    }
    let globs: Vec<_> = elements.iter().filter_map(values::glob).collect();
    (!globs.is_empty()).then_some(globs)
}

fn paths(value: &Value<'_>) -> Option<Condition> {
    for element in value.one_or_list() {
        let text = element.is_text().then(|| element.text()).flatten();
        if text.is_some_and(|text| text.contains('?') && text.contains('=')) {
            let help = "the path has no query; match it with `query = { name = \"value\" }`";
            element.report_help("`path` holds a query", help);
        }
    }
    globs(value).map(Condition::Path)
}

fn methods(value: &Value<'_>) -> Option<Condition> {
    let mut methods = Vec::new();
    let elements = value.one_or_list();
    for element in &elements {
        let Some(name) = element.text() else {
            continue;
        };
        if !fields::is_token(name) {
            element.report(format!("{name:?} is no method"));
        } else if name.bytes().any(|byte| byte.is_ascii_lowercase()) {
            let finding = problem(
                element.spot(),
                format!("method `{name}` never comes: methods are in capitals"),
            );
            element
                .context
                .report(finding.meant(Some(&name.to_ascii_uppercase())));
        } else {
            methods.push(name.to_owned());
        }
    }
    if elements.is_empty() {
        value.report("`method` names no method");
    }
    (!methods.is_empty()).then_some(Condition::Method(methods))
}

fn clients(value: &Value<'_>) -> Option<Condition> {
    if value.is_list() && value.list().is_some_and(|list| list.is_empty()) {
        value.report("`client` names no network");
    }
    let networks = values::networks(value);
    (!networks.is_empty()).then_some(Condition::Client(networks))
}

/// A glob over a value or a regular expression, or `None` inside where being there is enough.
fn text_or_true(value: &Value<'_>) -> Option<Option<TextMatch>> {
    match value.as_flag() {
        Some(true) => Some(None),
        Some(false) => {
            let help = format!(
                "for its absence write `not = {{ … = {{ {} = true }} }}`",
                value.name
            );
            value.report_help(format!("`{}` must be a glob or `true`", value.name), help);
            None
        }
        None if value.is_text() => {
            let glob = values::glob(value)?;
            Some(Some(TextMatch::Glob(glob)))
        }
        None if value.is_table() => {
            let table = value.table(&keys::TEXT_MATCH)?;
            let regex = expression(&table.required("regex")?)?;
            Some(Some(TextMatch::Regex(regex)))
        }
        None => {
            value.mistyped("a glob or `true`");
            None
        }
    }
}

/// What `map` and the keys beside it ask; `None` where there is no map, or it was reported.
fn of_map(table: &Table<'_>) -> Option<Condition> {
    let Some(value) = table.get("map") else {
        for name in OF_MAPS {
            if let Some(stray) = table.get(name) {
                let help = "name the map beside it: `map = \"NAME\"`";
                stray.report_help(format!("`{name}` says nothing without `map`"), help);
            }
        }
        return None;
    };
    let name = value.text()?;
    let map = values::map_named(&value, name, value.spot());
    let key = table.get("key");
    // It is asked before the rule is known to match.
    let key = key.map_or(Some(Template::default()), |key| {
        let read = || template(&key, Purpose::Key);
        key.context.where_groups_are_of(None, read)
    });
    let compared = ["above", "below", "equals"].map(|name| table.get(name));
    let [above, below, equals] = &compared;
    let answered = table.flag("answered");
    if let (false, Some(stray)) = (answered, compared.iter().flatten().next()) {
        let message = format!(
            "`{}` asks for an answer, `answered = false` for none",
            stray.name
        );
        stray.report(message);
    }
    let condition = MapMatch {
        map: map?,
        name: name.to_owned(),
        key: key?,
        answered,
        above: above.as_ref().and_then(Value::number),
        below: below.as_ref().and_then(Value::number),
        equals: equals.as_ref().and_then(Value::text).map(str::to_owned),
    };
    if let (Some(least), Some(most), Some(below)) = (condition.above, condition.below, below)
        && least >= most
    {
        below.report(format!("no number is above {least} and below {most}"));
    }
    Some(Condition::Map(Box::new(condition)))
}
