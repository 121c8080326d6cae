//! When a limit is in force: windows of the week.
//!
//! A window that runs past midnight belongs to the day on which it began, as people say it:
//! `fri 20:00-02:00` ends on Saturday morning. Not here: reading the text, and time zones.

/// A stretch of the day on some days of the week.
///
/// It holds from its first minute until before its last. An end that is not later than the
/// beginning lies on the next day; so an equal one means 24 hours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// The days on which it begins; bit 0 is Monday, bit 6 Sunday.
    pub days: u8,
    /// Minute of the day at which it begins, below 1,440.
    pub from_minute: u16,
    /// Minute of the day before which it ends, up to 1,440.
    pub until_minute: u16,
}

impl Window {
    /// Whether it holds at this minute of the day on this weekday (0 is Monday).
    #[must_use]
    pub fn holds(self, weekday: u8, minute_of_day: u16) -> bool {
        let today = self.begins_on(weekday % 7);
        if self.from_minute < self.until_minute {
            return today && (self.from_minute..self.until_minute).contains(&minute_of_day);
        }
        let yesterday = self.begins_on((weekday % 7 + 6) % 7);
        (today && minute_of_day >= self.from_minute)
            || (yesterday && minute_of_day < self.until_minute)
    }

    fn begins_on(self, weekday: u8) -> bool {
        self.days >> weekday & 1 == 1
    }
}

/// Whether any of the windows holds at this minute of the day on this weekday (0 is Monday).
#[must_use]
pub fn holds(windows: &[Window], weekday: u8, minute_of_day: u16) -> bool {
    windows
        .iter()
        .any(|window| window.holds(weekday, minute_of_day))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DAY_MINUTES: u16 = 24 * 60;
    const WEEK_MINUTES: u16 = 7 * DAY_MINUTES;
    const WEEKDAYS: u8 = 0b001_1111;
    const EVERY_DAY: u8 = 0b111_1111;

    fn window(days: u8, from: (u16, u16), until: (u16, u16)) -> Window {
        Window {
            days,
            from_minute: from.0 * 60 + from.1,
            until_minute: until.0 * 60 + until.1,
        }
    }

    /// Paints every minute in which a window holds, one after the other from where it begins.
    fn painted(windows: &[Window]) -> Vec<bool> {
        let mut week = vec![false; usize::from(WEEK_MINUTES)];
        for window in windows {
            for day in (0..7).filter(|day| window.days & (1 << day) != 0) {
                let mut minute_of_day = window.from_minute;
                let mut minute = day * DAY_MINUTES + window.from_minute;
                loop {
                    week[usize::from(minute % WEEK_MINUTES)] = true;
                    (minute, minute_of_day) = (minute + 1, minute_of_day % DAY_MINUTES + 1);
                    if minute_of_day == window.until_minute
                        || minute_of_day % DAY_MINUTES == window.until_minute
                    {
                        break;
                    }
                }
            }
        }
        week
    }

    fn check(windows: &[Window]) {
        let week = painted(windows);
        for minute in 0..WEEK_MINUTES {
            let (weekday, minute_of_day) = ((minute / DAY_MINUTES) as u8, minute % DAY_MINUTES);
            let place = usize::from(minute);
            assert_eq!(
                holds(windows, weekday, minute_of_day),
                week[place],
                "{windows:?} {minute}"
            );
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn every_minute_of_the_week_is_as_painted(
            windows in proptest::collection::vec((0_u8..128, 0_u16..1_440, 0_u16..=1_440), 0..4),
        ) {
            let windows: Vec<_> = windows
                .into_iter()
                .map(|(days, from_minute, until_minute)| Window { days, from_minute, until_minute })
                .collect();
            check(&windows);
        }
    }

    #[test]
    fn the_windows_people_write_hold_every_minute_they_should() {
        check(&[window(EVERY_DAY, (0, 0), (24, 0))]);
        check(&[window(WEEKDAYS, (20, 0), (2, 0))]);
        check(&[window(WEEKDAYS, (20, 0), (0, 0))]);
        check(&[window(WEEKDAYS, (20, 0), (24, 0))]);
        check(&[window(0b100_0000, (20, 0), (6, 0))]);
        check(&[
            window(WEEKDAYS, (9, 5), (17, 30)),
            window(0b110_0000, (0, 0), (24, 0)),
        ]);
        check(&[window(0b000_0001, (8, 0), (8, 0))]);
        check(&[]);
    }

    #[test]
    fn five_past_nine_is_not_ninety_five() {
        let windows = [window(WEEKDAYS, (9, 5), (17, 30))];
        for (hour, minute, wanted) in [
            (9, 4, false),
            (9, 5, true),
            (9, 50, true),
            (10, 0, true),
            (17, 29, true),
            (17, 30, false),
        ] {
            assert_eq!(
                holds(&windows, 0, hour * 60 + minute),
                wanted,
                "{hour}:{minute:02}"
            );
        }
    }

    #[test]
    fn a_window_over_midnight_belongs_to_the_day_it_began() {
        let windows = [window(WEEKDAYS, (20, 0), (2, 0))];
        let (friday, saturday, sunday, monday) = (4, 5, 6, 0);
        for (weekday, hour, wanted) in [
            (friday, 23, true),
            (saturday, 0, true),
            (saturday, 1, true),
            (saturday, 2, false),
            (saturday, 20, false),
            (sunday, 1, false),
            (monday, 1, false),
            (monday, 20, true),
        ] {
            assert_eq!(
                holds(&windows, weekday, hour * 60),
                wanted,
                "{weekday} {hour}:00"
            );
        }
    }

    #[test]
    fn a_window_over_the_week_s_end_goes_on_on_monday() {
        let windows = [window(0b100_0000, (20, 0), (6, 0))];
        assert!(holds(&windows, 6, 23 * 60) && holds(&windows, 0, 5 * 60 + 59));
        assert!(!holds(&windows, 0, 6 * 60) && !holds(&windows, 1, 0));
    }
}
