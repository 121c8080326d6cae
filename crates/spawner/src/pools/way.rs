//! How a run gives way to others while it starts.
//!
//! The idea: a start takes much of a processor, and nobody waits for it but who asked for it. So its
//! group gives way to whatever else wants to run, until an application is ready, or the first page of
//! PHP is answered. Where there is no processor left for it that would be never: a start that has waited
//! for a moment in all has its turn like everybody from then on.

use std::time::{Duration, Instant};

/// How long a start waits while it gives way, all in all.
const WAITS_MAX: Duration = Duration::from_millis(100);
/// How often is looked, at most.
const LOOK_MIN: Duration = Duration::from_millis(10);

/// A start that gives way.
#[derive(Debug)]
pub(super) struct Way {
    /// How long it has waited, as far as was looked.
    waited: Duration,
    /// When that was, and what its group had used by then.
    looked: (Instant, u64),
    look: Instant,
}

impl Way {
    /// One that begins, in a group that has used so much.
    pub(super) fn new(used_us: u64, now: Instant) -> Way {
        Way {
            waited: Duration::ZERO,
            looked: (now, used_us),
            look: now + WAITS_MAX,
        }
    }

    /// How long it cannot be over, unless something happens.
    pub(super) fn rest(&self, now: Instant) -> Duration {
        self.look.saturating_duration_since(now)
    }

    /// Whether it has waited long enough, its group having used so much.
    pub(super) fn is_over(&mut self, used_us: u64, now: Instant) -> bool {
        let (looked, before_us) = std::mem::replace(&mut self.looked, (now, used_us));
        let worked = Duration::from_micros(used_us.saturating_sub(before_us));
        let passed = now.saturating_duration_since(looked);
        // What it worked on several processors at once does not make up for that of other times.
        self.waited += passed.saturating_sub(worked);
        let left = WAITS_MAX.saturating_sub(self.waited);
        self.look = now + left.max(LOOK_MIN);
        left.is_zero()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// When a start is over that gets so many of a hundred of a processor, in milliseconds, and how
    /// often it was looked at.
    fn over(percent: u64) -> Option<(u64, u32)> {
        let (begun, used_us) = (Instant::now(), 7_000);
        let mut way = Way::new(used_us, begun);
        let mut looks = 0;
        for ms in 0..10_000 {
            let now = begun + Duration::from_millis(ms);
            if !way.rest(now).is_zero() {
                continue;
            }
            looks += 1;
            if way.is_over(used_us + ms * 10 * percent, now) {
                return Some((ms, looks));
            }
        }
        assert!(looks <= 1_000, "{looks}");
        None
    }

    #[test]
    fn a_start_gives_way_until_it_has_waited_for_a_moment_in_all() {
        assert_eq!(over(0), Some((100, 1)));
        // One that gets on gives way for as long as it takes.
        assert_eq!(over(100), None);
        assert_eq!(over(300), None);
        for (percent, ms) in [(20, 125), (50, 200), (80, 500), (90, 1_000)] {
            let (found, looks) = over(percent).unwrap();
            assert!((ms..=ms + 10).contains(&found), "{percent}: {found}");
            assert!(looks <= 52, "{percent}: {looks}");
        }
    }

    #[test]
    fn what_a_start_worked_on_many_processors_does_not_make_up_for_what_it_waits_later() {
        let begun = Instant::now();
        let mut way = Way::new(0, begun);
        let over = (0..60_000).find(|ms| {
            let now = begun + Duration::from_millis(*ms);
            way.rest(now).is_zero() && way.is_over((*ms).min(2_000) * 8_000, now)
        });
        let over = over.expect("it waits");
        assert!((2_050..=2_200).contains(&over), "{over}");
    }
}
