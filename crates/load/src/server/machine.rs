//! The machine around the server.

use super::files::{number, text};
use super::reading::MachineReading;
use super::texts;

/// Looks at the machine. What its kernel does not tell is nothing.
pub(super) fn read() -> MachineReading {
    let pressure = |of: &str| texts::pressure(&text(&format!("/proc/pressure/{of}"))?);
    let sockets = text("/proc/net/sockstat").unwrap_or_default();
    let protocols = text("/proc/net/snmp").unwrap_or_default();
    MachineReading {
        memory_pressure: pressure("memory"),
        io_pressure: pressure("io"),
        conntrack: conntrack(),
        time_wait: texts::paired(&sockets, "TCP", "tw").unwrap_or(0),
        retransmits: texts::tabled(&protocols, "Tcp", "RetransSegs").unwrap_or(0),
        ..read_lightly()
    }
}

/// Looks at what samples are made of: work, waiting for cores, load.
pub(super) fn read_lightly() -> MachineReading {
    let load = text("/proc/loadavg").unwrap_or_default();
    let waiting = text("/proc/pressure/cpu").unwrap_or_default();
    MachineReading {
        cpu_pressure: texts::pressure(&waiting),
        load1: texts::load1(&load).unwrap_or(0.0),
        ..texts::work(&text("/proc/stat").unwrap_or_default())
    }
}

/// Processes and threads started so far: while it stays the same, there are no new ones.
pub(super) fn started() -> Option<u64> {
    let started = texts::work(&text("/proc/stat")?).started;
    (started > 0).then_some(started)
}

/// How many numbers there are for processes; 0 where that is not told.
pub(super) fn process_numbers() -> u64 {
    number("/proc/sys/kernel/pid_max").unwrap_or(0)
}

/// Entries and room of the connection tracker, where the machine has one.
fn conntrack() -> Option<(u64, u64)> {
    Some((
        number("/proc/sys/net/netfilter/nf_conntrack_count")?,
        number("/proc/sys/net/netfilter/nf_conntrack_max")?,
    ))
}
