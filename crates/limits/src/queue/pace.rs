//! How fast a gate works: how long its permits are held, and what follows for those who wait.

use std::time::Duration;

/// What one service may count for, in means: a tunnel of an hour says little about the next page.
const OUTLIER: u64 = 10;
/// An exponentially weighted mean (alpha 0.1) of durations; the first sample counts whole.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Average {
    /// 0: nothing measured yet.
    value_ns: u64,
}

impl Average {
    pub(super) fn note(&mut self, sample_ns: u64) {
        let sample_ns = sample_ns.max(1);
        self.value_ns = match self.value_ns {
            0 => sample_ns,
            value => (value - value / 10).saturating_add(sample_ns / 10).max(1),
        };
    }

    /// A sample, if it is not far beyond the mean; else what is.
    fn bounded(self, sample_ns: u64) -> u64 {
        match self.value_ns {
            0 => sample_ns,
            value => sample_ns.min(value.saturating_mul(OUTLIER)),
        }
    }

    /// The mean; `None` until something was measured.
    pub(super) fn value_ns(self) -> Option<u64> {
        (self.value_ns > 0).then_some(self.value_ns)
    }
}

/// What is known of the services of a gate.
#[derive(Debug, Default)]
pub(super) struct Pace {
    held: Average,
}

impl Pace {
    pub(super) fn note(&mut self, held_ns: u64) {
        self.held.note(self.held.bounded(held_ns));
    }

    /// Takes over a mean that was kept elsewhere meanwhile, of services nobody waited for.
    pub(super) fn follow(&mut self, mean_ns: u64) {
        self.held.value_ns = mean_ns;
    }

    /// How long so many services take with so many permits; `None` until one was measured.
    pub(super) fn services(&self, services: u64, permits: u32) -> Option<Duration> {
        let held_ns = u128::from(self.held.value_ns()?);
        let wait_ns = held_ns * u128::from(services) / u128::from(permits.max(1));
        Some(Duration::from_nanos(
            u64::try_from(wait_ns).unwrap_or(u64::MAX),
        ))
    }
}
