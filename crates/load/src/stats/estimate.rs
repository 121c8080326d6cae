//! The Hodges-Lehmann estimate: the median of the means of all pairs of values.
//!
//! It is nearly as sharp as the mean where noise is normal, and hardly moved by a few wild values,
//! which is what slices on a shared machine look like.

use super::summary;

/// Steps of bisection: the result is known to the 2^-40th part of the middle half of the values.
const STEPS: usize = 40;
/// Steps where many estimates are ranked among each other: a four-thousandth of the middle half of
/// the values is far below what separates resamples.
const STEPS_ROUGH: usize = 12;

/// The median of `(x_i + x_j) / 2` over all pairs with `i <= j`; `None` of nothing.
pub fn hodges_lehmann(values: &[f64]) -> Option<f64> {
    of_sorted(&summary::sorted(values))
}

/// The same of sorted values. Finds the median by bisection over the value, for counting the pairs
/// below a value takes one walk along the sorted values. Listing the pairs would take their square
/// in time and memory.
pub(super) fn of_sorted(sorted: &[f64]) -> Option<f64> {
    let between = middle_half(sorted)?;
    let pairs = sorted.len() * (sorted.len() + 1) / 2;
    let lower = value_of_rank(sorted, pairs.div_ceil(2), between, STEPS);
    if pairs % 2 == 1 {
        return Some(lower);
    }
    let upper = value_of_rank(sorted, pairs / 2 + 1, (lower, between.1), STEPS);
    Some(f64::midpoint(lower, upper))
}

/// The same of sorted values, good enough for one of thousands of resamples.
pub(super) fn rough_of_sorted(sorted: &[f64]) -> Option<f64> {
    let between = middle_half(sorted)?;
    let pairs = sorted.len() * (sorted.len() + 1) / 2;
    Some(value_of_rank(
        sorted,
        pairs.div_ceil(2),
        between,
        STEPS_ROUGH,
    ))
}

/// Values that the estimate lies between. The least three quarters of the values make more than
/// half of the pairs among themselves (9/16), and so do the largest; wild values are beyond.
fn middle_half(sorted: &[f64]) -> Option<(f64, f64)> {
    let reach = (3 * sorted.len()).div_ceil(4);
    let low = sorted.get(sorted.len() - reach)?;
    let high = sorted.get(reach.checked_sub(1)?)?;
    Some((*low, *high))
}

/// The smallest value that at least `rank` means of pairs do not exceed.
fn value_of_rank(sorted: &[f64], rank: usize, between: (f64, f64), steps: usize) -> f64 {
    let (mut low, mut high) = between;
    for _ in 0..steps {
        let middle = f64::midpoint(low, high);
        if middle <= low || middle >= high {
            break;
        }
        if pairs_up_to(sorted, middle) >= rank {
            high = middle;
        } else {
            low = middle;
        }
    }
    high
}

/// Pairs `i <= j` whose mean is at most `value`.
fn pairs_up_to(sorted: &[f64], value: f64) -> usize {
    let twice = 2.0 * value;
    let mut end = sorted.len();
    let mut count = 0;
    for (index, own) in sorted.iter().enumerate() {
        while let Some(other) = end.checked_sub(1).and_then(|at| sorted.get(at)) {
            if own + other <= twice {
                break;
            }
            end -= 1;
        }
        if end <= index {
            break;
        }
        count += end - index;
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::summary::median;

    #[test]
    fn the_estimate_is_that_of_a_textbook() {
        // Hollander, Wolfe: Nonparametric Statistical Methods, table 3.1 (depression scores of
        // nine patients before and after tranquilizers); their estimate is -0.46.
        let before = [1830, 500, 1620, 2480, 1680, 1880, 1550, 3060, 1300];
        let after = [878, 647, 598, 2050, 1060, 1290, 1060, 3140, 1290];
        let pairs = before.iter().zip(after);
        let change: Vec<f64> = pairs.map(|(b, a)| f64::from(a - b) / 1000.0).collect();
        let seen = hodges_lehmann(&change).expect("nine values");
        assert!((seen + 0.46).abs() < 0.001, "{seen}");
    }

    #[test]
    fn the_walk_agrees_with_listing_all_pairs() {
        let mut random = fastrand::Rng::with_seed(7);
        for count in 1..60 {
            let values: Vec<f64> = (0..count).map(|_| random.f64().powi(3) - 0.3).collect();
            let listed: Vec<f64> = (0..count)
                .flat_map(|i| (i..count).map(move |j| (i, j)))
                .map(|(i, j)| f64::midpoint(values[i], values[j]))
                .collect();
            let expected = median(&listed).expect("at least one pair");
            let seen = hodges_lehmann(&values).expect("at least one value");
            assert!((seen - expected).abs() < 1e-9, "{count}: {seen} {expected}");
        }
    }

    #[test]
    fn a_wild_value_hardly_moves_it() {
        let calm = hodges_lehmann(&[1.0, 2.0, 3.0, 4.0, 5.0]).expect("five values");
        let wild = hodges_lehmann(&[1.0, 2.0, 3.0, 4.0, 5000.0]).expect("five values");
        assert!(
            (calm - 3.0).abs() < 1e-9 && (wild - 3.0).abs() <= 0.5,
            "{wild}"
        );
        assert_eq!(hodges_lehmann(&[2.0, 2.0]), Some(2.0));
        assert_eq!(hodges_lehmann(&[]), None);
    }
}
