//! Control groups that scripts define, by name, for all workers.
//!
//! A request that defines or attaches to a group holds it; what one request deletes is there for
//! the others that hold it until they end.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use os::cgroup::{CpuLimit, Device, IoLimit, Limits, NumberList};

use super::enter;

/// Groups that may be defined.
const GROUPS_MAX: usize = 1_024;
/// Disks of one group.
const DISKS_MAX: usize = 64;
/// What the kernel counts a quota over, unless a script says otherwise.
const PERIOD_US: i64 = 100_000;
/// What `shares` are where nobody sets them.
const SHARES: i64 = 1_024;

/// What a script may set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Key {
    CpuQuotaUs,
    CpuPeriodUs,
    CpuShares,
    MemoryBytes,
    MemorySwapBytes,
    Pids,
    ReadBytes,
    WriteBytes,
    ReadOps,
    WriteOps,
    Cpus,
    Mems,
}

/// What a limit is told in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// A number: the least and the most that the kernel takes.
    Number(i64, i64),
    /// A number for each disk.
    Disks,
    /// Numbers of CPUs or memory nodes.
    List,
}

impl Key {
    pub(crate) fn of_name(name: &[u8]) -> Option<Self> {
        Some(match name {
            b"cfs_quota_us" => Self::CpuQuotaUs,
            b"cfs_period_us" => Self::CpuPeriodUs,
            b"shares" => Self::CpuShares,
            b"limit_in_bytes" => Self::MemoryBytes,
            b"memsw_limit_in_bytes" => Self::MemorySwapBytes,
            b"max" => Self::Pids,
            b"throttle_read_bps_device" => Self::ReadBytes,
            b"throttle_write_bps_device" => Self::WriteBytes,
            b"throttle_read_iops_device" => Self::ReadOps,
            b"throttle_write_iops_device" => Self::WriteOps,
            b"cpus" => Self::Cpus,
            b"mems" => Self::Mems,
            _ => return None,
        })
    }

    pub(crate) fn form(self) -> Form {
        match self {
            Self::CpuQuotaUs => Form::Number(1_000, 1_000_000_000),
            Self::CpuPeriodUs => Form::Number(1_000, 1_000_000),
            Self::CpuShares => Form::Number(2, 262_144),
            Self::Pids => Form::Number(1, i64::from(u32::MAX)),
            Self::MemoryBytes | Self::MemorySwapBytes => Form::Number(4_096, i64::MAX),
            Self::ReadBytes | Self::WriteBytes | Self::ReadOps | Self::WriteOps => Form::Disks,
            Self::Cpus | Self::Mems => Form::List,
        }
    }
}

/// What a group was given.
#[derive(Debug, Clone, Default)]
pub(crate) struct Given {
    numbers: BTreeMap<Key, i64>,
    disks: BTreeMap<(Key, Device), i64>,
    lists: BTreeMap<Key, NumberList>,
}

#[derive(Debug, Default)]
struct Group {
    given: Given,
    /// Requests that use it, by the serial of their scope.
    holders: BTreeSet<u64>,
    is_deleted: bool,
}

/// All groups.
#[derive(Debug, Default)]
pub(crate) struct Groups(BTreeMap<String, Group>);

/// What a request holds of a group; given back when dropped.
pub(crate) struct Hold {
    groups: Arc<Mutex<Groups>>,
    name: String,
    serial: u64,
}

impl Drop for Hold {
    fn drop(&mut self) {
        enter(&self.groups).release(&self.name, self.serial);
    }
}

impl Groups {
    /// Defines a group if it is not there, and holds it for the request; `None` where it did so
    /// already.
    ///
    /// # Errors
    /// When there are as many as may be.
    pub(crate) fn define(
        all: &Arc<Mutex<Self>>,
        name: &str,
        serial: u64,
    ) -> Result<Option<Hold>, String> {
        let mut groups = enter(all);
        if !groups.0.contains_key(name) && groups.0.len() >= GROUPS_MAX {
            return Err(format!(
                "there are {GROUPS_MAX} groups already: delete those that are not needed"
            ));
        }
        let group = groups.0.entry(name.to_owned()).or_default();
        group.is_deleted = false;
        let hold = group.holders.insert(serial).then(|| Hold {
            groups: Arc::clone(all),
            name: name.to_owned(),
            serial,
        });
        Ok(hold)
    }

