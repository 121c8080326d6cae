//! What to raise where something fills up that can be raised, and what that costs in memory.
//!
//! The idea: commands with the machine's own numbers in them, to be typed as they are. Twice what
//! there is, is what is proposed: it is enough until somebody has found out why.

use std::path::Path;

use config::model::sensor::Gauge;
use os::sensors::{ENTRY_BYTES, conntrack_number, port_range};

use crate::figures::{bytes, count};

/// Bytes of kernel memory a connection's descriptor takes: file, inode and socket, buffers of what
/// is under way not counted.
pub const CONNECTION_BYTES: u64 = 4 * 1_024;
/// What is fuller while somebody looks has little room for the busiest hour.
const FILL_MAX: f64 = 0.5;
/// Bytes of a bucket of the table of connections.
const BUCKET_BYTES: u64 = 8;
/// Local ports that can be had: those below belong to services.
const PORTS_FIRST: u16 = 10_240;
const PORTS_LAST: u16 = 65_535;

/// What can be done about one sensor.
#[derive(Debug, Clone, PartialEq)]
pub struct Advice {
    /// The sensor.
    pub gauge: Gauge,
    /// How much of what there may be is in use, from 0 to 1, where one number says that.
    pub fill: Option<f64>,
    /// How much there is, in words.
    pub state: String,
    /// The commands.
    pub commands: Vec<String>,
    /// What they cost.
    pub cost: String,
}

impl Advice {
    /// Whether there is room enough; where no number says that, there may not be.
    pub fn has_room(&self) -> bool {
        self.has_room_by(None)
    }

    /// The same, by what its sensor says where nothing else does.
    pub(super) fn has_room_by(&self, sensor: Option<f64>) -> bool {
        self.fill.or(sensor).is_some_and(|fill| fill < FILL_MAX)
    }
}

/// The state of the table of connections.
#[derive(Debug, Clone, Copy)]
struct Conntrack {
    count: u64,
    most: u64,
    buckets: u64,
}

/// What can be done here; of descriptors, where there is a gateway that has some: how many are
/// open, and how many may be.
pub(super) fn here(descriptors: Option<(u64, u64)>) -> Vec<Advice> {
    let text = |path: &str| std::fs::read_to_string(Path::new("/proc/sys").join(path));
    let of_table = |name: &str| {
        let text = text(&format!("net/netfilter/nf_conntrack_{name}"));
        conntrack_number(&text.ok()?)
    };
    let conntrack = || {
        Some(Conntrack {
            count: of_table("count")?,
            // 0 is as many as it takes.
            most: of_table("max").filter(|most| *most > 0)?,
            buckets: of_table("buckets")?,
        })
    };
    let range = text("net/ipv4/ip_local_port_range").ok();
    let ports = range.and_then(|text| port_range(&text));
    let bound = text("fs/nr_open").ok();
    let bound = bound.and_then(|text| text.trim().parse().ok());
    let conntrack = conntrack().map(of_conntrack);
    let descriptors = descriptors.map(|(open, most)| of_descriptors(open, most, bound));
    let ports = ports.map(|range| of_ports(range.first, range.last));
    conntrack
        .into_iter()
        .chain(descriptors)
        .chain(ports)
        .collect()
}

fn of_conntrack(now: Conntrack) -> Advice {
    let (most, buckets) = (now.most.saturating_mul(2), now.buckets.saturating_mul(2));
    let setting = |name: &str, number: u64| format!("net.netfilter.{name}={number}");
    let (most_set, buckets_set) = (
        setting("nf_conntrack_max", most),
        setting("nf_conntrack_buckets", buckets),
    );
    let entries = bytes(now.most.saturating_mul(ENTRY_BYTES));
    let table = bytes(now.buckets.saturating_mul(BUCKET_BYTES));
    Advice {
        gauge: Gauge::Conntrack,
        fill: Some(now.count as f64 / now.most as f64),
        state: format!("{} of {} entries", count(now.count), count(now.most)),
        commands: vec![
            format!("sysctl -w {most_set} {buckets_set}"),
            // For good: a module that is not loaded yet when the machine starts has nothing to set.
            format!(
                "printf '%s\\n' {most_set} {buckets_set} > /etc/sysctl.d/60-conntrack.conf; \
                 echo nf_conntrack > /etc/modules-load.d/60-conntrack.conf"
            ),
        ],
        cost: format!("{table} more at once for buckets, up to {entries} more when it is full"),
    }
}

