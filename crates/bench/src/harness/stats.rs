//! Medians, ranges and quantiles of a handful of slices. Nothing here assumes a distribution.

/// A set of values as the report shows it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Summary {
    pub(crate) median: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
}

/// Summarises `values`; `None` when there are none.
pub(crate) fn summary(values: &[f64]) -> Option<Summary> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (least, most) = (*sorted.first()?, *sorted.last()?);
    let middle = sorted.len() / 2;
    let median = if sorted.len() % 2 == 1 {
        sorted[middle]
    } else {
        f64::midpoint(sorted[middle - 1], sorted[middle])
    };
    Some(Summary {
        median,
        least,
        most,
    })
}

/// Round by round, `ours` over `theirs`: pairing takes out what the machine did to both.
pub(crate) fn ratios(ours: &[f64], theirs: &[f64]) -> Option<Summary> {
    let pairs: Vec<f64> = ours
        .iter()
        .zip(theirs)
        .filter(|(_, t)| **t > 0.0)
        .map(|(o, t)| o / t)
        .collect();
    summary(&pairs)
}

/// The `q`-quantile (0 to 1) of `values`, which it sorts; by nearest rank.
pub(crate) fn quantile(values: &mut [f64], q: f64) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let rank = (q * values.len() as f64).ceil() as usize;
    values.get(rank.saturating_sub(1)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_set_lies_between() {
        assert_eq!(
            summary(&[4.0, 1.0, 3.0, 2.0]),
            Some(Summary {
                median: 2.5,
                least: 1.0,
                most: 4.0
            })
        );
        assert_eq!(
            summary(&[9.0]),
            Some(Summary {
                median: 9.0,
                least: 9.0,
                most: 9.0
            })
        );
        assert_eq!(summary(&[]), None);
    }

    #[test]
    fn ratios_pair_rounds_before_they_are_ranked() {
        // The machine halved both in round two: the ratio does not see it.
        let ratio = ratios(&[100.0, 50.0, 120.0], &[80.0, 40.0, 96.0]).expect("three rounds");
        assert!((ratio.least - 1.25).abs() < 1e-9 && (ratio.most - 1.25).abs() < 1e-9);
    }

    #[test]
    fn quantiles_are_by_nearest_rank() {
        let mut values: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        assert_eq!(quantile(&mut values, 0.5), Some(50.0));
        assert_eq!(quantile(&mut values, 0.99), Some(99.0));
        assert_eq!(quantile(&mut values, 1.0), Some(100.0));
        assert_eq!(quantile(&mut [], 0.5), None);
    }
}
