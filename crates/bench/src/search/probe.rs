//! One rate, tried: an open loop for a while, and what the server spent meanwhile.

use std::time::Duration;

use serde::Serialize;

use super::{Goals, Options};
use load::Error;
use load::client::{self, Arrivals, End, Keep, Live, Outcome, Pace, Plan, WarmUp};
use load::server::{Server, Spent};

/// Share of the requests due that must be answered in time for a rate to count as reached.
const ACHIEVED: f64 = 0.99;
/// The closed loop that tells where to begin.
const CLOSED_LOOP: Duration = Duration::from_secs(1);
/// Longest probe, warm-up left out.
const PROBE_MAX: Duration = Duration::from_secs(30);
/// Least warm-up of a probe; a fifth of it otherwise.
const WARM_UP_LEAST: Duration = Duration::from_millis(300);

/// Whether a rate holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Result {
    /// The goals, and the rate itself.
    Holds,
    /// It does not, and the generator did its part.
    Fails,
    /// It does not, or the generator was too late to know.
    GeneratorBound,
}

/// What came of a rate.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Probe {
    /// Requests per second that were due.
    pub(crate) offered: f64,
    /// Whole replies per second.
    pub(crate) achieved: f64,
    pub(crate) result: Result,
    /// What was missed, in words.
    pub(crate) missed: Vec<String>,
    pub(crate) requests: u64,
    /// Requests the goals' quantiles need.
    pub(crate) requests_needed: u64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) max_us: f64,
    pub(crate) failed_share: f64,
    pub(crate) cores_used: Option<f64>,
    /// Its proportional share of memory at the end.
    pub(crate) pss_bytes: Option<u64>,
}

/// Tries rates on a server.
pub(super) struct Prober {
    plan: Plan,
    goals: Goals,
    least: Duration,
    server: Server,
}

impl Prober {
    pub(super) fn new(plan: &Plan, options: &Options) -> std::result::Result<Prober, Error> {
        Ok(Prober {
            plan: plan.clone(),
            goals: options.goals.clone(),
            least: options.probe,
            server: Server::find(&options.server)?,
        })
    }

    /// What a closed loop of the same connections comes to, in replies per second.
    pub(super) fn closed_loop(&mut self, live: &Live) -> std::result::Result<f64, Error> {
        let plan = Plan {
            pace: Pace::Closed,
            end: after(CLOSED_LOOP),
            warm_up: WarmUp::For(CLOSED_LOOP / 5),
            keep: Keep::Histograms,
            ..self.plan.clone()
        };
        let outcome = client::run(&plan, live)?;
        if outcome.completed == 0 && !live.stopped() {
            let failure = outcome.first_failures.first();
            let cause = failure.map_or("not one whole reply came", |f| f.text.as_str());
            let doing = "find a rate to begin with";
            return Err(Error::new(doing, cause));
        }
        Ok(outcome.per_second())
    }

    /// Sends at a rate for as long as the goals need; `None` where somebody stopped it.
    pub(super) fn open_loop(
        &mut self,
        per_second: f64,
        live: &Live,
    ) -> std::result::Result<Option<Probe>, Error> {
        let needed = self.goals.requests_needed();
        let wanted = Duration::from_secs_f64((needed / per_second).min(PROBE_MAX.as_secs_f64()));
        // A tenth more, for Poisson's arrivals are not exactly as many as asked for.
        let recorded = self.least.max(wanted * 11 / 10);
        let warm_up = WARM_UP_LEAST.max(recorded / 5);
        let plan = Plan {
            pace: Pace::Open {
                per_second,
                arrivals: self.arrivals(),
                ramp: Duration::ZERO,
            },
            end: after(warm_up + recorded),
            warm_up: WarmUp::For(warm_up),
            keep: Keep::Histograms,
            ..self.plan.clone()
        };
        let before = self.server.read();
        let outcome = client::run(&plan, live)?;
        let spent = Spent::between(&before, &self.server.read_memory());
        let is_whole = !live.stopped();
        Ok(is_whole.then(|| probe(per_second, &outcome, &self.goals, &spent)))
    }

    fn arrivals(&self) -> Arrivals {
        match self.plan.pace {
            Pace::Open { arrivals, .. } => arrivals,
            // As from many people.
            Pace::Closed => Arrivals::Poisson(1),
        }
    }
}

fn after(time: Duration) -> End {
    End {
        after: Some(time),
        requests: None,
    }
}

fn probe(offered: f64, outcome: &Outcome, goals: &Goals, spent: &Spent) -> Probe {
    let mut missed = goals.missed(outcome);
    let due = outcome.schedule.due as f64;
    let answered = outcome.completed as f64;
    // What is under way when the time is over is no backlog: as many as connections may be.
    let under_way = outcome.cut as f64;
    if answered + under_way.min(due * 0.01) < due * ACHIEVED || outcome.completed == 0 {
        missed.push("rate not reached".to_owned());
    }
    let result = match (missed.is_empty(), outcome.is_generator_bound()) {
        (true, _) => Result::Holds,
        (false, true) => Result::GeneratorBound,
        (false, false) => Result::Fails,
    };
    let quantile = |q| outcome.times.response.quantile_us(q) as f64;
    let requests = outcome.completed + outcome.errors.total();
    let tree = spent.tree.as_ref();
    Probe {
        offered,
        achieved: outcome.per_second(),
        result,
        missed,
        requests,
        requests_needed: goals.requests_needed() as u64,
        p50_us: quantile(0.5),
        p99_us: quantile(0.99),
        max_us: outcome.times.response.max_us as f64,
        failed_share: outcome.failed() as f64 / requests.max(1) as f64,
        cores_used: tree.map(|_| spent.cores_used()),
        pss_bytes: tree.and_then(|tree| tree.pss_bytes),
    }
}
