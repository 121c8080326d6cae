//! The wall clock of a worker, read once a tick: `Date` fields and log times need no better.

use std::cell::Cell;
use std::time::{SystemTime, UNIX_EPOCH};

/// A clock that stands still between ticks.
#[derive(Debug)]
pub struct Clock {
    unix_s: Cell<u64>,
    date: Cell<[u8; 29]>,
}

impl Clock {
    /// Reads the time once.
    pub fn new() -> Self {
        let clock = Self {
            unix_s: Cell::new(0),
            date: Cell::new([0; 29]),
        };
        clock.tick();
        clock
    }

    /// Reads the time again.
    pub fn tick(&self) {
        let now_s = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |age| age.as_secs());
        if now_s != self.unix_s.get() {
            self.unix_s.set(now_s);
            self.date.set(wire::date::format(now_s));
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
