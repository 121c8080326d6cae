//! The time of day in the forms nginx's variables have it, in UTC.

use std::io::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use os::calendar::CalendarTime;

const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

fn now() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}

/// Appends `1795297834.123`.
pub(super) fn seconds_with_ms(out: &mut Vec<u8>) -> bool {
    let now = now();
    write!(out, "{}.{:03}", now.as_secs(), now.subsec_millis()).is_ok()
}

/// Appends `2026-11-22T17:10:34+00:00`.
pub(super) fn iso(out: &mut Vec<u8>) -> bool {
    moment(now().as_secs()).is_some_and(|now| write_iso(&now, out))
}

/// Appends `22/Nov/2026:17:10:34 +0000`.
pub(super) fn log_time(out: &mut Vec<u8>) -> bool {
    moment(now().as_secs()).is_some_and(|now| write_log_time(&now, out))
}

fn moment(seconds: u64) -> Option<CalendarTime> {
    CalendarTime::utc(i64::try_from(seconds).ok()?)
}

fn write_iso(at: &CalendarTime, out: &mut Vec<u8>) -> bool {
    let (year, month, day) = (at.year, at.month + 1, at.day);
    let (hour, minute, second) = (at.hour, at.minute, at.second);
    write!(
        out,
        "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}+00:00"
    )
    .is_ok()
}

fn write_log_time(at: &CalendarTime, out: &mut Vec<u8>) -> bool {
    let month = MONTHS.get(at.month).unwrap_or(&"Jan");
    let (year, day) = (at.year, at.day);
    let (hour, minute, second) = (at.hour, at.minute, at.second);
    write!(
        out,
        "{day:02}/{month}/{year:04}:{hour:02}:{minute:02}:{second:02} +0000"
    )
    .is_ok()
}

#[cfg(test)]
mod tests {
    use super::{moment, write_iso, write_log_time};

    #[test]
    fn a_moment_is_written_in_both_forms() {
        for (seconds, iso, log_time) in [
            (0, "1970-01-01T00:00:00+00:00", "01/Jan/1970:00:00:00 +0000"),
            (
                951_868_799,
                "2000-02-29T23:59:59+00:00",
                "29/Feb/2000:23:59:59 +0000",
            ),
            (
                1_795_367_434,
                "2026-11-22T17:10:34+00:00",
                "22/Nov/2026:17:10:34 +0000",
            ),
        ] {
            let (mut first, mut second) = (Vec::new(), Vec::new());
            let moment = moment(seconds).expect("a year of our days");
            assert!(write_iso(&moment, &mut first));
            assert!(write_log_time(&moment, &mut second));
            assert_eq!(String::from_utf8_lossy(&first), iso);
            assert_eq!(String::from_utf8_lossy(&second), log_time);
        }
    }
}
