//! How figures are written, everywhere: `51,300`, `1.09 ms`, `2.3 MiB`, `12.5 %`.
//!
//! Three significant digits are what a measurement carries; counts of things are exact.
//! What is no number is written `–`, so that no table ever says `NaN`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use os::calendar::CalendarTime;

/// Stands where there is no figure.
pub const NONE: &str = "–";

/// What a value of a chart is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Unit {
    /// A number of things: `51,300`.
    #[default]
    Count,
    /// Things per second: `51,300/s`.
    PerSecond,
    /// Microseconds: `1.09 ms`.
    Micros,
    /// Seconds: `1.5 s`.
    Seconds,
    /// Bytes: `2.3 MiB`.
    Bytes,
    /// A share, 1 being all: `12.5 %`.
    Share,
    /// Cores used: `0.92`.
    Cores,
    /// One figure over another: `1.12 ×`.
    Ratio,
}

impl Unit {
    /// Writes a value.
    pub fn write(self, value: f64) -> String {
        match self {
            Unit::Count => figure(value),
            Unit::PerSecond => per_second(value),
            Unit::Micros => micros(value),
            Unit::Seconds => seconds(value),
            Unit::Bytes => bytes(value),
            Unit::Share => share(value),
            Unit::Cores => figure(value),
            Unit::Ratio => ratio(value),
        }
    }

    /// Writes a value that somebody else reported, with the digits it has.
    pub fn write_reported(self, value: f64) -> String {
        match self {
            Unit::Count => as_written(value),
            Unit::PerSecond => format!("{}/s", as_written(value)),
            _ => self.write(value),
        }
    }

    /// Writes a value of an axis: as `write`, without zeros that say nothing.
    pub fn tick(self, value: f64) -> String {
        if value == 0.0 {
            return "0".to_owned();
        }
        let text = match self {
            Unit::Count | Unit::PerSecond => short(value),
            _ => self.write(value),
        };
        match text.find([' ', '/']) {
            Some(at) => format!("{}{}", trimmed(&text[..at]), &text[at..]),
            None => trimmed(&text),
        }
    }
}

/// A measured number to three digits, with separators: `51,300`, `1.10`, `0.0431`. A small whole
/// number is one of things, and stays whole.
pub fn figure(value: f64) -> String {
    if !value.is_finite() {
        return NONE.to_owned();
    }
    if value.fract() == 0.0 && value.abs() < 1000.0 {
        // Adding zero turns -0 into 0.
        return format!("{:.0}", value + 0.0);
    }
    three_digits(value)
}

/// Three digits, zeros at the end included, so that a column of them lines up.
fn three_digits(value: f64) -> String {
    let magnitude = value.abs().log10().floor();
    if !(-6.0..15.0).contains(&magnitude) {
        return format!("{value:.2e}");
    }
    let scale = 10f64.powf(magnitude - 2.0);
    let rounded = (value / scale).round() * scale;
    // Rounding may have carried into one more digit: 999.7 is 1,000.
    let magnitude = rounded.abs().log10().floor();
    let places = (2.0 - magnitude).clamp(0.0, 8.0) as usize;
    separated(&format!("{rounded:.places$}"))
}

/// A number of things, exact: `128,949`.
pub fn count(value: u64) -> String {
    separated(&value.to_string())
}

/// A number as somebody else wrote it, to two places at most: `5,391.22`.
pub fn as_written(value: f64) -> String {
    if !value.is_finite() || value.abs() >= 1e15 {
        return figure(value);
    }
    separated(&trimmed(&format!("{value:.2}")))
}

/// A number in few characters, for axes: `1.2 k`, `51 k`, `3 M`.
pub fn short(value: f64) -> String {
    scaled(value, 1000.0, &["", " k", " M", " G", " T", " P"])
}

/// A rate: `51,300/s`.
pub fn per_second(value: f64) -> String {
    if value.is_finite() {
        format!("{}/s", figure(value))
    } else {
        NONE.to_owned()
    }
}

