//! Processes under test: looked at in `/proc`, awaited, and held still.

use std::fmt::Display;
use std::fs;
use std::path::PathBuf;

use rustix::process::{Pid, Signal, kill_process};

use crate::wait::{PATIENCE, eventually};

/// What the open descriptors of a process lead to.
///
/// # Panics
/// When there is no such process.
#[must_use]
pub fn open_files(pid: u32) -> Vec<PathBuf> {
    let list = fs::read_dir(format!("/proc/{pid}/fd")).expect("a process");
    let links = list.flatten().map(|entry| fs::read_link(entry.path()));
    // One may be closed meanwhile.
    links.flatten().collect()
}

/// Memory of a process by a line of its status: `VmRSS`, `VmHWM`.
///
/// # Panics
/// When there is no such process.
#[must_use]
pub fn memory_kib(pid: u32, line: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("a process");
    let mut lines = status.lines();
    let size = lines.find_map(|each| each.strip_prefix(line)?.strip_prefix(':'));
    let number = size.and_then(|size| size.split_whitespace().next()?.parse().ok());
    number.expect("a size in KiB")
}

/// Children of a process, zombies included.
#[must_use]
pub fn children(pid: u32) -> Vec<u32> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let text = text.unwrap_or_default();
    let words = text.split_whitespace();
    words.filter_map(|word| word.parse().ok()).collect()
}

/// Waits until a process has ended. Whoever inherited it may leave a zombie.
///
/// # Panics
/// When it goes on for a minute.
pub fn await_ended(pid: impl Display) {
    eventually(PATIENCE, &format!("process {pid} to end"), || {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        (stat.is_empty() || stat.contains(") Z ")).then_some(())
    });
}

/// Sends STOP to a process and waits until all its threads stand still: a signal reaches those on
/// other cores later.
///
/// # Panics
/// When there is no such process, or it goes on.
pub fn hold_still(pid: u32) {
    let id = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let id = id.unwrap_or_else(|| panic!("{pid} is no process id"));
    kill_process(id, Signal::STOP).expect("signal a process");
    let what = format!("all threads of {pid} to stand still");
    eventually(PATIENCE, &what, || stands_still(pid).then_some(()));
}

/// Whether all threads of a process are stopped.
fn stands_still(pid: u32) -> bool {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).expect("a process has threads");
    threads.flatten().all(|thread| {
        let status = fs::read_to_string(thread.path().join("status")).unwrap_or_default();
        status.contains("State:\tT")
    })
}
