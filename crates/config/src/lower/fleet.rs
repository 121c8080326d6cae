//! `[fleet]`.

use super::context::problem;
use super::directory::{address, is_here};
use super::server_url::{ServerOptions, has_password};
use super::tops::Tops;
use super::user::{Role, wrong_user};
use super::value::Value;
use crate::diagnostics::masked;
use crate::keys;
use crate::model::{Concurrent, Fleet, FleetStore, Model, OnLoss, ServerAddress};

/// Databases that may be named.
const DATABASE_MAX: u32 = 65_535;
const PORT: u16 = 6_379;
const SENTINEL_PORT: u16 = 26_379;
/// A lease in which machines hear of a failover from Sentinels and claim what they hold, and long beside any network's way.
const LONG_LEASE_MS: u64 = 5_000;
/// Sentinels that may be named.
const SENTINELS_MAX: usize = 16;

/// What is shared, where anything is. The gateway sends a password there, so nobody who may be set aside says where.
pub(super) fn fleet(tops: &Tops<'_>) -> Option<Fleet> {
    let value = tops.single("fleet")?;
    if value.file != 0 {
        value.report_help(
            "`fleet` stands in the first file alone",
            "the gateway reads a password for it, and sends it away: included files do not choose where",
        );
    }
    let table = value.table(&keys::FLEET)?;
    let store = table.required("store").and_then(|value| store(&value));
    let machine = table.get("machine").and_then(|value| {
        let name = value.text()?;
        if !Fleet::is_machine_name(name) {
            value.report(format!(
                "`{name}` cannot be a machine's name: letters, digits, `-`, `_` and `.` can"
            ));
        }
        Some(name.to_owned())
    });
    let user = table.get("user").and_then(|value| {
        let name = value.text()?;
        if let Some((message, help)) = wrong_user(value.context.sources, Role::Files, name) {
            value.report_help(message, help);
        }
        Some(name.to_owned())
    });
    Some(Fleet {
        store: store?,
        machine,
        lease_ms: table.duration("lease"),
        machines: u32::try_from(table.count("machines")).unwrap_or(u32::MAX),
        user,
    })
}

/// `redis://USER@HOST:PORT,…/DATABASE?…`.
fn store(value: &Value<'_>) -> Option<FleetStore> {
    let text = value.text()?;
    let Some(rest) = text.strip_prefix("redis://") else {
        let help = "it looks like `redis://127.0.0.1:6379/0`, for Valkey too";
        value.report_help(format!("`{}` is no store", masked(text)), help);
        return None;
    };
    let (url, options) = rest.split_once('?').unwrap_or((rest, ""));
    let (account, database) = url.split_once('/').unwrap_or((url, ""));
    let (user, authority) = match account.rsplit_once('@') {
        Some((user, authority)) => (Some(user), authority),
        None => (None, account),
    };
    if user.is_some_and(|user| has_password(value, user, "/etc/nagaya/valkey")) {
        return None;
    }
    let database = match database {
        "" => Some(0),
        number => number.parse().ok().filter(|number| *number <= DATABASE_MAX),
    };
    if database.is_none() {
        value.report(format!("a database is a number, at most {DATABASE_MAX}"));
    }
    let mut options = ServerOptions::of(value, options, "store");
    let port = match options.sentinel {
        Some(_) => SENTINEL_PORT,
        None => PORT,
    };
    let addresses = || {
        let each = authority.split(',').take(SENTINELS_MAX + 1);
        each.map(|it| address(value, it, port)).collect()
    };
    let addresses = options.addresses(value, (authority, "store"), addresses)?;
    let most = options.sentinel.as_ref().map_or(1, |_| SENTINELS_MAX);
    if addresses.len() > most {
        let help = "only Sentinels are several: `redis://a,b,c/0?sentinel=NAME`";
        value.report_help(format!("a store has {most} addresses at most"), help);
    }
    let store = FleetStore {
        addresses,
        sentinel: options.sentinel,
        user: user.filter(|user| !user.is_empty()).map(str::to_owned),
        password_file: options.password_file,
        database: database?,
        tls: options.tls,
        authorities: options.authorities,
    };
    if store.user.is_some() && store.password_file.is_none() {
        value.report_help(
            "who logs in by name has a password",
            "name the file that has it: `?password_file=/etc/nagaya/valkey`",
        );
    }
    warn_of_reach(value, &store);
    Some(store)
}

/// Whether the store may be another machine.
fn is_far(store: &FleetStore) -> bool {
    let is_near = |it: &ServerAddress| matches!(it, ServerAddress::Unix(_)) || is_here(it);
    // Sentinels that are near say nothing of how far the store is.
    store.sentinel.is_some() || !store.addresses.iter().all(is_near)
}

fn warn_of_reach(value: &Value<'_>, store: &FleetStore) {
    if !store.tls && is_far(store) {
        let message = "the store may be another machine and is not asked over TLS: whoever is on the way may have the password, and say who holds what";
        let finding = problem(value.spot(), message.to_owned());
        let help = "add `tls=on` to it, or keep it to a network of your own";
        value.context.warn(finding.help(help));
    }
}

/// Reports what is wrong with limits that several machines share.
pub(super) fn judge(tops: &Tops<'_>, model: &Model) {
    let Some(fleet) = &model.fleet else {
        return;
    };
    let Some(value) = tops.single("fleet") else {
        return;
    };
    if !model.all_limits().any(|limit| limit.fleet.is_some()) {
        let finding = problem(
            value.spot(),
            "no limit has `scope = \"fleet\"`: the store counts nothing",
        );
        let help =
            "add it to the limits that are to hold over all machines, or leave `[fleet]` out";
        value.context.warn(finding.help(help));
    }
    let few = model.all_limits().find(|limit| {
        let is_few =
            matches!(limit.concurrent, Some(Concurrent::Fixed(count)) if count < fleet.machines);
        is_few && limit.fleet == Some(OnLoss::Share)
    });
    if let Some(limit) = few {
        let message = format!(
            "the limit {:?} has fewer permits than there are machines: while the store is away no machine has one",
            limit.name
        );
        let finding = problem(value.spot(), message);
        let help = "say `on_loss = \"open\"` of it, or `\"closed\"` where that is meant";
        value.context.warn(finding.help(help));
    }
    if fleet.lease_ms < LONG_LEASE_MS && is_far(&fleet.store) {
        let (message, help) = match fleet.store.sentinel {
            Some(_) => (
                "Sentinels may differ for two seconds about where the store is: with a lease this short, machines can count by two stores",
                "have `lease` be 5s or more, the default",
            ),
            None => (
                "this lease is short for a store that may be far: it should be ten times what an answer takes at the longest",
                "ask `nagaya fleet check` what it takes from here, or have `lease` be 5s, the default",
            ),
        };
        let finding = problem(value.spot(), message.to_owned());
        value.context.warn(finding.help(help));
    }
    let directory = model.directories.first();
    if fleet.user.is_some() && directory.is_some_and(|it| it.user != fleet.user) {
        value.report_help(
            "directories name another `user`",
            "one process asks databases and the store: name it for directories alone",
        );
    }
}
