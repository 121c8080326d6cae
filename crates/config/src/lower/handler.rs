//! `handler = { … }`: exactly one of the handlers, with what belongs to it.

use super::console::console;
use super::context::problem;
use super::pool;
use super::program;
use super::redirects;
use super::script::{self, Place};
use super::table::Table;
use super::template::{Purpose, leads_somewhere, template};
use super::upstream::{self, Upstreams};
use super::value::Value;
use super::values;
use crate::keys;
use crate::model::{
    FastCgi, Handler, Protocol, Proxy, ProxyHost, ProxyTarget, Redirect, Respond, Template,
    TemplatePart,
};

/// The keys that choose a handler.
const CHOICES: [&str; 11] = [
    "static", "proxy", "fastcgi", "php", "app", "cgi", "respond", "redirect", "metrics", "console",
    "script",
];

/// The handler of a rule.
pub(crate) fn handler(value: &Value<'_>, upstreams: &mut Upstreams) -> Option<Handler> {
    let table = value.table(&keys::HANDLER)?;
    let chosen: Vec<&str> = CHOICES
        .into_iter()
        .filter(|name| table.get(name).is_some())
        .collect();
    match chosen.as_slice() {
        [_] => {}
        [] if table.has_strangers() => {}
        [] => {
            let finding = problem(value.spot(), "the handler is missing");
            let help = "one of `static`, `proxy`, `fastcgi`, `php`, `app`, `cgi`, `respond`, `redirect`, `metrics`, `console` and `script`";
            value.context.report(finding.help(help).absence());
        }
        [first, second, ..] => {
            value.report(format!(
                "a handler is one thing, not both `{first}` and `{second}`"
            ));
        }
    }
    if let Some(status) = table
        .get("status")
        .filter(|_| !chosen.contains(&"redirect"))
        .filter(|_| !chosen.is_empty() || !table.has_strangers())
    {
        status.report_help(
            "`status` belongs to `redirect`",
            "a fixed reply is `respond = { status = 200, body = \"ok\" }`",
        );
    }
    let mut handlers = [
        table.get("static").and_then(|value| static_files(&value)),
        table
            .get("proxy")
            .and_then(|value| proxy(&value, &table, upstreams)),
        table
            .get("fastcgi")
            .and_then(|value| program::fastcgi(&value, upstreams)),
        table
            .get("php")
            .and_then(|value| program::php(&value, upstreams)),
        table.get("app").and_then(|value| app(&value, upstreams)),
        table.get("cgi").and_then(|value| program::cgi(&value)),
        table.get("respond").and_then(|value| respond(&value)),
        table
            .get("redirect")
            .and_then(|value| redirect(&value, &table)),
        table
            .get("metrics")
            .and_then(|value| value.choice().map(Handler::Metrics)),
        table.get("console").and_then(|value| console(&value)),
        table
            .get("script")
            .and_then(|value| script::script(&value, Place::Content))
            .map(|script| Handler::Script(Box::new(script))),
    ];
    handlers.iter_mut().find_map(Option::take)
}

fn static_files(value: &Value<'_>) -> Option<Handler> {
    if value.as_flag() != Some(true) {
        value.report_help(
            "`static` must be `true`",
            "leave it out where files are not meant",
        );
        return None;
    }
    Some(Handler::Static)
}

fn proxy(value: &Value<'_>, handler: &Table<'_>, upstreams: &mut Upstreams) -> Option<Handler> {
    if value.is_text() && names_row(value) {
        let target = row_target(value, handler)?;
        let plain = Table::empty(value.context, &keys::PROXY);
        return Some(Handler::Proxy(Proxy {
            allow: script::allow(handler),
            ..proxy_settings(&plain, target, None)
        }));
    }
    if let Some(allow) = handler.get("allow") {
        allow.report_help(
            "`allow` beside `proxy` says to which addresses rows may lead, and no row says where to here",
            "clients are let in by the rule's own `allow`; what scripts may choose stands in `proxy = { script = …, allow = … }`",
        );
    }
    if value.is_text() {
        let target = upstreams.target(value)?;
        let plain = Table::empty(value.context, &keys::PROXY);
        let upstream = ProxyTarget::Upstream(target.upstream);
        let proxy = proxy_settings(&plain, upstream, target.prefix);
        return Some(Handler::Proxy(proxy));
    }
    let table = value.table(&keys::PROXY)?;
    let (target, url_prefix) = match table.get("script") {
        Some(script) => (chosen_by_script(&table, &script), None),
        None => match table.get("upstream").filter(names_row) {
            Some(upstream) => (row_target(&upstream, &table), None),
            None => named_upstream(&table, upstreams).unzip(),
        },
    };
    let url_prefix = url_prefix.flatten();
    if let Some(value) = table.get("path").filter(|_| url_prefix.is_some()) {
        value.report_help(
            "the URL of `upstream` has a path already",
            "keep one of the two",
        );
    }
    if let Some(value) = table.get("add_prefix").filter(|_| url_prefix.is_some()) {
        value.report_help(
            "the URL of `upstream` has a path already",
            "keep one of the two",
        );
    }
    let is_known = target.is_some();
    let target = target.unwrap_or(ProxyTarget::Upstream(0));
    let proxy = proxy_settings(&table, target, url_prefix);
    is_known.then_some(Handler::Proxy(proxy))
}

