//! The controllers others publish, with the parameters they publish them with.
//!
//! Written after the description of github.com/Netflix/concurrency-limits (as of January 2026):
//! AIMD and Vegas look at every sample, Gradient2 at windows of a second.

use limits::Time;

use crate::simulator::{Controller, SECOND};

/// One more per answer while it is used, a tenth less per answer that is too late.
pub(crate) struct Aimd {
    limit: u32,
}

impl Aimd {
    pub(crate) fn new() -> Self {
        Self { limit: 20 }
    }
}

impl Controller for Aimd {
    fn limit(&self) -> u32 {
        self.limit
    }

    fn sample(&mut self, _now: Time, held_ns: u64, in_flight: u32, _queued: u32) {
        if held_ns > 5 * SECOND {
            self.limit = self.limit * 9 / 10;
        } else if in_flight * 2 >= self.limit {
            self.limit += 1;
        }
        self.limit = self.limit.clamp(20, 200);
    }
}

/// Guesses the back end's queue from the smallest time seen.
pub(crate) struct Vegas {
    limit: f64,
    least_ns: u64,
    count: u32,
    jitter: f64,
    random: fastrand::Rng,
}

impl Vegas {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            limit: 20.0,
            least_ns: 0,
            count: 0,
            jitter: 0.75,
            random: fastrand::Rng::with_seed(seed),
        }
    }
}

impl Controller for Vegas {
    fn limit(&self) -> u32 {
        self.limit as u32
    }

    fn sample(&mut self, _now: Time, held_ns: u64, in_flight: u32, _queued: u32) {
        self.count += 1;
        if self.jitter * 30.0 * self.limit <= f64::from(self.count) {
            self.jitter = 0.5 + self.random.f64() / 2.0;
            self.count = 0;
            self.least_ns = held_ns;
            return;
        }
        if self.least_ns == 0 || held_ns < self.least_ns {
            self.least_ns = held_ns;
            return;
        }
        if f64::from(in_flight) * 2.0 < self.limit {
            return;
        }
        let queue = (self.limit * (1.0 - self.least_ns as f64 / held_ns as f64)).ceil();
        let log = self.limit.log10().floor().max(1.0);
        if queue <= log {
            self.limit += 6.0 * log;
        } else if queue < 3.0 * log {
            self.limit += log;
        } else if queue > 6.0 * log {
            self.limit -= log;
        }
        self.limit = self.limit.clamp(1.0, 1_000.0);
    }
}

/// Compares the mean time of a second with that of the last ten minutes.
pub(crate) struct Gradient2 {
    limit: f64,
    least: f64,
    long_ns: f64,
    windows: u32,
    next: Time,
    sum_ns: u64,
    count: u32,
    in_flight_max: u32,
}

impl Gradient2 {
    pub(crate) fn new(least: u32) -> Self {
        Self {
            limit: 20.0,
            least: f64::from(least),
            long_ns: 0.0,
            windows: 0,
            next: Time(SECOND),
            sum_ns: 0,
            count: 0,
            in_flight_max: 0,
        }
    }

    fn window(&mut self, short_ns: f64, in_flight: u32) {
        if self.windows < 10 {
            self.windows += 1;
            self.long_ns += (short_ns - self.long_ns) / f64::from(self.windows);
        } else {
            self.long_ns += (short_ns - self.long_ns) * 2.0 / 601.0;
        }
        if self.long_ns / short_ns > 2.0 {
            self.long_ns *= 0.95;
        }
        if f64::from(in_flight) < self.limit / 2.0 {
            return;
        }
        let gradient = (1.5 * self.long_ns / short_ns).clamp(0.5, 1.0);
        let wanted = self.limit * gradient + 4.0;
        self.limit = (0.8 * self.limit + 0.2 * wanted).clamp(self.least, 200.0);
    }
}

impl Controller for Gradient2 {
    fn limit(&self) -> u32 {
        self.limit as u32
    }

    fn sample(&mut self, now: Time, held_ns: u64, in_flight: u32, _queued: u32) {
        self.sum_ns += held_ns;
        self.count += 1;
        self.in_flight_max = self.in_flight_max.max(in_flight);
        if now < self.next {
            return;
        }
        self.next = Time(now.0 + SECOND);
        if self.count >= 10 {
            self.window(
                self.sum_ns as f64 / f64::from(self.count),
                self.in_flight_max,
            );
        }
        (self.sum_ns, self.count, self.in_flight_max) = (0, 0, 0);
    }
}
