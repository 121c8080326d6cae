//! CPU time and memory of a process and all its descendants, read from /proc.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

/// Clock ticks of `/proc/PID/stat`; fixed by the kernel's user interface.
const TICKS_PER_SECOND: f64 = 100.0;

/// CPU time consumed so far by a process tree.
#[derive(Debug, Default, Clone)]
pub(crate) struct CpuTime {
    /// Nanoseconds of every live thread.
    threads_ns: BTreeMap<(u32, u32), u64>,
    /// User and system ticks of every process, threads that ended included.
    ticks: u64,
}

impl CpuTime {
    /// Reads the tree below and including `root`.
    pub(crate) fn read(root: u32) -> CpuTime {
        let mut time = CpuTime::default();
        for pid in tree(root) {
            time.ticks += stat_ticks(pid).unwrap_or(0);
            for tid in numbers_in(&format!("/proc/{pid}/task")) {
                if let Some(ns) = first_number(&format!("/proc/{pid}/task/{tid}/schedstat")) {
                    time.threads_ns.insert((pid, tid), ns);
                }
            }
        }
        time
    }

    /// Seconds consumed since `before`.
    ///
    /// The nanoseconds of threads are exact, but a thread that ended takes its own with it; then
    /// the coarser ticks of the processes are used.
    pub(crate) fn seconds_since(&self, before: &CpuTime) -> f64 {
        if before
            .threads_ns
            .keys()
            .all(|thread| self.threads_ns.contains_key(thread))
        {
            let sum = |time: &CpuTime| time.threads_ns.values().sum::<u64>();
            sum(self).saturating_sub(sum(before)) as f64 / 1e9
        } else {
            self.ticks.saturating_sub(before.ticks) as f64 / TICKS_PER_SECOND
        }
    }
}

/// What every epoll instance of the tree below and including `root` watches: process and
/// descriptors. An instance held under several descriptors is one.
pub(crate) fn watched(root: u32) -> BTreeSet<(u32, BTreeSet<u32>)> {
    let mut watched = BTreeSet::new();
    for pid in tree(root) {
        for fd in numbers_in(&format!("/proc/{pid}/fdinfo")) {
            let info = fs::read_to_string(format!("/proc/{pid}/fdinfo/{fd}")).unwrap_or_default();
            let targets = info.lines().filter_map(|line| line.strip_prefix("tfd:"));
            let targets = targets.filter_map(|line| line.split_whitespace().next()?.parse().ok());
            watched.insert((pid, targets.collect()));
        }
    }
    watched
}

/// Resident memory of the tree below and including `root`, in bytes: anonymous pages of every
/// process, and file pages (the binary, shared by all) of the largest one.
pub(crate) fn resident_bytes(root: u32) -> u64 {
    let mut anonymous = 0;
    let mut shared = 0;
    for pid in tree(root) {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let kib = |key: &str| -> u64 {
            let line = status.lines().find_map(|line| line.strip_prefix(key));
            line.and_then(|rest| rest.split_whitespace().next()?.parse().ok())
                .unwrap_or(0)
        };
        anonymous += kib("RssAnon:");
        shared = shared.max(kib("RssFile:") + kib("RssShmem:"));
    }
    (anonymous + shared) * 1024
}

/// The processes of the tree, `root` first.
pub(crate) fn tree(root: u32) -> Vec<u32> {
    let parents: Vec<(u32, u32)> = numbers_in("/proc")
        .into_iter()
        .filter_map(|pid| Some((pid, parent(pid)?)))
        .collect();
    let mut found = vec![root];
    let mut next = 0;
    while let Some(&pid) = found.get(next) {
        found.extend(
            parents
                .iter()
                .filter(|(_, parent)| *parent == pid)
                .map(|(child, _)| *child),
        );
        next += 1;
    }
    found
}

fn parent(pid: u32) -> Option<u32> {
    stat_fields(pid)?.get(1)?.parse().ok()
}

fn stat_ticks(pid: u32) -> Option<u64> {
    let fields = stat_fields(pid)?;
    Some(fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?)
}

/// Fields after the command name, which may itself hold blanks: state is 0, parent 1, utime 11.
fn stat_fields(pid: u32) -> Option<Vec<String>> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(')')?;
    Some(rest.split_whitespace().map(str::to_owned).collect())
}

fn first_number(path: &str) -> Option<u64> {
    fs::read_to_string(path)
        .ok()?
        .split_whitespace()
        .next()?
        .parse()
        .ok()
}

fn numbers_in(directory: &str) -> Vec<u32> {
    let Ok(entries) = fs::read_dir(directory) else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_thread_shows_in_its_process() {
        let root = std::process::id();
        let before = CpuTime::read(root);
        let mut spent = 0.0;
        while spent < 0.05 {
            std::hint::black_box((0..100_000u64).sum::<u64>());
            spent = CpuTime::read(root).seconds_since(&before);
        }
        assert!(resident_bytes(root) > 100 * 1024);
    }

    #[test]
    fn a_child_belongs_to_the_tree() {
        let mut child = std::process::Command::new("sleep")
            .arg("30")
            .spawn()
            .expect("sleep starts");
        let found = tree(std::process::id());
        child.kill().expect("sleep is ours");
        child.wait().expect("sleep ends");
        assert!(found.contains(&child.id()));
    }
}
