//! The wall clock of a worker, read once a tick: `Date` fields and log times need no better.

use std::cell::Cell;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A clock that stands still between ticks.
#[derive(Debug)]
pub struct Clock {
    unix_s: Cell<u64>,
    date: Cell<[u8; 29]>,
    /// The two clocks as read in the same moment.
    read: Cell<(Instant, Duration)>,
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock {
    /// Reads the time once.
    pub fn new() -> Self {
        let clock = Self {
            unix_s: Cell::new(0),
            date: Cell::new([0; 29]),
            read: Cell::new((Instant::now(), Duration::ZERO)),
        };
        clock.tick();
        clock
    }

    /// Reads the time again.
    pub fn tick(&self) {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        self.read.set((Instant::now(), now));
        let now_s = now.as_secs();
        if now_s != self.unix_s.get() {
            self.unix_s.set(now_s);
            self.date.set(wire::date::format(now_s));
        }
    }

    /// The time since 1970 at a moment of the steady clock near the last tick.
    pub fn unix_at(&self, moment: Instant) -> Duration {
        let (instant, unix) = self.read.get();
        match moment.checked_duration_since(instant) {
            Some(after) => unix + after,
            None => unix.saturating_sub(instant.duration_since(moment)),
        }
    }

    /// Seconds since 1970.
    pub fn unix_s(&self) -> u64 {
        self.unix_s.get()
    }

    /// The time as `Date` wants it (RFC 9110 §5.6.7).
    pub fn date(&self) -> [u8; 29] {
        self.date.get()
    }
}
