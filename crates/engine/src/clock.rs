//! The clocks of a worker: the wall clock, read once a tick, since `Date` fields and log times need no
//! better; and the steady one, read once for as long as a request has to wait for nothing.

use std::cell::Cell;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Where the value begins in a `Date` line.
const DATE_AT: usize = 6;
/// Length of the value.
const DATE_BYTES: usize = 29;
/// Length of a `Date` line, its CR LF included.
const DATE_LINE_BYTES: usize = DATE_AT + DATE_BYTES + 2;

/// A clock that stands still between ticks.
#[derive(Debug)]
pub struct Clock {
    unix_s: Cell<u64>,
    date_line: Cell<[u8; DATE_LINE_BYTES]>,
    /// The two clocks as read in the same moment.
    read: Cell<(Instant, Duration)>,
    /// When the request began that is served just now; `None` once it has waited.
    turn: Cell<Option<Instant>>,
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
            date_line: Cell::new([0; DATE_LINE_BYTES]),
            read: Cell::new((Instant::now(), Duration::ZERO)),
            turn: Cell::new(None),
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
            self.date_line.set(date_line(now_s));
        }
    }

    /// A request begins at this moment, which is returned, and has waited for nothing yet.
    pub fn begin_turn(&self) -> Instant {
        let now = Instant::now();
        self.turn.set(Some(now));
        now
    }

    /// The request has waited: from here on the clock is read.
    pub fn end_turn(&self) {
        self.turn.set(None);
    }

    /// A moment ago at most: while a request has waited for nothing, it is when that began.
    pub fn moment(&self) -> Instant {
        self.turn.get().unwrap_or_else(Instant::now)
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

    /// The time as a head's line says it (RFC 9110 §6.6.1).
    pub fn date_line(&self) -> [u8; DATE_LINE_BYTES] {
        self.date_line.get()
    }

    /// The value of that.
    pub(crate) fn date(&self) -> [u8; DATE_BYTES] {
        let line = self.date_line.get();
        line[DATE_AT..]
            .first_chunk()
            .copied()
            .unwrap_or([b' '; DATE_BYTES])
    }
}

fn date_line(unix_s: u64) -> [u8; DATE_LINE_BYTES] {
    let mut line = *b"Date: Thu, 01 Jan 1970 00:00:00 GMT\r\n";
    let value = DATE_AT..DATE_LINE_BYTES - 2;
    if let Some(value) = line.get_mut(value) {
        value.copy_from_slice(&wire::date::format(unix_s));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_stands_still_until_the_request_has_waited() {
        let clock = Clock::new();
        let began = clock.begin_turn();
        std::thread::yield_now();
        assert_eq!(clock.moment(), began);
        clock.end_turn();
        let after = Instant::now();
        assert!(clock.moment() >= after && clock.moment() >= after);
        assert!(clock.begin_turn() >= after);
    }
}
