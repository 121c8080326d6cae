//! The spawner: starts the programs that workers ask for, and knows how each of them ends.
//!
//! The idea: it alone keeps the privileges to become others, so it reads nothing a client sent
//! but environments and names, takes no worker's word for what may be run, and waits for nobody:
//! one thread, one poll over links, starts and ends. It dies with the supervisor's link, and its
//! programs with it; with a worker's link die that worker's programs. A program that made itself
//! a session of its own outlives its leader, within its control group, but not the spawner.

mod checks;
mod environment;
mod groups;
mod plans;
mod programs;
mod worker;

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use config::reason;
use engine::error_log;
use engine::programs::message::{Failure, Order, Report, Run};
use engine::programs::plan::{FromSpawner, Plan, ToSpawner};
use os::net::Want;
use os::signal::ChildEnds;
use os::spawn::Birth;

use self::groups::Groups;
use self::plans::Plans;
use self::programs::{Program, Programs};
use self::worker::Worker;
use crate::outcome::Outcome;

/// How long the last lines of the error log may take.
const FLUSH: Duration = Duration::from_secs(1);
/// Orders taken from one worker before the next one has its turn.
const ORDERS_A_TURN: usize = 8;
/// Ends dealt with before anything else has its turn.
const ENDS_A_TURN: usize = 64;
/// How long what was killed may take to end when the spawner does.
const LAST_ENDS: Duration = Duration::from_secs(1);
/// How often an ending spawner looks for what was left to it meanwhile.
const LAST_LOOK: Duration = Duration::from_millis(20);
/// How often groups that are to go are looked at.
const SWEEP: Duration = Duration::from_secs(1);

/// Why a program is not started.
#[derive(Debug)]
struct Refusal {
    failure: Failure,
    detail: String,
}

impl Refusal {
    fn new(failure: Failure, detail: String) -> Refusal {
        Refusal { failure, detail }
    }
}

/// Starts programs until the supervisor has gone.
pub(crate) fn run() -> Outcome {
    // First of all: threads to come inherit which signals wait to be read.
    let ends = ChildEnds::listen();
    error_log::start("spawner");
    os::process::set_name("nagaya-spawner");
    let served = ends
        .and_then(Spawner::start)
        .and_then(|spawner| spawner.serve());
    if let Err(error) = &served {
        tracing::error!(error = reason(error), "the spawner cannot go on");
    }
    error_log::flush(FLUSH);
    match served {
        Ok(()) => Outcome::Fine,
        Err(_) => Outcome::Failed,
    }
}

struct Spawner {
    supervisor: OwnedFd,
    ends: ChildEnds,
    plans: Plans,
    groups: Groups,
    programs: Programs,
    workers: BTreeMap<u64, Worker>,
    /// Workers there have been: the next one's number.
    workers_seen: u64,
    /// Room for one order.
    buffer: Vec<u8>,
    /// Children have ended that nobody has looked at.
    more_ends: bool,
}

/// What something is waited for at.
#[derive(Debug, Clone, Copy)]
enum Source {
    Ends,
    Supervisor,
    Worker(u64),
    Verdict(u32),
}

impl Spawner {
    fn start(ends: ChildEnds) -> io::Result<Spawner> {
        let supervisor = os::process::take_stdin()?;
        os::spawn::adopt_orphans()?;
        Ok(Spawner {
            supervisor,
            ends,
            plans: Plans::default(),
            groups: Groups::default(),
            programs: Programs::default(),
            workers: BTreeMap::new(),
            workers_seen: 0,
            buffer: Vec::new(),
            more_ends: false,
        })
    }

