//! What a site and a rule may set alike.

use std::collections::BTreeSet;

use ipnet::IpNet;

use super::conditions::SiteFiles;
use super::context::problem;
use super::denied::denied;
use super::fields::{self, Side};
use super::files;
use super::table::Table;
use super::value::Value;
use super::values;
use crate::keys;
use crate::model::{Compress, Expires, LevelCaps, LevelTimeouts, Lifetime, Settings};

/// The longest that a reply may be kept: ten years, as other servers' `max`.
const LIFETIME_MS_MAX: u64 = 3_650 * 24 * 3_600_000;

/// The settings of a level.
pub(crate) fn settings(table: &Table<'_>, files: SiteFiles) -> Settings {
    let (deny, deny_files) = denied(table);
    Settings {
        request_headers: fields::edits(table.get("request_headers"), Side::Request),
        reply_headers: fields::edits(table.get("reply_headers"), Side::Reply),
        expires: table.get("expires").and_then(|value| expires(&value)),
        allow: allowed(table),
        deny,
        deny_files,
        auth: table.get("auth").and_then(|value| files::auth(&value)),
        env: fields::env(table.entries("env"), files),
        caps: table
            .table("caps", &keys::LEVEL_CAPS)
            .numbers(&LevelCaps::FIELDS),
        timeouts: table
            .table("timeouts", &keys::LEVEL_TIMEOUTS)
            .numbers(&LevelTimeouts::FIELDS),
    }
}

/// How long replies may be kept: for all types, or by type.
fn expires(value: &Value<'_>) -> Option<Expires> {
    if !value.is_table() {
        let default = lifetime(value)?;
        return Some(Expires {
            types: Vec::new(),
            default,
        });
    }
    let mut expires = Expires {
        types: Vec::new(),
        default: Lifetime::Unsaid,
    };
    let mut seen = BTreeSet::new();
    for entry in value.entries() {
        let name = entry.name.to_ascii_lowercase();
        let fits = |(kind, form)| fields::is_token(kind) && kind != "*" && fields::is_token(form);
        if name != "default" && !name.split_once('/').is_some_and(fits) {
            let message = format!("`{}` is no media type", entry.name);
            let help = "one looks like `text/css` or `image/*`; `default` stands for the others";
            let finding = problem(entry.name_spot, message);
            value.context.report(finding.help(help));
        } else if !seen.insert(name.clone()) {
            let message = format!("`{}` stands in `expires` twice", entry.name);
            value.context.report(problem(entry.name_spot, message));
        } else if let Some(lifetime) = lifetime(&entry.value) {
            match &*name {
                "default" => expires.default = lifetime,
                _ => expires.types.push((name, lifetime)),
            }
        }
    }
    Some(expires)
}

fn lifetime(value: &Value<'_>) -> Option<Lifetime> {
    let word = value.is_text().then(|| value.text()).flatten();
    match word {
        Some("off") => Some(Lifetime::Unsaid),
        Some("epoch") => Some(Lifetime::Past),
        Some("max") => Some(Lifetime::Seconds(LIFETIME_MS_MAX / 1_000)),
        Some(word) if !word.starts_with(|it: char| it.is_ascii_digit()) => {
            let message = format!("`{word}` is no time that replies are kept for");
            value.report_help(
                message,
                "a duration such as \"7d\", `off`, `epoch` or `max`",
            );
            None
        }
        _ => {
            let ms = value.duration(0, LIFETIME_MS_MAX)?;
            Some(Lifetime::Seconds(ms / 1_000))
        }
    }
}

/// Which replies of a site are compressed.
pub(crate) fn compress(table: &Table<'_>) -> Compress {
    let types = table.get("types").and_then(|value| value.list());
    Compress {
        types: types.map(|list| media_types(&list)),
        min_bytes: table.size("min_bytes") as usize,
        level: table.count("level") as u32,
        programs: table.flag("programs"),
    }
}

/// Which replies of a rule are compressed: what its table leaves out is as its site says.
pub(crate) fn compress_of_rule(table: &Table<'_>, site: &Compress) -> Compress {
    let mut own = compress(table);
    let is_left_out = |name| table.get(name).is_none();
    if is_left_out("types") {
        own.types.clone_from(&site.types);
    }
    if is_left_out("min_bytes") {
        own.min_bytes = site.min_bytes;
    }
    if is_left_out("level") {
        own.level = site.level;
    }
    if is_left_out("programs") {
        own.programs = site.programs;
    }
    own
}

fn media_types(list: &[Value<'_>]) -> Vec<String> {
    let media_type = |value: &Value<'_>| {
        let media_type = values::media_type(value)?;
        if media_type.contains(';') {
            value.report("media types stand in `types` without parameters");
            return None;
        }
        Some(media_type.to_ascii_lowercase())
    };
    list.iter().filter_map(media_type).collect()
}

/// The clients let in. A list emptied by hand would let everybody in, which nobody means.
fn allowed(table: &Table<'_>) -> Vec<IpNet> {
    let Some(value) = table.get("allow") else {
        return Vec::new();
    };
    if value.is_list() && value.list().is_some_and(|list| list.is_empty()) {
        value.report_help("`allow` names nobody", "leave it out to let everybody in");
    }
    values::clients(&value)
}
