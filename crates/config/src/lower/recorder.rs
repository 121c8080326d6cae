//! `[recorder]`.

use std::path::PathBuf;

use super::context::problem;
use super::directory;
use super::tops::Tops;
use super::user::{Role, wrong_user};
use super::value::Value;
use super::values;
use crate::keys;
use crate::model::Recorder;

/// Keys of queries, and names of groups.
const NAMES_MAX: usize = 100;
/// Bytes of each.
const NAME_BYTES_MAX: usize = 100;

/// What is recorded, where anything is. The gateway writes there, so nobody who may be set aside says
/// where.
pub(super) fn recorder(tops: &Tops<'_>) -> Option<Recorder> {
    let value = tops.single("recorder")?;
    if value.file != 0 {
        value.report_help(
            "`recorder` stands in the first file alone",
            "the gateway writes there: included files do not choose the place",
        );
    }
    let table = value.table(&keys::RECORDER)?;
    let directory = table.required("directory").and_then(|value| {
        let path = values::path(&value)?;
        values::require_directory(&value, &path);
        Some(path)
    })?;
    let exclude = table.get("exclude").map(|value| values::networks(&value));
    let searches = table.get("search").map(|value| {
        let keys = value.list().unwrap_or_default();
        bounded(&value, keys.len());
        keys.iter().filter_map(short).collect()
    });
    let groups = table.entries("groups");
    if let Some(value) = table.get("groups") {
        bounded(&value, groups.len());
    }
    let groups = groups.iter().filter_map(|entry| {
        let name = short(&entry.value)?;
        Some((entry.name.to_ascii_lowercase(), name))
    });
    let user = table.get("user").and_then(|value| {
        let name = value.text()?;
        if let Some((message, help)) = wrong_user(value.context.sources, Role::Files, name) {
            value.report_help(message, help);
        }
        Some(name.to_owned())
    });
    Some(Recorder {
        directory,
        salt: table.choice("salt"),
        exclude: exclude.unwrap_or_default(),
        exclude_cookie: table.get("exclude_cookie").and_then(|value| cookie(&value)),
        do_not_track: table.flag("do_not_track"),
        searches: searches.unwrap_or_else(Recorder::usual_searches),
        groups: groups.collect(),
        countries: table.get("countries").and_then(|value| countries(&value)),
        user,
        nice: i32::try_from(table.count("nice")).unwrap_or(0),
        send: table
            .get("send")
            .and_then(|value| directory::archive(&value)),
    })
}

/// A file that is wrong costs countries alone.
fn countries(value: &Value<'_>) -> Option<PathBuf> {
    let path = values::path(value)?;
    if let Some(Err(why)) = value.context.sources.country_files.get(&path) {
        let message = format!("cannot tell countries by `{}`: {why}", path.display());
        let help = "all else is recorded; the file is read again with the next reload";
        let warning = problem(value.spot(), message).help(help);
        value.context.warn(warning);
    }
    Some(path)
}

fn bounded(value: &Value<'_>, count: usize) {
    if count > NAMES_MAX {
        value.report(format!(
            "`{}` has more than {NAMES_MAX} entries",
            value.name
        ));
    }
}

fn short(value: &Value<'_>) -> Option<String> {
    let text = value.text()?;
    let fits = (1..=NAME_BYTES_MAX).contains(&text.len()) && !text.chars().any(char::is_control);
    if !fits {
        value.report(format!(
            "a text of 1 to {NAME_BYTES_MAX} bytes without control characters is expected"
        ));
    }
    fits.then(|| text.to_owned())
}

/// A cookie's name is a token (RFC 6265, 4.1.1).
fn cookie(value: &Value<'_>) -> Option<String> {
    let name = short(value)?;
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if !name.bytes().all(is_token) {
        value.report(format!("`{name}` cannot be a cookie's name"));
        return None;
    }
    Some(name)
}