/// A time in microseconds: `366 µs`, `1.09 ms`, `2.5 s`, `3 min`.
pub fn micros(value: f64) -> String {
    if !value.is_finite() {
        return NONE.to_owned();
    }
    match value.abs() {
        0.0 => "0 µs".to_owned(),
        v if v < 0.9995 => format!("{} ns", figure(value * 1e3)),
        v if v < 999.5 => format!("{} µs", figure(value)),
        v if v < 999.5e3 => format!("{} ms", three_digits(value / 1e3)),
        v if v < 600e6 => format!("{} s", three_digits(value / 1e6)),
        _ => format!("{} min", three_digits(value / 60e6)),
    }
}

/// A time in seconds.
pub fn seconds(value: f64) -> String {
    if value.fract() == 0.0 && value.abs() < 600.0 {
        return format!("{} s", figure(value));
    }
    micros(value * 1e6)
}

/// An instant in UTC, to the second (RFC 3339): `2026-11-22T07:15:00Z`. What lies before 1970 is
/// 1970.
pub fn instant(at: SystemTime) -> String {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    let time = i64::try_from(since.as_secs()).ok();
    let Some(time) = time.and_then(CalendarTime::utc) else {
        return NONE.to_owned();
    };
    format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z",
        time.year,
        time.month + 1,
        time.day,
        time.hour,
        time.minute,
        time.second
    )
}

/// A day after the first of 1970, as a date; what lies before is that day.
pub fn date(day: f64) -> String {
    let day = Duration::from_secs_f64((day.round() * 86_400.0).clamp(0.0, 1e12));
    let mut date = instant(UNIX_EPOCH + day);
    date.truncate(10);
    date
}

/// A size: `512 B`, `2.3 MiB`.
pub fn bytes(value: f64) -> String {
    scaled(
        value,
        1024.0,
        &[" B", " KiB", " MiB", " GiB", " TiB", " PiB"],
    )
}

/// A share, 1 being all: `12.5 %`.
pub fn share(value: f64) -> String {
    if value.is_finite() {
        format!("{} %", figure(value * 100.0))
    } else {
        NONE.to_owned()
    }
}

/// One figure over another, to two places: `1.12 ×`.
pub fn ratio(value: f64) -> String {
    if value.is_finite() {
        format!("{value:.2} ×")
    } else {
        NONE.to_owned()
    }
}

/// A figure and its interval in one unit: `1.12 × (1.10 × – 1.70 ×)`.
pub fn with_interval(unit: Unit, value: f64, low: f64, high: f64) -> String {
    format!(
        "{} ({} – {})",
        unit.write(value),
        unit.write(low),
        unit.write(high)
    )
}

/// Divides until it fits three digits.
fn scaled(value: f64, step: f64, names: &[&str]) -> String {
    if !value.is_finite() {
        return NONE.to_owned();
    }
    let mut rest = value;
    let mut at = 0;
    while rest.abs() >= step * 0.9995 && at + 1 < names.len() {
        rest /= step;
        at += 1;
    }
    format!("{}{}", figure(rest), names[at])
}

/// Without zeros at the end of a fraction.
fn trimmed(digits: &str) -> String {
    if digits.contains('.') {
        digits
            .trim_end_matches('0')
            .trim_end_matches('.')
            .to_owned()
    } else {
        digits.to_owned()
    }
}

