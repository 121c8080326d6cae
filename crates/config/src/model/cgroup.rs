//! Limits of the programs that the gateway starts, as the kernel's control groups keep them.

use std::path::PathBuf;

/// `cgroup = { … }`: limits of the programs that the gateway starts at a level and below it, all
/// together. At least one is set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cgroup {
    /// Thousandths of one core: 100 is a tenth of a core. From 10 to 1,024,000.
    pub cpu_millicores: Option<u32>,
    /// CPU time saved up while idle and used at once later; no more than a period's share
    /// ([`CPU_PERIOD_US`]). Only beside `cpu_millicores`.
    pub cpu_burst_us: Option<u64>,
    /// Share of a busy CPU relative to its siblings, 1 to 10,000.
    pub cpu_weight: Option<u32>,
    /// Memory, page cache included; beyond it the kernel ends programs.
    pub memory_bytes: Option<u64>,
    /// Memory from which on programs are slowed down; less than `memory_bytes`.
    pub memory_high_bytes: Option<u64>,
    /// Processes and threads.
    pub pids: Option<u32>,
    /// Disk bandwidth, each device once.
    pub io: Vec<IoLimit>,
    /// Whether it is an error that this host cannot enforce one of these. Default yes.
    pub required: bool,
}

/// The period that `cpu` is accounted in: a program that used its share waits for the next.
pub const CPU_PERIOD_US: u64 = 100_000;

/// `io = { … }`: what is read and written a second. At least one of the four is set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IoLimit {
    /// A block device, or any path on the file system that lies on it; absolute.
    pub device: PathBuf,
    /// Bytes read a second.
    pub read_bytes: Option<u64>,
    /// Bytes written a second.
    pub write_bytes: Option<u64>,
    /// Reads a second.
    pub read_ops: Option<u64>,
    /// Writes a second.
    pub write_ops: Option<u64>,
}