/// Whether a text is the column of a row.
fn names_row(value: &Value<'_>) -> bool {
    let text = value.is_text().then(|| value.text()).flatten();
    text.is_some_and(|text| text.starts_with("$row.") || text.starts_with("${row."))
}

/// The column that says where to, and stands beside `allow` in `table`.
fn row_target(value: &Value<'_>, table: &Table<'_>) -> Option<ProxyTarget> {
    let column = template(value, Purpose::Target)?;
    let Some(column) = column.as_row() else {
        let help = "what rows say is an address, `HOST:PORT`; a path is put before by `add_prefix`";
        value.report_help("a column says all of where to, or nothing", help);
        return None;
    };
    if script::allow(table).is_empty() && table.get("allow").is_none() {
        let message = "`allow` is missing: to which addresses may rows lead?";
        let help = "add `allow = [\"10.0.0.0/8\"]` beside it";
        let finding = problem(value.spot(), message).help(help).absence();
        value.context.report(finding);
    }
    Some(ProxyTarget::Row(column.into()))
}

/// `app = …`: what else is said of forwarding is the default of `proxy` and `fastcgi`.
fn app(value: &Value<'_>, upstreams: &mut Upstreams) -> Option<Handler> {
    let table = value.table(&keys::APP)?;
    let app = pool::app(&table);
    let protocol = app.protocol;
    let pool = upstreams.pools.app(app)?;
    let led = upstreams.lead(value, pool, protocol)?;
    let (buffer_request, bytes) = (table.flag("buffer_request"), program::buffered(&table));
    Some(match protocol {
        Protocol::Http => {
            let plain = Table::empty(value.context, &keys::PROXY);
            Handler::Proxy(Proxy {
                pool: Some(led.pool),
                buffer_request,
                buffer_reply: Some(bytes),
                ..proxy_settings(&plain, ProxyTarget::Upstream(led.upstream), None)
            })
        }
        Protocol::FastCgi => {
            let plain = Table::empty(value.context, &keys::FASTCGI);
            Handler::FastCgi(FastCgi {
                upstream: led.upstream,
                pool: Some(led.pool),
                buffer_request,
                buffer_reply_bytes: bytes,
                ..program::fastcgi_settings(&plain)
            })
        }
    })
}

fn chosen_by_script(table: &Table<'_>, script: &Value<'_>) -> Option<ProxyTarget> {
    if let Some(upstream) = table.get("upstream") {
        let finding = problem(
            upstream.spot(),
            "either `upstream` or `script` says where to, not both",
        );
        let help = "a script may name this upstream: let it end with the name";
        let finding = finding.help(help).other("the script", script.spot());
        table.context.report(finding);
    }
    let script = script::script(script, Place::Set)?;
    Some(ProxyTarget::Script(Box::new(script)))
}

/// The upstream of `proxy`, and the path of its URL.
fn named_upstream(
    table: &Table<'_>,
    upstreams: &mut Upstreams,
) -> Option<(ProxyTarget, Option<String>)> {
    if table.has_misspelt("script") {
        return None;
    }
    let target = upstreams.target(&table.required("upstream")?)?;
    Some((ProxyTarget::Upstream(target.upstream), target.prefix))
}

/// Refuses `allow` in the `proxy` of a rule at which no script may name an upstream: it must have
/// been meant for clients.
pub(crate) fn refuse_allow(rule: &Value<'_>) {
    let proxy = rule.member("handler").and_then(|it| it.member("proxy"));
    let upstream = proxy.as_ref().and_then(|proxy| proxy.member("upstream"));
    if upstream.is_some_and(|upstream| names_row(&upstream)) {
        return;
    }
    if let Some(allow) = proxy.and_then(|proxy| proxy.member("allow")) {
        let message =
            "`allow` in `proxy` says nothing without a script that may name an upstream here";
        let help = "it says what scripts may choose; clients are let in by the rule's own `allow`";
        // The script may stand where a file could not be read.
        let finding = problem(allow.spot(), message).help(help).absence();
        allow.context.report(finding);
    }
}

