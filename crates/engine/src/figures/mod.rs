//! The process's own figures: collected when somebody asks, and put into words.
//!
//! Nothing here runs on the way of a request. Sites without a single exchange are left out, so
//! that ten thousand sites of which ten are busy make ten lines.

mod groups;
mod json;
mod maps;
mod prometheus;
#[cfg(test)]
pub(crate) mod sample_tests;
mod shed;
mod table;
#[cfg(test)]
mod tests;

pub(crate) use groups::GroupFigures;
pub(crate) use json::json;
pub(crate) use maps::MapFigures;
pub(crate) use prometheus::prometheus;
pub(crate) use table::table;
pub(crate) use table::{bytes, count, grid};

use std::collections::BTreeMap;
use std::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed},
};
use std::time::Duration;

use config::model::sensor::{Gauge, Sensor};
use script::Phase;

use crate::agents::Agents;
use crate::permits::rows::{self, Row};
use crate::shedding;
use crate::shedding::rows::ShedFigures;
use crate::stats::{
    BOUNDS_US, Health, Histogram, Killed, ProgramStats, Replies, ScriptStats, StragglerEnd,
    StragglerStats, WorkerStats,
};
use crate::worker::Shared;

/// Everything, at one moment (or nearly so: the workers go on counting).
#[derive(Debug, Default)]
pub(crate) struct Figures {
    /// Number of the generation that serves.
    pub generation: u64,
    /// The process that takes signals: the supervisor's.
    pub pid: u32,
    /// Since the server started.
    pub uptime: Duration,
    /// Generations taken over after the first.
    pub reloads: u64,
    /// Reloads that changed nothing.
    pub reloads_refused: u64,
    /// Servers started again after an unwanted end.
    pub restarts: u64,
    /// Access records lost.
    pub records_lost: u64,
    /// Lines of the error log lost.
    pub lines_lost: u64,
    /// Sites the generation has, busy or not.
    pub sites_configured: usize,
    /// By worker.
    pub workers: Vec<WorkerFigures>,
    /// By site, in the order of the configuration; those that had exchanges.
    pub sites: Vec<(String, ReplyFigures)>,
    /// Exchanges that came to no site.
    pub without_site: ReplyFigures,
    /// By upstream and server.
    pub upstreams: BTreeMap<(String, String), UpstreamFigures>,
    /// Programs of all workers.
    pub programs: ProgramFigures,
    /// Servers and programs at work for clients that have gone.
    pub stragglers: StragglerFigures,
    /// Scripts of all workers.
    pub scripts: ScriptFigures,
    /// What programs used, by group.
    pub groups: GroupFigures,
    /// By map, in the order of the configuration.
    pub maps: Vec<MapFigures>,
    /// By limit, in the order of the configuration; those that requests have met.
    pub limits: Vec<Row>,
    /// Every sensor with what it says, in the order of [`Gauge::ALL`].
    pub sensors: Vec<(Gauge, Option<f64>)>,
    /// How late each worker is, in seconds.
    pub lags_s: Vec<Option<f64>>,
    /// Rules that shed, and whom they shed.
    pub shed: ShedFigures,
    /// Of whole exchanges.
    pub total_time: Times,
    /// Of the upstreams' part.
    pub upstream_time: Times,
}

/// What one worker did.
#[derive(Debug, Default)]
pub(crate) struct WorkerFigures {
    /// Connections open.
    pub connections: usize,
    /// Connections accepted.
    pub accepted: u64,
    /// Connections closed because of a cap.
    pub refused: u64,
    /// Connections given to another worker.
    pub handed_over: u64,
    /// Exchanges under way.
    pub in_flight: u64,
    /// Exchanges that ended.
    pub ended: u64,
    /// Handlers that panicked.
    pub panics: u64,
}

/// What exchanges came to.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReplyFigures {
    /// By hundreds of the status, from 1xx.
    pub by_class: [u64; 5],
    /// Bytes of request bodies.
    pub bytes_in: u64,
    /// Bytes of reply bodies.
    pub bytes_out: u64,
}

/// What is known of an upstream's server, all workers together.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct UpstreamFigures {
    /// Requests it was chosen for.
    pub requests: u64,
    /// Failures.
    pub failures: u64,
    /// Requests it let wait for too long.
    pub timeouts: u64,
    /// Requests under way.
    pub in_flight: u64,
    /// How long the oldest of them is under way.
    pub oldest: Option<Duration>,
    /// Failures in a row, of the worker that saw most.
    pub fails_in_row: u64,
    /// Workers that have asked it.
    pub workers: usize,
    /// Workers for which it is out.
    pub workers_out: usize,
    /// Workers that ask it on though it fails: there is no other.
    pub workers_failing: usize,
    /// What its agent says it is up to, in percent of its weight; 0 is to be left alone.
    pub agent_percent: Option<u32>,
}

/// What became of programs.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProgramFigures {
    /// Programs that run.
    pub running: usize,
    /// Programs that ran.
    pub started: u64,
    /// Programs that could not be started.
    pub failed: u64,
    /// Programs killed, in the order of [`Killed::ALL`].
    pub killed: [u64; Killed::ALL.len()],
}

