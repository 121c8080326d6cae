//! The spawner: starts the programs that workers ask for, and knows how each of them ends.
//!
//! The idea: it alone keeps the privileges to become others, so it reads nothing a client sent
//! but environments and names, takes no worker's word for what may be run, and waits for nobody:
//! one thread, one poll over links, starts and ends; what may hang is looked for by others
//! (`lookups`). It dies with the supervisor's link, and its
//! programs with it; with a worker's link die that worker's programs. A program that made itself
//! a session of its own outlives its leader, within its control group, but not the spawner.
#![forbid(unsafe_code)]

mod checks;
mod ends;
mod environment;
mod groups;
mod lookups;
mod manifests;
mod named;
mod pools;
mod programs;
mod walls;
mod worker;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use config::reason;
use ipc::manifest::{FromSpawner, Manifest, ToSpawner};
use ipc::message::Message;
use ipc::order::{Failure, Order, Report, Run, RunChore, RunMap, Unheld};
use os::net::Want;
use os::signal::ChildEnds;
use os::spawn::{Adopted, Birth};

use self::groups::Groups;
use self::lookups::{Found, Lookups, Ordered, Wanted, WantedScript};
use self::manifests::Manifests;
use self::pools::{POOLS, Pools};
use self::programs::{Asker, Program, Programs};
use self::worker::Worker;

/// How long the last lines of the error log may take.
const FLUSH: Duration = Duration::from_secs(1);
/// Orders taken from one worker before the next one has its turn.
const ORDERS_A_TURN: usize = 8;
/// Chores that run at once.
const CHORES_MAX: usize = 8;
/// Devices known to answer at once; more are asked each time.
const LOCAL_DEVICES_MAX: usize = 1_024;
/// How often groups that are to go are looked at.
const SWEEP: Duration = Duration::from_secs(1);

/// Descriptors set aside for what the supervisor sends: the links of one server's workers. Where
/// few are allowed, no more than a quarter of them.
const RESERVE: u64 = 256;
const RESERVE_SHARE: u64 = 4;

/// What is said where a program's pipes find no room.
const UNHELD: &str = "the spawner may open no more descriptors: raise the limit (LimitNOFILE, ulimit -Hn) or lower caps.programs";

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

