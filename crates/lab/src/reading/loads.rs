//! How requests are sent: `[load]`, and what a row changes of it.

use std::time::Duration;

use super::super::model::{Arrivals, Failures, Load, Rate, Window};
use super::super::source::{Table, Value};
use load::client::{TlsResume, TlsVersion};

/// The addresses 127.1.0.1 to 127.1.255.250.
const CLIENTS_MAX: u64 = 64_000;

pub(super) const KEYS: &str = "\
    connections keep_alive requests_per_connection seconds requests blocks warm_up_seconds \
    rate arrivals ramp_seconds timeout_seconds deadline_ms failures restart_blocks \
    rest_seconds windows streams clients tls_names tls_resume tls_version \
    tls_groups";

impl Default for Load {
    fn default() -> Load {
        Load {
            connections: 64,
            keep_alive: true,
            requests_per_connection: None,
            seconds: 2.0,
            requests: None,
            blocks: 10,
            warm_up: Duration::from_millis(300),
            rate: Rate::Full,
            arrivals: Arrivals::Poisson,
            ramp: Duration::ZERO,
            timeout: Duration::from_secs(30),
            deadline: None,
            failures: Failures::Status,
            restart_blocks: 0,
            rest: Duration::ZERO,
            windows: Vec::new(),
            streams: None,
            clients: 1,
            tls_names: 1,
            tls_resume: TlsResume::Never,
            tls_version: None,
            tls_groups: Vec::new(),
        }
    }
}

/// What the table says, the rest as in `base`.
pub(super) fn load(table: &Table<'_>, base: &Load) -> Load {
    let seconds = |key: &str, default: Duration| {
        let given = table.number(key, 0.0, 3600.0);
        given.map_or(default, Duration::from_secs_f64)
    };
    let count = |key: &str, least, most| table.count(key, least, most);
    let whole = |key: &str, least, most, default: usize| {
        count(key, least, most).map_or(default, |number| number as usize)
    };
    let per_connection = count("requests_per_connection", 1, 1_000_000_000);
    let length = table.number("seconds", 0.05, 3600.0);
    let length = length.unwrap_or(base.seconds);
    Load {
        connections: whole("connections", 1, 20_000, base.connections),
        keep_alive: table.flag("keep_alive").unwrap_or(base.keep_alive),
        requests_per_connection: per_connection
            .map(|number| number as u32)
            .or(base.requests_per_connection),
        seconds: length,
        requests: count("requests", 1, 1_000_000_000_000).or(base.requests),
        blocks: whole("blocks", 1, 1000, base.blocks),
        warm_up: seconds("warm_up_seconds", base.warm_up),
        rate: table
            .get("rate")
            .and_then(|value| rate(&value))
            .unwrap_or(base.rate),
        arrivals: table
            .get("arrivals")
            .and_then(|value| {
                value.one_of(&[
                    ("poisson", Arrivals::Poisson),
                    ("constant", Arrivals::Constant),
                    ("bursts", Arrivals::Bursts),
                ])
            })
            .unwrap_or(base.arrivals),
        ramp: seconds("ramp_seconds", base.ramp),
        timeout: seconds("timeout_seconds", base.timeout),
        deadline: count("deadline_ms", 1, 3_600_000)
            .map(Duration::from_millis)
            .or(base.deadline),
        failures: table
            .get("failures")
            .and_then(|value| {
                value.one_of(&[("status", Failures::Status), ("broken", Failures::Broken)])
            })
            .unwrap_or(base.failures),
        restart_blocks: whole("restart_blocks", 0, 1000, base.restart_blocks),
        rest: seconds("rest_seconds", base.rest),
        windows: table
            .get("windows")
            .map_or_else(|| base.windows.clone(), |value| windows(&value, length)),
        streams: streams(table).or(base.streams),
        clients: clients(table).unwrap_or(base.clients),
        tls_names: tls_names(table).unwrap_or(base.tls_names),
        tls_resume: table
            .get("tls_resume")
            .and_then(|value| {
                value.one_of(&[("never", TlsResume::Never), ("always", TlsResume::Always)])
            })
            .unwrap_or(base.tls_resume),
        tls_version: table
            .get("tls_version")
            .and_then(|value| value.one_of(&[("1.2", TlsVersion::V12), ("1.3", TlsVersion::V13)]))
            .or(base.tls_version),
        tls_groups: match table.has("tls_groups") {
            true => table.texts("tls_groups"),
            false => base.tls_groups.clone(),
        },
    }
}

/// Addresses that connections come from.
pub(super) fn clients(table: &Table<'_>) -> Option<u32> {
    let found = table.count("clients", 1, CLIENTS_MAX);
    found.map(|count| count as u32)
}

/// Requests at a time on each connection of HTTP/2.
fn streams(table: &Table<'_>) -> Option<usize> {
    let found = table.count("streams", 1, 1_000);
    found.map(|count| count as usize)
}

/// Names that TLS asks for.
pub(super) fn tls_names(table: &Table<'_>) -> Option<u32> {
    let found = table.count("tls_names", 1, 100_000);
    found.map(|count| count as u32)
}

/// `{ halved = [40, 60] }`: names, and seconds from and until.
fn windows(value: &Value<'_>, length: f64) -> Vec<Window> {
    let one = |(name, value): (String, Value<'_>)| {
        let bounds = value.list();
        let bounds: Vec<f64> = bounds
            .iter()
            .filter_map(|bound| bound.number(0.0, 3600.0))
            .collect();
        match *bounds.as_slice() {
            [from, until] if from < until && until <= length => Some(Window { name, from, until }),
            _ => {
                value.report(format!(
                    "`{name}` is [from, until] in seconds of the slice, which has {length}"
                ));
                None
            }
        }
    };
    value.entries().into_iter().filter_map(one).collect()
}

/// `5000`, `"full"`, or `{ share = 0.5 }` of what the slowest variant does flat out.
pub(super) fn rate(value: &Value<'_>) -> Option<Rate> {
    if value.is_text() {
        return value.one_of(&[("full", Rate::Full)]);
    }
    if value.is_table() {
        let table = value.table("`rate`", "share")?;
        let share = table.required("share", "share = 0.5")?.number(0.01, 10.0)?;
        return Some(Rate::Share(share));
    }
    value.number(0.1, 10_000_000.0).map(Rate::PerSecond)
}
