//! What was spent between two looks.

use std::time::Duration;

use serde::Serialize;

use super::reading::{MachineReading, Reading, Throttling, TreeFigures};
use crate::seconds::seconds;

/// The difference of two looks.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Spent {
    /// Time between them.
    #[serde(serialize_with = "seconds")]
    pub time: Duration,
    /// Cores of the machine.
    pub cores: u64,
    /// By the server; `None` where none was named.
    pub tree: Option<TreeFigures>,
    /// Time the machine's cores worked for processes, whoever they belong to.
    #[serde(serialize_with = "seconds")]
    pub charged: Duration,
    /// Time the machine's cores worked on interrupts.
    #[serde(serialize_with = "seconds")]
    pub interrupts: Duration,
    /// The hypervisor's share of the machine's time, 0 to 1.
    pub steal_share: f64,
    /// Share of the time in which some task of the machine waited for a core, 0 to 1.
    pub cpu_pressure: Option<f64>,
    /// For memory.
    pub memory_pressure: Option<f64>,
    /// For a disk.
    pub io_pressure: Option<f64>,
    /// One-minute load average at the end.
    pub load1: f64,
    /// Entries and room of the connection tracker at the end.
    pub conntrack: Option<(u64, u64)>,
    /// TCP sockets of the machine that wait out their time at the end.
    pub time_wait: u64,
    /// TCP segments sent again.
    pub retransmits: u64,
    /// Processes and threads started on the machine.
    pub started: u64,
}

impl Spent {
    /// What was spent from one look to a later one of the same server.
    pub fn between(before: &Reading, after: &Reading) -> Spent {
        let time = after.at.saturating_duration_since(before.at);
        let (from, to) = (&before.machine, &after.machine);
        let share = |from: Option<Duration>, to: Option<Duration>| {
            Some(ratio(to?.saturating_sub(from?), time).min(1.0))
        };
        let cores = to.cores.max(1);
        let steal = ratio(to.steal.saturating_sub(from.steal), time) / cores as f64;
        Spent {
            time,
            cores,
            tree: tree(before.tree.as_ref(), after.tree.as_ref()),
            charged: charged(time, from, to),
            interrupts: to.interrupts.saturating_sub(from.interrupts),
            steal_share: steal.min(1.0),
            cpu_pressure: share(from.cpu_pressure, to.cpu_pressure),
            memory_pressure: share(from.memory_pressure, to.memory_pressure),
            io_pressure: share(from.io_pressure, to.io_pressure),
            load1: to.load1,
            conntrack: to.conntrack,
            time_wait: to.time_wait,
            retransmits: to.retransmits.saturating_sub(from.retransmits),
            started: to.started.saturating_sub(from.started),
        }
    }

    /// CPU time of the server; nothing where none was named.
    pub fn cpu(&self) -> Duration {
        self.tree.as_ref().map_or(Duration::ZERO, |tree| tree.cpu)
    }

    /// Cores the server kept busy on average.
    pub fn cores_used(&self) -> f64 {
        ratio(self.cpu(), self.time)
    }

    /// CPU time that went neither to the server nor to the generator.
    pub fn foreign(&self, generator_cpu: Duration) -> Duration {
        let ours = self.cpu().saturating_add(generator_cpu);
        self.charged.saturating_sub(ours)
    }

    /// Its share of the machine's time, 0 to 1.
    pub fn foreign_share(&self, generator_cpu: Duration) -> f64 {
        ratio(self.foreign(generator_cpu), self.time) / self.cores.max(1) as f64
    }
}

/// What is left of the cores' time without idling, the hypervisor's takings and interrupts. The
/// kernel's own figure of work is sampled at its ticks and misses short pieces; idling is timed.
fn charged(time: Duration, from: &MachineReading, to: &MachineReading) -> Duration {
    let cores = u32::try_from(to.cores.max(1)).unwrap_or(1);
    let mut left = time.saturating_mul(cores);
    left = left.saturating_sub(to.idle.saturating_sub(from.idle));
    left = left.saturating_sub(to.steal.saturating_sub(from.steal));
    match to.interrupts_are_apart {
        true => left.saturating_sub(to.interrupts.saturating_sub(from.interrupts)),
        false => left,
    }
}

fn tree(before: Option<&TreeFigures>, after: Option<&TreeFigures>) -> Option<TreeFigures> {
    let (before, after) = (before?, after?);
    let more = |of: fn(&TreeFigures) -> u64| of(after).saturating_sub(of(before));
    Some(TreeFigures {
        cpu: after.cpu.saturating_sub(before.cpu),
        run_queue: after.run_queue.saturating_sub(before.run_queue),
        voluntary_switches: more(|tree| tree.voluntary_switches),
        involuntary_switches: more(|tree| tree.involuntary_switches),
        throttling: throttling(before.throttling, after.throttling),
        ..after.clone()
    })
}

fn throttling(before: Option<Throttling>, after: Option<Throttling>) -> Option<Throttling> {
    let (before, after) = (before.unwrap_or_default(), after?);
    Some(Throttling {
        periods: after.periods.saturating_sub(before.periods),
        throttled: after.throttled.saturating_sub(before.throttled),
        time: after.time.saturating_sub(before.time),
    })
}

/// How often a time is in another; 0 where the other is nothing.
pub(super) fn ratio(part: Duration, whole: Duration) -> f64 {
    if whole.is_zero() {
        0.0
    } else {
        part.as_secs_f64() / whole.as_secs_f64()
    }
}
