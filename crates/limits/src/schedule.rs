//! When a limit is in force: windows of the week.
//!
//! A window that runs past midnight belongs to the day on which it began, as people say it:
//! `fri 20:00-02:00` ends on Saturday morning. Not here: reading the text, and time zones.

/// Minutes of a day.
pub const DAY_MINUTES: u16 = 24 * 60;
/// Minutes of a week.
pub const WEEK_MINUTES: u16 = 7 * DAY_MINUTES;

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
