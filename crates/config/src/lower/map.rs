//! `[maps.NAME]`, and what rules and texts ask maps.
//!
//! The idea: maps are read before all else, so that a rule or a text that names one can be told
//! at once that there is none.

use std::path::Path;

use super::command::command;
use super::context::problem;
use super::table::Table;
use super::tops::{Tops, once_each};
use super::user::{Role, wrong_user};
use super::value::Value;
use super::values;
use crate::keys;
use crate::model::{Map, MapCache, MapProgram, MapSource};

/// Maps there may be.
const MAPS_MAX: usize = 1_000;
/// Keys that say something of programs alone.
const OF_PROGRAMS: [&str; 8] = [
    "user",
    "processes",
    "timeout",
    "waiting",
    "cache",
    "cache_entries",
    "cache_bytes",
    "on_error",
];

/// Takes in every `[maps.NAME]`; `user` is the server's.
pub(crate) fn define_all(tops: &Tops<'_>, user: &str) -> Vec<Map> {
    let mut maps: Vec<Map> = Vec::new();
    for value in once_each(tops.members("maps"), ("map", "maps"), MAPS_MAX) {
        maps.push(map(&value, user));
    }
    let names = maps.iter().map(|map| map.name.clone());
    *tops.context.maps.borrow_mut() = names.collect();
    maps
}

fn map(value: &Value<'_>, user: &str) -> Map {
    let name = value.name;
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if name.is_empty() || !name.bytes().all(fits) {
        value.report(format!(
            "`{name}` cannot be a map's name: letters, digits, `-`, `_` and `.` can"
        ));
    }
    let table = value.table(&keys::MAP);
    let is_table = table.is_some();
    let table = table.unwrap_or_else(|| Table::empty(value.context, &keys::MAP));
    if is_table {
        check_source(&table);
    }
    let source = match table.get("file") {
        Some(value) => {
            let path = values::path(&value).unwrap_or_default();
            tell_of_file(&value, &path);
            MapSource::File(path)
        }
        None => MapSource::Program(program(&table, user)),
    };
    Map {
        name: name.to_owned(),
        source,
        key_bytes: table.size("key_bytes") as usize,
        answer_bytes: table.size("answer_bytes") as usize,
    }
}

/// Tells what is wrong with a map's file, where it was looked at.
fn tell_of_file(value: &Value<'_>, path: &Path) {
    let name = path.display();
    match value.context.sources.map_files.get(path) {
        Some(Err(why)) => value.report(format!("cannot read the map's file `{name}`: {why}")),
        Some(Ok(bad)) if bad.count > 0 => {
            let first = bad.first;
            let more = match bad.count - 1 {
                0 => String::new(),
                more => format!(", and {more} more of these"),
            };
            let message = format!("`{name}:{first}`: a key without a value{more}");
            let help = "it is left out: write the value behind the key, or begin the line with `#`";
            value.warn_help(message, help);
        }
        Some(Ok(_)) | None => {}
    }
}

/// One of both says the answers, and nothing is said of the other.
fn check_source(table: &Table<'_>) {
    match (table.get("program"), table.get("file")) {
        (None, None) => {
            let misspelt = table.has_misspelt("program") || table.has_misspelt("file");
            if !misspelt {
                let finding = problem(table.spot(), "the map has neither `program` nor `file`");
                let help =
                    "add `program = [\"perl\", \"loadaverage.pl\"]` or `file = \"moved.txt\"`";
                table.context.report(finding.help(help).absence());
            }
        }
        (Some(program), Some(file)) => {
            let finding = problem(file.spot(), "a map has a `program` or a `file`, not both");
            let finding = finding.other("the program", program.spot());
            table.context.report(finding);
        }
        (None, Some(_)) => {
            for name in OF_PROGRAMS {
                if let Some(stray) = table.get(name) {
                    stray.report_help(
                        format!("`{name}` says nothing of a `file`"),
                        "leave it out: it is for programs",
                    );
                }
            }
        }
        (Some(_), None) => {}
    }
}

fn program(table: &Table<'_>, server_user: &str) -> MapProgram {
    let written = table.get("user");
    let own = written.and_then(|value| {
        let name = value.text()?;
        if let Some((message, help)) = wrong_user(value.context.sources, Role::Programs, name) {
            value.report_help(message, help);
        }
        Some(name.to_owned())
    });
    let cache = table.some_number("cache").map(|ms| MapCache {
        ms,
        entries: table.count("cache_entries") as usize,
        bytes: table.size("cache_bytes") as usize,
    });
    let sources = table.context.sources;
    MapProgram {
        command: table.get("program").map(command).unwrap_or_default(),
        directory: sources.resolve(table.file, ""),
        has_own_user: own.is_some(),
        user: own.unwrap_or_else(|| server_user.to_owned()),
        processes: table.count("processes") as usize,
        timeout_ms: table.duration("timeout"),
        waiting: table.count("waiting") as usize,
        cache,
        on_error: table.get("on_error").and_then(on_error),
    }
}

fn on_error(value: Value<'_>) -> Option<String> {
    let text = value.text()?;
    if text.chars().any(char::is_control) {
        value.report("`on_error` must be a line of text");
    }
    Some(text.to_owned())
}
