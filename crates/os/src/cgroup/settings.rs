//! Limits as what is written to which file, in which order.
//!
//! The idea: a change from one set of limits to another becomes a short list of writes, each of
//! which the kernel takes given those before it. Nothing here touches a file.

use std::fmt;

use super::controllers::Controller;
use super::device::Device;
use super::layout::Version;
use super::limits::{CpuLimit, IoLimit, Limits};
use super::numbers::NumberList;

/// One value for one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Write {
    pub(super) controller: Controller,
    pub(super) file: &'static str,
    pub(super) value: Value,
    pub(super) absence: Absence,
}

/// What is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Value {
    /// This text.
    Text(String),
    /// What this file of the group above says.
    OfGroupAbove(&'static str),
    /// This text for each device that the file names.
    OfEachDevice(&'static str),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Text(text) => f.write_str(text),
            Value::OfGroupAbove(file) => write!(f, "{file} of the group above"),
            Value::OfEachDevice(text) => write!(f, "{text} of each device"),
        }
    }
}

/// What it means when a kernel does not have the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Absence {
    /// A limit is not had.
    Fails,
    /// Nothing: there is nothing to limit or to undo.
    Harmless,
}

/// The writes that lead from one set of limits to the next. Without `before`, what the files say
/// now is not known: each of them is written, whether or not there is a limit.
pub(super) fn writes(version: Version, before: Option<&Limits>, after: &Limits) -> Vec<Write> {
    let mut list = List {
        writes: Vec::new(),
        version,
        before,
        after,
    };
    list.cpu();
    list.memory();
    if list.changed(|limits| limits.pids) {
        let pids = list.after.pids.map(|pids| pids.to_string());
        list.add_or(Controller::Pids, "pids.max", pids, "max");
    }
    list.io();
    list.cpuset(&CPUS, |limits| limits.cpus.as_ref());
    list.cpuset(&MEMS, |limits| limits.mems.as_ref());
    list.writes
}

/// The files of a list of CPUs or memory nodes.
struct Lists {
    group: &'static str,
    leaf: &'static str,
    /// What a group in version 2 has, whether or not it was given anything.
    effective: &'static str,
}

const CPUS: Lists = Lists {
    group: "cpuset.cpus",
    leaf: "run/cpuset.cpus",
    effective: "cpuset.cpus.effective",
};
const MEMS: Lists = Lists {
    group: "cpuset.mems",
    leaf: "run/cpuset.mems",
    effective: "cpuset.mems.effective",
};

/// Of reads and writes of disks in version 1: bytes of either, then how many of either.
const THROTTLES: &[&str] = &[
    "blkio.throttle.read_bps_device",
    "blkio.throttle.write_bps_device",
    "blkio.throttle.read_iops_device",
    "blkio.throttle.write_iops_device",
];

struct List<'a> {
    writes: Vec<Write>,
    version: Version,
    before: Option<&'a Limits>,
    after: &'a Limits,
}

