//! What a group may use.

use super::controllers::{Controller, Controllers};
use super::device::Device;
use super::numbers::NumberList;
use serde::{Deserialize, Serialize};

/// Limits of one group; what is absent is not limited by it, though a group above may.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Processor time.
    pub cpu: Option<CpuLimit>,
    /// Share of processor time among groups that want more than there is: 1 to 10000, usually 100.
    pub cpu_weight: Option<u32>,
    /// Memory, swap included: beyond it the kernel kills a process of the group.
    pub memory_bytes: Option<u64>,
    /// Memory beyond which the group is slowed down and its pages are taken back.
    pub memory_high_bytes: Option<u64>,
    /// Processes and threads at once.
    pub pids: Option<u32>,
    /// Reads and writes, by disk.
    pub io: Vec<IoLimit>,
    /// CPUs that processes may run on.
    pub cpus: Option<NumberList>,
    /// Memory nodes that they may have memory of.
    pub mems: Option<NumberList>,
}

/// Processor time a group may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuLimit {
    /// Thousandths of one core.
    pub millicores: u32,
    /// What may be saved up in quiet periods and used at once.
    pub burst_us: u64,
}

/// Reads and writes of one disk, per second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct IoLimit {
    /// The disk.
    pub device: Device,
    /// Bytes read.
    pub read_bytes: Option<u64>,
    /// Bytes written.
    pub write_bytes: Option<u64>,
    /// Reads.
    pub read_ops: Option<u64>,
    /// Writes.
    pub write_ops: Option<u64>,
}

impl Limits {
    /// The controllers that enforce them.
    pub fn needs(&self) -> Controllers {
        let wanted = [
            (
                Controller::Cpu,
                self.cpu.is_some() || self.cpu_weight.is_some(),
            ),
            (
                Controller::Memory,
                self.memory_bytes.is_some() || self.memory_high_bytes.is_some(),
            ),
            (Controller::Pids, self.pids.is_some()),
            (Controller::Io, !self.io.is_empty()),
            (
                Controller::Cpuset,
                self.cpus.is_some() || self.mems.is_some(),
            ),
        ];
        let wanted = wanted.into_iter().filter(|(_, is)| *is);
        wanted.map(|(controller, _)| controller).collect()
    }
}

impl CpuLimit {
    /// What the kernel counts a quota over, unless the limit asks for more. A tenth of a core is
    /// 10 ms of these 100 ms. Shorter periods would mean shorter pauses but, with quotas near the
    /// 5 ms that the kernel hands to a core at a time, would be kept less exactly and cost more.
    const PERIOD_US: u64 = 100_000;
    /// The longest period the kernel takes.
    const PERIOD_US_MAX: u64 = 1_000_000;
    /// The least quota the kernel takes.
    const QUOTA_US_MIN: u64 = 1_000;

    /// The period: long enough that the quota is not below the kernel's least, nor below the
    /// burst, which the kernel would refuse. Whole milliseconds, so that quotas are exact.
    pub(super) fn period_us(self) -> u64 {
        let millicores = u64::from(self.millicores.max(1));
        let quota_us = self.burst_us.max(Self::QUOTA_US_MIN);
        let wanted = quota_us.div_ceil(millicores).saturating_mul(1_000);
        wanted.clamp(Self::PERIOD_US, Self::PERIOD_US_MAX)
    }

    /// Processor time of a period.
    pub(super) fn quota_us(self) -> u64 {
        self.period_us() / 1_000 * u64::from(self.millicores.max(1))
    }

    /// What of the burst the kernel takes: no more than a quota.
    pub(crate) fn effective_burst_us(self) -> u64 {
        self.burst_us.min(self.quota_us())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_is_exact_and_the_period_as_long_as_it_must_be() {
        // Thousandths of a core, burst: quota, period, burst granted.
        for (millicores, burst_us, expected) in [
            (100, 0, (10_000, 100_000, 0)),
            (1_500, 0, (150_000, 100_000, 0)),
            (10, 0, (1_000, 100_000, 0)),
            (5, 0, (1_000, 200_000, 0)),
            (1, 0, (1_000, 1_000_000, 0)),
            (3, 0, (1_002, 334_000, 0)),
            (100, 10_000, (10_000, 100_000, 10_000)),
            (100, 20_000, (20_000, 200_000, 20_000)),
            (100, 999_999, (100_000, 1_000_000, 100_000)),
            (0, 0, (1_000, 1_000_000, 0)),
        ] {
            let cpu = CpuLimit {
                millicores,
                burst_us,
            };
            let found = (cpu.quota_us(), cpu.period_us(), cpu.effective_burst_us());
            assert_eq!(found, expected, "{cpu:?}");
        }
    }

    #[test]
    fn limits_need_their_controllers_and_no_other() {
        assert!(Limits::default().needs().is_empty());
        let limits = Limits {
            cpu_weight: Some(50),
            pids: Some(9),
            mems: NumberList::parse("0"),
            ..Limits::default()
        };
        let names: Vec<_> = limits.needs().iter().map(Controller::name).collect();
        assert_eq!(names, ["cpu", "pids", "cpuset"]);
    }
}
