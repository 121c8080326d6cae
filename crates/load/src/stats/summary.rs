//! Medians, ranges and quantiles of a handful of slices. Nothing here assumes a distribution.

/// A set of values as reports show it.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct Summary {
    /// Half of the values are below.
    pub median: f64,
    /// Smallest.
    pub least: f64,
    /// Largest.
    pub most: f64,
    /// How many there are.
    pub count: usize,
}

/// Summarises the finite ones of `values`; `None` when there are none.
pub fn summary(values: &[f64]) -> Option<Summary> {
    let sorted = sorted(values);
    Some(Summary {
        median: median_of_sorted(&sorted)?,
        least: *sorted.first()?,
        most: *sorted.last()?,
        count: sorted.len(),
    })
}

/// The value half of the others are below; of an even number, halfway between the middle two.
pub fn median(values: &[f64]) -> Option<f64> {
    median_of_sorted(&sorted(values))
}

/// The smallest value that at least the share `q` (0 to 1) of all values does not exceed.
pub fn quantile(values: &[f64], q: f64) -> Option<f64> {
    quantile_of_sorted(&sorted(values), q)
}

/// Arithmetic mean; `None` of nothing.
pub fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// Standard deviation of a sample; `None` of fewer than two values.
pub fn deviation(values: &[f64]) -> Option<f64> {
    let centre = mean(values)?;
    let squares: f64 = values.iter().map(|value| (value - centre).powi(2)).sum();
    (values.len() > 1).then(|| (squares / (values.len() - 1) as f64).sqrt())
}

/// Ascending, without what is not a number or not finite.
pub(super) fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted: Vec<f64> = values.iter().copied().filter(|v| v.is_finite()).collect();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted
}

pub(super) fn median_of_sorted(sorted: &[f64]) -> Option<f64> {
    let middle = sorted.len() / 2;
    let upper = *sorted.get(middle)?;
    if sorted.len() % 2 == 1 {
        return Some(upper);
    }
    let lower = *sorted.get(middle.checked_sub(1)?)?;
    Some(f64::midpoint(lower, upper))
}

pub(super) fn quantile_of_sorted(sorted: &[f64], q: f64) -> Option<f64> {
    let rank = (q.clamp(0.0, 1.0) * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_set_lies_between() {
        let seen = summary(&[4.0, 1.0, 3.0, 2.0]).expect("four values");
        assert_eq!((seen.median, seen.least, seen.most), (2.5, 1.0, 4.0));
        assert_eq!(seen.count, 4);
        assert_eq!(median(&[9.0]), Some(9.0));
        assert_eq!(summary(&[]), None);
    }

    #[test]
    fn what_is_no_number_is_left_out() {
        assert_eq!(median(&[f64::NAN, 2.0, f64::INFINITY]), Some(2.0));
        assert_eq!(summary(&[f64::NAN]), None);
    }

    #[test]
    fn quantiles_are_by_nearest_rank() {
        let values: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        for (q, expected) in [(0.0, 1.0), (0.5, 50.0), (0.99, 99.0), (1.0, 100.0)] {
            assert_eq!(quantile(&values, q), Some(expected), "{q}");
        }
        assert_eq!(quantile(&[], 0.5), None);
    }

    #[test]
    fn the_deviation_is_that_of_a_sample() {
        // Sum of squares about the mean 5 is 32.
        let seen = deviation(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]).expect("eight values");
        assert!((seen - (32.0_f64 / 7.0).sqrt()).abs() < 1e-12);
        assert_eq!(deviation(&[1.0]), None);
        assert_eq!(mean(&[]), None);
    }
}
