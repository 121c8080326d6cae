//! Rates: so many requests in such a time, with a burst. The generic cell rate algorithm.
//!
//! All that is kept of a key is one instant, `tat`: when the next request would arrive if they
//! came evenly. A key whose `tat` is not in the future may be forgotten; it reads like a new one.
//! Not here: where the instants are kept, and who is refused when several rates apply.

use std::time::Duration;

use crate::Time;

/// A rate with a burst, after ITU-T I.371's virtual scheduling (GCRA).
///
/// In any stretch of time `w` it lets at most `w / interval + burst` requests pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    interval_ns: u64,
    tolerance_ns: u64,
}

impl Rate {
    /// Allows `count` requests `per` that time, and `burst` of them back to back.
    ///
    /// The interval between two requests is rounded up to a whole nanosecond, so a rate is never
    /// exceeded by rounding. A count or burst of 0 counts as 1.
    #[must_use]
    pub fn new(count: u32, per: Duration, burst: u32) -> Self {
        let per_ns = u64::try_from(per.as_nanos()).unwrap_or(u64::MAX);
        let interval_ns = per_ns.div_ceil(u64::from(count.max(1))).max(1);
        let tolerance_ns = interval_ns.saturating_mul(u64::from(burst.max(1)) - 1);
        Self {
            interval_ns,
            tolerance_ns,
        }
    }

    /// What the key's instant becomes if one request passes now, or how long until one would.
    ///
    /// Changes nothing: several rates can be asked first and charged afterwards, all or none.
    ///
    /// # Errors
    /// The time from `now` at which the same question is answered with yes, if nothing else passes.
    pub fn check(self, tat: Time, now: Time) -> Result<Time, Duration> {
        let start_ns = self.within(tat, now).0.max(now.0);
        let over_ns = (start_ns - now.0).saturating_sub(self.tolerance_ns);
        if over_ns > 0 {
            return Err(Duration::from_nanos(over_ns));
        }
        Ok(Time(start_ns.saturating_add(self.interval_ns)))
    }

    /// Whether a key with this instant reads like one never seen, so that forgetting it loses nothing.
    #[must_use]
    pub fn is_stale(self, tat: Time, now: Time) -> bool {
        tat <= now
    }

    /// An instant can be at most one whole burst ahead; one left by another rate is brought down.
    ///
    /// So a rate raised from one a day to ten a second is in force at once.
    fn within(self, tat: Time, now: Time) -> Time {
        let ahead_ns = self.tolerance_ns.saturating_add(self.interval_ns);
        tat.min(Time(now.0.saturating_add(ahead_ns)))
    }
}
