//! Pools as a whole: sockets that cannot be, and programs that could speak to every pool.

use std::os::unix::ffi::OsStrExt;

use super::context::problem;
use super::tops::Tops;
use super::value::Value;
use crate::keys;
use crate::model::{Chore, MapSource, Model, Pool};

/// What `sockaddr_un` holds, without the closing NUL.
const SOCKET_BYTES_MAX: usize = 107;

/// Refuses sockets that cannot be, and programs that could speak to every pool.
pub(crate) fn judge(tops: &Tops<'_>, model: &Model) {
    let length = |pool: &&Pool| pool.socket.as_os_str().as_bytes().len();
    if let Some(longest) = model.pools.iter().max_by_key(length)
        && length(&longest) > SOCKET_BYTES_MAX
    {
        let table = tops.table("pools", &keys::POOLS);
        let message = format!(
            "`directory` is too long for the sockets of pools: `{}` has more than {SOCKET_BYTES_MAX} bytes",
            longest.socket.display()
        );
        table.report_at(&["directory"], message);
    }
    if tops.context.sources.becomes_users && !model.pools.is_empty() {
        judge_users(tops, model);
    }
}

/// Reports programs that would run as whoever serves.
fn judge_users(tops: &Tops<'_>, model: &Model) {
    let refuse = |value: &Value<'_>, key: &str, whose: String| {
        let message = format!(
            "{whose} would run as `{}`, who serves, and could speak to every pool",
            model.user
        );
        let spot = value.member(key).map_or(value.spot(), |user| user.spot());
        let named_by = if key == "mounts" { "user" } else { key };
        let finding = problem(spot, message).help(format!("name another by `{named_by}`"));
        value.context.report(finding.absence());
    };
    let sites = tops.elements_again("sites");
    // One that is wrong has been reported.
    let is_whole = sites.len() == model.sites.len();
    for (value, site) in sites.iter().zip(&model.sites).filter(|_| is_whole) {
        let mut handlers = site.rules.iter().filter_map(|rule| rule.handler.as_ref());
        let starts = handlers.any(|handler| handler.starts_programs());
        let whose = format!("programs of site `{}`", site.name());
        let mut mounts = site.mounts.iter();
        if starts && site.user == model.user {
            refuse(value, "user", whose);
        } else if starts && mounts.any(|it| it.user.as_ref() == Some(&model.user)) {
            refuse(value, "mounts", format!("{whose} below a mount"));
        }
    }
    for value in tops.members("maps") {
        let map = model.maps.iter().find(|map| map.name == value.name);
        if let Some(MapSource::Program(program)) = map.map(|map| &map.source)
            && program.user == model.user
        {
            refuse(
                &value,
                "user",
                format!("the program of map `{}`", value.name),
            );
        }
    }
    for value in tops.members("acme") {
        let Some(acme) = model.acme.iter().find(|acme| acme.name == value.name) else {
            continue;
        };
        let dns = acme.dns.as_ref().map(|dns| &dns.program);
        let run = acme.export.as_ref().and_then(|export| export.run.as_ref());
        let is_servers = |chore: &&Chore| chore.user == model.user;
        for (table, key, chore) in [("dns", "user", dns), ("export", "owner", run)] {
            if let (Some(value), Some(_)) = (value.member(table), chore.filter(is_servers)) {
                let whose = format!("the program of `{table}` of account `{}`", acme.name);
                refuse(&value, key, whose);
            }
        }
    }
}
