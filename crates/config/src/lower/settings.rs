//! What a site and a rule may set alike.

use ipnet::IpNet;

use super::fields::{self, Side};
use super::files;
use super::table::Table;
use super::values;
use crate::model::Settings;

/// The settings of a level.
pub(crate) fn settings(table: &Table<'_>) -> Settings {
    let denied = table.get("deny").map(|value| values::networks(&value));
    Settings {
        request_headers: fields::edits(table.get("request_headers"), Side::Request),
        reply_headers: fields::edits(table.get("reply_headers"), Side::Reply),
        allow: allowed(table),
        deny: denied.unwrap_or_default(),
        auth: table.get("auth").and_then(|value| files::auth(&value)),
        env: fields::env(table.entries("env")),
    }
}

/// The clients let in. A list emptied by hand would let everybody in, which nobody means.
fn allowed(table: &Table<'_>) -> Vec<IpNet> {
    let Some(value) = table.get("allow") else {
        return Vec::new();
    };
    if value.is_list() && value.list().is_some_and(|list| list.is_empty()) {
        value.report_help("`allow` names nobody", "leave it out to let everybody in");
    }
    values::networks(&value)
}
