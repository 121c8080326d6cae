//! Several figures at once: tests of one family, and shares among tenants.

/// Holm's correction: what each chance comes to when all were looked at together. The family errs
/// at most as often as one test would.
pub fn holm(chances: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..chances.len()).collect();
    order.sort_unstable_by(|a, b| chances[*a].total_cmp(&chances[*b]));
    let mut corrected = vec![1.0; chances.len()];
    let mut least = 0.0_f64;
    for (place, index) in order.into_iter().enumerate() {
        let times = (chances.len() - place) as f64;
        least = least.max((chances[index] * times).min(1.0));
        corrected[index] = least;
    }
    corrected
}

/// Jain's index of fairness: 1 where all get the same, `1 / n` where one gets everything. `None`
/// of nothing, or where nobody gets anything.
pub fn jain(shares: &[f64]) -> Option<f64> {
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|share| share * share).sum();
    (squares > 0.0).then(|| sum * sum / (shares.len() as f64 * squares))
}

/// What each would get of `total` if it were shared out max-min fairly: nobody more than it wants,
/// and what one leaves goes to the others by weight (Bertsekas and Gallager, Data Networks, 6.5.2).
/// `wanted` are pairs of demand (it may be without end) and weight, above 0.
pub fn max_min(total: f64, wanted: &[(f64, f64)]) -> Vec<f64> {
    let mut fair = vec![0.0; wanted.len()];
    let mut left = total;
    // Whoever is served in full first wants least for its weight.
    let per_weight = |index: &usize| {
        wanted
            .get(*index)
            .map_or(0.0, |(want, weight)| want / weight)
    };
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by(|a, b| per_weight(a).total_cmp(&per_weight(b)));
    let mut weights: f64 = wanted.iter().map(|(_, weight)| weight).sum();
    for index in order {
        let (want, weight) = wanted[index];
        let got = want.min(left * weight / weights);
        fair[index] = got;
        left -= got;
        weights -= weight;
    }
    fair
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn max_min_gives_the_modest_all_and_the_others_the_rest_by_weight() {
        let check = |total, wanted: &[(f64, f64)], fair: &[f64]| {
            let seen = max_min(total, wanted);
            for (seen, fair) in seen.iter().zip(fair) {
                assert!(
                    (seen - fair).abs() < 1e-9,
                    "{wanted:?}: {seen} is not {fair}"
                );
            }
        };
        check(
            10.0,
            &[(2.0, 1.0), (2.6, 1.0), (4.0, 1.0), (5.0, 1.0)],
            &[2.0, 2.6, 2.7, 2.7],
        );
        let greedy = f64::INFINITY;
        check(
            700.0,
            &[(greedy, 1.0), (greedy, 2.0), (greedy, 4.0)],
            &[100.0, 200.0, 400.0],
        );
        check(100.0, &[(greedy, 1.0), (20.0, 9.0)], &[80.0, 20.0]);
        check(100.0, &[(20.0, 1.0), (30.0, 1.0)], &[20.0, 30.0]);
        check(1.0, &[], &[]);
    }

    #[test]
    fn holm_multiplies_by_the_tests_that_are_left() {
        // By hand, and as R's p.adjust(c(.01, .04, .03, .005), "holm") says.
        let seen = holm(&[0.01, 0.04, 0.03, 0.005]);
        for (seen, expected) in seen.iter().zip([0.03, 0.06, 0.06, 0.02]) {
            assert!((seen - expected).abs() < 1e-12, "{seen} {expected}");
        }
        assert_eq!(holm(&[0.9, 0.8]), vec![1.0, 1.0]);
        assert!(holm(&[]).is_empty());
    }

    #[test]
    fn fairness_is_one_for_equals_and_a_share_for_a_glutton() {
        assert_eq!(jain(&[3.0, 3.0, 3.0]), Some(1.0));
        assert_eq!(jain(&[8.0, 0.0, 0.0, 0.0]), Some(0.25));
        assert_eq!(jain(&[0.0, 0.0]), None);
        assert_eq!(jain(&[]), None);
    }
}
