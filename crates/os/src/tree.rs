//! A process and all that descends from it, as `/proc` tells.
//!
//! The idea: what a program that has no control group does can be told, and ended, by its
//! descendants. One that has left its parents behind, and been given to somebody else, is not
//! found: whoever wants a wall has a group.

use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// Processes that are looked at.
const PROCESSES_MAX: usize = 4_096;
/// How often what is killed is looked for again: each time there may be somebody new.
const ROUNDS_MAX: usize = 64;

/// What there is of a process and its descendants.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tree {
    /// All of them, each after the one it descends from.
    pub pids: Vec<u32>,
    /// Processor time that these have used, and those that ended and were waited for.
    pub cpu: Duration,
}

/// Looks at a process and its descendants; `None` where it is not there.
pub fn look(pid: u32) -> Option<Tree> {
    let mut tree = Tree {
        pids: vec![pid],
        cpu: cpu(pid)?,
    };
    let mut next = 0;
    while let Some(pid) = tree.pids.get(next).copied() {
        next += 1;
        for child in children(pid) {
            if tree.pids.len() >= PROCESSES_MAX {
                return Some(tree);
            }
            // Who moves while it is looked at may be come upon twice.
            if let (false, Some(cpu)) = (tree.pids.contains(&child), cpu(child)) {
                tree.pids.push(child);
                tree.cpu += cpu;
            }
        }
    }
    Some(tree)
}

/// The children of a process, whichever of its threads has them; none where the kernel does not
/// tell.
pub fn children(pid: u32) -> Vec<u32> {
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else {
        return Vec::new();
    };
    let tasks = tasks.flatten().take(PROCESSES_MAX);
    let lists = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    let mut children = Vec::new();
    for list in lists {
        let numbers = list.split_ascii_whitespace();
        children.extend(numbers.filter_map(|number| number.parse::<u32>().ok()));
    }
    children.truncate(PROCESSES_MAX);
    children
}

/// Kills the descendants of a process, but not itself. It is to be stopped or dead, or it may have
/// others at once.
pub fn kill_below(pid: u32) {
    for _ in 0..ROUNDS_MAX {
        let below = look(pid).map_or_else(Vec::new, |tree| tree.pids);
        let killed = below.iter().skip(1).filter(|below| kill(pid, **below));
        if killed.count() == 0 {
            return;
        }
    }
}

/// Kills a process if it is a descendant of `top`; tells whether it was there to be killed.
fn kill(top: u32, pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let Some(held) = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()) else {
        return false;
    };
    // The number may have passed to somebody else before it was held: look again.
    let number = pid.map_or(0, |pid| pid.as_raw_nonzero().get().unsigned_abs());
    let mut at = number;
    for _ in 0..PROCESSES_MAX {
        match parent(at) {
            Some(above) if above == top => {
                return !is_dead(number) && pidfd_send_signal(&held, Signal::KILL).is_ok();
            }
            Some(above) if above > 1 => at = above,
            _ => return false,
        }
    }
    false
}

/// Fields of `/proc/PID/stat` from the state, the third, on.
fn stat(pid: u32) -> Option<Vec<String>> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name may have anything in it, this as well.
    let (_, fields) = text.rsplit_once(") ")?;
    Some(fields.split_ascii_whitespace().map(str::to_owned).collect())
}

/// When a process began, in ticks since the machine did: of all that have had its number, this one.
pub fn born(pid: u32) -> Option<u64> {
    stat(pid)?.get(19)?.parse().ok()
}

fn is_dead(pid: u32) -> bool {
    stat(pid).is_none_or(|fields| {
        fields
            .first()
            .is_none_or(|state| state == "Z" || state == "X")
    })
}

fn parent(pid: u32) -> Option<u32> {
    stat(pid)?.get(1)?.parse().ok()
}

/// Processor time of a process and of the children it has waited for.
fn cpu(pid: u32) -> Option<Duration> {
    let fields = stat(pid)?;
    let ticks = |at: usize| fields.get(at)?.parse::<u64>().ok();
    let a_second = rustix::param::clock_ticks_per_second().max(1);
    let mut own = Duration::ZERO;
    match crate::cpu::process_cpu_ns_of(pid) {
        Some(nanoseconds) => own += Duration::from_nanos(nanoseconds),
        None => own += of_ticks(ticks(11)? + ticks(12)?, a_second),
    }
    Some(own + of_ticks(ticks(13)? + ticks(14)?, a_second))
}

fn of_ticks(ticks: u64, a_second: u64) -> Duration {
    Duration::from_nanos(ticks.saturating_mul(1_000_000_000 / a_second))
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);

    #[test]
    fn descendants_are_found_and_killed_and_their_time_is_told() {
        // A child, and a grandchild in a session of its own with a name to trip over.
        let script = "(exec -a ') Z 1 (' setsid bash -c 'echo ready; while :; do :; done') & wait";
        let mut top = Command::new("bash")
            .args(["-c", script])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut said = BufReader::new(top.stdout.take().unwrap());
        said.read_line(&mut line).unwrap();
        let before = look(top.id()).unwrap();
        assert!(before.pids.len() >= 2, "{before:?}");
        assert_eq!(before.pids.first(), Some(&top.id()));
        testkit::eventually(PATIENCE, "time to pass", || {
            let now = look(top.id())?;
            (now.cpu >= before.cpu + Duration::from_millis(30)).then_some(())
        });
        let stranger = Command::new("sleep").arg("600").spawn();
        let mut stranger = stranger.unwrap();
        let born = [std::process::id(), top.id(), stranger.id()].map(|it| super::born(it).unwrap());
        assert!(born.is_sorted() && born[0] > 0, "{born:?}");
        kill_below(top.id());
        top.wait().unwrap();
        assert_eq!(look(top.id()), None);
        for pid in before.pids.iter().skip(1) {
            testkit::eventually(PATIENCE, "its end", || is_dead(*pid).then_some(()));
        }
        assert!(stranger.try_wait().unwrap().is_none());
        assert!(children(std::process::id()).contains(&stranger.id()));
        stranger.kill().unwrap();
        stranger.wait().unwrap();
    }
}
