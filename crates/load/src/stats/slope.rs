//! What one more of something costs: how steeply a figure rises with a number.

use super::bootstrap::{self, Interval, RESAMPLES};

/// How much a figure rises for each one more of a number, by least squares in each block.
///
/// `points` holds for each number the figure's values, block by block; what a block lacks in one of
/// them it is left out for. `None` of fewer than two blocks or two different numbers.
pub fn slope(points: &[(f64, Vec<f64>)], seed: u64) -> Option<Interval> {
    let blocks = points.iter().map(|(_, values)| values.len()).min()?;
    let of_block = |block: usize| {
        let point = |(at, values): &(f64, Vec<f64>)| Some((*at, *values.get(block)?));
        steepness(&points.iter().filter_map(point).collect::<Vec<_>>())
    };
    let slopes: Vec<Vec<f64>> = (0..blocks)
        .filter_map(of_block)
        .map(|one| vec![one])
        .collect();
    bootstrap::interval(&slopes, 0.95, RESAMPLES, seed)
}

/// The slope of the straight line that is nearest to the points.
fn steepness(points: &[(f64, f64)]) -> Option<f64> {
    let count = points.len() as f64;
    let mean_at = points.iter().map(|(at, _)| at).sum::<f64>() / count;
    let mean = points.iter().map(|(_, value)| value).sum::<f64>() / count;
    let both: f64 = points
        .iter()
        .map(|(at, value)| (at - mean_at) * (value - mean))
        .sum();
    let square: f64 = points.iter().map(|(at, _)| (at - mean_at).powi(2)).sum();
    let slope = both / square;
    slope.is_finite().then_some(slope)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slope_is_what_one_more_costs() {
        let noise = [0.3, -0.2, 0.1, 0.0, -0.3, 0.2, -0.1, 0.05];
        let values = |at: f64| noise.iter().map(|noise| 10.0 + 0.25 * at + noise).collect();
        let points = [0.0, 10.0, 100.0].map(|at| (at, values(at)));
        let slope = slope(&points, 1).expect("a slope");
        assert!((slope.estimate - 0.25).abs() < 0.001, "{slope:?}");
        assert!(slope.low <= 0.25 && 0.25 <= slope.high, "{slope:?}");
    }

    #[test]
    fn what_has_no_slope_is_none() {
        let values = vec![1.0, 2.0, 3.0];
        for points in [
            vec![],
            vec![(1.0, values.clone())],
            vec![(1.0, values.clone()), (1.0, values.clone())],
            vec![(1.0, values.clone()), (2.0, vec![1.0])],
            vec![(1.0, values), (2.0, vec![f64::NAN; 3])],
        ] {
            assert_eq!(slope(&points, 1), None, "{points:?}");
        }
    }
}