/// Starts programs until the supervisor has gone: the life of the process.
#[must_use]
pub fn run() -> ExitCode {
    // First of all: threads to come inherit which signals wait to be read.
    let ends = ChildEnds::listen();
    error_log::start("spawner");
    os::process::set_name("nagaya-spawner");
    let served = ends
        .and_then(Spawner::prepare)
        .and_then(|spawner| spawner.serve());
    if let Err(error) = &served {
        tracing::error!(error = reason(error), "the spawner cannot go on");
    }
    error_log::flush(FLUSH);
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

struct Spawner {
    supervisor: OwnedFd,
    /// The supervisor itself.
    parent: Adopted,
    ends: ChildEnds,
    manifests: Manifests,
    groups: Groups,
    programs: Programs,
    lookups: Lookups,
    pools: Pools,
    /// Devices that answer at once.
    local_devices: BTreeSet<u64>,
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
    Lookup(u64),
    /// A socket of a pool that does not run, by its number.
    Asleep(u64),
    /// What a run of a pool says.
    Words(u64),
    /// A process of such a run.
    Run(u64),
}

impl Spawner {
    fn prepare(ends: ChildEnds) -> io::Result<Spawner> {
        let supervisor = os::process::take_stdin()?;
        os::spawn::adopt_orphans()?;
        let reserve = RESERVE.min(os::process::nofile_max() / RESERVE_SHARE);
        if let Err(error) = os::process::reserve_descriptors(reserve) {
            let error = reason(&error);
            tracing::warn!(error, "no descriptors can be set aside for links");
        }
        Ok(Spawner {
            supervisor,
            parent: Adopted::open(std::os::unix::process::parent_id())?,
            ends,
            manifests: Manifests::default(),
            groups: Groups::default(),
            programs: Programs::default(),
            lookups: Lookups::new(checks::find),
            pools: Pools::default(),
            local_devices: BTreeSet::new(),
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
                    Source::Lookup(number) => self.on_lookup(number),
                    Source::Asleep(number) => self.on_asleep(number),
                    Source::Words(run) => self.on_words(run),
                    Source::Run(run) => self.on_run(run),
                    Source::Supervisor => match self.on_supervisor() {
                        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                            return self.end();
                        }
                        result => result?,
                    },
                }
            }
            self.mind_pools();
            self.look_on();
            self.pools.kill_again();
            self.groups.sweep();
            self.tell_held();
        }
    }

    /// Waits until there is something to do, and tells where.
    fn wait(&mut self) -> io::Result<Vec<Source>> {
        self.pools.begin_wait(Instant::now());
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
        for (number, end) in self.lookups.ends() {
            sources.push(Source::Lookup(number));
            waited.push((end, Want::Read));
        }
        for (source, fd) in self.pools.sources() {
            sources.push(source);
            waited.push((fd, Want::Read));
        }
        let ready = os::net::wait_ready(&waited, self.patience())?;
        let ready = sources.into_iter().zip(ready);
        let ready = ready.filter(|(source, is_ready)| {
            *is_ready || (self.more_ends && matches!(source, Source::Ends))
        });
        Ok(ready.map(|(source, _)| source).collect())
    }

    /// How long there is nothing to do unless something comes.
    fn patience(&self) -> Option<Duration> {
        if self.more_ends {
            return Some(Duration::ZERO);
        }
        let sweep = self.groups.are_waiting().then_some(SWEEP);
        let until = self.lookups.until();
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let pools = self.pools.patience();
        sweep.into_iter().chain(left).chain(pools).min()
    }

    fn on_supervisor(&mut self) -> io::Result<()> {
        match ToSpawner::recv(self.supervisor.as_fd())? {
            ToSpawner::Manifest(manifest) => self.take_manifest(*manifest),
            ToSpawner::Workers { links } => {
                for link in links {
                    self.add_worker(Worker::new(link, false));
                }
                Ok(())
            }
            ToSpawner::Chores { link } => {
                let before = self.workers.iter().find(|(_, worker)| worker.has_chores);
                if let Some(number) = before.map(|(number, _)| *number) {
                    self.lose_worker(number);
                }
                self.add_worker(Worker::new(link, true));
                Ok(())
            }
            ToSpawner::Sockets(sockets) => {
                self.take_sockets(sockets);
                Ok(())
            }
            ToSpawner::NoPlace { id, why } => {
                self.has_no_place(&id, &why);
                Ok(())
            }
            ToSpawner::PoolProcesses(masters) => {
                self.take_charge(masters);
                Ok(())
            }
            ToSpawner::LetGo => self.let_go(),
            ToSpawner::Pools { number, question } => {
                self.on_question(number, question);
                Ok(())
            }
        }
    }

    fn add_worker(&mut self, worker: Worker) {
        self.workers.insert(self.workers_seen, worker);
        self.pools.tell_again();
        self.workers_seen += 1;
    }

    fn take_manifest(&mut self, manifest: Manifest) -> io::Result<()> {
        let generation = manifest.generation;
        let spared = self.pools.inherited();
        let groups = self.manifests.groups(manifest.groups.open()?);
        let answer = match self.groups.take(&manifest, &groups, &spared) {
            Ok(()) => {
                error_log::set_level(manifest.log_level);
                let suspended = manifest.suspended.iter().cloned().collect();
                self.manifests.take(manifest, groups);
                self.suspend(suspended);
                self.name_pools();
                FromSpawner::Ready { generation }
            }
            Err(message) => FromSpawner::Refused {
                generation,
                message,
            },
        };
        self.tell_held();
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
            let has_chores = worker.has_chores;
            match worker.next_order(&mut self.buffer)? {
                None => return Ok(()),
                Some(Ok(Order::Kill { id })) => self.kill((number, id)),
                Some(Ok(Order::RunChore(run))) if has_chores => self.run_chore(number, run)?,
                Some(Ok(Order::RunChore(_))) => {
                    let error = "a worker has no chores";
                    return Err(io::Error::new(io::ErrorKind::InvalidData, error));
                }
                Some(Ok(Order::Warm {
                    id,
                    pool,
                    is_latest,
                })) => self.warm((number, id), &pool, is_latest),
                Some(Ok(Order::WarmRow { id, row })) => self.warm_row((number, id), &row),
                Some(Ok(Order::Used { pool })) => self.pools.is_used(&pool),
                Some(Ok(Order::Run(run))) => self.run(number, run)?,
                Some(Ok(Order::RunMap(run))) => self.run_map(number, run)?,
                Some(Err(Unheld { id })) => {
                    let order = self.number((number, id))?;
                    self.refuse(
                        order,
                        Refusal::new(Failure::ProgramsFull, UNHELD.to_owned()),
                    );
                }
            }
        }
        Ok(())
    }

    fn lose_worker(&mut self, number: u64) {
        self.workers.remove(&number);
        self.lookups.forget(|(worker, _)| worker == number);
        self.forget_asks(number);
        self.programs.kill_all_of(number);
    }

    /// Starts a program, or says why not.
    ///
    /// # Errors
    /// When the worker does not keep to the protocol.
    fn run(&mut self, worker: u64, run: Run) -> io::Result<()> {
        let order = self.number((worker, run.id))?;
        match self.find(&run) {
            Ok(Ok(found)) => self.start(order, &Ordered::Rule(run), found),
            Ok(Err(wanted)) => self.look_for(order, Ordered::Rule(run), wanted),
            Err(refusal) => self.refuse(order, refusal),
        }
        Ok(())
    }

    /// As [`Self::run`], for a map's program, of which there are few and seldom new ones: it is
    /// always looked for.
    fn run_map(&mut self, worker: u64, run: RunMap) -> io::Result<()> {
        let order = self.number((worker, run.id))?;
        let processes_max = self.manifests.map_processes_max();
        match self.manifests.find_map(&run).cloned() {
            Ok(_) if self.programs.count_of(Asker::Map) >= processes_max => {
                let what = format!("{processes_max} programs of maps run, all there are to be");
                self.refuse(order, Refusal::new(Failure::ProgramsFull, what));
            }
            Ok(map) => self.look_for(order, Ordered::Map(run), Wanted::Named(map.program)),
            Err(refusal) => self.refuse(order, refusal),
        }
        Ok(())
    }

    /// As [`Self::run`], for a chore, of which there are few as well.
    fn run_chore(&mut self, supervisor: u64, run: RunChore) -> io::Result<()> {
        let order = self.number((supervisor, run.id))?;
        if self.programs.count_of(Asker::Supervisor) >= CHORES_MAX {
            let what = format!("{CHORES_MAX} chores run, all there are to be");
            self.refuse(order, Refusal::new(Failure::ProgramsFull, what));
        } else {
            let wanted = Wanted::Named(run.program.clone());
            self.look_for(order, Ordered::Chore(run), wanted);
        }
        Ok(())
    }

    /// The number of an order, which no other has.
    fn number(&self, order: programs::Order) -> io::Result<programs::Order> {
        if self.programs.has(order) || self.lookups.has(order) {
            let error = "two programs of one number";
            return Err(io::Error::new(io::ErrorKind::InvalidData, error));
        }
        Ok(order)
    }

    fn look_for(&mut self, order: programs::Order, run: Ordered, wanted: Wanted) {
        if let Err(refusal) = self.lookups.add(order, run, wanted, Instant::now()) {
            self.refuse(order, refusal);
        }
    }

    /// Finds a program, if that can be done at once; otherwise tells what is to be looked for.
    fn find(&self, run: &Run) -> Result<Result<Found, Wanted>, Refusal> {
        let programs_max = self.manifests.programs_max();
        let running = self.programs.count_of(Asker::Request);
        if running + self.lookups.count() >= programs_max {
            let what = format!("{programs_max} programs run, as many as may (caps.programs)");
            return Err(Refusal::new(Failure::ProgramsFull, what));
        }
        let entry = self.manifests.find(run)?;
        let user = entry.known_user();
        if let Some(user) = &user {
            let is_local = |device| self.local_devices.contains(&device);
            let (site, script) = (&*entry.site, &run.script);
            if let Some(runnable) = checks::find_at_once(site, script, user, is_local)? {
                let user = Arc::clone(user);
                let local_device = None;
                return Ok(Ok(Found {
                    user,
                    runnable,
                    local_device,
                    run: None,
                }));
            }
        }
        Ok(Err(Wanted::Script(WantedScript {
            site: manifests::without_rules(&entry.site),
            script: run.script.clone(),
            user,
            users: entry.users.cloned(),
        })))
    }

    /// Goes on with an order that was looked for.
    fn on_lookup(&mut self, number: u64) {
        match self.lookups.take(number) {
            Some(((POOLS, run), _, Ok(found))) => self.start_run(run, &found),
            Some((order, run, Ok(found))) => self.start(order, &run, found),
            Some((order, _, Err(refusal))) => self.refuse(order, refusal),
            None => {}
        }
    }

    /// Has looked for what waits, and gives up what has waited too long.
    fn look_on(&mut self) {
        if self.lookups.count() == 0 {
            return;
        }
        let expired = self.lookups.expire(Instant::now());
        let failed = self.lookups.start();
        for (order, refusal) in expired.into_iter().chain(failed) {
            self.refuse(order, refusal);
        }
    }

    fn kill(&mut self, order: programs::Order) {
        self.programs.kill(order);
        for order in self.lookups.forget(|known| known == order) {
            let what = "it was killed before it was found".to_owned();
            self.refuse(order, Refusal::new(Failure::SpawnFailed, what));
        }
    }

    fn refuse(&mut self, (worker, id): programs::Order, refusal: Refusal) {
        match worker {
            POOLS => self.fail_run(id, &refusal),
            worker => self.say(worker, &failed(id, refusal)),
        }
    }

    /// Starts a program that was found, or says why not.
    fn start(&mut self, order: programs::Order, run: &Ordered, found: Found) {
        if self.local_devices.len() < LOCAL_DEVICES_MAX {
            self.local_devices.extend(found.local_device);
        }
        let started = match run {
            Ordered::Rule(run) => self.start_program(order, run, &found),
            Ordered::Map(run) => self.manifests.find_map(run).and_then(|map| {
                let stdio = [&run.stdin, &run.stdout, &run.stderr].map(AsFd::as_fd);
                named::start(order, (&map.program, Asker::Map), stdio, &found)
            }),
            Ordered::Chore(run) => {
                let stdio = [&run.stdin, &run.stdout, &run.stderr].map(AsFd::as_fd);
                named::start(order, (&run.program, Asker::Supervisor), stdio, &found)
            }
            // It is started elsewhere.
            Ordered::Pool => return,
        };
        match started {
            Ok(program) => self.programs.add(program),
            Err(refusal) => self.refuse(order, refusal),
        }
    }

    fn start_program(
        &mut self,
        order: programs::Order,
        run: &Run,
        found: &Found,
    ) -> Result<Program, Refusal> {
        let entry = self.manifests.find(run)?;
        let tenant = &entry.site.tenant;
        if self.pools.is_suspended(tenant) {
            let what = format!("tenant {tenant} is suspended");
            return Err(Refusal::new(Failure::TenantSuspended, what));
        }
        match entry.users {
            None => entry.keep_user(&found.user),
            Some(_) => self.groups.renew(&entry.known.groups)?,
        }
        let environment = environment::check(&run.environment, &entry.rule.names)?;
        let script = format!(
            "{}/{}",
            entry.site.root.display(),
            run.script.escape_ascii()
        );
        let mut cradle = self.groups.cradle(&entry, run.group.as_deref())?;
        let started = os::spawn::spawn(&Birth {
            directory: found.runnable.directory.as_fd(),
            name: &found.runnable.name,
            arguments: &[],
            environment: &environment,
            stdio: [run.stdin.as_fd(), run.stdout.as_fd(), run.stderr.as_fd()],
            user: entry.site.user.is_some().then_some(&*found.user),
            limits: &entry.rule.limits,
            birthplace: cradle.birthplace(),
            listeners: &[],
            walls: None,
            filter: None,
            outlives: false,
        });
        let (process, verdict) = started.map_err(|failed| programs::refusal(&failed, &script))?;
        Ok(Program {
            order,
            says_start: run.says_start,
            process,
            verdict,
            failed: None,
            script,
            limits: entry.rule.limits,
            group: cradle.watch.take(),
            asker: Asker::Request,
            tenant: tenant.clone(),
            is_killed: false,
        })
    }

    /// Says that a program runs, where that was asked for, once it is known.
    fn on_verdict(&mut self, pid: u32) {
        let Some(program) = self.programs.get_mut(pid) else {
            return;
        };
        match program.verdict.ask() {
            None => {}
            Some(Ok(())) => {
                program.says_start = false;
                let (worker, id) = program.order;
                self.say(worker, &Report::Started { id, pid });
            }
            // A verdict is said once; this one is told when the process is reaped.
            Some(Err(error)) => {
                program.says_start = false;
                program.failed = Some(error);
            }
        }
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
}

fn failed(id: u64, refusal: Refusal) -> Report {
    Report::Failed {
        id,
        failure: refusal.failure,
        detail: refusal.detail,
    }
}
