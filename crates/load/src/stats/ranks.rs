//! Tests that look at ranks alone: Wilcoxon's for pairs, Mann and Whitney's for two heaps of
//! stored results, Spearman's for drift.

use super::normal::{normal_below, student_quantile};

/// Up to so many pairs the signed-rank distribution is counted out; beyond, it is normal enough.
const EXACT_PAIRS_MAX: usize = 25;
/// Up to so many values in each heap the Mann-Whitney distribution is counted out.
const EXACT_HEAP_MAX: usize = 25;

/// How likely differences at least as lopsided are, in either direction, where none exists.
///
/// Zeros are left out. Exact for at most 25 differences, ties included; a normal approximation
/// with the ties' and the continuity correction beyond. 1 where nothing is left.
pub fn wilcoxon_signed_rank(differences: &[f64]) -> f64 {
    let kept: Vec<f64> = differences
        .iter()
        .copied()
        .filter(|value| value.is_finite() && *value != 0.0)
        .collect();
    if kept.is_empty() {
        return 1.0;
    }
    let sizes: Vec<f64> = kept.iter().map(|value| value.abs()).collect();
    let ranks = doubled_ranks(&sizes);
    let of_positive = kept.iter().zip(&ranks).filter(|(value, _)| **value > 0.0);
    let positive: usize = of_positive.map(|(_, rank)| rank).sum();
    if kept.len() <= EXACT_PAIRS_MAX {
        return exact_signed_rank(&ranks, positive);
    }
    // Each rank counts or does not, as a coin falls.
    let centre = ranks.iter().sum::<usize>() as f64 / 2.0;
    let squares: f64 = ranks.iter().map(|rank| (*rank as f64).powi(2)).sum();
    two_sided(positive as f64 - centre, (squares / 4.0).sqrt())
}

/// Counts the sums of all choices among the (doubled) ranks.
fn exact_signed_rank(ranks: &[usize], positive: usize) -> f64 {
    let total: usize = ranks.iter().sum();
    let mut ways = vec![0.0_f64; total + 1];
    ways[0] = 1.0;
    for rank in ranks {
        for sum in (*rank..=total).rev() {
            ways[sum] += ways[sum - rank];
        }
    }
    let all = 2.0_f64.powi(ranks.len() as i32);
    let smaller = positive.min(total - positive);
    let tail: f64 = ways.iter().take(smaller + 1).sum();
    (2.0 * tail / all).min(1.0)
}

/// How likely two heaps of values are at least as far apart in rank, in either direction, where
/// both come of the same thing. For results stored at different times; ten each make sense.
///
/// Exact for at most 25 values each without ties, else normal with both corrections.
pub fn mann_whitney(ours: &[f64], theirs: &[f64]) -> f64 {
    let finite =
        |values: &[f64]| -> Vec<f64> { values.iter().copied().filter(|v| v.is_finite()).collect() };
    let (ours, theirs) = (finite(ours), finite(theirs));
    if ours.is_empty() || theirs.is_empty() {
        return 1.0;
    }
    let together = [ours.as_slice(), theirs.as_slice()].concat();
    let ranks = doubled_ranks(&together);
    let (m, n) = (ours.len(), theirs.len());
    let of_ours: usize = ranks.iter().take(m).sum();
    let doubled_u = of_ours - m * (m + 1);
    let has_ties = has_ties(&together);
    if !has_ties && m <= EXACT_HEAP_MAX && n <= EXACT_HEAP_MAX {
        return exact_mann_whitney(m, n, doubled_u / 2);
    }
    let count = (m + n) as f64;
    let mean_rank = count + 1.0;
    let spread: f64 = ranks.iter().map(|r| (*r as f64 - mean_rank).powi(2)).sum();
    // Variance of a sum drawn without replacement, in doubled ranks.
    let variance = (m * n) as f64 * spread / (count * (count - 1.0));
    two_sided(of_ours as f64 - m as f64 * mean_rank, variance.sqrt())
}

