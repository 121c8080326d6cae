//! The programs that run, and what is said of their ends.

use std::collections::BTreeMap;

use ipc::order::{End, Ended, Failure, LimitHit};
use os::spawn::{Failed, Limits, Process, Stage, Verdict};

use super::Refusal;
use super::groups::Watch;

/// A worker's number for a program, with the spawner's number for the worker.
pub(super) type Order = (u64, u64);

/// Every program that was started and is not reaped.
#[derive(Debug, Default)]
pub(super) struct Programs {
    by_pid: BTreeMap<u32, Program>,
    by_order: BTreeMap<Order, u32>,
}

/// A program that was started and is not reaped.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) order: Order,
    pub(super) process: Process,
    /// Whether its start is still to be told.
    pub(super) says_start: bool,
    pub(super) verdict: Verdict,
    /// Why it does not run, where that is known before its end.
    pub(super) failed: Option<Failed>,
    /// What it is called in messages.
    pub(super) script: String,
    pub(super) limits: Limits,
    /// Its group, if it has one.
    pub(super) group: Option<Watch>,
    pub(super) asker: Asker,
    /// Whose it is; empty where it is the gateway's own.
    pub(super) tenant: String,
    /// Whether we have killed it.
    pub(super) is_killed: bool,
}

/// Who has a program run; each has places of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asker {
    /// A request, which waits for its end.
    Request,
    /// A map, which asks it.
    Map,
    /// The supervisor, as a chore.
    Supervisor,
}

impl Programs {
    pub(super) fn count(&self) -> usize {
        self.by_pid.len()
    }

    pub(super) fn count_of(&self, asker: Asker) -> usize {
        let programs = self.by_pid.values();
        programs.filter(|program| program.asker == asker).count()
    }

    pub(super) fn has(&self, order: Order) -> bool {
        self.by_order.contains_key(&order)
    }

    pub(super) fn add(&mut self, program: Program) {
        let pid = program.process.pid();
        self.by_order.insert(program.order, pid);
        self.by_pid.insert(pid, program);
    }

    /// Takes a program out, to be reaped.
    pub(super) fn remove(&mut self, pid: u32) -> Option<Program> {
        let program = self.by_pid.remove(&pid)?;
        self.by_order.remove(&program.order);
        Some(program)
    }

    pub(super) fn get_mut(&mut self, pid: u32) -> Option<&mut Program> {
        self.by_pid.get_mut(&pid)
    }

    /// Those whose start is to be told.
    pub(super) fn starting(&self) -> impl Iterator<Item = (u32, &Verdict)> {
        let programs = self.by_pid.iter();
        let starting = programs.filter(|(_, program)| program.says_start);
        starting.map(|(pid, program)| (*pid, &program.verdict))
    }

    pub(super) fn kill(&mut self, order: Order) {
        let pid = self.by_order.get(&order);
        if let Some(program) = pid.and_then(|pid| self.by_pid.get_mut(pid)) {
            program.kill();
        }
    }

    /// Kills what a worker has started.
    pub(super) fn kill_all_of(&mut self, worker: u64) {
        for program in self.by_pid.values_mut() {
            if program.order.0 == worker {
                program.kill();
            }
        }
    }

    /// Kills those of tenants that are meant; how many they are.
    pub(super) fn kill_of(&mut self, is_meant: impl Fn(&str) -> bool) -> usize {
        let programs = self.by_pid.values_mut();
        let meant = programs.filter(|it| it.asker == Asker::Request && is_meant(&it.tenant));
        meant.fold(0, |count, program| {
            program.kill();
            count + 1
        })
    }

    pub(super) fn kill_all(&mut self) {
        self.by_pid.values_mut().for_each(Program::kill);
    }
}

impl Program {
    fn kill(&mut self) {
        self.is_killed = true;
        self.process.kill();
    }

    /// Reaps it, and kills what is left of its process group.
    pub(super) fn reap(self) -> Ended {
        let (order, limits, is_killed) = (self.order, self.limits, self.is_killed);
        let ended = self.process.reap().unwrap_or_else(|error| {
            let error = config::reason(&error);
            tracing::error!(error, "a program cannot be waited for");
            os::spawn::Ended {
                end: os::spawn::End::Signal(9),
                cpu_us: 0,
                peak_rss_bytes: 0,
            }
        });
        Ended {
            id: order.1,
            end: match ended.end {
                os::spawn::End::Exit(status) => End::Exit(status),
                os::spawn::End::Signal(signal) => End::Signal(signal),
            },
            cpu_us: ended.cpu_us,
            peak_rss_bytes: ended.peak_rss_bytes,
            limit: if is_killed {
                None
            } else {
                limit_hit(&ended, &limits)
            },
        }
    }
}

