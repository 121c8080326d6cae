//! Processes under test, held still.

use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::wait::eventually;

/// How long the threads of a process may take to stop.
const PATIENCE: Duration = Duration::from_secs(60);

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
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).expect("a process has threads");
    threads.flatten().all(|thread| {
        let status = std::fs::read_to_string(thread.path().join("status")).unwrap_or_default();
        status.contains("State:\tT")
    })
}