    /// Whether a group is there for this request.
    pub(crate) fn has(&self, name: &str, serial: u64) -> bool {
        let group = self.0.get(name);
        group.is_some_and(|group| !group.is_deleted || group.holders.contains(&serial))
    }

    pub(crate) fn given(&self, name: &str) -> Option<&Given> {
        self.0.get(name).map(|group| &group.given)
    }

    pub(crate) fn change(&mut self, name: &str, change: impl FnOnce(&mut Given)) {
        if let Some(group) = self.0.get_mut(name) {
            change(&mut group.given);
        }
    }

    /// Deletes a group: at once, or when the last other request that holds it has ended.
    pub(crate) fn delete(&mut self, name: &str, serial: u64) {
        if let Some(group) = self.0.get_mut(name) {
            group.is_deleted = true;
        }
        self.release(name, serial);
    }

    fn release(&mut self, name: &str, serial: u64) {
        let Some(group) = self.0.get_mut(name) else {
            return;
        };
        group.holders.remove(&serial);
        if group.is_deleted && group.holders.is_empty() {
            self.0.remove(name);
        }
    }
}

impl Given {
    pub(crate) fn number(&self, key: Key) -> Option<i64> {
        self.numbers.get(&key).copied()
    }

    /// As the kernel's files say it: a disk and its limit a line.
    pub(crate) fn disks(&self, key: Key) -> Option<String> {
        let all = self.disks.iter().filter(|((of, _), _)| *of == key);
        let lines: Vec<_> = all
            .map(|((_, device), limit)| format!("{device} {limit}"))
            .collect();
        (!lines.is_empty()).then(|| lines.join("\n"))
    }

    pub(crate) fn list(&self, key: Key) -> Option<&NumberList> {
        self.lists.get(&key)
    }

    /// Sets a limit, or takes it away.
    pub(crate) fn set(&mut self, key: Key, value: Option<i64>) {
        match value {
            Some(value) => self.numbers.insert(key, value),
            None => self.numbers.remove(&key),
        };
    }

    /// Sets a list, or takes it away.
    pub(crate) fn set_list(&mut self, key: Key, list: Option<NumberList>) {
        match list {
            Some(list) => self.lists.insert(key, list),
            None => self.lists.remove(&key),
        };
    }

    /// Sets a limit of a disk; none of the 64 allowed is given up for another.
    pub(crate) fn set_disk(&mut self, key: Key, device: Device, value: i64) -> bool {
        let is_known = self.disks.contains_key(&(key, device));
        if !is_known && self.disks.len() >= DISKS_MAX {
            return false;
        }
        self.disks.insert((key, device), value);
        true
    }

    /// In the words of the system.
    pub(crate) fn limits(&self) -> Limits {
        let number = |key| self.number(key);
        let period = number(Key::CpuPeriodUs).unwrap_or(PERIOD_US).max(1);
        let cpu = number(Key::CpuQuotaUs).map(|quota| CpuLimit {
            millicores: u32::try_from(quota * 1_000 / period)
                .unwrap_or(u32::MAX)
                .clamp(1, 1_024_000),
            burst_us: 0,
        });
        let weight = number(Key::CpuShares)
            .and_then(|shares| u32::try_from(shares * 100 / SHARES).ok())
            .map(|weight| weight.clamp(1, 10_000));
        let memory = [Key::MemoryBytes, Key::MemorySwapBytes].map(number);
        let memory = memory.into_iter().flatten().min();
        Limits {
            cpu,
            cpu_weight: weight,
            memory_bytes: memory.and_then(|bytes| u64::try_from(bytes).ok()),
            memory_high_bytes: None,
            pids: number(Key::Pids).and_then(|pids| u32::try_from(pids).ok()),
            io: self.io(),
            cpus: self.list(Key::Cpus).cloned(),
            mems: self.list(Key::Mems).cloned(),
        }
    }

    fn io(&self) -> Vec<IoLimit> {
        let mut all: BTreeMap<Device, IoLimit> = BTreeMap::new();
        for ((key, device), value) in &self.disks {
            let limit = all.entry(*device).or_insert(IoLimit {
                device: *device,
                read_bytes: None,
                write_bytes: None,
                read_ops: None,
                write_ops: None,
            });
            let value = u64::try_from(*value).ok();
            match key {
                Key::ReadBytes => limit.read_bytes = value,
                Key::WriteBytes => limit.write_bytes = value,
                Key::ReadOps => limit.read_ops = value,
                _ => limit.write_ops = value,
            }
        }
        all.into_values().collect()
    }
}
