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
pub(crate) struct Rate {
    interval_ns: u64,
    tolerance_ns: u64,
}

impl Rate {
    /// Allows `count` requests `per` that time, and `burst` of them back to back.
    ///
    /// The interval between two requests is rounded up to a whole nanosecond, so a rate is never
    /// exceeded by rounding. A count or burst of 0 counts as 1.
    #[must_use]
    pub(crate) fn new(count: u32, per: Duration, burst: u32) -> Self {
        let per_ns = u64::try_from(per.as_nanos()).unwrap_or(u64::MAX);
        let interval_ns = per_ns.div_ceil(u64::from(count.max(1))).max(1);
        let tolerance_ns = interval_ns.saturating_mul(u64::from(burst.max(1)) - 1);
        Self {
            interval_ns,
            tolerance_ns,
        }
    }

    /// A part of it, where so many have equal ones. Each may let one begin.
    #[must_use]
    pub(crate) fn shared(self, machines: u32) -> Self {
        let machines = u64::from(machines.max(1));
        let interval_ns = self.interval_ns.saturating_mul(machines);
        let more = self.tolerance_ns / self.interval_ns.max(1);
        let burst = (more.saturating_add(1) / machines).max(1);
        Self {
            interval_ns,
            tolerance_ns: interval_ns.saturating_mul(burst - 1),
        }
    }

    /// The time that one takes.
    pub(crate) fn interval_ns(self) -> u64 {
        self.interval_ns
    }

    /// What the key's instant becomes if one request passes now, or how long until one would.
    ///
    /// Changes nothing: several rates can be asked first and charged afterwards, all or none.
    ///
    /// # Errors
    /// The time from `now` at which the same question is answered with yes, if nothing else passes.
    pub(crate) fn check(self, tat: Time, now: Time) -> Result<Time, Duration> {
        let start_ns = self.within(tat, now).0.max(now.0);
        let over_ns = (start_ns - now.0).saturating_sub(self.tolerance_ns);
        if over_ns > 0 {
            return Err(Duration::from_nanos(over_ns));
        }
        Ok(Time(start_ns.saturating_add(self.interval_ns)))
    }