/// What became of stragglers.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StragglerFigures {
    /// Those there are.
    pub now: u64,
    /// Those there were, in the order of [`StragglerEnd::ALL`].
    pub ended: [u64; StragglerEnd::ALL.len()],
}

/// What became of scripts.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ScriptFigures {
    /// VMs open.
    pub vms: u64,
    /// Bytes they hold.
    pub memory_bytes: u64,
    /// Scripts that wait.
    pub parked: u64,
    /// Scripts that came to their end, and those that failed, in the order of [`Phase::ALL`].
    pub by_phase: [(u64, u64); Phase::ALL.len()],
}

/// Durations in the buckets of [`BOUNDS_US`].
#[derive(Debug, Default, Clone)]
pub(crate) struct Times {
    /// By bucket, not added up.
    pub counts: [u64; BOUNDS_US.len() + 1],
    /// All together.
    pub sum_us: u64,
}

/// Collects everything.
pub(crate) fn collect(shared: &Shared) -> Figures {
    // First: a reload that is counted is in force.
    let reloads = shared.process.reloads.load(Acquire);
    let (process, generation) = (&shared.process, shared.generation());
    let mut figures = Figures {
        generation: process.generation.load(Relaxed),
        pid: std::os::unix::process::parent_id(),
        uptime: process.started.elapsed(),
        reloads,
        reloads_refused: process.reloads_refused.load(Relaxed),
        restarts: process.restarts.load(Relaxed),
        records_lost: shared.access_log.dropped(),
        lines_lost: error_log::dropped(),
        ..Figures::default()
    };
    let sensors = &shared.sensors;
    let value = |gauge| (gauge, sensors.value(&Sensor::Here(gauge)));
    figures.sensors = Gauge::ALL.into_iter().map(value).collect();
    figures.lags_s = sensors.lags_s().collect();
    figures.limits = rows::collect(shared);
    figures.limits.retain(Row::is_in_use);
    figures.shed = shedding::rows::collect(shared);
    figures.programs.running = shared.programs_running.load(Relaxed);
    for (index, stats) in shared.stats.iter().enumerate() {
        figures.add_worker(shared.loads.connections(index), stats);
    }
    figures.add_agents(&sensors.agents);
    if let Some(generation) = generation {
        figures.sites_configured = generation.sites.len();
        figures.groups = groups::collect(&generation);
        figures.maps = maps::collect(&generation);
        for site in &generation.sites {
            let mut replies = ReplyFigures::default();
            site.stats
                .of_workers()
                .for_each(|counters| replies.add(counters));
            if replies.count() > 0 {
                figures.sites.push((site.name.to_string(), replies));
            }
        }
    }
    figures
}

impl Figures {
    fn add_worker(&mut self, connections: usize, stats: &WorkerStats) {
        // In this order: an exchange that ends in between is not under way.
        let (ended, begun) = (stats.ended.load(Relaxed), stats.begun.load(Relaxed));
        self.workers.push(WorkerFigures {
            connections,
            accepted: stats.accepted.load(Relaxed),
            refused: stats.refused.load(Relaxed),
            handed_over: stats.handed_over.load(Relaxed),
            in_flight: begun.saturating_sub(ended),
            ended,
            panics: stats.panics.load(Relaxed),
        });
        self.programs.add(&stats.programs);
        self.stragglers.add(&stats.stragglers);
        self.scripts.add(&stats.scripts);
        self.without_site.add(&stats.without_site);
        self.total_time.add(&stats.total_time);
        self.upstream_time.add(&stats.upstream_time);
        for upstream in stats.upstreams() {
            let key = (upstream.upstream.clone(), upstream.server.to_string());
            let sum = self.upstreams.entry(key).or_default();
            sum.requests += upstream.requests.load(Relaxed);
            sum.failures += upstream.failures.load(Relaxed);
            sum.timeouts += upstream.timeouts.load(Relaxed);
            let (in_flight, oldest_ms) = upstream.under_way();
            sum.in_flight += in_flight;
            let oldest = oldest_ms.map(Duration::from_millis);
            let oldest = oldest.map(|since| self.uptime.saturating_sub(since));
            sum.oldest = sum.oldest.max(oldest);
            let fails_in_row = upstream.fails_in_row.load(Relaxed);
            sum.fails_in_row = sum.fails_in_row.max(fails_in_row);
            sum.workers += usize::from(upstream.requests.load(Relaxed) > 0);
            sum.workers_out += usize::from(upstream.is(Health::Out));
            sum.workers_failing += usize::from(upstream.is(Health::Failing));
        }
    }

    /// A server no worker knows (yet) is not shown because of its agent.
    fn add_agents(&mut self, agents: &Agents) {
        for ((upstream, server), percent) in agents.percents() {
            if let Some(figures) = self.upstreams.get_mut(&(upstream, server.to_string())) {
                figures.agent_percent = Some(percent);
            }
        }
    }

    /// A figure of all workers together.
    pub(crate) fn sum(&self, of: impl Fn(&WorkerFigures) -> u64) -> u64 {
        self.workers.iter().map(of).sum()
    }

