//! What a group has used, read off the files of whatever version it is in.
//!
//! The idea: each figure is there or not, by controller, version and kernel; what is not there is
//! left out and never a failure. Nothing is kept open: reading is for people who ask.

use std::path::Path;

use super::controllers::Controller;
use super::interface::{keyed, number, read, value};
use super::kill::groups;
use super::layout::{Layout, Version};

/// Figures of a group and those below it, since it was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Processor time.
    pub cpu_us: Option<u64>,
    /// Periods it was counted over, while it had a quota.
    pub periods: Option<u64>,
    /// Periods in which its quota ran out.
    pub throttled_periods: Option<u64>,
    /// Time its processes waited for the next quota, each core's added up.
    pub throttled_us: Option<u64>,
    /// Memory now.
    pub memory_bytes: Option<u64>,
    /// Memory at most.
    pub memory_peak_bytes: Option<u64>,
    /// Processes killed for want of memory.
    pub oom_kills: Option<u64>,
    /// Bytes read from block devices and written to them.
    pub io_bytes: Option<u64>,
    /// Reads and writes of theirs.
    pub io_ops: Option<u64>,
    /// Processes and threads now.
    pub pids: Option<u64>,
    /// Times that no further process or thread was to be had.
    pub pids_hits: Option<u64>,
}

impl Usage {
    /// Reads the figures of the group at `path`; `None` where there is no such group.
    pub fn of(layout: &Layout, path: &[String]) -> Option<Self> {
        if !layout.has(path) {
            return None;
        }
        let mut usage = Self::default();
        for controller in layout.controllers().iter() {
            usage.read(layout, path, controller);
        }
        Some(usage)
    }

    /// Reads what one controller counts of the group at `path`: for who asks often.
    pub fn by(controller: Controller, layout: &Layout, path: &[String]) -> Self {
        let mut usage = Self::default();
        usage.read(layout, path, controller);
        usage
    }

    /// Reads the processor time of the group at `path` and nothing else: for who asks often.
    pub fn cpu_us(layout: &Layout, path: &[String]) -> Option<u64> {
        let mut each = [Controller::CpuTime, Controller::Cpu].into_iter();
        each.find_map(|controller| Self::by(controller, layout, path).cpu_us)
    }

    fn read(&mut self, layout: &Layout, path: &[String], controller: Controller) {
        if let Some(hierarchy) = layout.of(controller) {
            let group = hierarchy.group(path);
            match hierarchy.version {
                Version::V1 => self.read_v1(controller, &group),
                Version::V2 => self.read_v2(controller, &group),
            }
        }
    }

    fn read_v2(&mut self, controller: Controller, group: &Path) {
        match controller {
            Controller::Cpu | Controller::CpuTime => {
                let Ok(text) = read(&group.join("cpu.stat")) else {
                    return;
                };
                self.cpu_us = value(&text, "usage_usec");
                self.periods = value(&text, "nr_periods");
                self.throttled_periods = value(&text, "nr_throttled");
                self.throttled_us = value(&text, "throttled_usec");
            }
            Controller::Memory => {
                self.memory_bytes = number(&group.join("memory.current"));
                self.memory_peak_bytes = number(&group.join("memory.peak"));
                self.oom_kills = keyed(&group.join("memory.events"), "oom_kill");
            }
            Controller::Pids => {
                self.pids = number(&group.join("pids.current"));
                self.pids_hits = keyed(&group.join("pids.events"), "max");
            }
            Controller::Io => {
                let Ok(text) = read(&group.join("io.stat")) else {
                    return;
                };
                self.io_bytes = Some(sum_of(&text, &["rbytes=", "wbytes="]));
                self.io_ops = Some(sum_of(&text, &["rios=", "wios="]));
            }
            Controller::Cpuset => {}
        }
    }

