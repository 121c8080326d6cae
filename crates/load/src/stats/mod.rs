//! What a handful of slices says: estimates with intervals, tests, and verdicts that survive being
//! looked at early.
//!
//! The idea: one slice of load is one observation, for requests within a slice share its luck.
//! Everything here is a function of numbers and a seed: no clock, no I/O, so that error rates are
//! known from simulation before a server is ever asked.

mod bootstrap;
mod estimate;
mod looks;
mod normal;
mod ranks;
mod series;
mod several;
mod slope;
mod summary;
mod verdict;

pub use bootstrap::{Interval, RESAMPLES, interval, paired_ratio};
pub use estimate::hodges_lehmann;
pub use looks::{BLOCKS_LEAST, Looks, minimum_detectable};
pub use ranks::{Correlation, mann_whitney, spearman, wilcoxon_signed_rank};
pub use series::{autocorrelation, widening};
pub use several::{holm, jain, max_min};
pub use slope::slope;
pub use summary::{Summary, deviation, mean, median, quantile, summary};
pub use verdict::{Better, Verdict, verdict};
