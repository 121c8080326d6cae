//! Values in the order in which they were seen: does one resemble the one before?

/// Correlation of each value with the one before it; `None` of fewer than five values.
///
/// The estimate of a short series is too small by about its own reciprocal length, which is added.
pub fn autocorrelation(values: &[f64]) -> Option<f64> {
    let count = values.len();
    if count < 5 || values.iter().any(|value| !value.is_finite()) {
        return None;
    }
    let mean = values.iter().sum::<f64>() / count as f64;
    let square: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    if square <= 0.0 {
        return Some(0.0);
    }
    let pairs = values.windows(2);
    let product: f64 = pairs.map(|pair| (pair[0] - mean) * (pair[1] - mean)).sum();
    Some((product / square + 1.0 / count as f64).clamp(-1.0, 1.0))
}

/// By how much an interval that took its blocks for independent is too narrow: 1 unless blocks
/// clearly resemble the ones before them, at most 3.
pub fn widening(values: &[f64]) -> f64 {
    let Some(rho) = autocorrelation(values) else {
        return 1.0;
    };
    // Beyond what chance gives once in twenty times; without this, noise would widen every second
    // interval.
    if rho < 1.645 / (values.len() as f64).sqrt() {
        return 1.0;
    }
    ((1.0 + rho) / (1.0 - rho).max(1e-3)).sqrt().min(3.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn independent_values_are_left_alone_and_resembling_ones_widen() {
        let mut random = fastrand::Rng::with_seed(5);
        let independent: Vec<Vec<f64>> = (0..200)
            .map(|_| (0..40).map(|_| normal(&mut random)).collect())
            .collect();
        let widened = independent.iter().filter(|v| widening(v) > 1.0).count();
        assert!(widened <= 20, "{widened} of 200 although nothing was there");
        let seen = independent.iter().filter_map(|v| autocorrelation(v));
        let mean = seen.sum::<f64>() / 200.0;
        assert!(mean.abs() < 0.03, "{mean}");

        let mut last = 0.0;
        let resembling: Vec<f64> = (0..200)
            .map(|_| {
                last = 0.6 * last + normal(&mut random);
                last
            })
            .collect();
        let seen = widening(&resembling);
        // sqrt(1.6 / 0.4) = 2
        assert!((1.5..2.7).contains(&seen), "{seen}");
    }

    #[test]
    fn too_few_or_all_alike_say_nothing() {
        assert_eq!(autocorrelation(&[1.0, 2.0, 3.0, 4.0]), None);
        assert_eq!(autocorrelation(&[3.0; 9]), Some(0.0));
        assert!((widening(&[3.0; 9]) - 1.0).abs() < 1e-12);
    }

    /// A standard normal value (Box and Muller).
    fn normal(random: &mut fastrand::Rng) -> f64 {
        let radius = (-2.0 * (1.0 - random.f64()).ln()).sqrt();
        radius * (std::f64::consts::TAU * random.f64()).cos()
    }
}