/// Counts in how many ways `m` of `m + n` ranks give each U.
fn exact_mann_whitney(m: usize, n: usize, u: usize) -> f64 {
    // ways[i][s]: ways in which i of the ranks seen so far have U (or sum of gaps) s.
    let most = m * n;
    let mut ways = vec![vec![0.0_f64; most + 1]; m + 1];
    ways[0][0] = 1.0;
    for below in 0..=n {
        // One of ours may stand above `below` of theirs, any number of times.
        for i in 1..=m {
            for s in below..=most {
                ways[i][s] += ways[i - 1][s - below];
            }
        }
    }
    let smaller = u.min(most - u);
    let all: f64 = ways[m].iter().sum();
    let tail: f64 = ways[m].iter().take(smaller + 1).sum();
    (2.0 * tail / all).min(1.0)
}

/// A correlation of ranks, and how likely it is by chance.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct Correlation {
    /// From -1 to 1.
    pub rho: f64,
    /// Whether it is beyond what chance gives once in a hundred times.
    pub is_marked: bool,
}

/// Spearman's correlation of the values with their order: does the ratio drift? `None` of fewer
/// than five values.
pub fn spearman(values: &[f64]) -> Option<Correlation> {
    let count = values.len();
    if count < 5 || values.iter().any(|value| !value.is_finite()) {
        return None;
    }
    let ranks = doubled_ranks(values);
    let centre = (count + 1) as f64;
    let mut product = 0.0;
    let mut own = 0.0;
    let mut order = 0.0;
    for (index, rank) in ranks.iter().enumerate() {
        let x = 2.0 * (index + 1) as f64 - centre;
        let y = *rank as f64 - centre;
        product += x * y;
        order += x * x;
        own += y * y;
    }
    let rho = if own > 0.0 {
        product / (own * order).sqrt()
    } else {
        0.0
    };
    // rho * sqrt((n-2) / (1-rho^2)) follows Student's t closely enough.
    let freedom = count - 2;
    let t = rho.abs() * (freedom as f64 / (1.0 - rho * rho).max(1e-12)).sqrt();
    Some(Correlation {
        rho,
        is_marked: t > student_quantile(0.995, freedom),
    })
}

