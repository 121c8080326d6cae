//! What a tenant uses, and what it asks for.
//!
//! Used is the mean number of its requests under way. Asked for is what it would use were
//! all its requests admitted; so the measure stays the same however much of it is shed.

use std::time::Duration;

/// How fast it forgets.
const MEAN_S: f64 = 5.0;
/// Fewer requests than this a second are none.
const FEW: f64 = 1e-3;

/// One tenant's meter.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Meter {
    used: f64,
    offered_s: f64,
    admitted_s: f64,
}

impl Meter {
    /// Notes what happened in a time: how long requests were under way, all together, requests that
    /// came, and how many of them were admitted.
    pub fn note(&mut self, time: Duration, used_s: f64, offered: u64, admitted: u64) {
        let seconds = time.as_secs_f64();
        if seconds <= 0.0 {
            return;
        }
        let weight = 1.0 - (-seconds / MEAN_S).exp();
        let follow = |mean: &mut f64, now: f64| *mean += (now - *mean) * weight;
        follow(&mut self.used, used_s / seconds);
        // Counts of a tick: far within what a float holds.
        follow(&mut self.offered_s, offered as f64 / seconds);
        follow(&mut self.admitted_s, admitted as f64 / seconds);
    }

    /// The mean number of requests under way.
    #[must_use]
    pub fn used(&self) -> f64 {
        self.used
    }

    /// What that would be, were all admitted.
    #[must_use]
    pub fn demand(&self) -> f64 {
        match self.admitted_s > FEW {
            true => self.used * (self.offered_s / self.admitted_s).max(1.0),
            false => self.used,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: Duration = Duration::from_millis(500);

    #[test]
    fn what_is_asked_for_stays_the_same_while_it_is_shed() {
        let mut meter = Meter::default();
        // 100 requests a second of 200 ms each: 20 under way.
        for _ in 0..100 {
            meter.note(TICK, 10.0, 50, 50);
        }
        assert!((meter.used() - 20.0).abs() < 0.1 && (meter.demand() - 20.0).abs() < 0.1);
        for tick in 0..100 {
            meter.note(TICK, 1.0, 50, 5);
            assert!((meter.demand() - 20.0).abs() < 0.1, "{tick}: {meter:?}");
        }
        assert!((meter.used() - 2.0).abs() < 0.1, "{meter:?}");
    }

    #[test]
    fn who_asks_no_more_is_forgotten() {
        let mut meter = Meter::default();
        meter.note(TICK, 10.0, 50, 5);
        for _ in 0..200 {
            meter.note(TICK, 0.0, 0, 0);
        }
        assert!(meter.demand() < 1e-6, "{meter:?}");
        meter.note(Duration::ZERO, 1.0, 1, 1);
        assert!(meter.demand() < 1e-6, "no time is no rate: {meter:?}");
    }
}