    fn read_v1(&mut self, controller: Controller, group: &Path) {
        match controller {
            Controller::Cpu => {
                let Ok(text) = read(&group.join("cpu.stat")) else {
                    return;
                };
                self.periods = value(&text, "nr_periods");
                self.throttled_periods = value(&text, "nr_throttled");
                self.throttled_us = value(&text, "throttled_time").map(|time| time / 1_000);
            }
            Controller::CpuTime => {
                let used_ns = number(&group.join("cpuacct.usage"));
                self.cpu_us = used_ns.map(|time| time / 1_000);
            }
            Controller::Memory => {
                self.memory_bytes = number(&group.join("memory.usage_in_bytes"));
                self.memory_peak_bytes = number(&group.join("memory.max_usage_in_bytes"));
                // Counted where the process was.
                self.oom_kills = sum_below(group, oom_kills_v1);
            }
            Controller::Pids => {
                self.pids = number(&group.join("pids.current"));
                self.pids_hits = sum_below(group, refused_forks);
            }
            Controller::Io => {
                let sum = |name: &str| {
                    let text =
                        read(&group.join(format!("blkio.throttle.{name}_recursive"))).ok()?;
                    Some(sum_by_kind(&text, ["Read", "Write"]))
                };
                self.io_bytes = sum("io_service_bytes");
                self.io_ops = sum("io_serviced");
            }
            Controller::Cpuset => {}
        }
    }
}

/// Processor time of a group, by who spent it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CpuTimes {
    /// Its programs.
    pub user_us: u64,
    /// The kernel for them.
    pub system_us: u64,
}

impl CpuTimes {
    /// What a tick of version 1 is: a hundredth of a second, whatever the kernel counts by.
    const TICK_US: u64 = 10_000;

    /// Reads them of the group at `path`; `None` where they are not counted.
    pub fn of(layout: &Layout, path: &[String]) -> Option<Self> {
        let mut hierarchies = [Controller::CpuTime, Controller::Cpu].into_iter();
        let hierarchy = hierarchies.find_map(|controller| layout.of(controller))?;
        let (file, user, system, unit_us) = match hierarchy.version {
            Version::V1 => ("cpuacct.stat", "user", "system", Self::TICK_US),
            Version::V2 => ("cpu.stat", "user_usec", "system_usec", 1),
        };
        let text = read(&hierarchy.group(path).join(file)).ok()?;
        Some(Self {
            user_us: value(&text, user)?.saturating_mul(unit_us),
            system_us: value(&text, system)?.saturating_mul(unit_us),
        })
    }
}

/// The sum of the numbers behind these words.
fn sum_of(text: &str, names: &[&str]) -> u64 {
    let numbers = text.split_ascii_whitespace().filter_map(|word| {
        let number = names.iter().find_map(|name| word.strip_prefix(name))?;
        number.parse::<u64>().ok()
    });
    numbers.fold(0, u64::saturating_add)
}

/// The sum of the numbers of lines `device kind number` of these kinds.
fn sum_by_kind(text: &str, kinds: [&str; 2]) -> u64 {
    let numbers = text.lines().filter_map(|line| {
        let (_, rest) = line.split_once(' ')?;
        let (kind, number) = rest.split_once(' ')?;
        let number = kinds.contains(&kind).then_some(number)?;
        number.parse::<u64>().ok()
    });
    numbers.fold(0, u64::saturating_add)
}

/// The sum of what this group and those below it count.
pub(super) fn sum_below(group: &Path, count: impl Fn(&Path) -> Option<u64>) -> Option<u64> {
    let each = groups(group).into_iter();
    let each = each.filter_map(|group| count(&group));
    each.reduce(u64::saturating_add)
}

/// Processes of a group itself that were killed for want of memory, as version 1 counts them.
pub(super) fn oom_kills_v1(group: &Path) -> Option<u64> {
    keyed(&group.join("memory.oom_control"), "oom_kill")
}

/// Files that count forks that were refused, the better one first: since Linux 6.11 the second one of version 2
/// counts for a group what was refused in those below it, too.
pub(super) const REFUSED_FORKS: [&str; 2] = ["pids.events.local", "pids.events"];

/// How many further processes a group refused by itself, since Linux 6.11; before, and in version 1, how
/// many were refused to those that stand in it.
pub(super) fn refused_forks(group: &Path) -> Option<u64> {
    let mut files = REFUSED_FORKS.into_iter();
    files.find_map(|file| keyed(&group.join(file), "max"))
}
