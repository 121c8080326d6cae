//! `hosts = { directory = … }`: a site that every host has which has a row.
//!
//! The idea: such a site is read as any other, with columns of rows in its texts; what it says of its hosts,
//! tenant, user, plan and root is said again by each row. What cannot yet be a row's is refused by name.

use std::collections::{BTreeSet, HashSet};

use super::cgroup::Enforcement;
use super::conditions::SiteFiles;
use super::context::problem;
use super::plan::Plans;
use super::table::Table;
use super::template::{Purpose, template};
use super::tenant::{Found, Tenants};
use super::value::Value;
use super::values;
use crate::keys;
use crate::model::{
    Handler, HostPattern, Limit, LimitOn, RowRoot, Rule, SiteRows, Template, TemplatePart,
};

/// Keys of a site that rows do not have yet.
const NOT_YET: [&str; 3] = ["cgroup", "cgroup_required", "mounts"];
/// Keys of a site's `pool` that they do not have: a row's pool is its own, and ends when it is idle.
const OF_POOL: [&str; 2] = ["share", "min"];
/// Handlers that they do not have yet.
const HANDLERS_NOT_YET: [&str; 2] = ["app", "fastcgi"];
/// Keys of a site's `tls` that they have: of the others each handshake needs to know before there is a row.
const TLS: [&str; 4] = ["redirect", "hsts", "certificate", "acme"];

/// What rows say of a site, where its hosts are a directory's.
pub(super) fn of_site(table: &Table<'_>, plans: &Plans) -> Option<SiteRows> {
    let hosts = table.get("hosts").filter(|hosts| hosts.is_table())?;
    let directory = directory(&hosts.table(&keys::HOSTS)?);
    let tenant = table.required_as("tenant", "tenant = \"$row.tenant\"");
    let tenant = tenant.and_then(|value| tenant_of(&value));
    let user = table.get("user");
    let has_user = user.as_ref().is_some_and(names_user);
    let plan = table.get("plan").and_then(|value| plan(&value, plans));
    let root = root(table, has_user);
    let tls = table.get("tls");
    let certificate = tls.and_then(|tls| certificate(&tls.member("certificate")?));
    let (directory, name) = directory?;
    Some(SiteRows {
        directory,
        name,
        tenant: tenant?,
        has_user,
        plan,
        root,
        certificate,
        columns: BTreeSet::new(),
    })
}

/// The directory of this name, and its index.
fn directory(hosts: &Table<'_>) -> Option<(usize, String)> {
    values::directory_named(&hosts.required("directory")?)
}

fn tenant_of(value: &Value<'_>) -> Option<Template> {
    let tenant = template(value, Purpose::Target)?;
    if !tenant.has_rows() || !is_of_rows(&tenant) {
        let help = "as in `tenant = \"$row.tenant\"`: whose each is says its row";
        value.report_help("`tenant` names no column of the row", help);
    }
    Some(tenant)
}

/// Whether nothing but texts and columns stands in it.
fn is_of_rows(template: &Template) -> bool {
    let mut parts = template.parts.iter();
    parts.all(|part| matches!(part, TemplatePart::Text(_) | TemplatePart::Row(_)))
}

fn names_user(value: &Value<'_>) -> bool {
    let user = template(value, Purpose::Target);
    if user
        .as_ref()
        .is_some_and(|user| user.as_row() != Some("user"))
    {
        let help =
            "write `user = \"$row.user\"`: who owns the files is looked up where rows are judged";
        value.report_help("the user of a row is its column `user`", help);
    }
    user.is_some()
}

/// The column that names a certificate.
fn certificate(value: &Value<'_>) -> Option<String> {
    let column = template(value, Purpose::Target)?;
    if column.as_row().is_none() {
        let help = "as in `certificate = \"$row.certificate\"`: what it names is one of those of `[tls] certificates`";
        value.report_help("the certificate of a row is a column of it", help);
    }
    column.as_row().map(str::to_owned)
}

fn plan(value: &Value<'_>, plans: &Plans) -> Option<Template> {
    let plan = template(value, Purpose::Target)?;
    match plan.parts.as_slice() {
        [TemplatePart::Text(name)] => {
            plans.index(value, name)?;
        }
        _ if is_of_rows(&plan) => {}
        _ => value.report("`plan` is the name of a plan, with columns of the row at most"),
    }
    Some(plan)
}

fn root(table: &Table<'_>, has_user: bool) -> Option<RowRoot> {
    let value = table.get("root")?;
    if !has_user {
        let message = "`root` needs `user = \"$row.user\"`: the files must be the row's user's";
        table
            .context
            .report(problem(value.spot(), message).absence());
    }
    let path = directory_of(&value);
    let within = match table.get("within") {
        Some(value) => directory_of(&value),
        None => path.clone(),
    };
    Some(RowRoot {
        path: path?,
        within: within?,
        symlinks: table.choice("symlinks"),
    })
}