/// With a comma between thousands.
fn separated(digits: &str) -> String {
    let (sign, digits) = match digits.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", digits),
    };
    let (whole, fraction) = match digits.split_once('.') {
        Some((whole, fraction)) => (whole, format!(".{fraction}")),
        None => (digits, String::new()),
    };
    let mut out = String::with_capacity(digits.len() + digits.len() / 3 + 1);
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    format!("{sign}{out}{fraction}")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn figures_have_three_digits_and_whole_small_numbers_none_behind_the_point() {
        for (value, wanted) in [
            (51_312.4, "51,300"),
            (1_234_567.0, "1,230,000"),
            (999.7, "1,000"),
            (91.38, "91.4"),
            (1.1, "1.10"),
            (0.043_12, "0.0431"),
            (7.0, "7"),
            (-7.0, "-7"),
            (-1234.0, "-1,230"),
            (0.0, "0"),
            (-0.0, "0"),
            (f64::NAN, NONE),
            (f64::INFINITY, NONE),
            (1e300, "1.00e300"),
            (1e-300, "1.00e-300"),
        ] {
            assert_eq!(figure(value), wanted, "{value}");
        }
    }

    #[test]
    fn every_unit_writes_its_values_as_people_do() {
        for (unit, value, wanted) in [
            (Unit::Count, 51_312.4, "51,300"),
            (Unit::PerSecond, 5391.22, "5,390/s"),
            (Unit::Micros, 366.0, "366 µs"),
            (Unit::Micros, 1090.0, "1.09 ms"),
            (Unit::Micros, 999.6, "1.00 ms"),
            (Unit::Micros, 2_500_000.0, "2.50 s"),
            (Unit::Micros, 0.25, "250 ns"),
            (Unit::Micros, 0.0, "0 µs"),
            (Unit::Micros, 3.6e9, "60.0 min"),
            (Unit::Micros, f64::NAN, NONE),
            (Unit::Seconds, 10.0, "10 s"),
            (Unit::Seconds, 0.1, "100 ms"),
            (Unit::Bytes, 512.0, "512 B"),
            (Unit::Bytes, 2_411_724.0, "2.30 MiB"),
            (Unit::Bytes, 1024.0 * 1023.9, "1.00 MiB"),
            (Unit::Share, 0.125, "12.5 %"),
            (Unit::Share, 1.0, "100 %"),
            (Unit::Cores, 0.92, "0.920"),
            (Unit::Ratio, 1.1, "1.10 ×"),
            (Unit::Ratio, f64::NAN, NONE),
        ] {
            assert_eq!(unit.write(value), wanted, "{unit:?} {value}");
        }
    }

    #[test]
    fn ticks_lose_the_zeros_that_say_nothing() {
        for (unit, value, wanted) in [
            (Unit::Count, 50_000.0, "50 k"),
            (Unit::Count, 1_200.0, "1.2 k"),
            (Unit::Count, 200.0, "200"),
            (Unit::PerSecond, 0.0, "0"),
            (Unit::Micros, 1500.0, "1.5 ms"),
            (Unit::Micros, 100_000.0, "100 ms"),
            (Unit::Bytes, 1024.0 * 1024.0 * 1.5, "1.5 MiB"),
            (Unit::Share, 0.5, "50 %"),
            (Unit::Ratio, 1.0, "1 ×"),
        ] {
            assert_eq!(unit.tick(value), wanted, "{unit:?} {value}");
        }
    }

    #[test]
    fn what_others_reported_keeps_its_digits() {
        for (value, wanted) in [(5391.22, "5,391.22"), (91.38, "91.38"), (230.0, "230")] {
            assert_eq!(as_written(value), wanted);
        }
        assert_eq!(Unit::PerSecond.write_reported(5391.22), "5,391.22/s");
        assert_eq!(Unit::Micros.write_reported(1090.0), "1.09 ms");
    }

    #[test]
    fn instants_are_said_as_dates() {
        for (seconds, wanted) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (951_868_800, "2000-03-01T00:00:00Z"),
            (1_000_000_000, "2001-09-09T01:46:40Z"),
            (1_735_689_599, "2024-12-31T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(instant(UNIX_EPOCH + Duration::from_secs(seconds)), wanted);
        }
        let before = UNIX_EPOCH - Duration::from_secs(1);
        assert_eq!(instant(before), "1970-01-01T00:00:00Z");
    }

    #[test]
    fn counts_are_exact() {
        assert_eq!(count(0), "0");
        assert_eq!(count(999), "999");
        assert_eq!(count(128_949), "128,949");
        assert_eq!(count(u64::MAX), "18,446,744,073,709,551,615");
    }
}
