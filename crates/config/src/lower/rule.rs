//! `[[sites.rules]]` and its `match`.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::cgroup::{Enforcement, cgroup};
use super::context::problem;
use super::limits::{Forwards, Level, limits};
use super::map;
use super::script;
use super::site::settings;
use super::table::Table;
use super::upstream::Upstreams;
use super::value::{Entry, Value};
use super::{fields, handler, values};
use crate::keys;
use crate::model::{Condition, Glob, Handler, Rule, Settings};

/// Levels of `not` within each other.
const NESTED_MAX: usize = 8;
/// Memory of a compiled regular expression.
const REGEX_BYTES_MAX: usize = 1 << 20;

/// What of its site a rule must know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SiteFiles {
    /// The site has a `root`.
    Rooted,
    /// It has none.
    Rootless,
}

/// A rule, the `number`th of its site, from 1.
pub(crate) fn rule(
    value: &Value<'_>,
    number: usize,
    files: SiteFiles,
    above: Enforcement,
    upstreams: &mut Upstreams,
) -> Option<Rule> {
    let table = value.table(&keys::RULE)?;
    let conditions = table
        .get("match")
        .map(|value| conditions(&value, files, 0))
        .unwrap_or_default();
    let handler = table
        .get("handler")
        .and_then(|value| handler::handler(&value, upstreams));
    let found_before = table.context.found();
    let settings = settings(&table);
    let forwards = Forwards::of(&table, handler.as_ref());
    let limits = limits(table.get("limits"), Level::Rule(files, forwards));
    let scripts = script::level(table.get("scripts"), script::Level::Rule);
    let adds_settings = settings != Settings::default();
    let adds_nothing = !adds_settings && limits.is_empty() && scripts.is_empty();
    let is_idle = adds_nothing && table.context.found() == found_before;
    if files == SiteFiles::Rootless {
        report_missing_root(&table, handler.as_ref());
    }
    let enforcement = Enforcement::of(&table, above);
    let cgroup = cgroup(&table, enforcement);
    report_unbound_cgroup(&table, handler.as_ref());
    if table.get("handler").is_none() && is_idle && !table.has_strangers() {
        let finding = problem(table.spot(), "the rule does nothing");
        table.context.report(
            finding
                .help("add a `handler`, or what the rule is to add")
                .absence(),
        );
    }
    Some(Rule {
        name: name(&table, number),
        is_named: table.get("name").is_some(),
        conditions,
        handler,
        settings: Arc::new(settings),
        limits,
        cgroup,
        scripts,
    })
}

/// Reports a handler that needs the site's files, in a site without.
fn report_missing_root(table: &Table<'_>, handler: Option<&Handler>) {
    let message = match handler {
        Some(Handler::Static) => "the site has no `root` to serve files from",
        Some(Handler::Cgi(_)) => "the site has no `root` to start programs from",
        Some(Handler::FastCgi(_)) => "the site has no `root` in which the program is looked for",
        _ => return,
    };
    let spot = table.get("handler").map(|value| value.spot());
    let finding = problem(spot.unwrap_or_else(|| table.spot()), message);
    let help = "add `root` to the site";
    table.context.report(finding.help(help).absence());
}

/// Reports a `cgroup` that would bind nothing.
fn report_unbound_cgroup(table: &Table<'_>, handler: Option<&Handler>) {
    let Some(value) = table.get("cgroup") else {
        return;
    };
    match handler {
        Some(Handler::FastCgi(_) | Handler::Proxy(_)) => value.report_help(
            "`cgroup` binds only programs that the gateway starts, and this rule forwards to others' processes",
            "limit those where they are started, as with `CPUQuota=` of their systemd service",
        ),
        Some(_) => {}
        // A handler that could not be read has been reported.
        None if table.get("handler").is_some() || table.has_misspelt("handler") => {}
        None => value.report_help(
            "`cgroup` stands on a rule without a `handler` and binds nothing",
            "put it on the rule that starts the program, or on the site",
        ),
    }
}

fn name(table: &Table<'_>, number: usize) -> String {
    let default = || format!("rule {number}");
    let Some(value) = table.get("name") else {
        return default();
    };
    let Some(name) = value.text() else {
        return default();
    };
    if name.is_empty() || name.chars().any(char::is_control) {
        value.report("a rule's `name` must be text without control characters");
    }
    name.to_owned()
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
    for name in ["file", "exists"] {
        if let Some(value) = table.get(name).filter(|_| files == SiteFiles::Rootless) {
            let finding = problem(value.spot(), format!("`{name}` needs a `root` in the site"));
            value.context.report(finding.absence());
        }
    }
    let mut found: Vec<Option<Condition>> = vec![
        table
            .get("file")
            .and_then(|value| values::glob(&value).map(Condition::File)),
        table.get("path").and_then(|value| path(&value)),
        table.get("path_regex").and_then(|value| path_regex(&value)),
        table.get("method").and_then(|value| methods(&value)),
        table.get("client").and_then(|value| clients(&value)),
        table
            .get("exists")
            .and_then(|value| value.flag().map(Condition::Exists)),
    ];
    found.extend(headers(&table));
    found.extend(queries(&table));
    found.push(map::condition(&table));
    if let Some(not) = table.get("not") {
        let inner = conditions(&not, files, depth + 1);
        found.push((!inner.is_empty()).then_some(Condition::Not(inner)));
    }
    if found.iter().all(Option::is_none) && !table.has_anything() {
        value.report_help(
            format!("`{}` is empty", value.name),
            "leave it out to match every request",
        );
    }
    found.into_iter().flatten().collect()
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
            found.push(glob_or_true(&entry.value).map(|glob| Condition::Header(name, glob)));
        }
    }
    found
}

fn queries(table: &Table<'_>) -> Vec<Option<Condition>> {
    let condition = |entry: Entry<'_>| {
        let glob = glob_or_true(&entry.value)?;
        Some(Condition::Query(entry.name.to_owned(), glob))
    };
    some_entries(table, "query")
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

fn path(value: &Value<'_>) -> Option<Condition> {
    let glob = values::glob(value)?;
    if glob.0.contains('?') && glob.0.contains('=') {
        let help = "the path has no query; match it with `query = { name = \"value\" }`";
        value.report_help("`path` holds a query", help);
    }
    Some(Condition::Path(glob))
}

fn path_regex(value: &Value<'_>) -> Option<Condition> {
    let text = value.text()?;
    let compiled = regex::bytes::RegexBuilder::new(text)
        .size_limit(REGEX_BYTES_MAX)
        .build();
    let why = match compiled {
        Ok(_) => return Some(Condition::PathRegex(text.to_owned())),
        Err(regex::Error::CompiledTooBig(_)) => "it is too large".to_owned(),
        Err(error) => {
            let text = error.to_string();
            let last = text.lines().last().unwrap_or_default();
            last.trim().trim_start_matches("error: ").to_owned()
        }
    };
    value.report(format!("bad regular expression: {why}"));
    None
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

/// A glob over a value, or `None` inside where being there is enough.
fn glob_or_true(value: &Value<'_>) -> Option<Option<Glob>> {
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
        None if value.is_text() => values::glob(value).map(Some),
        None => {
            value.mistyped("a glob or `true`");
            None
        }
    }
}
