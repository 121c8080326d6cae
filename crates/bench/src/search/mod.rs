//! `--until`: the highest rate at which a server holds its goals.
//!
//! The idea: requests are sent when they are due, whatever the server does (a closed loop would be
//! polite and wait); the rate doubles until a goal is missed, then the gap between the last rate
//! that held and the first that did not is halved until it is small, and what is left is tried
//! three times more. Where the generator gives up first, that is said and not called the server's
//! limit.

mod climb;
mod goals;
mod page;
mod probe;
#[cfg(test)]
mod tests;

use std::time::{Duration, Instant};

use serde::Serialize;

pub(crate) use goals::Goals;
pub(crate) use probe::{Probe, Result as ProbeResult};

use load::Error;
use load::client::{Live, Plan};
use load::server::Which;

/// Version of what is written.
const VERSION: u32 = 1;

/// How a search is run.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    /// What reports call the server.
    pub(crate) name: String,
    pub(crate) goals: Goals,
    /// Its processes, where they are known.
    pub(crate) server: Which,
    /// Least length of a probe, warm-up left out. Slow rates and far quantiles take longer.
    pub(crate) probe: Duration,
    /// The gap at which the search is content, as a share of the rate.
    pub(crate) precision: f64,
}

/// Which part of the search a probe belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Step {
    /// A rate that holds and one that does not are looked for.
    Bracket,
    /// The gap between them is halved.
    Narrow,
    /// The last rate that held is tried again.
    Confirm,
}

/// A probe of the search.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Tried {
    pub(crate) step: Step,
    pub(crate) probe: Probe,
}

/// What a search came to.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Knee {
    /// The goals hold at `holds`, three times more than once, and not at `fails`.
    Found { holds: f64, fails: f64 },
    /// The goals hold at `holds`; above it the generator is the limit, and of the server nothing
    /// is known.
    GeneratorBound {
        /// Requests per second; 0 where not one rate was told of.
        holds: f64,
    },
    /// They do not hold at the slowest rate that was tried.
    Nowhere { tried: f64 },
    /// They held as fast as was tried.
    Everywhere { tried: f64 },
    /// Somebody stopped it, or the probes were used up; they held at `holds`, not confirmed.
    Unfinished {
        /// Requests per second; 0 where none.
        holds: f64,
    },
}

/// A search.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Search {
    pub(crate) version: u32,
    pub(crate) name: String,
    /// What must hold, as it was written.
    pub(crate) goals: String,
    pub(crate) knee: Knee,
    /// Replies per second of a closed loop, where the search began from.
    pub(crate) closed_loop: f64,
    pub(crate) connections: usize,
    pub(crate) probes: Vec<Tried>,
    pub(crate) seconds: f64,
}

/// Looks for the highest rate at which the goals hold. `told` hears of each probe.
///
/// # Errors
/// When the plan cannot be run, the server is not found, or it gives not one whole reply.
pub(crate) fn run(
    plan: &Plan,
    options: &Options,
    live: &Live,
    told: &mut dyn FnMut(&Tried),
) -> Result<Search, Error> {
    let began = Instant::now();
    let mut prober = probe::Prober::new(plan, options)?;
    let closed_loop = prober.closed_loop(live)?;
    let mut climb = climb::Climb::new(options.precision, told);
    let knee = climb.run(closed_loop, live, &mut |rate| prober.open_loop(rate, live))?;
    Ok(Search {
        version: VERSION,
        name: options.name.clone(),
        goals: options.goals.to_string(),
        knee,
        closed_loop,
        connections: plan.connections,
        probes: climb.into_probes(),
        seconds: began.elapsed().as_secs_f64(),
    })
}

impl Search {
    /// 0 where a rate was found, 1 where the goals hold nowhere, 3 where it cannot be told.
    pub(crate) fn exit_status(&self) -> u8 {
        match self.knee {
            Knee::Found { .. } | Knee::Everywhere { .. } => 0,
            Knee::Nowhere { .. } => 1,
            Knee::GeneratorBound { .. } | Knee::Unfinished { .. } => 3,
        }
    }

    /// The same as JSON.
    pub(crate) fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("plain values only")
    }
}
