//! How long the store takes to answer: the longest of the last minutes, and whether that is long beside the lease.
//!
//! The idea: two windows of a minute, this one and the one before. A server waits for an answer for a fifth of a lease, so
//! what takes half of that time often is told before leases end.

use std::time::{Duration, Instant};

const WINDOW: Duration = Duration::from_secs(60);
/// An answer is late that takes longer than this part of a lease.
const LATE_PART: u32 = 10;
/// Late ones in a window that are no chance: so many, and one in a hundred.
const LATE_MIN: u32 = 3;
const LATE_OF: u32 = 100;

/// What was seen of answers.
#[derive(Debug, Default)]
pub(super) struct Trips {
    begun: Option<Instant>,
    answers: u32,
    late: u32,
    longest: Duration,
    /// The longest of the window before.
    before: Duration,
}

impl Trips {
    /// Notes an answer and what it took; whether such answers are too slow for a lease.
    pub(super) fn note(&mut self, now: Instant, took: Duration, lease: Duration) -> bool {
        let is_over = |begun: Instant| now.saturating_duration_since(begun) >= WINDOW;
        if self.begun.is_none_or(is_over) {
            *self = Trips {
                begun: Some(now),
                before: self.longest,
                ..Trips::default()
            };
        }
        self.answers = self.answers.saturating_add(1);
        self.longest = self.longest.max(took);
        self.late += u32::from(took > lease / LATE_PART);
        self.late >= LATE_MIN && self.late.saturating_mul(LATE_OF) >= self.answers
    }

    /// The longest of the last minutes.
    pub(super) fn longest(&self) -> Duration {
        self.longest.max(self.before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_that_are_often_late_beside_the_lease_are_told_and_a_single_one_is_not() {
        let (mut trips, begun) = (Trips::default(), Instant::now());
        let lease = Duration::from_secs(2);
        let mut note = |s: u64, ms: u64| {
            let now = begun + Duration::from_secs(s);
            let is_slow = trips.note(now, Duration::from_millis(ms), lease);
            (is_slow, trips.longest().as_millis())
        };
        assert_eq!(note(0, 5), (false, 5));
        assert_eq!(note(1, 1_000), (false, 1_000));
        assert_eq!(note(2, 200), (false, 1_000));
        assert_eq!(note(3, 201), (false, 1_000));
        assert_eq!(note(4, 201), (true, 1_000));
        // The window before is remembered, and the one before that is not.
        assert_eq!(note(61, 7), (false, 1_000));
        assert_eq!(note(122, 8), (false, 8));
    }
}