/// Which of its own limits ended a program. A shell tells the signal that ended its child by a
/// status.
fn limit_hit(ended: &os::spawn::Ended, limits: &Limits) -> Option<LimitHit> {
    const KILL: u8 = 9;
    const XCPU: u8 = 24;
    const XFSZ: u8 = 25;
    const OF_CHILD: u8 = 128;
    let signal = match ended.end {
        os::spawn::End::Signal(signal) => signal,
        os::spawn::End::Exit(status) => status.checked_sub(OF_CHILD)?,
    };
    match (signal, limits.cpu_s, limits.file_size_bytes) {
        (XCPU, Some(seconds), _) => Some(LimitHit::CpuTime { seconds }),
        // It did not listen the first time.
        (KILL, Some(seconds), _) if ended.cpu_us / 1_000_000 >= seconds => {
            Some(LimitHit::CpuTime { seconds })
        }
        (XFSZ, _, Some(bytes)) => Some(LimitHit::FileSize { bytes }),
        _ => None,
    }
}

/// Why a start failed, in the words of a report.
pub(super) fn refusal(failed: &Failed, script: &str) -> Refusal {
    const AGAIN: i32 = 11;
    const NO_MEMORY: i32 = 12;
    const TOO_BIG: i32 = 7;
    const NO_EXEC: i32 = 8;
    let reason = config::reason(&failed.error);
    let (failure, what) = match (failed.stage, failed.error.raw_os_error()) {
        (_, Some(AGAIN)) => (
            Failure::PidsLimit,
            format!("start {script}: no further process for its group, its user or this machine"),
        ),
        (_, Some(NO_MEMORY)) => (Failure::NoMemory, format!("start {script}: {reason}")),
        (Stage::Group, _) => (
            Failure::GroupFailed,
            format!("put {script} into its control group: {reason}"),
        ),
        (Stage::Walls, _) => {
            let path = failed.path.as_deref().unwrap_or("/".as_ref()).display();
            (
                Failure::SpawnFailed,
                format!("build the walls of {script}, at {path}: {reason}"),
            )
        }
        (Stage::Directory, _) => (
            Failure::NotExecutable,
            format!("enter the directory of {script} as its user: {reason}"),
        ),
        (Stage::Exec, Some(NO_EXEC)) => (
            Failure::NotAProgram,
            format!("{script} is neither a binary for this machine nor begins with a #! line"),
        ),
        (Stage::Exec, Some(TOO_BIG)) => (
            Failure::EnvironmentRefused,
            format!("{script}: its environment is larger than the system takes"),
        ),
        (Stage::Exec, _) => match failed.error.kind() {
            std::io::ErrorKind::NotFound => (
                Failure::InterpreterMissing,
                format!(
                    "run {script}: what its first line names is missing (head -1 {script}); where \
                     that ends as on Windows: sed -i 's/\\r$//' {script}"
                ),
            ),
            std::io::ErrorKind::PermissionDenied => (
                Failure::NotExecutable,
                format!("run {script}, or what its first line names, as its user: {reason}"),
            ),
            _ => (Failure::SpawnFailed, format!("run {script}: {reason}")),
        },
        (stage, _) => (
            Failure::SpawnFailed,
            format!("start {script} ({stage:?}): {reason}"),
        ),
    };
    Refusal::new(failure, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_that_ended_a_program_is_told() {
        let limits = Limits {
            cpu_s: Some(2),
            file_size_bytes: Some(7),
            ..Limits::default()
        };
        let told = |end, cpu_us, limits: &Limits| {
            let ended = os::spawn::Ended {
                end,
                cpu_us,
                peak_rss_bytes: 0,
            };
            limit_hit(&ended, limits)
        };
        let hit = |signal, cpu_us, limits: &Limits| {
            let by_child = told(os::spawn::End::Exit(128 + signal), cpu_us, limits);
            let hit = told(os::spawn::End::Signal(signal), cpu_us, limits);
            assert_eq!(hit, by_child);
            hit
        };
        for status in [0, 1, 24, 127, 128, 255] {
            assert_eq!(told(os::spawn::End::Exit(status), 9_000_000, &limits), None);
        }
        let cpu = Some(LimitHit::CpuTime { seconds: 2 });
        assert_eq!(hit(24, 1_999_000, &limits), cpu);
        assert_eq!(hit(9, 2_000_000, &limits), cpu);
        assert_eq!(hit(9, 1_999_999, &limits), None);
        assert_eq!(hit(25, 0, &limits), Some(LimitHit::FileSize { bytes: 7 }));
        for signal in [9, 24, 25] {
            assert_eq!(hit(signal, 9_000_000, &Limits::default()), None);
        }
    }
}
