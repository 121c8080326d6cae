//! `[[sites.rules]]`.

use std::sync::Arc;

use super::cgroup::{Enforcement, cgroup};
use super::conditions::{SiteFiles, conditions};
use super::console;
use super::context::problem;
use super::handler;
use super::limits::{Forwards, Level, limits};
use super::rewrite::rewrites;
use super::script;
use super::settings::{compress_of_rule, settings};
use super::table::Table;
use super::upstream::Upstreams;
use super::value::Value;
use super::values;
use crate::keys;
use crate::model::{Compress, Condition, Handler, LogTarget, Rule, Settings};

/// A rule, the `number`th of its site, from 1.
pub(crate) fn rule(
    value: &Value<'_>,
    number: usize,
    files: SiteFiles,
    compress: &Compress,
    above: Enforcement,
    upstreams: &mut Upstreams,
) -> Option<Rule> {
    let table = value.table(&keys::RULE)?;
    let conditions = table
        .get("match")
        .map(|value| conditions(&value, files, 0))
        .unwrap_or_default();
    let groups = Rule::groups_of(&conditions).map(str::to_owned);
    let rest = || {
        with_conditions(
            &table,
            (number, files),
            conditions,
            compress,
            above,
            upstreams,
        )
    };
    let context = table.context;
    Some(context.where_groups_are_of(groups.as_deref(), rest))
}

/// What a rule says beside its conditions, whose groups may stand in it.
fn with_conditions(
    table: &Table<'_>,
    (number, files): (usize, SiteFiles),
    conditions: Vec<Condition>,
    compress: &Compress,
    above: Enforcement,
    upstreams: &mut Upstreams,
) -> Rule {
    let handler = table
        .get("handler")
        .and_then(|value| handler::handler(&value, upstreams))
        .map(|handler| console::placed(handler, &conditions, table));
    let found_before = table.context.found();
    let settings = settings(table, files);
    let rewrites = rewrites(table, files);
    report_idle(table);
    let own = table.get("compress");
    let own = own.and_then(|value| value.table(&keys::COMPRESS));
    let compress = own.map(|table| Arc::new(compress_of_rule(&table, compress)));
    let forwards = Forwards::of(table, handler.as_ref());
    let limits = limits(table.get("limits"), Level::Rule(files, forwards));
    let scripts = script::level(table.get("scripts"), script::Level::Rule);
    let adds_settings =
        settings != Settings::default() || compress.is_some() || !rewrites.is_empty();
    let log = log(table);
    let adds_nothing = !adds_settings && limits.is_empty() && scripts.is_empty() && log.is_none();
    let is_idle = adds_nothing && table.context.found() == found_before;
    if files == SiteFiles::Rootless {
        report_missing_root(table, handler.as_ref());
    }
    let enforcement = Enforcement::of(table, above);
    let cgroup = cgroup(table, enforcement);
    report_unbound_cgroup(table, handler.as_ref());
    if table.get("handler").is_none() && is_idle && !table.has_strangers() {
        let finding = problem(table.spot(), "the rule does nothing");
        table.context.report(
            finding
                .help("add a `handler`, or what the rule is to add")
                .absence(),
        );
    }
    Rule {
        name: name(table, number),
        is_named: table.get("name").is_some(),
        conditions,
        rewrites,
        handler,
        log,
        settings: Arc::new(settings),
        compress,
        limits,
        cgroup,
        scripts,
    }
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
        Some(handler) if handler.has_pool() => value.report_help(
            "`cgroup` of a rule does not bind a pool, which is the site's",
            "put it on the site, or on the tenant",
        ),
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

/// Where the records of requests go that it matches.
fn log(table: &Table<'_>) -> Option<LogTarget> {
    let value = table.table("log", &keys::RULE_LOG).get("access")?;
    values::log_of_site(&value)
}

/// Reports a wait for the next request, of which a rule knows nothing.
fn report_idle(table: &Table<'_>) {
    let timeouts = table.get("timeouts");
    if let Some(value) = timeouts.and_then(|timeouts| timeouts.member("idle")) {
        value.report_help(
            "`idle` says nothing on a rule: between two requests no rule is chosen",
            "put it into the `timeouts` of the site",
        );
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
