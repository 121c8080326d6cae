//! A slice: a short load on one server, and what the server spent meanwhile.

use std::time::Duration;

use super::Options;
use super::comparison::{Figures, Metric, Side};
use load::Error;
use load::client::{self, End, Keep, Live, Outcome, Pace, Plan, Series, WarmUp};
use load::server::{Noise, Server, Spent, Which};

/// Longest part of a slice that is not recorded.
const WARM_UP_MAX: Duration = Duration::from_millis(300);
/// What a part of the slice that is not recorded.
const WARM_UP_PART: u32 = 5;
/// Others' share of the machine above which even CPU time per request is doubted: they take
/// turns on the cores, and leave colder caches behind.
const FOREIGN_MAX_FOR_CPU: f64 = 0.25;

/// What a slice showed.
#[derive(Debug, Clone, Default)]
pub struct Slice {
    /// Its figures.
    pub figures: Figures,
    /// What disturbed it: a word to count by, and a sentence.
    pub noise: Option<(&'static str, String)>,
    /// Whether the generator may have been the limit.
    pub is_generator_bound: bool,
    /// Its response times.
    pub response: Option<Series>,
}

/// What decides: the server's CPU time where it is known, else what the plan is about.
pub(super) fn metric(a: &Plan, b: &Plan, options: &Options) -> Metric {
    let is_known = |which: &Which| *which != Which::MachineOnly;
    if options.servers.iter().all(is_known) {
        return Metric::CpuPerRequest;
    }
    match (a.pace, b.pace) {
        (Pace::Open { per_second, .. }, Pace::Open { .. }) => {
            // Ten requests beyond a quantile make it one.
            let requests = per_second * (options.slice - warm_up(options.slice)).as_secs_f64();
            match requests {
                count if count >= 1000.0 => Metric::P99,
                count if count >= 100.0 => Metric::P90,
                _ => Metric::P50,
            }
        }
        _ => Metric::PerSecond,
    }
}

fn warm_up(slice: Duration) -> Duration {
    (slice / WARM_UP_PART).min(WARM_UP_MAX)
}

/// Runs slices.
pub(super) struct Runner {
    plans: [Plan; 2],
    servers: [Server; 2],
    metric: Metric,
}

impl Runner {
    pub(super) fn new(
        a: &Plan,
        b: &Plan,
        options: &Options,
        metric: Metric,
    ) -> Result<Runner, Error> {
        let of_slice = |plan: &Plan| Plan {
            end: End {
                after: Some(options.slice),
                requests: None,
            },
            warm_up: WarmUp::For(warm_up(options.slice)),
            keep: Keep::Histograms,
            pace: at_once(plan.pace),
            ..plan.clone()
        };
        let [of_a, of_b] = &options.servers;
        Ok(Runner {
            plans: [of_slice(a), of_slice(b)],
            servers: [Server::find(of_a)?, Server::find(of_b)?],
            metric,
        })
    }

    /// Runs a slice on a side.
    pub(super) fn run(&mut self, side: Side, live: &Live) -> Result<Slice, Error> {
        let [plan_a, plan_b] = &self.plans;
        let [server_a, server_b] = &mut self.servers;
        let (plan, server) = match side {
            Side::A | Side::Again => (plan_a, server_a),
            Side::B => (plan_b, server_b),
        };
        let own_ns = os::cpu::process_cpu_ns();
        let before = server.read();
        let outcome = client::run(plan, live)?;
        let after = server.read();
        let own = Duration::from_nanos(os::cpu::process_cpu_ns().saturating_sub(own_ns));
        let spent = Spent::between(&before, &after);
        Ok(Slice {
            figures: figures(&outcome, &spent),
            noise: noise(self.metric, &outcome, &spent, own),
            is_generator_bound: outcome.is_generator_bound(),
            response: Some(outcome.times.response),
        })
    }
}

/// A rate that grows has no place in a slice.
fn at_once(pace: Pace) -> Pace {
    match pace {
        Pace::Closed => Pace::Closed,
        Pace::Open {
            per_second,
            arrivals,
            ..
        } => Pace::Open {
            per_second,
            arrivals,
            ramp: Duration::ZERO,
        },
    }
}

/// CPU time was looked at before and after all of the slice, so that all of its requests share it.
fn figures(outcome: &Outcome, spent: &Spent) -> Figures {
    let served = outcome.warm_up.completed + outcome.completed;
    let quantile = |q| outcome.times.response.quantile_us(q) as f64;
    let tree = spent.tree.as_ref().filter(|_| served > 0);
    Figures {
        per_second: outcome.per_second(),
        cpu_us: tree.map(|tree| tree.cpu.as_secs_f64() * 1e6 / served as f64),
        p50_us: quantile(0.5),
        p90_us: quantile(0.9),
        p99_us: quantile(0.99),
        requests: outcome.completed + outcome.errors.total(),
        failed: outcome.failed(),
    }
}

fn noise(
    metric: Metric,
    outcome: &Outcome,
    spent: &Spent,
    own: Duration,
) -> Option<(&'static str, String)> {
    let found = Noise::of(spent, own, outcome.errors.connect + outcome.errors.reset)?;
    let word = match found {
        Noise::Foreign(share)
            if metric == Metric::CpuPerRequest && share <= FOREIGN_MAX_FOR_CPU =>
        {
            return None;
        }
        Noise::Steal(_) => "hypervisor",
        Noise::Foreign(_) => "other processes",
        Noise::Refusals(_) => "refused connections",
    };
    Some((word, found.to_string()))
}
