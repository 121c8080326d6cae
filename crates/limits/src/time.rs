//! Instants and durations as the limits count them: nanoseconds.

use std::ops::{Add, Sub};
use std::time::Duration;

/// An instant: nanoseconds since some beginning that all callers share.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub u64);

impl Time {
    /// The beginning.
    pub const ZERO: Self = Self(0);

    /// Nanoseconds from `earlier` to this; 0 if it is not earlier.
    #[must_use]
    pub(crate) fn since_ns(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<Duration> for Time {
    type Output = Self;

    /// Far too late stays the latest.
    fn add(self, duration: Duration) -> Self {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(nanos))
    }
}

impl Sub for Time {
    type Output = Duration;

    /// The time from `earlier` to this; none if it is not earlier.
    fn sub(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.since_ns(earlier))
    }
}
