//! The time of day in the forms nginx's variables have it, in UTC.

use std::io::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

/// A moment, taken apart.
struct Moment {
    year: u64,
    month: u64,
    day: u64,
    hour: u64,
    minute: u64,
    second: u64,
}

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
    write_iso(&moment(now().as_secs()), out)
}

/// Appends `22/Nov/2026:17:10:34 +0000`.
pub(super) fn log_time(out: &mut Vec<u8>) -> bool {
    write_log_time(&moment(now().as_secs()), out)
}

fn write_iso(at: &Moment, out: &mut Vec<u8>) -> bool {
    let (year, month, day) = (at.year, at.month, at.day);
    let (hour, minute, second) = (at.hour, at.minute, at.second);
    write!(
        out,
        "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}+00:00"
    )
    .is_ok()
}

fn write_log_time(at: &Moment, out: &mut Vec<u8>) -> bool {
    let index = usize::try_from(at.month).unwrap_or(1).saturating_sub(1);
    let month = MONTHS.get(index).unwrap_or(&"Jan");
    let (year, day) = (at.year, at.day);
    let (hour, minute, second) = (at.hour, at.minute, at.second);
    write!(
        out,
        "{day:02}/{month}/{year:04}:{hour:02}:{minute:02}:{second:02} +0000"
    )
    .is_ok()
}

/// Counts years from March, so that a leap day is the last of its year; 146,097 days are 400 years.
fn moment(seconds: u64) -> Moment {
    let days = seconds / 86_400 + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let leaps = day_of_era / 1_460 + day_of_era / 146_096 - day_of_era / 36_524;
    let year_of_era = (day_of_era - leaps) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let month = if from_march < 10 {
        from_march + 3
    } else {
        from_march - 9
    };
    Moment {
        year: era * 400 + year_of_era + u64::from(month <= 2),
        month,
        day: day_of_year - (153 * from_march + 2) / 5 + 1,
        hour: seconds / 3_600 % 24,
        minute: seconds / 60 % 60,
        second: seconds % 60,
    }
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
            assert!(write_iso(&moment(seconds), &mut first));
            assert!(write_log_time(&moment(seconds), &mut second));
            assert_eq!(String::from_utf8_lossy(&first), iso);
            assert_eq!(String::from_utf8_lossy(&second), log_time);
        }
    }
}
