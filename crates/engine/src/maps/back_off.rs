//! How long a map's program rests before it is started again, and how often that is told.

use std::time::{Duration, Instant};

/// A process that lived this long was healthy: its end is the first failure again.
const HEALTHY: Duration = Duration::from_secs(60);
/// The rest after the second failure; each further one doubles it.
const SECOND_REST: Duration = Duration::from_millis(100);
/// The longest rest.
const LONGEST_REST: Duration = Duration::from_secs(10);

/// How long nothing more is said of the same reason.
const QUIET: Duration = Duration::from_secs(1);

/// Counts failures in a row.
#[derive(Debug, Default)]
pub(super) struct BackOff {
    failures: u32,
}

impl BackOff {
    /// The rest after a process that lived this long: none at first, then doubling, and up to a
    /// quarter less, by chance (`draw`), so that several do not start at once.
    pub(super) fn rest(&mut self, lived: Duration, draw: u64) -> Duration {
        if lived >= HEALTHY {
            self.failures = 0;
        }
        self.failures = self.failures.saturating_add(1);
        let Some(doublings) = self.failures.checked_sub(2) else {
            return Duration::ZERO;
        };
        let rest = LONGEST_REST.min(SECOND_REST * (1 << doublings.min(16)));
        let less = u32::try_from(draw % 256).unwrap_or(0);
        rest - rest / 1024 * less
    }
}

/// What was told last.
#[derive(Debug, Default)]
pub(super) struct Told {
    last: Option<(String, Instant)>,
    /// How often the same was not told since.
    alike: u64,
}

impl Told {
    /// Counts an end with this reason; where it is to be told, how many of the same were not.
    pub(super) fn count(&mut self, reason: &str, now: Instant) -> Option<u64> {
        let last = self.last.as_ref().filter(|(told, _)| told == reason);
        if last.is_some_and(|(_, at)| now.saturating_duration_since(*at) < QUIET) {
            self.alike += 1;
            return None;
        }
        let alike = std::mem::take(&mut self.alike);
        let is_same = last.is_some();
        self.last = Some((reason.to_owned(), now));
        Some(if is_same { alike } else { 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rests_grow_to_ten_seconds_and_health_forgives() {
        let mut back_off = BackOff::default();
        let short = Duration::from_secs(59);
        let rests: Vec<_> = (0..9)
            .map(|_| back_off.rest(short, 0).as_millis())
            .collect();
        assert_eq!(rests, [0, 100, 200, 400, 800, 1_600, 3_200, 6_400, 10_000]);
        let least = back_off.rest(short, 255);
        assert!(least > Duration::from_millis(7_500) && least < LONGEST_REST);
        assert_eq!(back_off.rest(HEALTHY, 7), Duration::ZERO);
        assert_eq!(back_off.rest(short, 0), SECOND_REST);
    }

    #[test]
    fn the_same_reason_is_told_once_a_second_and_another_at_once() {
        let mut told = Told::default();
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let counted = [
            ("a", 0),
            ("a", 90),
            ("a", 999),
            ("a", 1_000),
            ("a", 1_500),
            ("b", 1_600),
            ("b", 2_600),
        ];
        let counted = counted.map(|(reason, ms)| told.count(reason, at(ms)));
        let expected = [Some(0), None, None, Some(2), None, Some(0), Some(0)];
        assert_eq!(counted, expected);
    }
}
