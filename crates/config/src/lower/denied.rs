//! `deny`: clients that are kept out, by network and by files that name further ones.

use std::path::Path;

use ipnet::IpNet;

use super::table::Table;
use super::value::Value;
use super::values;
use crate::keys;

/// Files that name clients, of all levels: each is watched.
const FILES_MAX: usize = 1_000;

/// Clients that a level keeps out, and the files that name others, by their index in the model.
pub(crate) fn denied(table: &Table<'_>) -> (Vec<IpNet>, Vec<usize>) {
    let Some(value) = table.get("deny") else {
        return Default::default();
    };
    if value.is_text() {
        return (values::clients(&value), Vec::new());
    }
    let (files, networks): (Vec<_>, Vec<_>) =
        value.one_or_list().into_iter().partition(Value::is_table);
    let networks = networks.iter().filter_map(values::network);
    (networks.collect(), files.iter().filter_map(file).collect())
}

fn file(value: &Value<'_>) -> Option<usize> {
    let named = value.table(&keys::DENY_FILE)?.required("file")?;
    let path = values::path(&named)?;
    tell_of_file(&named, &path);
    let mut known = value.context.denied.borrow_mut();
    let at = known.iter().position(|file| *file == path);
    if at.is_none() {
        if known.len() >= FILES_MAX {
            named.report(format!("there are more than {FILES_MAX} files of clients"));
            return None;
        }
        known.push(path);
    }
    Some(at.unwrap_or(known.len() - 1))
}

/// Tells what is wrong with a file, where it was looked at.
fn tell_of_file(value: &Value<'_>, path: &Path) {
    let name = path.display();
    let (message, help) = match value.context.sources.client_files.get(path) {
        Some(Err(why)) => (
            format!("cannot read the clients of `{name}`: {why}"),
            "a gateway that has read it goes on with what it said; one that starts without it lets nobody in where it counts, and none names it anew",
        ),
        Some(Ok(bad)) if bad.count > 0 => (
            format!(
                "`{name}:{}`: no address or network; lines like it: {}",
                bad.first, bad.count
            ),
            "at the start the others count; while the gateway runs the file counts again when all of its lines are right",
        ),
        Some(Ok(_)) | None => return,
    };
    value.warn_help(message, help);
}
