//! Amounts as people write them: `30s`, `5k`, `64KiB`, `0.1%`. How they are said is `report::units`.
//!
//! One grammar for all: a number, then its unit, nothing between. A number without a unit is
//! refused where it could mean two things.

use std::time::Duration;

/// Longest time that is taken from a command line.
const TIME_MAX: Duration = Duration::from_secs(30 * 24 * 3600);

/// Reads `250us`, `20ms`, `1.5s`, `2m`, `1h`.
pub(crate) fn time(text: &str) -> Result<Duration, String> {
    let (number, unit) = split(text)?;
    let seconds = match unit {
        "us" | "µs" => number / 1e6,
        "ms" => number / 1e3,
        "s" => number,
        "m" | "min" => number * 60.0,
        "h" => number * 3600.0,
        "" if number == 0.0 => 0.0,
        "" => {
            return Err(format!(
                "no unit: write {text}s for seconds, {text}ms, {text}m or {text}h"
            ));
        }
        other => return Err(format!("`{other}` is no unit of time: us, ms, s, m or h")),
    };
    let time = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
    if time > TIME_MAX {
        return Err("longer than 30 days".into());
    }
    Ok(time)
}

/// Reads a time that is not nothing.
pub(crate) fn some_time(text: &str) -> Result<Duration, String> {
    match time(text)? {
        Duration::ZERO => Err("must be longer than nothing".into()),
        time => Ok(time),
    }
}

/// Reads a whole count above 0: `250000`, `5k`, `1.5M`.
pub(crate) fn count(text: &str) -> Result<u64, String> {
    let number = scaled(text)?;
    if !(1.0..=1e15).contains(&number) || number.fract() != 0.0 {
        return Err("must be a whole number, at least 1, such as 20000 or 20k".into());
    }
    // Whole and between 1 and 10^15, as was just seen.
    Ok(number as u64)
}

/// Reads a rate above 0, a second: `5000`, `5k`, `0.5`, `200/s`.
pub(crate) fn rate(text: &str) -> Result<f64, String> {
    let number = scaled(text.strip_suffix("/s").unwrap_or(text))?;
    if number <= 0.0 || number > 1e7 {
        return Err("must be above 0 and at most 10M a second, such as 5000 or 5k".into());
    }
    Ok(number)
}

/// Reads a share: `0.1%`, `1%`. At least 0, below 100 %.
pub(crate) fn share(text: &str) -> Result<f64, String> {
    let (number, unit) = split(text)?;
    match unit {
        "%" if number < 100.0 => Ok(number / 100.0),
        "%" => Err("must be below 100%".into()),
        _ => Err(format!("write it in per cent, such as {number}%")),
    }
}

/// Reads a size: `512`, `64KiB`, `1MiB`, `10kB`.
pub(crate) fn size(text: &str) -> Result<usize, String> {
    let (number, unit) = split(text)?;
    let factor = match unit {
        "" | "B" => 1.0,
        "kB" => 1e3,
        "MB" => 1e6,
        "K" | "k" | "KiB" => 1024.0,
        "M" | "MiB" => 1024.0 * 1024.0,
        other => return Err(format!("`{other}` is no unit of size: B, KiB or MiB")),
    };
    let bytes = number * factor;
    if !(1.0..=1024.0 * 1024.0 * 1024.0).contains(&bytes) {
        return Err("must be at least 1 byte and at most 1024MiB".into());
    }
    Ok(bytes as usize)
}

/// A number and its factor: `5k` is 5000.
fn scaled(text: &str) -> Result<f64, String> {
    let (number, unit) = split(text)?;
    match unit {
        "" => Ok(number),
        "k" | "K" => Ok(number * 1e3),
        "M" => Ok(number * 1e6),
        other => Err(format!("`{other}` is neither k nor M")),
    }
}

/// Where the number ends and the unit begins.
fn split(text: &str) -> Result<(f64, &str), String> {
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at_checked(end).unwrap_or((text, ""));
    let number = number
        .parse()
        .map_err(|_| "must begin with a number".to_owned())?;
    Ok((number, unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_in_every_unit_and_refused_without_one() {
        let read = |text: &str| time(text).map(|time| time.as_micros());
        for (text, us) in [
            ("250us", 250),
            ("250µs", 250),
            ("20ms", 20_000),
            ("1.5s", 1_500_000),
            ("2m", 120_000_000),
            ("2min", 120_000_000),
            ("1h", 3_600_000_000),
            ("0", 0),
            ("0s", 0),
        ] {
            assert_eq!(read(text), Ok(us), "{text}");
        }
        for text in [
            "", "30", "s", "-1s", "1d", "1 s", "1.2.3s", "1e3s", "31m31", "9999999h",
        ] {
            assert!(read(text).is_err(), "{text}");
        }
        assert!(read("30").is_err_and(|text| text.contains("30s")));
        assert!(some_time("0s").is_err());
    }

    #[test]
    fn counts_rates_shares_and_sizes_are_read() {
        assert_eq!(count("20k"), Ok(20_000));
        assert_eq!(count("1.5M"), Ok(1_500_000));
        for text in ["0", "1.5", "-3", "5x", "", "9999999999M"] {
            assert!(count(text).is_err(), "{text}");
        }
        assert_eq!(rate("5k"), Ok(5000.0));
        assert_eq!(rate("0.5"), Ok(0.5));
        assert_eq!(rate("200/s"), Ok(200.0));
        assert!(rate("0").is_err() && rate("1000M").is_err());
        assert_eq!(share("1%"), Ok(0.01));
        assert_eq!(share("0%"), Ok(0.0));
        assert!(share("1").is_err_and(|text| text.contains("1%")));
        assert!(share("100%").is_err());
        assert_eq!(size("64KiB"), Ok(65536));
        assert_eq!(size("10kB"), Ok(10_000));
        assert!(size("0").is_err() && size("2000MiB").is_err() && size("1TB").is_err());
    }
}
