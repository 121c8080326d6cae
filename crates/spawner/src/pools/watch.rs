//! What is seen of pools while they run: what they say, whether they have work, whether they are
//! ready.
//!
//! The idea: who serves is looked at now and then, who starts or was killed often, and all others
//! never.

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use config::reason;
use ipc::order::{PoolCounts, Report};
use ipc::pools::PoolProgramManifest;

use super::words::{Weight, Words};
use super::{Pools, STUCK_AFTER, facts, fpm, words};
use crate::Spawner;

/// How often what starts or was killed is looked at, and what will not end.
const SOON: Duration = Duration::from_millis(10);
const STUCK: Duration = Duration::from_millis(500);
/// How often what serves is looked at, at most and at least.
const LOOK_MIN: Duration = Duration::from_millis(100);
const LOOK_MAX: Duration = Duration::from_secs(2);
/// Pools whose counts are told at one look: a worker's link is for more than that.
const TOLD_AT_ONCE: usize = 64;
/// Turns in which what a run has said at last is read.
const LAST_TURNS: usize = 16;
/// Files in one report, which has room for their names.
const COSTS_A_REPORT: usize = 8;
/// How often programs are looked at: whether they have been replaced.
const PROGRAMS_LOOK: Duration = Duration::from_secs(10);

impl Pools {
    /// How long there is nothing to do unless something comes.
    pub(crate) fn patience(&self) -> Option<Duration> {
        let now = Instant::now();
        let of_runs = self.runs.values().filter_map(|run| match run.killed {
            Some(killed) if now.saturating_duration_since(killed) > STUCK_AFTER => Some(STUCK),
            Some(_) => Some(SOON),
            None => run.probe.as_ref().map(|_| SOON),
        });
        let ways = self.runs.values().filter_map(|it| it.way.as_ref());
        let ways = ways.map(|way| way.rest(now));
        let words = self.runs.values().filter_map(|it| it.words.rest(now));
        let look = self.looked.map(|looked| {
            let next = looked + self.look_every();
            next.saturating_duration_since(now)
        });
        let look = look.filter(|_| self.machine.serving().next().is_some());
        let until = self.until.map(|it| it.saturating_duration_since(now));
        let later = self.machine.deaf().next().is_some() || self.caches.has_more();
        let later = later || !self.untold.is_empty() || self.has_rows();
        let later = later.then_some(LOOK_MAX);
        let of_runs = of_runs.chain(words).chain(ways);
        let of_runs = of_runs.chain(self.unended.patience(now));
        let of_runs = of_runs.chain(self.sleepers.patience());
        of_runs.chain(look).chain(until).chain(later).min()
    }

    fn look_every(&self) -> Duration {
        let idle = self.idle_min.unwrap_or(LOOK_MAX);
        (idle / 4).clamp(LOOK_MIN, LOOK_MAX)
    }
}

impl Spawner {
    /// A run has said something.
    pub(crate) fn on_words(&mut self, run: u64) {
        let now = Instant::now();
        let Some(running) = self.pools.runs.get_mut(&run) else {
            return;
        };
        let is_php = running.is_php();
        let lines = running.words.read(is_php, now);
        let pool = running
            .pool()
            .map(|pool| (pool.id.clone(), pool.name.clone()));
        let (id, name) = pool.unwrap_or_default();
        let mut is_ready = false;
        for (weight, line) in lines {
            is_ready |= is_php && line.contains(fpm::READY);
            if let Some(is_sent) = words::mail(&line) {
                self.pools.machine.note_mail(&id, is_sent);
                self.pools.untold.insert(id.clone());
            }
            tell(&mut running.words, &name, (weight, &line), now);
        }
        if is_ready {
            self.ready(run, now);
        }
        let running = self.pools.runs.get(&run);
        if running.is_some_and(|it| !it.words.costs.is_empty()) {
            self.have_turn(run, "it has answered a page");
        }
        self.tell_costs(run);
    }

