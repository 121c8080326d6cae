//! `fastcgi`, `php` and `cgi`: handlers that run programs, and the variables they give them.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::context::{Spot, problem};
use super::fields;
use super::table::Table;
use super::template::{Purpose, template};
use super::upstream::Upstreams;
use super::value::Value;
use super::values::{self, buffer_reply};
use crate::keys::{self, Section};
use crate::model::{Cgi, FastCgi, Handler, Protocol, Rlimits, Template};
use crate::units;

/// `fastcgi = …`.
pub(crate) fn fastcgi(value: &Value<'_>, upstreams: &mut Upstreams) -> Option<Handler> {
    if value.is_text() {
        let upstream = upstreams.fastcgi(value)?;
        let plain = Table::empty(value.context, &keys::FASTCGI);
        return Some(Handler::FastCgi(FastCgi {
            upstream,
            ..fastcgi_settings(&plain)
        }));
    }
    let table = value.table(&keys::FASTCGI)?;
    let address = table.required("address");
    let upstream = address.and_then(|value| upstreams.fastcgi(&value));
    let root = table.get("root").and_then(|value| foreign_root(&value));
    let settings = fastcgi_settings(&table);
    upstream.map(|upstream| {
        Handler::FastCgi(FastCgi {
            upstream,
            root,
            ..settings
        })
    })
}

/// `php = …`.
pub(crate) fn php(value: &Value<'_>, upstreams: &mut Upstreams) -> Option<Handler> {
    if value.is_text() {
        value.report_help(
            "`php` must be `true` or a table",
            "a php-fpm that runs already is named by `fastcgi = \"unix:/PATH\"`",
        );
        return None;
    }
    let table = true_or_table(value, &keys::PHP_HANDLER)?;
    let settings = fastcgi_settings(&table);
    if value.context.has_rows.get() {
        upstreams.pools.php_of_rows(value)?;
        return Some(Handler::FastCgi(FastCgi {
            of_row: true,
            ..settings
        }));
    }
    let pool = upstreams.pools.php(value)?;
    let led = upstreams.lead(value, pool, Protocol::FastCgi)?;
    Some(Handler::FastCgi(FastCgi {
        upstream: led.upstream,
        pool: Some(led.pool),
        ..settings
    }))
}

/// A handler that is `true`, or a table of `section`.
fn true_or_table<'a>(value: &Value<'a>, section: &'static Section) -> Option<Table<'a>> {
    match value.as_flag() {
        Some(true) => Some(Table::empty(value.context, section)),
        Some(false) => {
            value.report_help(
                format!("`{}` must be `true` or a table", value.name),
                "leave it out where no program is meant",
            );
            None
        }
        None if value.is_table() => value.table(section),
        None => {
            value.mistyped("`true` or a table");
            None
        }
    }
}

/// `cgi = …`.
pub(crate) fn cgi(value: &Value<'_>) -> Option<Handler> {
    let table = true_or_table(value, &keys::CGI)?;
    Some(Handler::Cgi(Box::new(Cgi {
        timeout_ms: table.duration("timeout"),
        params: params(&table),
        buffer_request: table.flag("buffer_request"),
        buffer_reply_bytes: buffered(&table),
        abort_on_close: table.flag("abort_on_close"),
        limits: Rlimits {
            cpu_s: cpu_time(&table),
            memory_bytes: table.some_number("memory"),
            files: table.some_number("files"),
            processes: table.some_number("processes"),
            file_size_bytes: table.some_number("file_size"),
        },
    })))
}

/// What all handlers say that speak FastCGI.
pub(crate) fn fastcgi_settings(table: &Table<'_>) -> FastCgi {
    FastCgi {
        upstream: 0,
        pool: None,
        of_row: false,
        root: None,
        params: params(table),
        buffer_request: table.flag("buffer_request"),
        buffer_reply_bytes: buffered(table),
        abort_on_close: table.flag("abort_on_close"),
    }
}

/// A directory of another machine or container, which nobody here can look at.
fn foreign_root(value: &Value<'_>) -> Option<PathBuf> {
    if !value.text()?.starts_with('/') {
        value.report_help(
            "`root` must be an absolute path",
            "it is the site's root as the server sees it, as in `/var/www/html`",
        );
        return None;
    }
    values::path(value)
}

/// `buffer_reply` of a handler that says how much by default, as all do that run programs.
pub(crate) fn buffered(table: &Table<'_>) -> u64 {
    let default = keys::default_of(&keys::FASTCGI, "buffer_reply").trim_matches('"');
    let written = table
        .get("buffer_reply")
        .and_then(|value| buffer_reply(&value));
    written.unwrap_or_else(|| units::parse_size(default).unwrap_or_default())
}

fn cpu_time(table: &Table<'_>) -> Option<u64> {
    let ms = table.some_number("cpu_time")?;
    if !ms.is_multiple_of(1_000) {
        table.report_at(&["cpu_time"], "`cpu_time` must be whole seconds");
    }
    Some(ms / 1_000)
}

/// `params = { … }`: what is set, then what is left out.
fn params(table: &Table<'_>) -> Vec<(String, Option<Template>)> {
    let table = table.table("params", &keys::PARAMS);
    let mut seen: BTreeMap<&str, Spot> = BTreeMap::new();
    let mut params = Vec::new();
    for entry in table.entries("set") {
        if let Some(finding) = fields::wrong_variable(entry.name, &entry.name_spot) {
            table.context.report(finding);
        } else if let Some(template) = template(&entry.value, Purpose::Variable) {
            params.push((entry.name.to_owned(), Some(template)));
        }
        seen.insert(entry.name, entry.name_spot);
    }
    for value in table.list("remove") {
        let Some(name) = value.text() else {
            continue;
        };
        if let Some(finding) = fields::wrong_variable(name, &value.spot()) {
            table.context.report(finding);
        } else if let Some(first) = seen.insert(name, value.spot()) {
            let finding = problem(value.spot(), format!("variable `{name}` is named twice"));
            table
                .context
                .report(finding.other("first named here", first));
        } else {
            params.push((name.to_owned(), None));
        }
    }
    params
}