/// An absolute path with columns in it.
fn directory_of(value: &Value<'_>) -> Option<Template> {
    let path = template(value, Purpose::Variable)?;
    let begins =
        matches!(path.parts.first(), Some(TemplatePart::Text(text)) if text.starts_with('/'));
    let is_known = |part: &TemplatePart| {
        matches!(
            part,
            TemplatePart::Text(_) | TemplatePart::Row(_) | TemplatePart::Host
        )
    };
    if !begins || !path.parts.iter().all(is_known) {
        let help = "as in `\"/var/www/$row.user\"`";
        let message = format!(
            "`{}` of rows is an absolute path with columns and `$host` at most",
            value.name
        );
        value.report_help(message, help);
    }
    let climbs = |part: &TemplatePart| match part {
        TemplatePart::Text(text) => text.split('/').any(|name| name == ".."),
        _ => false,
    };
    if path.parts.iter().any(climbs) {
        value.report("`..` leads out of where the files are");
    }
    Some(path)
}

/// Whether rows make a site of this.
pub(super) fn make(table: &Table<'_>) -> bool {
    table.context.has_rows.get()
}

/// What a site is called first.
pub(super) fn first_host(rows: Option<&SiteRows>, hosts: &[HostPattern]) -> String {
    match rows {
        Some(rows) => rows.site_name(),
        None => hosts
            .first()
            .map(HostPattern::to_string)
            .unwrap_or_default(),
    }
}

/// Whose it is; where rows say that, with as many limits as one of them may have.
pub(super) fn whose<'a>(
    table: &Table<'_>,
    first_host: &str,
    (tenants, plans): (&'a Tenants, &Plans),
    above: Enforcement,
) -> Found<'a> {
    let of_rows = make(table);
    let said = table.get("tenant").filter(|_| !of_rows);
    let mut found = tenants.find(said, first_host, above);
    if of_rows {
        found.limits = plans.most_limits();
    }
    found
}

/// Refuses what rows do not have yet, and what they alone have.
pub(super) fn judge(table: &Table<'_>, limits: &[Limit], rules: (&[Rule], &[Value<'_>])) {
    match make(table) {
        true => {
            refuse_later(table, rules);
            judge_limits(table, limits);
        }
        false => refuse_plan(table),
    }
}

fn refuse_later(table: &Table<'_>, rules: (&[Rule], &[Value<'_>])) {
    let refuse = |value: &Value<'_>| {
        value.report_help(
            format!("`{}` is not there yet for sites of a directory", value.name),
            "write a site of its own for hosts that need it: exact names come before rows",
        );
    };
    for name in NOT_YET {
        if let Some(value) = table.get(name) {
            refuse(&value);
        }
    }
    for value in table.get("tls").iter().flat_map(Value::members) {
        if !TLS.contains(&value.name) {
            refuse(&value);
        }
    }
    let pool = table.get("pool");
    for name in OF_POOL {
        if let Some(value) = pool.as_ref().and_then(|pool| pool.member(name)) {
            refuse(&value);
        }
    }
    judge_programs(table, rules.0);
    if let Some(error) = table.get("log").and_then(|log| log.member("error")) {
        refuse(&error);
    }
    for value in rules.1 {
        let handler = value.member("handler");
        let handlers = HANDLERS_NOT_YET.iter();
        let handlers = handlers.filter_map(|name| handler.as_ref()?.member(name));
        handlers
            .chain(value.member("cgroup"))
            .for_each(|value| refuse(&value));
    }
    let of_rules = rules.0.iter().flat_map(|rule| &*rule.limits);
    if of_rules
        .into_iter()
        .any(|limit| limit.on == LimitOn::Handshake)
    {
        table.report_at(
            &["rules"],
            "limits of handshakes are not there yet for sites of a directory",
        );
    }
}

/// Refuses programs of nobody, and such as files are not there for.
fn judge_programs(table: &Table<'_>, rules: &[Rule]) {
    let mut handlers = rules.iter().filter_map(|rule| rule.handler.as_ref());
    let root = table.get("root");
    if handlers.any(Handler::starts_programs) && (root.is_none() || table.get("user").is_none()) {
        let message = "programs of rows need a `root` and `user = \"$row.user\"`, whom they run as";
        table
            .context
            .report(problem(table.spot(), message).absence());
    }
}

/// Refuses a second site of the same rows.
pub(super) fn note(value: &Value<'_>, rows: Option<&SiteRows>, noted: &mut HashSet<usize>) {
    if let Some(rows) = rows.filter(|rows| !noted.insert(rows.directory)) {
        let why = format!("the rows of directory `{}` make another site", rows.name);
        value.report(why);
    }
}

/// Refuses a plan of a site that no row makes.
fn refuse_plan(table: &Table<'_>) {
    if let Some(plan) = table.get("plan") {
        plan.report_help(
            "`plan` stands on sites of a directory",
            "write it on the site's tenant: `[tenants.NAME]`",
        );
    }
}

/// Refuses limits of handshakes: those come before the row.
pub(super) fn judge_limits(table: &Table<'_>, limits: &[Limit]) {
    if limits.iter().any(|limit| limit.on == LimitOn::Handshake) {
        table.report_at(
            &["limits"],
            "`on = \"handshake\"` is not there yet for sites and plans of rows",
        );
    }
}

/// Whether requests to it may have files.
pub(super) fn files(rows: Option<&SiteRows>, otherwise: SiteFiles) -> SiteFiles {
    match rows {
        Some(SiteRows { root: None, .. }) => SiteFiles::Rootless,
        Some(_) => SiteFiles::Rooted,
        None => otherwise,
    }
}