    /// Exchanges of all sites and of none.
    pub(crate) fn replies(&self) -> ReplyFigures {
        let mut sum = self.without_site;
        for (_, replies) in &self.sites {
            sum.merge(replies);
        }
        sum
    }
}

impl ReplyFigures {
    fn add(&mut self, replies: &Replies) {
        let read = |counter: &AtomicU64| counter.load(Relaxed);
        self.merge(&Self {
            by_class: std::array::from_fn(|class| read(&replies.by_class[class])),
            bytes_in: read(&replies.bytes_in),
            bytes_out: read(&replies.bytes_out),
        });
    }

    fn merge(&mut self, other: &Self) {
        for (sum, count) in self.by_class.iter_mut().zip(other.by_class) {
            *sum += count;
        }
        self.bytes_in += other.bytes_in;
        self.bytes_out += other.bytes_out;
    }

    /// How many exchanges they are.
    pub(crate) fn count(&self) -> u64 {
        self.by_class.iter().sum()
    }
}

impl StragglerFigures {
    fn add(&mut self, stats: &StragglerStats) {
        self.now += stats.now();
        for (sum, end) in self.ended.iter_mut().zip(StragglerEnd::ALL) {
            *sum += stats.ended(end).load(Relaxed);
        }
    }

    /// Whether there ever was one.
    pub(crate) fn any(&self) -> bool {
        self.now > 0 || self.ended.iter().any(|count| *count > 0)
    }

    /// How they ended, and how often.
    pub(crate) fn ended(&self) -> impl Iterator<Item = (&'static str, u64)> {
        StragglerEnd::ALL
            .map(StragglerEnd::word)
            .into_iter()
            .zip(self.ended)
    }
}

impl ScriptFigures {
    fn add(&mut self, stats: &ScriptStats) {
        self.vms += stats.vms.load(Relaxed);
        self.memory_bytes += stats.memory_bytes.load(Relaxed);
        self.parked += stats.parked.load(Relaxed);
        for (sum, phase) in self.by_phase.iter_mut().zip(Phase::ALL) {
            let (runs, failures) = stats.of(phase);
            sum.0 += runs;
            sum.1 += failures;
        }
    }

    /// Whether there ever was one.
    pub(crate) fn any(&self) -> bool {
        self.vms > 0 || self.phases().any(|(_, runs, failures)| runs + failures > 0)
    }

    /// The phases of requests, with the scripts that came to their end and those that failed.
    pub(crate) fn phases(&self) -> impl Iterator<Item = (&'static str, u64, u64)> {
        let phases = Phase::ALL.into_iter().zip(self.by_phase);
        let of_requests = phases.skip_while(|(phase, _)| *phase != Phase::Rewrite);
        of_requests.map(|(phase, (runs, failures))| (phase.name(), runs, failures))
    }

    /// Scripts that came to their end, and those that failed.
    pub(crate) fn sum(&self) -> (u64, u64) {
        let add = |sum: (u64, u64), (_, runs, failures)| (sum.0 + runs, sum.1 + failures);
        self.phases().fold((0, 0), add)
    }
}

impl ProgramFigures {
    fn add(&mut self, stats: &ProgramStats) {
        self.started += stats.started.load(Relaxed);
        self.failed += stats.failed.load(Relaxed);
        for (sum, count) in self.killed.iter_mut().zip(&stats.killed) {
            *sum += count.load(Relaxed);
        }
    }

    /// Whether there ever was one.
    pub(crate) fn any(&self) -> bool {
        self.started + self.failed > 0 || self.running > 0
    }

    /// Programs killed, by reason.
    pub(crate) fn killed(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let words = Killed::ALL.into_iter().map(Killed::word);
        words.zip(self.killed)
    }
}

impl UpstreamFigures {
    /// Whether a worker that has asked it does not find it failing; one never asked is up.
    pub(crate) fn is_up(&self) -> bool {
        let down = self.workers_out + self.workers_failing;
        down == 0 || down < self.workers
    }

    /// How much of its weight counts, as its agent says: 1 is all of it, 0 none.
    pub(crate) fn agent_weight(&self) -> Option<f64> {
        self.agent_percent.map(|percent| f64::from(percent) / 100.0)
    }

    /// Whether its agent wants it left alone.
    pub(crate) fn drains(&self) -> bool {
        self.agent_percent == Some(0)
    }
}

impl Times {
    fn add(&mut self, histogram: &Histogram) {
        for (sum, count) in self.counts.iter_mut().zip(&histogram.counts) {
            *sum += count.load(Relaxed);
        }
        self.sum_us = self.sum_us.wrapping_add(histogram.sum_us.load(Relaxed));
    }

    /// How many durations they are.
    pub(crate) fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The bound that so many thousandths of the durations do not pass; `None` where there are no
    /// durations or no bound holds.
    pub(crate) fn quantile_us(&self, thousandths: u64) -> Option<u64> {
        let wanted = (self.count() * thousandths).div_ceil(1_000).max(1);
        let mut seen = 0;
        let bucket = self.counts.iter().position(|count| {
            seen += count;
            seen >= wanted
        });
        BOUNDS_US.get(bucket?).copied()
    }
}