    /// Serves until the supervisor's end of the link is closed.
    fn serve(mut self) -> io::Result<()> {
        loop {
            for source in self.wait()? {
                match source {
                    Source::Ends => self.on_ends()?,
                    Source::Worker(number) => self.on_worker(number),
                    Source::Verdict(pid) => self.on_verdict(pid),
                    Source::Supervisor => match self.on_supervisor() {
                        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                            return self.end();
                        }
                        result => result?,
                    },
                }
            }
            self.groups.sweep();
        }
    }

    /// Waits until there is something to do, and tells where.
    fn wait(&self) -> io::Result<Vec<Source>> {
        let mut sources = vec![Source::Ends, Source::Supervisor];
        let mut waited = vec![
            (self.ends.as_fd(), Want::Read),
            (self.supervisor.as_fd(), Want::Read),
        ];
        for (number, worker) in &self.workers {
            sources.push(Source::Worker(*number));
            waited.push(worker.want());
        }
        for (pid, verdict) in self.programs.starting() {
            sources.push(Source::Verdict(pid));
            waited.push((verdict.as_fd(), Want::Read));
        }
        let patience = match (self.more_ends, self.groups.are_leaving()) {
            (true, _) => Some(Duration::ZERO),
            (false, true) => Some(SWEEP),
            (false, false) => None,
        };
        let ready = os::net::wait_ready(&waited, patience)?;
        let ready = sources.into_iter().zip(ready);
        let ready = ready.filter(|(source, is_ready)| {
            *is_ready || (self.more_ends && matches!(source, Source::Ends))
        });
        Ok(ready.map(|(source, _)| source).collect())
    }

    fn on_supervisor(&mut self) -> io::Result<()> {
        match ToSpawner::recv(self.supervisor.as_fd())? {
            ToSpawner::Plan(plan) => self.take_plan(plan),
            ToSpawner::Workers { links } => {
                for link in links {
                    self.workers.insert(self.workers_seen, Worker::new(link));
                    self.workers_seen += 1;
                }
                Ok(())
            }
        }
    }

    fn take_plan(&mut self, plan: Plan) -> io::Result<()> {
        let generation = plan.generation;
        let answer = match self.groups.take(&plan) {
            Ok(()) => {
                self.plans.take(plan);
                FromSpawner::Ready { generation }
            }
            Err(message) => FromSpawner::Refused {
                generation,
                message,
            },
        };
        os::process::release_memory();
        answer.send(self.supervisor.as_fd())
    }

    /// Takes orders of a worker, or sends what waits for it; forgets one that has gone or whose
    /// orders make no sense.
    fn on_worker(&mut self, number: u64) {
        if let Err(error) = self.serve_worker(number) {
            if error.kind() != io::ErrorKind::UnexpectedEof {
                tracing::warn!(error = reason(&error), "a worker's link is closed");
            }
            self.lose_worker(number);
        }
    }

    fn serve_worker(&mut self, number: u64) -> io::Result<()> {
        for _ in 0..ORDERS_A_TURN {
            let Some(worker) = self.workers.get_mut(&number) else {
                return Ok(());
            };
            worker.flush()?;
            match worker.next_order(&mut self.buffer)? {
                None => return Ok(()),
                Some(Order::Kill { id }) => self.programs.kill((number, id)),
                Some(Order::Run(run)) => self.run(number, &run)?,
            }
        }
        Ok(())
    }

    fn lose_worker(&mut self, number: u64) {
        self.workers.remove(&number);
        self.programs.kill_all_of(number);
    }

    /// Starts a program, or says why not.
    ///
    /// # Errors
    /// When the worker does not keep to the protocol.
    fn run(&mut self, worker: u64, run: &Run) -> io::Result<()> {
        if self.programs.has((worker, run.id)) {
            let error = "two programs of one number";
            return Err(io::Error::new(io::ErrorKind::InvalidData, error));
        }
        match self.start_program((worker, run.id), run) {
            Ok(program) => self.programs.add(program),
            Err(refusal) => self.say(worker, &failed(run.id, refusal)),
        }
        Ok(())
    }

    fn start_program(&mut self, order: programs::Order, run: &Run) -> Result<Program, Refusal> {
        let programs_max = self.plans.programs_max();
        if self.programs.count() >= programs_max {
            let what = format!("{programs_max} programs run, as many as may (caps.programs)");
            return Err(Refusal::new(Failure::ProgramsFull, what));
        }
        let planned = self.plans.find(run)?;
        let environment = environment::check(&run.environment, &planned.rule.names)?;
        let user = planned.user()?;
        let runnable = checks::find(planned.site, &run.script, &user)?;
        let script = format!(
            "{}/{}",
            planned.site.root.display(),
            run.script.escape_ascii()
        );
        let mut cradle = self.groups.cradle(&planned)?;
        let started = os::spawn::spawn(&Birth {
            directory: runnable.directory.as_fd(),
            name: &runnable.name,
            environment: &environment,
            stdio: [run.stdin.as_fd(), run.stdout.as_fd(), run.stderr.as_fd()],
            user: planned.site.user.is_some().then_some(&*user),
            limits: &planned.rule.limits,
            birthplace: cradle.birthplace(),
        });
        let (process, verdict) = started.map_err(|failed| programs::refusal(&failed, &script))?;
        Ok(Program {
            order,
            process,
            verdict: Some(verdict),
            failed: None,
            script,
            limits: planned.rule.limits,
            group: cradle.watch.take(),
            is_killed: false,
        })
    }

    /// Says whether a program runs, once that is known.
    fn on_verdict(&mut self, pid: u32) {
        let Some(program) = self.programs.get_mut(pid) else {
            return;
        };
        match program.verdict.as_ref().and_then(|verdict| verdict.ask()) {
            None => {}
            Some(Ok(())) => {
                program.verdict = None;
                let (worker, id) = program.order;
                self.say(worker, &Report::Started { id, pid });
            }
            // A verdict is said once; this one is told when the process is reaped.
            Some(Err(error)) => {
                program.verdict = None;
                program.failed = Some(error);
            }
        }
    }

    /// Reaps who has ended: programs, and what they left to us.
    fn on_ends(&mut self) -> io::Result<()> {
        self.ends.clear()?;
        for _ in 0..ENDS_A_TURN {
            let Some(pid) = os::spawn::next_ended()? else {
                self.more_ends = false;
                return Ok(());
            };
            self.on_verdict(pid);
            match self.programs.remove(pid) {
                Some(program) => self.on_end(program),
                None => os::spawn::reap_orphan(pid)?,
            }
        }
        self.more_ends = true;
        Ok(())
    }

    fn on_end(&mut self, mut program: Program) {
        let (worker, id) = program.order;
        let (verdict, failure) = (program.verdict.take(), program.failed.take());
        let script = std::mem::take(&mut program.script);
        let group = program.group.take().filter(|_| !program.is_killed);
        let mut ended = program.reap();
        if let Some(hit) = group.and_then(|group| self.groups.hit(&group)) {
            ended.limit = Some(hit);
        }
        let report = match (failure, verdict) {
            (Some(failure), _) => failed(id, programs::refusal(&failure, &script)),
            // Told already that it runs.
            (None, None) => Report::Ended(ended),
            // Its process has gone without a word: killed before it was a program.
            (None, Some(_)) => {
                let what = format!("{script} was killed before it ran");
                failed(id, Refusal::new(Failure::SpawnFailed, what))
            }
        };
        self.say(worker, &report);
    }

    /// Says something to a worker, if it is still there.
    fn say(&mut self, worker: u64, report: &Report) {
        let Some(link) = self.workers.get_mut(&worker) else {
            return;
        };
        if link.say(report).is_err() {
            self.lose_worker(worker);
        }
    }

    /// Kills everything that was started here, and waits for it.
    fn end(mut self) -> io::Result<()> {
        self.programs.kill_all();
        let until = Instant::now() + LAST_ENDS;
        loop {
            self.on_ends()?;
            let left = os::process::children();
            if left.is_empty() && self.programs.count() == 0 {
                return Ok(());
            }
            if Instant::now() >= until {
                let left = left.len();
                tracing::warn!(left, "programs that were killed have not ended");
                return Ok(());
            }
            // Those that left their sessions come to us once their parents have ended.
            for child in left {
                os::process::kill_child(child);
            }
            os::net::wait_readable(&[self.ends.as_fd()], Some(LAST_LOOK))?;
        }
    }
}

fn failed(id: u64, refusal: Refusal) -> Report {
    Report::Failed {
        id,
        failure: refusal.failure,
        detail: refusal.detail,
    }
}
