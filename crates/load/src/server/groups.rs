//! The control groups a process tree stands in: its CPU time where a group holds the tree and
//! nobody else, and what quotas did to it.
//!
//! The idea: a group counts to the nanosecond what came and went between two looks, which no look
//! at processes can. It serves only while it is the tree's own, which every look makes sure of;
//! from one look to the next it is either the group's time or the processes' that counts.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use os::cgroup::{Controller, CpuFigures, Mounts, Standing};

use super::files;
use super::reading::Throttling;
use super::texts::{self, Stat};

/// Groups below the tree's own: with more, looking through them would cost more than it brings.
const GROUPS_MAX: usize = 64;
/// Groups with a quota that are watched.
const QUOTAS_MAX: usize = 64;
/// Steps from a process to one that belongs to the tree.
const STEPS_MAX: usize = 16;
/// A line of `/proc/PID/cgroup` for each hierarchy.
const MEMBERSHIP_BYTES_MAX: usize = 64 * 1024;

/// The groups of a tree.
#[derive(Debug, Default)]
pub(super) struct Groups {
    mounts: Mounts,
    /// Where each process stands in the hierarchy that counts CPU time.
    places: BTreeMap<u32, Option<Standing>>,
    quotas: BTreeMap<Standing, Quota>,
    /// The group that held the tree alone at the last look, and its CPU time then.
    own: Option<(Standing, Duration)>,
}

/// A group with a quota, when it was first seen and last.
#[derive(Debug)]
struct Quota {
    first: CpuFigures,
    last: CpuFigures,
}

impl Groups {
    pub(super) fn new() -> Groups {
        Groups {
            mounts: Mounts::read().unwrap_or_default(),
            ..Groups::default()
        }
    }

    /// Takes note of where processes stand: of those that are new, or of all.
    pub(super) fn learn(&mut self, processes: &BTreeSet<u32>, anew: Anew) {
        if anew == Anew::All {
            self.places.clear();
        }
        self.places.retain(|pid, _| processes.contains(pid));
        for pid in processes {
            if self.places.contains_key(pid) {
                continue;
            }
            let bytes = files::bytes(&format!("/proc/{pid}/cgroup"), MEMBERSHIP_BYTES_MAX);
            let text = String::from_utf8_lossy(&bytes.unwrap_or_default()).into_owned();
            let place = self.mounts.standing(&text, Controller::CpuTime);
            // Who is on its way out is told to stand at the root, or nowhere. It stood with the
            // others, and those are asked.
            let is_at_root = place.as_ref().is_none_or(Standing::is_root);
            if is_at_root && stat(*pid).is_none_or(|stat| stat.is_exiting) {
                continue;
            }
            self.places.insert(*pid, place);
            let quota = self.mounts.standing(&text, Controller::Cpu);
            if let Some(group) = quota.and_then(|group| group.with_quota())
                && self.quotas.len() < QUOTAS_MAX
            {
                self.quotas.entry(group).or_insert_with_key(|group| {
                    let first = group.cpu_figures();
                    Quota { first, last: first }
                });
            }
        }
    }

    /// CPU time since the last look, where a group held the tree alone then and does so now.
    pub(super) fn cpu_since(&mut self, processes: &BTreeSet<u32>) -> Option<Duration> {
        let own = self.own_group(processes);
        let used = own.as_ref().and_then(|group| group.cpu_figures().used);
        let now = own.zip(used);
        let last = std::mem::replace(&mut self.own, now);
        let ((before, from), (group, to)) = (last?, self.own.as_ref()?);
        (before == *group).then(|| to.saturating_sub(from))
    }

    /// What quotas did to the tree since each was first seen; `None` where there is none.
    pub(super) fn throttling(&mut self) -> Option<Throttling> {
        let mut sum = Throttling::default();
        for (group, quota) in &mut self.quotas {
            let now = group.cpu_figures();
            if now.periods >= quota.last.periods {
                quota.last = now;
            }
            let Quota { first, last } = quota;
            sum.periods += last.periods.saturating_sub(first.periods);
            sum.throttled += last
                .throttled_periods
                .saturating_sub(first.throttled_periods);
            sum.time += last.throttled.saturating_sub(first.throttled);
        }
        (!self.quotas.is_empty()).then_some(sum)
    }

    /// The group all processes are in or below, if it is not everybody's and nobody else is there.
    fn own_group(&self, processes: &BTreeSet<u32>) -> Option<Standing> {
        let mut places = self.places.values();
        let first = places.next()?.clone()?;
        let mut directory = first.directory.clone();
        for place in places {
            directory = common(&directory, &place.as_ref()?.directory);
        }
        let group = Standing { directory, ..first };
        let is_below_top = group.directory.starts_with(&group.top);
        if !is_below_top || group.is_root() {
            return None;
        }
        let found = group.processes(GROUPS_MAX)?;
        let is_ours = |pid: &u32| processes.contains(pid) || belongs(*pid, processes);
        found.iter().all(is_ours).then_some(group)
    }
}

/// Whose places are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Anew {
    /// Those of processes not known yet.
    New,
    /// All, for processes may be moved.
    All,
}

/// Whether a process that was not there at the look descends from one that was, or is gone again.
fn belongs(pid: u32, processes: &BTreeSet<u32>) -> bool {
    let mut at = pid;
    for _ in 0..STEPS_MAX {
        if processes.contains(&at) {
            return true;
        }
        match parent(at) {
            // Zero stands for a process that is not shown here.
            None => return at == pid && pid != 0,
            Some(parent) => at = parent,
        }
    }
    false
}

/// The parent of a process, if that is there. One that is waited for at this very moment can still
/// be opened and has no parent any more; who looks again finds it gone.
fn parent(pid: u32) -> Option<u32> {
    let look = || Some(stat(pid)?.parent);
    look().filter(|parent| *parent != 0).or_else(look)
}

fn stat(pid: u32) -> Option<Stat> {
    texts::stat(&files::bytes(
        &format!("/proc/{pid}/stat"),
        files::BYTES_MAX,
    )?)
}

/// The directory both are in.
fn common(one: &Path, other: &Path) -> PathBuf {
    let pairs = one.components().zip(other.components());
    let same = pairs.take_while(|(one, other)| one == other);
    same.map(|(part, _)| part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_directory_of_two_groups_is_the_one_both_are_in() {
        for (one, other, expected) in [
            ("/cg/a/b", "/cg/a/c", "/cg/a"),
            ("/cg/a", "/cg/a", "/cg/a"),
            ("/cg/a", "/cg/ab", "/cg"),
            ("/cg/a", "/cg/a/b/c", "/cg/a"),
            ("/x", "/y", "/"),
        ] {
            assert_eq!(
                common(Path::new(one), Path::new(other)),
                Path::new(expected)
            );
        }
    }

    #[test]
    fn a_process_that_is_gone_is_nobody_elses() {
        let own = std::process::id();
        let ours = BTreeSet::from([own]);
        assert!(belongs(own, &ours));
        assert!(belongs(i32::MAX as u32, &ours));
        assert!(!belongs(1, &ours) && !belongs(0, &ours));
    }
}