    /// Has a run that gives way to others do so no more.
    pub(super) fn have_turn(&mut self, run: u64, why: &str) {
        let Some(running) = self.pools.runs.get_mut(&run) else {
            return;
        };
        let was_giving = running.way.take().is_some();
        if let Some(group) = running.group.as_ref().filter(|_| was_giving) {
            self.groups.have_turn(&group.path);
            let name = running.pool().map_or("", |pool| pool.name.as_str());
            tracing::debug!(pool = name, "it gives way to others no more: {why}");
        }
    }

    /// Has starts that have waited for long give way no more.
    fn look_at_ways(&mut self, now: Instant) {
        let mut over = Vec::new();
        for (run, running) in &mut self.pools.runs {
            if running
                .way
                .as_ref()
                .is_none_or(|way| !way.rest(now).is_zero())
            {
                continue;
            }
            let used_us = running.cpu_of_group_us().unwrap_or(0);
            let way = running.way.as_mut();
            if way.is_some_and(|way| way.is_over(used_us, now)) {
                over.push(*run);
            }
        }
        for run in over {
            self.have_turn(run, "it has waited");
        }
    }

    /// Hears what a run has said that has ended.
    pub(super) fn hear_out(&mut self, run: u64) {
        (0..LAST_TURNS).for_each(|_| self.on_words(run));
    }

    /// Who is told what is counted: a worker of the newest server, as all of its workers share what
    /// one knows; nobody while it has yet to read what it was told before.
    fn listener(&self) -> Option<u64> {
        let mut workers = self.workers.iter().rev();
        let (number, worker) = workers.find(|(_, worker)| !worker.has_chores)?;
        worker.has_read_all().then_some(*number)
    }

    /// Tells what requests have cost; where nobody listens, others will cost the same.
    fn tell_costs(&mut self, run: u64) {
        let Some(running) = self.pools.runs.get_mut(&run) else {
            return;
        };
        let Some(pool) = &running.pool else {
            return;
        };
        if running.words.costs.is_empty() {
            return;
        }
        let costs = running.words.costs.tell(&pool.program);
        let tenant = pool.tenant.clone();
        for costs in costs.chunks(COSTS_A_REPORT) {
            let Some(worker) = self.listener() else {
                return;
            };
            let (tenant, costs) = (tenant.clone(), costs.to_vec());
            self.say(worker, &Report::Costs { tenant, costs });
        }
    }

    /// Tells the error log that a run has begun to serve, or has ended.
    pub(super) fn note(
        &mut self,
        id: &str,
        (what, why): (&str, &str),
        took: Duration,
        now: Instant,
    ) {
        let (may_tell, spared) = self.pools.notes.may_tell(now);
        if let Some(spared) = spared {
            tracing::info!(
                spared,
                "more pools have started or ended than the error log takes"
            );
        }
        if may_tell {
            let (name, took_ms) = (self.pools.name_of(id), took.as_millis());
            tracing::info!(pool = name, why, took_ms, "pool {what}");
        }
    }