impl List<'_> {
    fn changed<T: PartialEq>(&self, of: impl Fn(&Limits) -> T) -> bool {
        self.before
            .is_none_or(|before| of(before) != of(self.after))
    }

    fn add(&mut self, controller: Controller, file: &'static str, value: String) {
        self.push(controller, file, Value::Text(value), Absence::Fails);
    }

    /// A limit, or what stands for none; a controller that is not needed may not be there at all.
    fn add_or(
        &mut self,
        controller: Controller,
        file: &'static str,
        limit: Option<String>,
        none: &str,
    ) {
        match limit {
            Some(limit) => self.add(controller, file, limit),
            None => self.add_if_there(controller, file, none),
        }
    }

    fn add_if_there(&mut self, controller: Controller, file: &'static str, value: &str) {
        let value = Value::Text(value.to_owned());
        self.push(controller, file, value, Absence::Harmless);
    }

    fn push(&mut self, controller: Controller, file: &'static str, value: Value, absence: Absence) {
        self.writes.push(Write {
            controller,
            file,
            value,
            absence,
        });
    }

    fn cpu(&mut self) {
        if self.changed(|limits| limits.cpu) {
            match self.version {
                Version::V1 => self.quota_v1(),
                Version::V2 => self.quota_v2(),
            }
        }
        if self.changed(|limits| limits.cpu_weight) {
            let weight = self.after.cpu_weight;
            let shares = |weight: u32| (u64::from(weight) * 1024 / 100).clamp(2, 262_144);
            let (file, value, usual) = match self.version {
                Version::V1 => (
                    "cpu.shares",
                    weight.map(|it| shares(it).to_string()),
                    "1024",
                ),
                Version::V2 => ("cpu.weight", weight.map(|it| it.to_string()), "100"),
            };
            self.add_or(Controller::Cpu, file, value, usual);
        }
    }

    /// The kernel refuses a quota below the burst: the burst goes first and comes last.
    fn quota_v2(&mut self) {
        self.without_burst("cpu.max.burst");
        let value = self.after.cpu;
        let value = value.map(|cpu| format!("{} {}", cpu.quota_us(), cpu.period_us()));
        self.add_or(Controller::Cpu, "cpu.max", value, "max 100000");
        self.with_burst("cpu.max.burst");
    }

    /// Quota and period are two files here, and each pair on the way must be one that the group
    /// above allows: without a quota any period is.
    fn quota_v1(&mut self) {
        self.without_burst("cpu.cfs_burst_us");
        let period = |limits: &Limits| limits.cpu.map_or(100_000, CpuLimit::period_us);
        let before = self.before.map(period);
        if before != Some(period(self.after)) {
            if self.before.is_none_or(|before| before.cpu.is_some()) {
                self.add_if_there(Controller::Cpu, "cpu.cfs_quota_us", "-1");
            }
            let period = self.after.cpu.map(|cpu| cpu.period_us().to_string());
            self.add_or(Controller::Cpu, "cpu.cfs_period_us", period, "100000");
        }
        let quota = self.after.cpu.map(|cpu| cpu.quota_us().to_string());
        self.add_or(Controller::Cpu, "cpu.cfs_quota_us", quota, "-1");
        self.with_burst("cpu.cfs_burst_us");
    }

    fn without_burst(&mut self, file: &'static str) {
        let burst = |limits: &Limits| limits.cpu.is_some_and(|cpu| cpu.burst_us > 0);
        if self.before.is_none_or(burst) {
            self.add_if_there(Controller::Cpu, file, "0");
        }
    }

    fn with_burst(&mut self, file: &'static str) {
        let burst_us = self.after.cpu.map_or(0, CpuLimit::effective_burst_us);
        if burst_us > 0 {
            self.add(Controller::Cpu, file, burst_us.to_string());
        }
    }

    fn memory(&mut self) {
        if self.changed(|limits| limits.memory_bytes) {
            match self.version {
                Version::V1 => self.memory_v1(),
                Version::V2 => {
                    let limit = self.after.memory_bytes;
                    // What may be swapped out is no limit, only slow.
                    let swap = limit.map_or("max", |_| "0");
                    self.add_if_there(Controller::Memory, "memory.swap.max", swap);
                    let limit = limit.map(|limit| limit.to_string());
                    self.add_or(Controller::Memory, "memory.max", limit, "max");
                }
            }
        }
        if self.changed(|limits| limits.memory_high_bytes) {
            let high = self.after.memory_high_bytes.map(|high| high.to_string());
            let (file, none) = match self.version {
                Version::V1 => ("memory.soft_limit_in_bytes", "-1"),
                Version::V2 => ("memory.high", "max"),
            };
            self.add_or(Controller::Memory, file, high, none);
        }
    }

    /// Memory with swap may never be less than memory: it is opened first and closed last.
    fn memory_v1(&mut self) {
        let limit = self.after.memory_bytes.map(|limit| limit.to_string());
        if self.before.is_none_or(|b| b.memory_bytes.is_some()) {
            self.add_if_there(Controller::Memory, "memory.memsw.limit_in_bytes", "-1");
        }
        let file = "memory.limit_in_bytes";
        self.add_or(Controller::Memory, file, limit.clone(), "-1");
        if let Some(limit) = limit {
            self.add_if_there(Controller::Memory, "memory.memsw.limit_in_bytes", &limit);
        }
    }

    fn io(&mut self) {
        if !self.changed(|limits| limits.io.clone()) {
            return;
        }
        if self.before.is_none() {
            self.lift_io();
        }
        let before = self.before.map_or(&[][..], |before| &before.io);
        let gone = |old: &&IoLimit| !self.after.io.iter().any(|new| new.device == old.device);
        let gone: Vec<IoLimit> = before.iter().filter(gone).map(IoLimit::lifted).collect();
        let known = |new: &&IoLimit| !before.contains(new);
        let new: Vec<IoLimit> = self.after.io.iter().filter(known).copied().collect();
        for limit in gone.iter().chain(&new) {
            match self.version {
                Version::V1 => self.throttle(limit),
                Version::V2 => self.add(Controller::Io, "io.max", limit.line()),
            }
        }
    }

    /// Whatever disks have limits.
    fn lift_io(&mut self) {
        let (files, none): (&[&'static str], &'static str) = match self.version {
            Version::V1 => (THROTTLES, "0"),
            Version::V2 => (&["io.max"], "rbps=max wbps=max riops=max wiops=max"),
        };
        for file in files {
            let none = Value::OfEachDevice(none);
            self.push(Controller::Io, file, none, Absence::Harmless);
        }
    }

    fn throttle(&mut self, limit: &IoLimit) {
        let values = [
            limit.read_bytes,
            limit.write_bytes,
            limit.read_ops,
            limit.write_ops,
        ];
        for (file, value) in THROTTLES.iter().zip(values) {
            let value = value.unwrap_or(0);
            self.add(Controller::Io, file, format!("{} {value}", limit.device));
        }
    }

    /// A leaf in version 1 has a list of its own, at every moment within that of its group, and
    /// neither may be empty: the way from one list to another leads over all that the group above
    /// has. In version 2 an empty list means that of the group above, and stands in every leaf; but
    /// where a program runs the kernel empties none.
    fn cpuset(&mut self, files: &Lists, of: fn(&Limits) -> Option<&NumberList>) {
        let is_known = |before: &Limits| of(before) == of(self.after);
        if self.before.is_some_and(is_known) {
            return;
        }
        let list = of(self.after).map(|list| Value::Text(list.as_str().to_owned()));
        let absence = match list {
            Some(_) => Absence::Fails,
            // What stands there may be what an earlier limit left, or no group of this kind.
            None => Absence::Harmless,
        };
        let version = self.version;
        let mut add = |file, value| self.push(Controller::Cpuset, file, value, absence);
        match version {
            Version::V1 => {
                let all = Value::OfGroupAbove(files.group);
                add(files.group, all.clone());
                add(files.leaf, list.clone().unwrap_or(all));
                if let Some(list) = list {
                    add(files.group, list);
                }
            }
            Version::V2 => {
                let all = Value::OfGroupAbove(files.effective);
                add(files.group, list.unwrap_or(all));
            }
        }
    }
}

