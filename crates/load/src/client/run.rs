//! Runs a load: shares it out to threads, and adds up what they counted.

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::time::{Duration, SystemTime};

use rustix::thread::{CpuSet, sched_setaffinity, set_current_timer_slack};

use super::generator::Generator;
use super::live::{Live, Phase};
use super::order::Routes;
use super::outcome::{Errors, Handshakes, LeftOut, Outcome, Schedule, Times};
use super::plan::{CONNECTIONS_MAX, Keep, Pace, Plan, Protocol, REQUESTS_MAX, Reuse, THREADS_MAX};
use super::shared::Shared;
use crate::Error;

/// Fastest rate of an open loop.
const PER_SECOND_MAX: f64 = 10_000_000.0;

/// Runs a load to its end, or until `live` is told to stop.
///
/// Fails where the plan cannot be run; a server that fails is an outcome.
pub fn run(plan: &Plan, live: &Live) -> Result<Outcome, Error> {
    let shared = check(plan)
        .and_then(|routes| Shared::new(plan, live, routes))
        .map_err(|cause| Error::new("prepare the load", cause))?;
    let started = SystemTime::now();
    live.begin(shared.began);
    live.set_phase(Phase::WarmUp);
    let parts = run_threads(&shared)?;
    Ok(add_up(shared, parts, started))
}

/// What a thread came to.
struct Part {
    outcome: Outcome,
    /// When it left its loop, and when its last exchange ended.
    left_ns: u64,
    last_ns: u64,
}

fn check(plan: &Plan) -> Result<Routes, String> {
    let count = |what: &str, number: usize, most: usize| match number {
        0 => Err(format!("there are no {what}; at least one is needed")),
        n if n > most => Err(format!("{n} {what}; at most {most}")),
        _ => Ok(()),
    };
    count("requests", plan.requests.len(), REQUESTS_MAX)?;
    count("connections", plan.connections, CONNECTIONS_MAX)?;
    count("threads", plan.threads, THREADS_MAX)?;
    if let Protocol::Http2 { streams } = plan.protocol {
        let all = streams.saturating_mul(plan.connections);
        count("streams of all connections", all, CONNECTIONS_MAX)?;
    }
    if plan.end.after.is_none() && plan.end.requests.is_none() {
        return Err("the load has no end: give it a time or a number of requests".to_owned());
    }
    if plan.timeout.is_zero() || matches!(plan.reuse, Reuse::Requests(0)) {
        return Err("a timeout, or the requests of a connection, of 0".to_owned());
    }
    if let Pace::Open { per_second, .. } = plan.pace
        && !(per_second > 0.0 && per_second <= PER_SECOND_MAX)
    {
        return Err(format!(
            "a rate of {per_second} a second; more than 0, at most ten million"
        ));
    }
    let routes = Routes::of(plan);
    let endpoints = routes.endpoints.len();
    if plan.connections < endpoints {
        return Err(format!(
            "{endpoints} servers need at least {endpoints} connections"
        ));
    }
    Ok(routes)
}

fn run_threads(shared: &Shared<'_>) -> Result<Vec<Part>, Error> {
    let run_one = |thread| {
        let result = run_thread(shared, thread);
        if result.is_err() {
            shared.live.stop();
        }
        result.map_err(|cause| Error::new("generate load", cause))
    };
    std::thread::scope(|scope| {
        let spawned: Vec<_> = (0..shared.threads)
            .map(|thread| scope.spawn(move || run_one(thread)))
            .collect();
        let panicked = |_| Err(Error::new("generate load", "one of its threads panicked"));
        let joined = spawned
            .into_iter()
            .map(|t| t.join().unwrap_or_else(panicked));
        joined.collect()
    })
}

fn run_thread(shared: &Shared<'_>, thread: usize) -> std::io::Result<Part> {
    let cores = &shared.plan.cores;
    if let Some(core) = cores.get(thread % cores.len().max(1)) {
        let mut set = CpuSet::new();
        set.set(*core);
        sched_setaffinity(None, &set)?;
    }
    // Without it, sleeps are 50 microseconds longer, and the load is the same.
    let _ = set_current_timer_slack(NonZeroU64::new(1));
    let mut generator = Generator::new(shared, thread)?;
    generator.run()?;
    let mut outcome = Outcome {
        generator_cpu: Duration::from_nanos(generator.usage.cpu_ns),
        generator_busy: generator.usage.busy,
        ..Outcome::default()
    };
    let last_ns = generator.recorder.last_ns();
    generator.recorder.finish(shared.plan, &mut outcome);
    Ok(Part {
        outcome,
        left_ns: shared.now_ns(),
        last_ns,
    })
}

fn add_up(shared: Shared<'_>, parts: Vec<Part>, started: SystemTime) -> Outcome {
    let left_ns = parts.iter().map(|p| p.left_ns).max().unwrap_or_default();
    let last_ns = parts.iter().map(|p| p.last_ns).max().unwrap_or_default();
    let interrupted = shared.live.stopped() && left_ns < shared.end_ns;
    let over_ns = match shared.end_ns {
        end_ns if left_ns >= end_ns => end_ns,
        _ if interrupted => left_ns,
        _ => last_ns,
    };
    let mut parts = parts.into_iter().map(|part| part.outcome);
    let mut outcome = parts.next().unwrap_or_default();
    for part in parts {
        outcome.merge(&part);
    }
    if let Keep::Each(most) = shared.plan.keep {
        outcome.each.sort_by_key(|exchange| exchange.start_us);
        outcome.each.truncate(most);
    }
    let from_ns = shared.pulse.recording_at().min(over_ns);
    outcome.started = started + Duration::from_nanos(from_ns);
    outcome.recorded = Duration::from_nanos(over_ns - from_ns);
    outcome.warm_up.time = Duration::from_nanos(from_ns);
    outcome.interrupted = interrupted;
    let (timeline, steady) = shared.pulse.finish();
    outcome.timeline = timeline;
    outcome.warm_up.steady = steady;
    outcome
}

impl Default for Outcome {
    fn default() -> Outcome {
        Outcome {
            started: SystemTime::now(),
            recorded: Duration::ZERO,
            warm_up: LeftOut::default(),
            completed: 0,
            good: 0,
            judged_failed: 0,
            on_kept_connections: 0,
            statuses: BTreeMap::new(),
            errors: Errors::default(),
            received_bytes: 0,
            body_bytes: 0,
            sent_bytes: 0,
            times: Times::default(),
            by_request: Vec::new(),
            timeline: Vec::new(),
            schedule: Schedule::default(),
            generator_cpu: Duration::ZERO,
            generator_busy: 0.0,
            first: None,
            first_failures: Vec::new(),
            cut: 0,
            each: Vec::new(),
            interrupted: false,
            kept: 0,
            handshakes: Handshakes::default(),
        }
    }
}
