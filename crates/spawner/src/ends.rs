//! Ends: of programs, of what they leave behind, and of the spawner itself.

use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use ipc::order::Report;

use super::Spawner;
use super::programs::{self, Program};

/// Ends dealt with before anything else has its turn.
const ENDS_A_TURN: usize = 64;
/// How long what was killed may take to end when the spawner does.
const LAST_ENDS: Duration = Duration::from_secs(1);
/// How often an ending spawner looks for what was left to it meanwhile.
const LAST_LOOK: Duration = Duration::from_millis(20);
/// How long a supervisor may take to end once its link has: the kernel closes what a process has
/// before it tells of the process's end.
const SUPERVISOR_END: Duration = Duration::from_millis(500);

impl Spawner {
    /// Reaps who has ended: programs, and what they left to us.
    pub(super) fn on_ends(&mut self) -> io::Result<()> {
        self.ends.clear()?;
        for _ in 0..ENDS_A_TURN {
            let Some(pid) = os::spawn::next_ended()? else {
                self.more_ends = false;
                return Ok(());
            };
            match self.programs.remove(pid) {
                Some(program) => self.on_end(program),
                None if self.on_pool_end(pid) => {}
                None => os::spawn::reap_orphan(pid)?,
            }
        }
        self.more_ends = true;
        Ok(())
    }

    fn on_end(&mut self, mut program: Program) {
        let (worker, id) = program.order;
        // Its process has gone: the verdict is there.
        let failure = program.failed.take();
        let failure = failure.or_else(|| program.verdict.ask()?.err());
        let script = std::mem::take(&mut program.script);
        let group = program.group.take().filter(|_| !program.is_killed);
        let says_start = program.says_start;
        let pid = program.process.pid();
        let mut ended = program.reap();
        if let Some(hit) = group.and_then(|group| self.groups.hit(&group)) {
            ended.limit = Some(hit);
        }
        if let Some(failure) = failure {
            return self.refuse((worker, id), programs::refusal(&failure, &script));
        }
        if says_start {
            self.say(worker, &Report::Started { id, pid });
        }
        self.say(worker, &Report::Ended(ended));
    }

    /// Kills everything that was started here, and waits for it. Pools live on where the supervisor
    /// does, who knows of them.
    pub(super) fn end(mut self) -> io::Result<()> {
        self.programs.kill_all();
        let now = Instant::now();
        let (until, alive_at) = (now + LAST_ENDS, now + SUPERVISOR_END);
        let mut pools = self.pools.pids();
        loop {
            self.on_ends()?;
            // Before the look at the supervisor, which is so never older than it says.
            let now = Instant::now();
            if !pools.is_empty() && self.parent.has_ended() {
                self.pools.kill_all();
                pools.clear();
            }
            let may_be_killed = !pools.is_empty() && now < alive_at;
            let mut left = os::process::children();
            left.retain(|child| !pools.contains(child));
            if left.is_empty() && self.programs.count() == 0 && !may_be_killed {
                return Ok(());
            }
            if now >= until {
                let left = left.len();
                tracing::warn!(left, "programs that were killed have not ended");
                return Ok(());
            }
            // Those that left their sessions come to us once their parents have ended.
            for child in left {
                os::process::kill_child(child);
            }
            let parent = may_be_killed.then(|| self.parent.as_fd());
            let waited: Vec<_> = parent.into_iter().chain([self.ends.as_fd()]).collect();
            os::net::wait_readable(&waited, Some(LAST_LOOK))?;
        }
    }
}