fn proxy_settings(table: &Table<'_>, target: ProxyTarget, url_prefix: Option<String>) -> Proxy {
    let prefix = |name| {
        let value = table.get(name)?;
        upstream::prefix(&value, value.text()?)
    };
    Proxy {
        target,
        pool: None,
        allow: script::allow(table),
        strip_prefix: prefix("strip_prefix"),
        add_prefix: prefix("add_prefix").or(url_prefix),
        path: path(table),
        host: table
            .get("host")
            .and_then(|value| proxy_host(&value))
            .unwrap_or(ProxyHost::Client),
        buffer_request: table.flag("buffer_request"),
        buffer_reply: table
            .get("buffer_reply")
            .and_then(|value| values::buffer_reply(&value)),
        tunnels: table.flag("tunnels"),
        redirects: redirects::redirects(table),
        early_hints: table.choice("early_hints"),
    }
}

/// What is asked for in the place of the client's path.
fn path(table: &Table<'_>) -> Option<Template> {
    let value = table.get("path")?;
    for name in ["strip_prefix", "add_prefix"] {
        if let Some(prefix) = table.get(name) {
            prefix.report(format!("`{name}` says nothing beside `path`"));
        }
    }
    let path = template(&value, Purpose::Target)?;
    let begins = match path.parts.first() {
        Some(TemplatePart::Text(text)) => text.starts_with('/'),
        first => matches!(
            first,
            Some(
                TemplatePart::Path
                    | TemplatePart::Uri
                    | TemplatePart::RequestUri
                    | TemplatePart::Capture(_)
                    | TemplatePart::Row(_)
            )
        ),
    };
    if !begins {
        value.report_help(
            "`path` must be a path",
            "it begins with `/`, `$path` or a group",
        );
    }
    Some(path)
}

fn proxy_host(value: &Value<'_>) -> Option<ProxyHost> {
    let text = value.text()?;
    match text {
        "client" => return Some(ProxyHost::Client),
        "upstream" => return Some(ProxyHost::Upstream),
        _ => {}
    }
    let (name, port) = match text.rsplit_once(':') {
        Some((name, port)) if !port.ends_with(']') => (name, Some(port)),
        _ => (text, None),
    };
    if port.is_some_and(|port| port.parse::<u16>().is_err()) {
        value.report(format!("`{text}` has no port from 1 to 65535"));
        return None;
    }
    let host = values::host(value, name)?;
    Some(ProxyHost::Fixed(
        port.map_or(host.clone(), |port| format!("{host}:{port}")),
    ))
}

fn respond(value: &Value<'_>) -> Option<Handler> {
    let table = value.table(&keys::RESPOND)?;
    let status = table.count("status") as u16;
    let body = table
        .get("body")
        .and_then(|value| template(&value, Purpose::Body))
        .unwrap_or_default();
    if let Some(value) = table
        .get("body")
        .filter(|_| [204, 304].contains(&status) && !body.parts.is_empty())
    {
        value.report(format!("a reply of status {status} has no body"));
    }
    let content_type = table
        .get("content_type")
        .and_then(|value| values::media_type(&value));
    let content_type =
        content_type.unwrap_or_else(|| keys::default_of(&keys::RESPOND, "content_type").to_owned());
    Some(Handler::Respond(Respond {
        status,
        body,
        content_type,
    }))
}

fn redirect(value: &Value<'_>, table: &Table<'_>) -> Option<Handler> {
    let status = table
        .get("status")
        .and_then(|value| redirect_status(&value))
        .unwrap_or(302);
    let target = template(value, Purpose::Target)?;
    if !leads_somewhere(&target) {
        let help = "it begins with `/`, `http://`, `https://` or a variable";
        value.report_help("`redirect` must be a path or a URL", help);
    }
    if lets_group_say_host(&target) {
        let help = "put a `/` before the group; one that begins with a slash brings no second";
        value.report_help(
            "neither a group nor a row may say to which host a redirect leads",
            help,
        );
    }
    Some(Handler::Redirect(Redirect { target, status }))
}

/// Whether a group stands in a URL, or behind two slashes alone, before its path begins.
fn lets_group_say_host(target: &Template) -> bool {
    let mut before = String::new();
    for part in &target.parts {
        match part {
            TemplatePart::Text(text) => before.push_str(text),
            TemplatePart::Path | TemplatePart::Uri | TemplatePart::RequestUri => before.push('/'),
            TemplatePart::Capture(_) | TemplatePart::Row(_) => {
                let rest = match before.strip_prefix("//") {
                    Some(rest) => Some(rest),
                    None => before.split_once("://").map(|(_, rest)| rest),
                };
                return rest.is_some_and(|rest| !rest.contains(['/', '?']));
            }
            _ => before.push('x'),
        }
    }
    false
}

fn redirect_status(value: &Value<'_>) -> Option<u16> {
    let status = value.count(300, 399)? as u16;
    if ![301, 302, 303, 307, 308].contains(&status) {
        value.report("a redirect's `status` must be 301, 302, 303, 307 or 308");
        return None;
    }
    Some(status)
}
