//! Local time, for files that name it in words.

/// A second as clocks on the wall show it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LocalTime {
    /// As people count them: 2026.
    pub year: i32,
    /// From 0, January.
    pub month: usize,
    /// From 1.
    pub day: u8,
    /// 0 to 23.
    pub hour: u8,
    /// 0 to 59.
    pub minute: u8,
    /// 0 to 60.
    pub second: u8,
    /// From 0, Sunday.
    pub weekday: usize,
}

impl LocalTime {
    /// The time in this process's zone so many seconds after 1970; `None` far beyond our days.
    #[must_use]
    pub fn at(seconds: i64) -> Option<LocalTime> {
        // SAFETY: `tm` is plain numbers and a pointer that may be null, so zeros are one.
        let mut tm: libc::tm = unsafe { std::mem::zeroed() };
        // SAFETY: both point to values of this frame, and `localtime_r` keeps neither.
        let found = unsafe { libc::localtime_r(&seconds, &mut tm) };
        if found.is_null() {
            return None;
        }
        Some(LocalTime {
            year: tm.tm_year.checked_add(1900)?,
            month: tm.tm_mon.try_into().ok()?,
            day: tm.tm_mday.try_into().ok()?,
            hour: tm.tm_hour.try_into().ok()?,
            minute: tm.tm_min.try_into().ok()?,
            second: tm.tm_sec.try_into().ok()?,
            weekday: tm.tm_wday.try_into().ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_time_is_within_a_day_of_the_worlds() {
        // Noon of 2001-09-09, a Sunday, in UTC; no zone is 12 hours off in both directions.
        let time = LocalTime::at(1_000_036_800).expect("a year of our days");
        assert_eq!((time.year, time.month), (2001, 8));
        assert!((9..=10).contains(&time.day) && time.weekday + 9 == usize::from(time.day));
        assert!(time.hour < 24 && time.minute < 60 && time.second == 0);
        assert_eq!(LocalTime::at(i64::MAX), None);
    }
}