impl IoLimit {
    /// The same disk without limits.
    fn lifted(&self) -> Self {
        let device: Device = self.device;
        Self {
            device,
            read_bytes: None,
            write_bytes: None,
            read_ops: None,
            write_ops: None,
        }
    }

    fn line(&self) -> String {
        format!(
            "{} rbps={} wbps={} riops={} wiops={}",
            self.device,
            or_max(self.read_bytes),
            or_max(self.write_bytes),
            or_max(self.read_ops),
            or_max(self.write_ops)
        )
    }
}

fn or_max<T: ToString>(value: Option<T>) -> String {
    value.map_or("max".to_owned(), |value| value.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(version: Version, before: Option<&Limits>, after: &Limits, expected: &[&str]) {
        let found: Vec<String> = writes(version, before, after)
            .iter()
            .map(|write| format!("{} = {}", write.file, write.value))
            .collect();
        assert_eq!(found, expected, "{version:?} {before:?} → {after:?}");
    }

    fn cpu(millicores: u32, burst_us: u64) -> Limits {
        Limits {
            cpu: Some(CpuLimit {
                millicores,
                burst_us,
            }),
            ..Limits::default()
        }
    }

    fn memory(bytes: u64) -> Limits {
        Limits {
            memory_bytes: Some(bytes),
            ..Limits::default()
        }
    }

    #[test]
    fn a_fresh_group_gets_only_what_is_limited() {
        let (none, all) = (Limits::default(), everything());
        check(Version::V1, Some(&none), &none, &[]);
        check(Version::V2, Some(&none), &none, &[]);
        check(
            Version::V2,
            Some(&none),
            &all,
            &[
                "cpu.max = 20000 200000",
                "cpu.max.burst = 20000",
                "cpu.weight = 50",
                "memory.swap.max = 0",
                "memory.max = 1000",
                "memory.high = 900",
                "pids.max = 7",
                "io.max = 8:0 rbps=1 wbps=max riops=max wiops=4",
                "cpuset.cpus = 1-2",
            ],
        );
        check(
            Version::V1,
            Some(&none),
            &all,
            &[
                "cpu.cfs_period_us = 200000",
                "cpu.cfs_quota_us = 20000",
                "cpu.cfs_burst_us = 20000",
                "cpu.shares = 512",
                "memory.limit_in_bytes = 1000",
                "memory.memsw.limit_in_bytes = 1000",
                "memory.soft_limit_in_bytes = 900",
                "pids.max = 7",
                "blkio.throttle.read_bps_device = 8:0 1",
                "blkio.throttle.write_bps_device = 8:0 0",
                "blkio.throttle.read_iops_device = 8:0 0",
                "blkio.throttle.write_iops_device = 8:0 4",
                "cpuset.cpus = cpuset.cpus of the group above",
                "run/cpuset.cpus = 1-2",
                "cpuset.cpus = 1-2",
            ],
        );
    }

    #[test]
    fn what_did_not_change_is_not_written() {
        let all = everything();
        for version in [Version::V1, Version::V2] {
            check(version, Some(&all), &all, &[]);
        }
        let mut fewer = all.clone();
        fewer.pids = None;
        check(Version::V2, Some(&all), &fewer, &["pids.max = max"]);
    }

    #[test]
    fn each_write_is_one_the_kernel_takes_after_those_before() {
        let none = Limits::default();
        for (before, after, expected) in [
            (cpu(100, 0), cpu(50, 0), &["cpu.cfs_quota_us = 5000"][..]),
            (cpu(100, 0), none.clone(), &["cpu.cfs_quota_us = -1"]),
            (
                cpu(100, 20_000),
                cpu(50, 0),
                &[
                    "cpu.cfs_burst_us = 0",
                    "cpu.cfs_quota_us = -1",
                    "cpu.cfs_period_us = 100000",
                    "cpu.cfs_quota_us = 5000",
                ],
            ),
            (
                memory(1),
                memory(2),
                &[
                    "memory.memsw.limit_in_bytes = -1",
                    "memory.limit_in_bytes = 2",
                    "memory.memsw.limit_in_bytes = 2",
                ],
            ),
            (
                memory(1),
                none.clone(),
                &[
                    "memory.memsw.limit_in_bytes = -1",
                    "memory.limit_in_bytes = -1",
                ],
            ),
        ] {
            check(Version::V1, Some(&before), &after, expected);
        }
        check(
            Version::V2,
            Some(&cpu(100, 20_000)),
            &cpu(50, 10_000),
            &[
                "cpu.max.burst = 0",
                "cpu.max = 10000 200000",
                "cpu.max.burst = 10000",
            ],
        );
        check(
            Version::V2,
            Some(&everything()),
            &Limits {
                io: Vec::new(),
                ..everything()
            },
            &["io.max = 8:0 rbps=max wbps=max riops=max wiops=max"],
        );
    }

    #[test]
    fn a_group_found_there_gets_all_that_is_limited_and_loses_every_other_limit() {
        check(
            Version::V2,
            None,
            &cpu(100, 0),
            &[
                "cpu.max.burst = 0",
                "cpu.max = 10000 100000",
                "cpu.weight = 100",
                "memory.swap.max = max",
                "memory.max = max",
                "memory.high = max",
                "pids.max = max",
                "io.max = rbps=max wbps=max riops=max wiops=max of each device",
                "cpuset.cpus = cpuset.cpus.effective of the group above",
                "cpuset.mems = cpuset.mems.effective of the group above",
            ],
        );
        let none = Limits::default();
        for version in [Version::V1, Version::V2] {
            let writes = writes(version, None, &none);
            let fails = writes.iter().find(|it| it.absence == Absence::Fails);
            assert_eq!(fails, None, "{version:?}: its controller may not be there");
        }
        check(
            Version::V1,
            None,
            &none,
            &[
                "cpu.cfs_burst_us = 0",
                "cpu.cfs_quota_us = -1",
                "cpu.cfs_period_us = 100000",
                "cpu.cfs_quota_us = -1",
                "cpu.shares = 1024",
                "memory.memsw.limit_in_bytes = -1",
                "memory.limit_in_bytes = -1",
                "memory.soft_limit_in_bytes = -1",
                "pids.max = max",
                "blkio.throttle.read_bps_device = 0 of each device",
                "blkio.throttle.write_bps_device = 0 of each device",
                "blkio.throttle.read_iops_device = 0 of each device",
                "blkio.throttle.write_iops_device = 0 of each device",
                "cpuset.cpus = cpuset.cpus of the group above",
                "run/cpuset.cpus = cpuset.cpus of the group above",
                "cpuset.mems = cpuset.mems of the group above",
                "run/cpuset.mems = cpuset.mems of the group above",
            ],
        );
    }

    #[test]
    fn cpus_and_memory_nodes_taken_away_are_those_of_the_group_above() {
        let lists = |cpus, mems| Limits {
            cpus: NumberList::parse(cpus),
            mems: NumberList::parse(mems),
            ..Limits::default()
        };
        let (before, after) = (lists("0", "0"), lists("0", ""));
        check(
            Version::V2,
            Some(&before),
            &after,
            &["cpuset.mems = cpuset.mems.effective of the group above"],
        );
        check(
            Version::V1,
            Some(&before),
            &after,
            &[
                "cpuset.mems = cpuset.mems of the group above",
                "run/cpuset.mems = cpuset.mems of the group above",
            ],
        );
        // A group that was found there and may have had others.
        let found = writes(Version::V2, None, &lists("", "1"));
        let found = found
            .iter()
            .filter(|it| it.controller == Controller::Cpuset);
        let harmless: Vec<_> = found.map(|write| write.absence).collect();
        assert_eq!(harmless, [Absence::Harmless, Absence::Fails]);
    }

    #[test]
    fn weights_become_shares_in_proportion() {
        for (weight, shares) in [(1, "10"), (100, "1024"), (10_000, "102400")] {
            let limits = Limits {
                cpu_weight: Some(weight),
                ..Limits::default()
            };
            let expected = format!("cpu.shares = {shares}");
            check(Version::V1, Some(&Limits::default()), &limits, &[&expected]);
        }
    }

    fn everything() -> Limits {
        Limits {
            cpu_weight: Some(50),
            memory_bytes: Some(1_000),
            memory_high_bytes: Some(900),
            pids: Some(7),
            io: vec![IoLimit {
                device: Device { major: 8, minor: 0 },
                read_bytes: Some(1),
                write_bytes: None,
                read_ops: None,
                write_ops: Some(4),
            }],
            cpus: NumberList::parse("1-2"),
            ..cpu(100, 20_000)
        }
    }
}
