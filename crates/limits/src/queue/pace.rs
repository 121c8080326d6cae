//! How fast a gate works: how long its permits are held, and what follows for those who wait.

use std::time::Duration;

/// How many services the median is taken over.
const RECENT: usize = 15;
/// What one service may count for, in means: a tunnel of an hour says little about the next page.
const OUTLIER: u64 = 10;
/// No wait below this counts as late: a page's own jitter is as large.
const TARGET_MIN: Duration = Duration::from_millis(20);
/// So many targets make an interval.
const INTERVAL_TARGETS: u64 = 20;

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

/// When waiting counts as late.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lateness {
    pub(super) target_ns: u64,
    pub(super) interval_ns: u64,
}

/// What is known of the services of a gate.
#[derive(Debug, Default)]
pub(super) struct Pace {
    held: Average,
    recent_us: [u32; RECENT],
    seen: usize,
    median_us: u32,
}

impl Pace {
    pub(super) fn note(&mut self, held_ns: u64) {
        self.held.note(self.held.bounded(held_ns));
        self.recent_us[self.seen % RECENT] = u32::try_from(held_ns / 1_000).unwrap_or(u32::MAX);
        self.seen = self.seen.wrapping_add(1);
        let count = self.seen.min(RECENT);
        let mut sorted_us = self.recent_us;
        let sorted_us = &mut sorted_us[..count];
        sorted_us.sort_unstable();
        self.median_us = sorted_us[count / 2];
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

    /// When waiting counts as late: beyond a quarter of the median service. `None` until one was measured.
    pub(super) fn lateness(&self) -> Option<Lateness> {
        if self.seen == 0 {
            return None;
        }
        let target_ns = (TARGET_MIN.as_nanos() as u64).max(u64::from(self.median_us) * 1_000 / 4);
        Some(Lateness {
            target_ns,
            interval_ns: target_ns * INTERVAL_TARGETS,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Pace;

    #[test]
    fn one_slow_service_does_not_move_the_median() {
        let mut pace = Pace::default();
        assert!(pace.lateness().is_none());
        for held_ms in [400, 400, 90_000, 400, 400] {
            pace.note(held_ms * 1_000_000);
        }
        assert_eq!(pace.lateness().unwrap().target_ns, 100_000_000);
    }

    #[test]
    fn the_median_forgets_what_is_long_past() {
        let mut pace = Pace::default();
        (0..20).for_each(|_| pace.note(1_000_000_000));
        (0..15).for_each(|_| pace.note(1_000_000));
        assert_eq!(pace.lateness().unwrap().target_ns, 20_000_000);
    }
}
