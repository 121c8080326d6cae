//! Seconds as calendars and clocks show them, here or in Greenwich.

/// Whether something keeps this machine's clock at the world's time, as the kernel was told.
#[must_use]
pub fn is_synchronized() -> bool {
    // SAFETY: `timex` is plain numbers, of which zeros ask for nothing to be changed.
    let mut state: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a value that lives through the call, which only fills it.
    let clock = unsafe { libc::adjtimex(&raw mut state) };
    clock >= 0 && state.status & libc::STA_UNSYNC == 0
}

/// A second as people write it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CalendarTime {
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

impl CalendarTime {
    /// The time in this process's zone so many seconds after 1970; `None` far beyond our days.
    #[must_use]
    pub fn local(seconds: i64) -> Option<CalendarTime> {
        // SAFETY: both pointers are to values that live through the call, and `localtime_r` keeps
        // neither.
        Self::of(|tm| unsafe { libc::localtime_r(&seconds, tm) })
    }

    /// The time in UTC so many seconds after 1970; `None` far beyond our days.
    #[must_use]
    pub fn utc(seconds: i64) -> Option<CalendarTime> {
        // SAFETY: both pointers are to values that live through the call, and `gmtime_r` keeps
        // neither.
        Self::of(|tm| unsafe { libc::gmtime_r(&seconds, tm) })
    }

    fn of(fill: impl FnOnce(&mut libc::tm) -> *mut libc::tm) -> Option<CalendarTime> {
        // SAFETY: `tm` is plain numbers and a pointer that may be null, so zeros are one.
        let mut tm: libc::tm = unsafe { std::mem::zeroed() };
        if fill(&mut tm).is_null() {
            return None;
        }
        Some(CalendarTime {
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
        let time = CalendarTime::local(1_000_036_800).expect("a year of our days");
        assert_eq!((time.year, time.month), (2001, 8));
        assert!((9..=10).contains(&time.day) && time.weekday + 9 == usize::from(time.day));
        assert!(time.hour < 24 && time.minute < 60 && time.second == 0);
        assert_eq!(CalendarTime::local(i64::MAX), None);
    }

    #[test]
    fn the_worlds_time_needs_no_zone() {
        let time = CalendarTime::utc(951_782_399).expect("a year of our days");
        let date = (time.year, time.month, time.day, time.weekday);
        assert_eq!(date, (2000, 1, 28, 1));
        assert_eq!((time.hour, time.minute, time.second), (23, 59, 59));
        assert_eq!(CalendarTime::utc(i64::MAX), None);
    }
}