/// Twice the rank of each value, counted from one: equal values share the mean of their ranks,
/// which doubling keeps whole.
fn doubled_ranks(values: &[f64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_unstable_by(|a, b| values[*a].total_cmp(&values[*b]));
    let mut ranks = vec![0; values.len()];
    let mut start = 0;
    while start < order.len() {
        let alike = order[start..]
            .iter()
            .take_while(|index| values[**index] == values[order[start]])
            .count()
            .max(1);
        for index in &order[start..start + alike] {
            ranks[*index] = 2 * start + alike + 1;
        }
        start += alike;
    }
    ranks
}

fn has_ties(values: &[f64]) -> bool {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted.windows(2).any(|pair| pair[0] == pair[1])
}

/// Both tails of a normal distribution, for a doubled statistic: half a step is one.
fn two_sided(off: f64, spread: f64) -> f64 {
    if spread <= 0.0 {
        return 1.0;
    }
    let z = (off.abs() - 1.0).max(0.0) / spread;
    (2.0 * normal_below(-z)).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signed_ranks_are_those_of_the_tables() {
        // Critical values T for 5 % on both sides together (Wilcoxon, Wilcox 1964; the tables of
        // Hollander, Wolfe and of Siegel): the largest T whose chance is at most 0.05.
        for (pairs, critical) in [
            (6, 0),
            (7, 2),
            (8, 3),
            (9, 5),
            (10, 8),
            (12, 13),
            (15, 25),
            (20, 52),
            (25, 89),
        ] {
            let at = wilcoxon_signed_rank(&with_rank_sum(pairs, critical));
            let above = wilcoxon_signed_rank(&with_rank_sum(pairs, critical + 1));
            assert!(at <= 0.05 && above > 0.05, "{pairs}: {at} {above}");
        }
        // Counted by hand: 25 of the 1024 choices among the ranks to 10 sum up to 8 at most.
        let seen = wilcoxon_signed_rank(&with_rank_sum(10, 8));
        assert!((seen - 50.0 / 1024.0).abs() < 1e-12, "{seen}");
    }

    /// Differences of sizes 1 to `pairs`, of which the positive ones sum up to `sum`.
    fn with_rank_sum(pairs: i32, mut sum: i32) -> Vec<f64> {
        let mut values = Vec::new();
        for size in (1..=pairs).rev() {
            let is_positive = size <= sum;
            sum -= if is_positive { size } else { 0 };
            values.push(f64::from(if is_positive { size } else { -size }));
        }
        values
    }

    #[test]
    fn the_depression_scores_of_the_textbook_differ() {
        // Hollander, Wolfe, table 3.1: V = 40, one-sided 0.01953 (also R's help of wilcox.test).
        let change = [
            -0.952, 0.147, -1.022, -0.43, -0.62, -0.59, -0.49, 0.08, -0.01,
        ];
        let seen = wilcoxon_signed_rank(&change);
        assert!((seen - 0.039_06).abs() < 1e-5, "{seen}");
    }

    #[test]
    fn beyond_25_pairs_the_normal_distribution_carries_on() {
        let mut random = fastrand::Rng::with_seed(11);
        for _ in 0..50 {
            let values: Vec<f64> = (0..25).map(|_| random.f64() - 0.4).collect();
            let exact = wilcoxon_signed_rank(&values);
            let ranks = doubled_ranks(&values.iter().map(|v| v.abs()).collect::<Vec<f64>>());
            let positive: usize = (values.iter().zip(&ranks))
                .filter(|(value, _)| **value > 0.0)
                .map(|(_, rank)| rank)
                .sum();
            let squares: f64 = ranks.iter().map(|rank| (*rank as f64).powi(2)).sum();
            let normal = two_sided(positive as f64 - 325.0, (squares / 4.0).sqrt());
            assert!((exact - normal).abs() < 0.02, "{exact} {normal}");
        }
    }

    #[test]
    fn nothing_is_concluded_from_nothing() {
        assert_eq!(wilcoxon_signed_rank(&[]), 1.0);
        assert_eq!(wilcoxon_signed_rank(&[0.0, 0.0, f64::NAN]), 1.0);
        assert_eq!(mann_whitney(&[], &[1.0]), 1.0);
        assert_eq!(mann_whitney(&[1.0, 1.0], &[1.0]), 1.0);
        assert_eq!(spearman(&[1.0, 2.0, 3.0, 4.0]), None);
        assert_eq!(spearman(&[2.0; 6]).map(|seen| seen.is_marked), Some(false));
    }

    #[test]
    fn mann_whitney_is_that_of_a_textbook() {
        // Hollander, Wolfe, table 4.1 (permeability of membranes): W = 35, one-sided 0.1272 (also
        // R's help of wilcox.test).
        let ours = [0.80, 0.83, 1.89, 1.04, 1.45, 1.38, 1.91, 1.64, 0.73, 1.46];
        let theirs = [1.15, 0.88, 0.90, 0.74, 1.21];
        let seen = mann_whitney(&ours, &theirs);
        assert!((seen - 0.2544).abs() < 0.0001, "{seen}");
        assert!((mann_whitney(&theirs, &ours) - seen).abs() < 1e-12);
        // The tables' critical U for five and five at 5 % on both sides is 2.
        let critical = mann_whitney(&[1.0, 2.0, 3.0, 4.0, 6.5], &[5.0, 6.0, 7.0, 8.0, 9.0]);
        assert!(critical <= 0.05, "{critical}");
        let above = mann_whitney(&[1.0, 2.0, 3.0, 4.0, 7.25], &[5.0, 6.0, 7.0, 8.0, 9.0]);
        assert!(above > 0.05, "{above}");
    }

    #[test]
    fn many_values_and_ties_go_by_the_normal_distribution() {
        let ours: Vec<f64> = (0..40).map(f64::from).collect();
        let theirs: Vec<f64> = (0..40).map(|value| f64::from(value) + 0.5).collect();
        assert!(mann_whitney(&ours, &theirs) > 0.8);
        let far: Vec<f64> = (20..60).map(f64::from).collect();
        assert!(mann_whitney(&ours, &far) < 1e-6);
    }

    #[test]
    fn a_drift_is_seen_and_a_wobble_is_not() {
        // Hours of television against IQ, the worked example of Wikipedia's article: -29/165.
        let hours = [0.0, 20.0, 28.0, 27.0, 50.0, 29.0, 7.0, 17.0, 6.0, 12.0];
        let seen = spearman(&hours).expect("ten values");
        assert!((seen.rho + 29.0 / 165.0).abs() < 1e-12, "{seen:?}");
        assert!(!seen.is_marked);
        let rising: Vec<f64> = (0..12).map(|i| f64::from(i) + f64::from(i % 3)).collect();
        assert!(spearman(&rising).is_some_and(|seen| seen.is_marked && seen.rho > 0.9));
    }
}