    /// Looks at what runs.
    pub(super) fn look_at_pools(&mut self, now: Instant) {
        let killed = self.pools.runs.iter().filter(|(_, it)| it.killed.is_some());
        let killed: Vec<u64> = killed.map(|(run, _)| *run).collect();
        killed.into_iter().for_each(|run| self.kill_run(run, now));
        self.look_at_starts(now);
        self.look_at_ways(now);
        self.mind_caches(now);
        let every = self.pools.look_every();
        let is_soon = |looked: Option<Instant>, every| {
            looked.is_some_and(|looked| now.saturating_duration_since(looked) < every)
        };
        if is_soon(self.pools.looked, every) {
            return;
        }
        self.pools.looked = Some(now);
        self.tell_counts();
        let deaf: Vec<String> = self.pools.machine.deaf().map(str::to_owned).collect();
        deaf.iter().for_each(|id| self.tell_deaf(id));
        let look_at_programs = !is_soon(self.pools.programs_looked, PROGRAMS_LOOK);
        if look_at_programs {
            self.pools.programs_looked = Some(now);
        }
        let serving = self.pools.machine.serving();
        let serving: Vec<_> = serving.map(|(id, run)| (id.to_owned(), run)).collect();
        let mut programs = BTreeMap::new();
        for (id, run) in serving {
            self.listen_for(&id, now);
            let Some(running) = self.pools.runs.get_mut(&run) else {
                continue;
            };
            if running.has_worked(now) {
                self.pools.machine.works(run, now);
            }
            if !look_at_programs {
                continue;
            }
            let Some(PoolProgramManifest::Php { program, .. }) =
                running.pool().map(|pool| pool.program.clone())
            else {
                continue;
            };
            let found = programs.entry(program);
            let found = found.or_insert_with_key(|program| facts::identity(program));
            let before = *running.identity.get_or_insert(found.unwrap_or_default());
            if found.is_some_and(|found| found != before) {
                running.identity = *found;
                self.pools
                    .machine
                    .restart(&id, "its program was replaced", now);
            }
        }
    }

    /// Tells what pools have come to, where that has changed.
    fn tell_counts(&mut self) {
        for _ in 0..TOLD_AT_ONCE {
            let Some(worker) = self.listener() else {
                return;
            };
            let Some(pool) = self.pools.untold.pop_first() else {
                return;
            };
            let figures = self.pools.machine.figures(&pool);
            let counts = PoolCounts {
                masters: figures.starts,
                masters_us: figures.started_us,
                mails: figures.mails,
                mails_unsent: figures.mails_unsent,
            };
            self.say(worker, &Report::Counts { pool, counts });
        }
    }

    /// Looks whether applications that start are ready.
    fn look_at_starts(&mut self, now: Instant) {
        let mut ready = Vec::new();
        let mut failed = Vec::new();
        let starting = self.pools.runs.iter_mut();
        for (run, running) in starting.filter(|(_, running)| running.probe.is_some()) {
            let id = running.pool().map(|pool| pool.id.clone());
            let masters: Vec<u32> = running.pids().collect();
            let is_its = |pid| {
                let mut trees = masters.iter().filter_map(|master| os::tree::look(*master));
                trees.any(|tree| tree.pids.contains(&pid))
            };
            let binds_itself = running.binds_itself();
            let Some(probe) = &mut running.probe else {
                continue;
            };
            let socket = id.and_then(|id| self.pools.sockets.get(&id));
            let listener = socket.map(|it| it.listener.as_fd());
            match probe.look(listener.filter(|_| !binds_itself), is_its, now) {
                Ok(true) => ready.push(*run),
                Ok(false) => {}
                Err(error) => failed.push((*run, reason(&error))),
            }
        }
        for run in ready {
            let Some(running) = self.pools.runs.get_mut(&run) else {
                continue;
            };
            running.probe = None;
            let (cost_us, id) = (running.cost_us(), self.pools.id_of(run));
            self.pools.machine.ready(run, cost_us, now);
            self.pools.untold.insert(id);
            self.have_turn(run, "it is ready");
        }
        for (run, why) in failed {
            self.pools.machine.died(run, &why, now);
        }
    }
}

/// Tells the error log what a pool has said, by how much that is.
fn tell(words: &mut Words, name: &str, (weight, line): (Weight, &str), now: Instant) {
    if weight == Weight::Light {
        return tracing::debug!(pool = name, "{line}");
    }
    let (may_tell, spared) = words.may_tell(now);
    if let Some(spared) = spared {
        tracing::warn!(
            pool = name,
            spared,
            "it has said more than the error log takes"
        );
    }
    match weight {
        _ if !may_tell => {}
        Weight::Grave => tracing::warn!(pool = name, "{line}"),
        _ => tracing::info!(pool = name, "{line}"),
    }
}