/// `bound` is what no limit may exceed.
fn of_descriptors(open: u64, most: u64, bound: Option<u64>) -> Advice {
    let more = most.saturating_mul(2);
    let is_bound = bound.is_some_and(|bound| bound < more);
    let first = is_bound.then(|| format!("sysctl -w fs.nr_open={more}    # before the others"));
    let commands = [
        format!("systemctl edit nagaya    # [Service] LimitNOFILE={more}, then a restart"),
        format!("ulimit -n {more}    # in the shell that starts it, as root"),
    ];
    let cost = bytes(most.saturating_mul(CONNECTION_BYTES));
    Advice {
        gauge: Gauge::Descriptors,
        fill: Some(open as f64 / most.max(1) as f64),
        state: format!("{} of {} open", count(open), count(most)),
        commands: first.into_iter().chain(commands).collect(),
        cost: format!("nothing until they are used, up to {cost} more with that many connections"),
    }
}

fn of_ports(first: u16, last: u16) -> Advice {
    let ports = u64::from(last.saturating_sub(first)) + 1;
    let (first_new, last_new) = (first.min(PORTS_FIRST), PORTS_LAST);
    let setting = format!("net.ipv4.ip_local_port_range='{first_new} {last_new}'");
    let can_grow = (first, last) != (first_new, last_new);
    Advice {
        gauge: Gauge::Ports,
        fill: None,
        state: format!("{} for each back end, {first} to {last}", count(ports)),
        commands: can_grow
            .then(|| format!("sysctl -w {setting}"))
            .into_iter()
            .collect(),
        cost: format!(
            "no memory of its own; programs that listen from {first_new} on may find their port \
             taken (net.ipv4.ip_local_reserved_ports spares them); a larger `keepalive` of the \
             upstream makes fewer do"
        ),
    }
}

/// What can be raised on this machine where something fills up, for a process that is no gateway.
pub fn advice_of_machine() -> Vec<Advice> {
    here(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_commands_have_the_machines_numbers_in_them() {
        let advice = of_conntrack(Conntrack {
            count: 1_234,
            most: 262_144,
            buckets: 65_536,
        });
        assert_eq!(advice.state, "1,234 of 262,144 entries");
        assert_eq!(
            advice.commands[0],
            "sysctl -w net.netfilter.nf_conntrack_max=524288 net.netfilter.nf_conntrack_buckets=131072"
        );
        assert_eq!(
            advice.cost,
            "512.0 KiB more at once for buckets, up to 112.0 MiB more when it is full"
        );
        let advice = of_descriptors(20, 1_024, Some(1_048_576));
        assert!(
            advice.commands[0].contains("LimitNOFILE=2048"),
            "{advice:?}"
        );
        assert!(
            advice
                .cost
                .ends_with("up to 4.0 MiB more with that many connections"),
            "{advice:?}"
        );
        let advice = of_descriptors(20, 1_048_576, Some(1_048_576));
        assert!(
            advice.commands[0].starts_with("sysctl -w fs.nr_open=2097152"),
            "{advice:?}"
        );
        let advice = of_ports(32_768, 60_999);
        assert_eq!(advice.state, "28,232 for each back end, 32768 to 60999");
        assert_eq!(
            advice.commands,
            ["sysctl -w net.ipv4.ip_local_port_range='10240 65535'"]
        );
        assert!(of_ports(1_024, 65_535).commands.is_empty());
    }
}
