//! Intervals by resampling blocks: what would the estimate have been with other blocks of the
//! same kind?
//!
//! Plain percentiles of the resamples are too narrow with few blocks. They are taken further out,
//! by as much as Student's t exceeds the normal distribution and a sample's deviation falls short
//! (Hesterberg calls it the expanded percentile interval).

use super::normal::{normal_below, student_quantile};
use super::{estimate, summary};

/// Resamples of one interval.
pub const RESAMPLES: usize = 4000;

/// An estimate with what it may as well be.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Most plausible value.
    pub estimate: f64,
    /// Upper end.
    pub high: f64,
}

/// How many times theirs ours is, pair by pair: the exponential of the Hodges-Lehmann estimate of
/// the logarithms of the ratios, with a 95 % interval.
///
/// Pairs with a value that is not positive are left out. `None` of fewer than two pairs. Fewer
/// than six cannot carry 95 %: the interval then spans about what was seen.
pub fn paired_ratio(ours: &[f64], theirs: &[f64], seed: u64) -> Option<Interval> {
    let pairs = ours.iter().zip(theirs);
    let blocks: Vec<Vec<f64>> = pairs
        .filter(|(ours, theirs)| is_ratio(**ours, **theirs))
        .map(|(ours, theirs)| vec![(ours / theirs).ln()])
        .collect();
    interval(&blocks, 0.95, RESAMPLES, seed).map(Interval::exponential)
}

fn is_ratio(ours: f64, theirs: f64) -> bool {
    ours > 0.0 && theirs > 0.0 && (ours / theirs).is_finite()
}

impl Interval {
    /// Both ends so many times as far from the estimate.
    #[must_use]
    pub fn widened(self, times: f64) -> Interval {
        Interval {
            low: self.estimate - (self.estimate - self.low) * times,
            estimate: self.estimate,
            high: self.estimate + (self.high - self.estimate) * times,
        }
    }

    /// From logarithms to what they are of.
    #[must_use]
    pub fn exponential(self) -> Interval {
        Interval {
            low: self.low.exp(),
            estimate: self.estimate.exp(),
            high: self.high.exp(),
        }
    }
}

/// The Hodges-Lehmann estimate of all values, and its interval over the blocks: the values of a
/// block are drawn together, for they share what the machine did meanwhile.
///
/// Blocks without a finite value are left out. `None` of fewer than two.
pub fn interval(blocks: &[Vec<f64>], level: f64, resamples: usize, seed: u64) -> Option<Interval> {
    let values = by_value(blocks);
    let all: Vec<f64> = values.iter().map(|(value, _)| *value).collect();
    let estimate = estimate::of_sorted(&all)?;
    let count = values.iter().map(|(_, block)| block + 1).max()?;
    if count < 2 {
        return None;
    }
    let mut random = fastrand::Rng::with_seed(seed);
    let mut times_drawn = vec![0; count];
    let mut drawn = Vec::with_capacity(all.len());
    let mut estimates = Vec::with_capacity(resamples);
    for _ in 0..resamples {
        times_drawn.fill(0);
        for _ in 0..count {
            times_drawn[random.usize(..count)] += 1;
        }
        // In the order of all values, so that no resample has to be sorted.
        drawn.clear();
        for (value, block) in &values {
            drawn.extend(std::iter::repeat_n(*value, times_drawn[*block]));
        }
        estimates.extend(estimate::rough_of_sorted(&drawn));
    }
    estimates.sort_unstable_by(f64::total_cmp);
    let outer = outer_share(level, count);
    Some(Interval {
        low: summary::quantile_of_sorted(&estimates, outer)?.min(estimate),
        estimate,
        high: summary::quantile_of_sorted(&estimates, 1.0 - outer)?.max(estimate),
    })
}

/// All finite values, ascending, each with the number of its block; blocks without one have none.
fn by_value(blocks: &[Vec<f64>]) -> Vec<(f64, usize)> {
    let finite = |block: &Vec<f64>| -> Vec<f64> {
        let values = block.iter().copied();
        values.filter(|value| value.is_finite()).collect()
    };
    let blocks = blocks.iter().map(finite).filter(|block| !block.is_empty());
    let numbered = blocks.enumerate();
    let mut values: Vec<(f64, usize)> = numbered
        .flat_map(|(number, block)| block.into_iter().map(move |value| (value, number)))
        .collect();
    values.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    values
}

/// The share of resamples left out on each side.
fn outer_share(level: f64, blocks: usize) -> f64 {
    let tail = (1.0 - level.clamp(0.5, 0.9999)) / 2.0;
    let count = blocks as f64;
    let reach = student_quantile(1.0 - tail, blocks - 1) * (count / (count - 1.0)).sqrt();
    normal_below(-reach)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_pair_blocks_before_they_are_estimated() {
        // The machine halved both in block two: the ratio does not see it.
        let ratio = paired_ratio(&[100.0, 50.0, 120.0], &[80.0, 40.0, 96.0], 1).expect("a ratio");
        for value in [ratio.low, ratio.estimate, ratio.high] {
            assert!((value - 1.25).abs() < 1e-9, "{ratio:?}");
        }
    }

    #[test]
    fn what_cannot_be_a_ratio_is_left_out() {
        let ratio = paired_ratio(&[1.0, 0.0, 2.0, f64::NAN], &[1.0, 1.0, 2.0, 1.0], 1);
        assert_eq!(ratio.map(|ratio| ratio.estimate), Some(1.0));
        assert_eq!(paired_ratio(&[1.0], &[1.0], 1), None);
        assert_eq!(paired_ratio(&[], &[], 1), None);
    }

    #[test]
    fn the_same_seed_gives_the_same_interval() {
        let ours = [1.0, 1.1, 0.9, 1.05, 1.2, 0.97, 1.01, 1.3];
        let theirs = [1.0; 8];
        assert_eq!(
            paired_ratio(&ours, &theirs, 3),
            paired_ratio(&ours, &theirs, 3)
        );
    }
}
