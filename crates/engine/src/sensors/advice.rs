//! What to raise where a table of the kernel fills up, and what that costs in memory.
//!
//! The idea: commands with the machine's own numbers in them, to be typed as they are. Twice what
//! there is, is what is proposed: it is enough until somebody has found out why.

use std::path::Path;

use os::sensors::{ENTRY_BYTES, conntrack_number, port_range};

use crate::figures::{bytes, count};

/// Bytes of kernel memory a connection's descriptor takes: file, inode and socket, buffers of what
/// is under way not counted.
const CONNECTION_BYTES: u64 = 4 * 1_024;
/// Bytes of a bucket of the table of connections.
const BUCKET_BYTES: u64 = 8;
/// Local ports that can be had: those below belong to services.
const PORTS_FIRST: u16 = 10_240;
const PORTS_LAST: u16 = 65_535;

/// What can be done about one sensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Advice {
    /// The sensor's name.
    pub(super) sensor: &'static str,
    /// How much there is.
    pub(super) state: String,
    /// The commands.
    pub(super) commands: Vec<String>,
    /// What they cost.
    pub(super) cost: String,
}

/// The state of the table of connections.
#[derive(Debug, Clone, Copy)]
struct Conntrack {
    count: u64,
    most: u64,
    buckets: u64,
}

/// What can be done here; of descriptors, where there is a gateway that has some.
pub(super) fn here(descriptors: Option<(u64, u64)>) -> Vec<Advice> {
    let text = |path: &str| std::fs::read_to_string(Path::new("/proc/sys/net").join(path));
    let number = |name: &str| conntrack_number(&text(&format!("netfilter/{name}")).ok()?);
    let conntrack = || {
        Some(Conntrack {
            count: number("nf_conntrack_count")?,
            most: number("nf_conntrack_max")?,
            buckets: number("nf_conntrack_buckets")?,
        })
    };
    let range = text("ipv4/ip_local_port_range").ok();
    let ports = range.and_then(|text| port_range(&text));
    let conntrack = conntrack().map(of_conntrack);
    let descriptors = descriptors.map(|(open, most)| of_descriptors(open, most));
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
        sensor: "conntrack",
        state: format!("{} of {} entries", count(now.count), count(now.most)),
        commands: vec![
            format!("sysctl -w {most_set} {buckets_set}"),
            format!("printf '%s\\n' {most_set} {buckets_set} > /etc/sysctl.d/60-conntrack.conf"),
        ],
        cost: format!("{table} more at once for buckets, up to {entries} more when it is full"),
    }
}

fn of_descriptors(open: u64, most: u64) -> Advice {
    let more = most.saturating_mul(2);
    let cost = bytes(most.saturating_mul(CONNECTION_BYTES));
    Advice {
        sensor: "descriptors",
        state: format!("{} of {} open", count(open), count(most)),
        commands: vec![
            format!("systemctl edit nagaya    # [Service] LimitNOFILE={more}, then a restart"),
            format!("ulimit -n {more}    # in the shell that starts it, as root"),
        ],
        cost: format!("nothing until they are used, up to {cost} more with that many connections"),
    }
}

fn of_ports(first: u16, last: u16) -> Advice {
    let ports = u64::from(last.saturating_sub(first)) + 1;
    let (first_new, last_new) = (first.min(PORTS_FIRST), PORTS_LAST);
    let setting = format!("net.ipv4.ip_local_port_range='{first_new} {last_new}'");
    let can_grow = (first, last) != (first_new, last_new);
    Advice {
        sensor: "ports",
        state: format!("{} for each back end, {first} to {last}", count(ports)),
        commands: can_grow
            .then(|| format!("sysctl -w {setting}"))
            .into_iter()
            .collect(),
        cost: "no memory of its own; a larger `keepalive` of the upstream makes fewer do"
            .to_owned(),
    }
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
        let advice = of_descriptors(20, 1_024);
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
        let advice = of_ports(32_768, 60_999);
        assert_eq!(advice.state, "28,232 for each back end, 32768 to 60999");
        assert_eq!(
            advice.commands,
            ["sysctl -w net.ipv4.ip_local_port_range='10240 65535'"]
        );
        assert!(of_ports(1_024, 65_535).commands.is_empty());
    }
}
