//! Noise as it is met, for simulations in tests.

/// A standard normal value (Box and Muller).
pub(crate) fn normal(random: &mut fastrand::Rng) -> f64 {
    let radius = (-2.0 * (1.0 - random.f64()).ln()).sqrt();
    radius * (std::f64::consts::TAU * random.f64()).cos()
}

/// What a slice may have on top.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Noise {
    /// Normal.
    Normal,
    /// Lognormal, shape 1: many small ones, a few large ones to one side.
    Lognormal,
    /// Student's t with three degrees of freedom: now and then a wild one to either side.
    Heavy,
}

impl Noise {
    /// A value of deviation 1 about 0.
    pub(crate) fn draw(self, random: &mut fastrand::Rng) -> f64 {
        match self {
            Noise::Normal => normal(random),
            Noise::Lognormal => {
                // Mean and deviation of exp(z).
                let (mean, deviation) = (1.648_721_271, 2.161_197_416);
                (normal(random).exp() - mean) / deviation
            }
            Noise::Heavy => {
                let squares: f64 = (0..3).map(|_| normal(random).powi(2)).sum();
                // Variance of t with three degrees of freedom is 3.
                normal(random) / (squares / 3.0).sqrt() / 3.0_f64.sqrt()
            }
        }
    }
}