    /// An instant can be at most one whole burst ahead; one left by another rate is brought down.
    ///
    /// So a rate raised from one a day to ten a second is in force at once.
    fn within(self, tat: Time, now: Time) -> Time {
        let ahead_ns = self.tolerance_ns.saturating_add(self.interval_ns);
        tat.min(Time(now.0.saturating_add(ahead_ns)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const DAY: Duration = Duration::from_secs(86_400);

    /// When the requests that pass arrive, out of those that arrive with these gaps.
    fn admitted(rate: Rate, start: Time, gaps_ns: &[u64]) -> Vec<Time> {
        let (mut tat, mut now, mut times) = (Time::ZERO, start, Vec::new());
        for gap_ns in gaps_ns {
            now = Time(now.0.saturating_add(*gap_ns));
            if let Ok(next) = rate.check(tat, now) {
                tat = next;
                times.push(now);
            }
        }
        times
    }

    fn passes_back_to_back(rate: Rate, start: Time) -> usize {
        admitted(rate, start, &[0; 1_000]).len()
    }

    proptest! {
        #[test]
        fn no_stretch_of_time_sees_more_than_its_share_and_a_burst(
            count in 1_u32..50,
            burst in 1_u32..20,
            start in 0_u64..1 << 50,
            gaps in proptest::collection::vec(0_u64..200_000_000, 1..200),
        ) {
            let rate = Rate::new(count, SECOND, burst);
            let times = admitted(rate, Time(start), &gaps);
            for (first, from) in times.iter().enumerate() {
                for (last, until) in times.iter().enumerate().skip(first) {
                    let share = until.since_ns(*from) / rate.interval_ns;
                    prop_assert!((last - first + 1) as u64 <= share + u64::from(burst));
                }
            }
        }

        #[test]
        fn the_wait_told_is_exact(
            count in 1_u32..1_000_000,
            burst in 1_u32..1_000,
            start in 0_u64..1 << 50,
            gaps in proptest::collection::vec(0_u64..10_000, 1..100),
        ) {
            let rate = Rate::new(count, SECOND, burst);
            let (mut tat, mut now) = (Time::ZERO, Time(start));
            for gap in gaps.iter().chain(&[0; 2_000]) {
                now = Time(now.0 + gap);
                match rate.check(tat, now) {
                    Ok(next) => tat = next,
                    Err(wait) => {
                        prop_assert!(rate.check(tat, now + wait).is_ok());
                        prop_assert_eq!(
                            rate.check(tat, now + (wait - Duration::from_nanos(1))),
                            Err(Duration::from_nanos(1))
                        );
                    }
                }
            }
        }

        #[test]
        fn forgetting_a_stale_key_changes_no_answer(
            count in 1_u32..50,
            burst in 1_u32..20,
            gaps in proptest::collection::vec(0_u64..400_000_000, 1..200),
        ) {
            let rate = Rate::new(count, SECOND, burst);
            let (mut kept, mut forgetful, mut now) = (Time::ZERO, Time::ZERO, Time(1 << 40));
            for gap in gaps {
                now = Time(now.0 + gap);
                if forgetful <= now {
                    forgetful = Time::ZERO;
                }
                prop_assert_eq!(rate.check(kept, now), rate.check(forgetful, now));
                if let Ok(next) = rate.check(kept, now) {
                    (kept, forgetful) = (next, next);
                }
            }
        }

        #[test]
        fn nothing_overflows(
            count in any::<u32>(),
            per in any::<u64>(),
            burst in any::<u32>(),
            tat in any::<u64>(),
            now in any::<u64>(),
        ) {
            let rate = Rate::new(count, Duration::from_nanos(per), burst);
            let _ = rate.check(Time(tat), Time(now));
        }
    }

    #[test]
    fn a_burst_passes_back_to_back_and_nothing_more() {
        for (count, per, burst) in [
            (10, SECOND, 20),
            (1, DAY, 1),
            (1, DAY, 7),
            (1_000_000, SECOND, 100),
        ] {
            let rate = Rate::new(count, per, burst);
            for start in [Time::ZERO, Time(1), Time(1 << 60)] {
                assert_eq!(
                    passes_back_to_back(rate, start),
                    burst as usize,
                    "{count} per {per:?}"
                );
            }
        }
    }

    #[test]
    fn one_a_day_is_let_through_a_day_later() {
        let rate = Rate::new(1, DAY, 1);
        let tat = rate.check(Time::ZERO, Time(5)).expect("the first");
        assert_eq!(rate.check(tat, Time(5)), Err(DAY));
        assert_eq!(rate.check(tat, Time(6)), Err(DAY - Duration::from_nanos(1)));
        assert!(rate.check(tat, Time(5) + DAY).is_ok());
    }

    #[test]
    fn a_million_a_second_lets_every_other_of_two_million_through() {
        let rate = Rate::new(1_000_000, SECOND, 1);
        let gaps = vec![500; 200_000];
        assert_eq!(admitted(rate, Time(1 << 40), &gaps).len(), 100_000);
    }

    #[test]
    fn rounding_never_lets_more_through() {
        let rate = Rate::new(3, SECOND, 1);
        assert_eq!(rate.interval_ns, 333_333_334);
    }

    #[test]
    fn a_raised_rate_does_not_wait_for_the_old_one() {
        let slow = Rate::new(1, DAY, 1);
        let tat = slow.check(Time::ZERO, Time(0)).expect("the first");
        let fast = Rate::new(10, SECOND, 5);
        let wait = fast
            .check(tat, Time(1))
            .expect_err("its burst counts as spent");
        assert_eq!(wait, SECOND / 10);
    }
}
