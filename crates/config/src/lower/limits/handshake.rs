//! What a limit of handshakes cannot say: when it is asked there is no request, no path and no file yet.

use super::Level;
use super::key::spell;
use crate::lower::context::problem;
use crate::lower::table::Table;
use crate::model::LimitKey;

/// Keys that say nothing of a handshake, and what to do.
const IDLE: &[(&str, &str)] = &[
    (
        "queue",
        "handshakes wait in a queue of their own, which is always there",
    ),
    (
        "wait",
        "handshakes wait in a queue of their own, for `timeouts.handshake` at most",
    ),
    (
        "late",
        "handshakes wait in a queue of their own, for `timeouts.handshake` at most",
    ),
    (
        "match",
        "there is no request yet: make it a limit of requests, without `on`",
    ),
    ("tunnels", "leave it out"),
    (
        "status",
        "a handshake ends with an alert of TLS, which has no status",
    ),
    (
        "page",
        "a handshake ends with an alert of TLS, which has no page",
    ),
];

/// Reports what makes no sense for a limit of handshakes.
pub(super) fn judge(table: &Table<'_>, level: Level, keys: &[LimitKey]) {
    let on = table.get("on");
    let spot = on.map_or_else(|| table.spot(), |value| value.spot());
    if matches!(level, Level::Rule(..) | Level::Upstream) {
        let message = format!("a limit on {} cannot count handshakes", level.words());
        let help = "put it on the top level, on `[tenants.NAME]` or on a site";
        table.context.report(problem(spot, message).help(help));
        return;
    }
    let odd = keys.iter().find(|key| {
        use LimitKey::{Client, Const, Process, Site, Tenant};
        !matches!(key, Process | Tenant | Site | Client | Const(_))
    });
    if let Some(odd) = odd {
        let spot = table.get("key").map_or(spot, |value| value.spot());
        let message = format!("a limit of handshakes cannot count by `{}`", spell(odd));
        let help = "`client`, `site`, `tenant`, `process` and `const:TEXT` are known by then";
        table.context.report(problem(spot, message).help(help));
    }
    for (name, help) in IDLE {
        if let Some(value) = table.get(name) {
            let message = format!("`{name}` says nothing beside `on = \"handshake\"`");
            value.report_help(message, *help);
        }
    }
    if let Some(value) = table.get("concurrent").filter(|value| value.is_text()) {
        value.report_help(
            "`concurrent` of handshakes is a number",
            "as in `concurrent = 20`",
        );
    }
}
