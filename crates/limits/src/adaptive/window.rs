//! What a stretch of time showed: replies a second, their median time, whether the limit was felt.
//!
//! A window counts in a fixed histogram, so a sample costs a few additions and no allocation.
//! [`Seen`] is what closed windows come to when they are taken together.

use crate::Time;
use crate::histogram::Histogram;

/// Share by which a rate or a median must change to be called another, at least.
const UPHEAVAL: f64 = 0.3;

/// Samples since some instant.
#[derive(Debug, Clone)]
pub(super) struct Window {
    /// Samples before this are of requests that an earlier limit let in, and are left out.
    pub(super) from: Time,
    pub(super) fine: u32,
    failed: u32,
    /// Samples at which no permit was free, or somebody waited.
    full: u32,
    /// Samples at which somebody waited.
    queued: u32,
    in_flight: u64,
    held_s: f64,
    held_square: f64,
    times: Histogram,
}

impl Window {
    pub(super) fn new(from: Time) -> Self {
        Self {
            from,
            fine: 0,
            failed: 0,
            full: 0,
            queued: 0,
            in_flight: 0,
            held_s: 0.0,
            held_square: 0.0,
            times: Histogram::new(),
        }
    }

    /// Counts a request that was answered.
    pub(super) fn fine(&mut self, held_ns: u64) {
        let held_s = held_ns as f64 / 1e9;
        self.fine += 1;
        self.held_s += held_s;
        self.held_square += held_s * held_s;
        self.times.add(held_ns);
    }

    /// Counts a request that failed.
    pub(super) fn failed(&mut self) {
        self.failed += 1;
    }

    /// Notes how it stood at the limit when a request, fine or failed, ended.
    pub(super) fn stood(&mut self, in_flight: u32, queued: u32, limit: u32) {
        self.in_flight += u64::from(in_flight);
        self.full += u32::from(in_flight >= limit || queued > 0);
        self.queued += u32::from(queued > 0);
    }

    pub(super) fn samples(&self) -> u32 {
        self.fine + self.failed
    }

    /// What it showed until now; nothing if it has no sample or no length.
    pub(super) fn seen(&self, now: Time, limit: u32) -> Option<Seen> {
        let seconds = now.since_ns(self.from) as f64 / 1e9;
        if self.samples() == 0 || seconds <= 0.0 {
            return None;
        }
        let samples = f64::from(self.samples());
        let half_idle = (self.in_flight as f64) < samples * 0.5 * f64::from(limit);
        Some(Seen {
            fine: f64::from(self.fine),
            seconds,
            median_ns: self.times.quantile_ns(0.5),
            full: f64::from(self.full) / samples,
            variation: self.variation(),
            waits: self.queued > 0,
            quiet: half_idle || self.full == 0,
        })
    }

    /// Squared coefficient of variation of the times.
    fn variation(&self) -> f64 {
        if self.fine < 2 || self.held_s <= 0.0 {
            return 0.0;
        }
        let count = f64::from(self.fine);
        (self.held_square * count / (self.held_s * self.held_s) - 1.0).max(0.0)
    }
}

/// What one or more windows showed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen {
    pub(super) fine: f64,
    pub(super) seconds: f64,
    pub(super) median_ns: f64,
    /// Share of the samples at which the limit was felt.
    pub(super) full: f64,
    pub(super) variation: f64,
    /// Whether anybody waited.
    pub(super) waits: bool,
    /// Less than half was in use, or the limit was not felt: the times are the back end's own.
    pub(super) quiet: bool,
}

impl Seen {
    /// Replies a second.
    pub(super) fn rate(&self) -> f64 {
        self.fine / self.seconds
    }

    /// How far the rate may be off, as a share of it (one standard deviation).
    ///
    /// While the limit is always full the replies come as regularly as the service times allow;
    /// else the arrivals, which nobody orders, add to it.
    pub(super) fn doubt(&self) -> f64 {
        let idle = 1.0 - self.full;
        ((self.variation + idle * idle) / self.fine.max(1.0)).sqrt()
    }

    /// Whether this is too unlike an earlier one to be chance.
    pub(super) fn differs(&self, earlier: &Self) -> bool {
        let doubt = 3.0 * self.doubt().hypot(earlier.doubt());
        let unlike = |now: f64, then: f64| (now / then - 1.0).abs() > doubt.max(UPHEAVAL);
        unlike(self.rate(), earlier.rate()) || unlike(self.median_ns, earlier.median_ns)
    }

    /// Takes a later window in; `keep` is what earlier ones still count.
    pub(super) fn then(self, later: Self, keep: f64) -> Self {
        let fine = self.fine * keep + later.fine;
        let share = if fine > 0.0 { later.fine / fine } else { 1.0 };
        let mix = |old: f64, new: f64| old + (new - old) * share;
        Self {
            fine,
            seconds: self.seconds * keep + later.seconds,
            median_ns: mix(self.median_ns, later.median_ns),
            full: mix(self.full, later.full),
            variation: mix(self.variation, later.variation),
            waits: later.waits,
            quiet: later.quiet,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_tells_rate_and_variation() {
        let mut window = Window::new(Time::ZERO);
        for number in 0..100 {
            window.fine(if number % 2 == 0 {
                10_000_000
            } else {
                30_000_000
            });
            window.stood(20, 1, 20);
        }
        let seen = window.seen(Time(500_000_000), 20).expect("it has samples");
        assert!((seen.rate() - 200.0).abs() < 1e-9);
        assert!((seen.variation - 0.25).abs() < 1e-9, "{}", seen.variation);
        assert!((seen.full - 1.0).abs() < 1e-9 && seen.waits && !seen.quiet);
    }
}
