//! `--vs`: two servers, or two ways of one, compared in interleaved slices of load.
//!
//! The idea: a block holds a slice on A, one on B and a second one on A, in random order, so that
//! what the machine does meanwhile strikes all of them. B is judged against both A's, and the two
//! A's against each other say what "no difference" looks like here today. Blocks that were
//! disturbed from outside are run again. The verdict falls at a few looks fixed beforehand.

mod blocks;
mod comparison;
mod judgement;
#[cfg(test)]
mod noise;
mod page;
#[cfg(test)]
mod simulation;
mod slice;
#[cfg(test)]
mod tests;

use std::time::{Duration, Instant};

pub use comparison::{
    BlockRecord, Comparison, Doubt, Ended, Figures, Judgement, Metric, Side, SideRecord, Weight,
};
pub use slice::Slice;

use load::Error;
use load::client::{Live, Plan};
use load::server::Which;

/// How a comparison is run.
#[derive(Debug, Clone)]
pub struct Options {
    /// What reports call A and B.
    pub names: [String; 2],
    /// The processes of A and B; the CPU time per request decides where both are known.
    pub servers: [Which; 2],
    /// Blocks at most; at least ten are run.
    pub blocks_max: usize,
    /// Length of a slice; its first part, at most 300 ms, is not recorded.
    pub slice: Duration,
    /// Differences below this share are none.
    pub margin: f64,
    /// Seed of the order of slices and of resamples.
    pub seed: u64,
}

/// A running comparison, after each block.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Progress {
    /// Blocks that count.
    pub blocks: usize,
    /// At most so many will.
    pub blocks_max: usize,
    /// Blocks run again for noise.
    pub voided: usize,
    /// B to A so far, with a 95 % interval that is good for watching only.
    pub ratio: Option<load::stats::Interval>,
}

/// Compares B with A until the difference is known, the blocks are used up, or `live` is told to
/// stop.
///
/// # Errors
/// When a plan cannot be run, or a server is not found.
pub fn run(
    a: &Plan,
    b: &Plan,
    options: &Options,
    live: &Live,
    told: &mut dyn FnMut(&Progress),
) -> Result<Comparison, Error> {
    let began = Instant::now();
    let metric = slice::metric(a, b, options);
    let mut runner = slice::Runner::new(a, b, options, metric)?;
    let mut comparison = blocks::run(options, metric, live, told, &mut |side| {
        runner.run(side, live)
    })?;
    comparison.seconds = began.elapsed().as_secs_f64();
    comparison.connections = a.connections;
    Ok(comparison)
}
