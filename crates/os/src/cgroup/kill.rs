//! The end of everything in a group.
//!
//! The idea: version 2 has a file for it; elsewhere processes are killed by descriptors, taken
//! while they are in the group, in rounds until nobody is left. A number of rounds and a deadline
//! bound it: a process that waits for a disk dies when the disk has answered.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::interface;

/// Between two looks.
const ROUND: Duration = Duration::from_millis(2);
/// Groups below one another, and in all, that are looked at.
const DEPTH_MAX: usize = 8;
/// Groups looked at in one go.
const GROUPS_MAX: usize = 65_536;

/// Kills every process in a group and the groups below it; tells whether it found them empty in
/// the end. This process itself is left alone.
pub fn kill_all(directory: &Path, patience: Duration) -> bool {
    let until = Instant::now() + patience;
    loop {
        if interface::write(&directory.join("cgroup.kill"), "1").is_err() {
            for group in groups(directory) {
                kill_members(&group);
            }
        }
        let is_empty = |group: &PathBuf| {
            interface::processes(group).is_ok_and(|processes| processes.is_empty())
        };
        if groups(directory).iter().all(is_empty) {
            return true;
        }
        if Instant::now() >= until {
            return false;
        }
        std::thread::sleep(ROUND);
    }
}

/// Removes a group and those below it, in which nothing runs.
pub(super) fn remove(directory: &Path) -> io::Result<()> {
    let mut found = groups(directory);
    // Those below come after those above.
    found.reverse();
    for group in found {
        match rustix::fs::rmdir(&group) {
            Ok(()) | Err(rustix::io::Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Kills everything in a group and removes it, no later than `until`. A process that has just died
/// may keep its group for a moment in which it is listed nowhere.
pub(super) fn destroy(directory: &Path, until: Instant) -> io::Result<()> {
    loop {
        kill_all(directory, until.saturating_duration_since(Instant::now()));
        match remove(directory) {
            Err(_) if Instant::now() < until => std::thread::sleep(ROUND),
            result => return result,
        }
    }
}

fn kill_members(group: &Path) {
    let own = i32::try_from(std::process::id()).unwrap_or(0);
    for process in interface::processes(group).unwrap_or_default() {
        let Some(pid) = Pid::from_raw(process).filter(|_| process != own) else {
            continue;
        };
        let Ok(held) = pidfd_open(pid, PidfdFlags::empty()) else {
            continue;
        };
        // The number may have passed to somebody else before it was held: look again.
        let members = interface::processes(group).unwrap_or_default();
        if members.contains(&process) {
            let _ = pidfd_send_signal(&held, Signal::KILL);
        }
    }
}

/// A group and those below it, each after the one it is in.
pub(super) fn groups(directory: &Path) -> Vec<PathBuf> {
    let mut found = vec![directory.to_owned()];
    let mut level = vec![directory.to_owned()];
    for _ in 0..DEPTH_MAX {
        let below: Vec<PathBuf> = level.iter().flat_map(|group| below(group)).collect();
        if below.is_empty() || found.len() + below.len() > GROUPS_MAX {
            break;
        }
        found.extend_from_slice(&below);
        level = below;
    }
    found
}

fn below(group: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(group) else {
        return Vec::new();
    };
    let directories = entries
        .flatten()
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    directories
        .take(GROUPS_MAX)
        .map(|entry| entry.path())
        .collect()
}
