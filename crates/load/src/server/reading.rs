//! One look at a server and its machine, and the difference between two.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::seconds::seconds;

/// One look.
#[derive(Debug, Clone)]
pub struct Reading {
    /// When.
    pub at: Instant,
    /// The process tree; `None` where no server was named or found.
    pub tree: Option<TreeFigures>,
    /// The machine.
    pub machine: MachineReading,
}

/// A process tree at a look, or between two: then what counts up is the difference. Counters go on
/// growing when processes end: what ended processes used is kept.
#[derive(Debug, Clone, Default, Serialize)]
pub struct TreeFigures {
    /// CPU time of all threads so far, to the nanosecond where the kernel tells.
    #[serde(serialize_with = "seconds")]
    pub cpu: Duration,
    /// Time its threads waited for a core so far.
    #[serde(serialize_with = "seconds")]
    pub run_queue: Duration,
    /// Processes now.
    pub processes: u64,
    /// Threads now.
    pub threads: u64,
    /// Proportional share of memory now: pages shared by two processes count half in each.
    pub pss_bytes: Option<u64>,
    /// Sum of the processes' peaks of resident memory (VmHWM), the largest so far. Pages shared by
    /// two processes count in both.
    pub peak_bytes: u64,
    /// Context switches it asked for so far.
    pub voluntary_switches: u64,
    /// Context switches forced on it so far.
    pub involuntary_switches: u64,
    /// Its control group, where that limits CPU time.
    pub throttling: Option<Throttling>,
    /// TCP sockets on its listening ports by state (`ESTABLISHED`, `TIME_WAIT`, …); empty where
    /// this look left them out.
    pub sockets: BTreeMap<String, u64>,
    /// Whether there were more sockets than a look goes through.
    pub sockets_are_cut: bool,
}

/// What a CPU quota did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Throttling {
    /// Periods so far.
    pub periods: u64,
    /// Of these, such in which the quota ran out.
    pub throttled: u64,
    /// Time its threads stood still for it.
    #[serde(serialize_with = "seconds")]
    pub time: Duration,
}

/// The machine.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct MachineReading {
    /// Cores.
    pub cores: u64,
    /// Time cores worked, hypervisor's takings and interrupts left out, so far.
    pub busy: Duration,
    /// Time cores worked on interrupts so far.
    pub interrupts: Duration,
    /// Whether the kernel times interrupts apart from the processes they interrupt. Where it does
    /// not, their time is in the processes' too.
    pub interrupts_are_apart: bool,
    /// Time cores had nothing to do so far.
    pub idle: Duration,
    /// Time the hypervisor took so far.
    pub steal: Duration,
    /// Time some task waited for a core so far (PSI).
    pub cpu_pressure: Option<Duration>,
    /// Time some task waited for memory so far.
    pub memory_pressure: Option<Duration>,
    /// Time some task waited for a disk so far.
    pub io_pressure: Option<Duration>,
    /// One-minute load average.
    pub load1: f64,
    /// Entries and room of the connection tracker.
    pub conntrack: Option<(u64, u64)>,
    /// TCP sockets of the machine that wait out their time.
    pub time_wait: u64,
    /// TCP segments sent again so far.
    pub retransmits: u64,
    /// Processes and threads started so far.
    pub started: u64,
}
