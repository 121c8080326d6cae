//! Durations and sizes as people write them: `"2s"`, `"64KiB"`.
//!
//! The idea: whole numbers of one unit each, so that every value has one shortest spelling and
//! what is printed reads back as the same value.

/// Durations' units in milliseconds, largest first.
const TIMES: &[(&str, u64)] = &[
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1_000),
    ("ms", 1),
];
/// As long as that.
const YEAR_MS: u64 = 365 * 86_400_000;
/// Sizes' units in bytes, largest first.
const SIZES: &[(&str, u64)] = &[
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("", 1),
];

/// What people write for durations' units, lower case, and the unit meant.
const TIME_WORDS: &[(&[&str], &str)] = &[
    (&["ms", "msec", "millisecond", "milliseconds"], "ms"),
    (&["", "s", "sec", "secs", "second", "seconds"], "s"),
    (&["m", "min", "mins", "minute", "minutes"], "m"),
    (&["h", "hr", "hour", "hours"], "h"),
    (&["d", "day", "days"], "d"),
];
/// What people write for sizes' units, lower case, and the unit meant.
const SIZE_WORDS: &[(&[&str], &str)] = &[
    (&["b", "byte", "bytes"], ""),
    (&["k", "kb", "ki", "kib"], "KiB"),
    (&["m", "mb", "mi", "mib"], "MiB"),
    (&["g", "gb", "gi", "gib"], "GiB"),
];

/// Rates' times in milliseconds.
const PERIODS: &[(&str, u64)] = &[
    ("s", 1_000),
    ("m", 60_000),
    ("h", 3_600_000),
    ("d", 86_400_000),
];

/// What people write for rates' times, lower case and without `/` or `per`, and the one meant.
const PERIOD_WORDS: &[(&[&str], &str)] = &[
    (&["", "s", "sec", "second", "ps", "rps", "1s"], "s"),
    (&["m", "min", "minute", "pm", "rpm", "1m"], "m"),
    (&["h", "hr", "hour", "1h"], "h"),
    (&["d", "day", "1d"], "d"),
];

/// Milliseconds of a duration.
pub(crate) fn parse_duration(text: &str) -> Option<u64> {
    parse(text, TIMES)
}

/// Bytes of a size.
pub(crate) fn parse_size(text: &str) -> Option<u64> {
    parse(text, SIZES)
}

/// The duration meant by a number without a unit, with one of other people's, or by several
/// numbers of one unit each; `most_ms` is how long it may be.
pub(crate) fn meant_duration(text: &str, most_ms: u64) -> Option<String> {
    // What may last for years is thought of in days, unless that many seconds are meant.
    let days = parse_duration(&format!("{text}d"));
    let is_number = split(text).1.is_empty();
    if is_number && most_ms >= YEAR_MS && days.is_some_and(|ms| ms <= most_ms) {
        return Some(format!("{text}d"));
    }
    meant(text, TIME_WORDS).or_else(|| sum(text).map(duration))
}

/// The milliseconds of durations written one after the other: `1m30s`.
fn sum(mut text: &str) -> Option<u64> {
    let mut sum_ms = 0_u64;
    while !text.is_empty() {
        let (number, _) = split(text);
        let word = text.get(number.len()..)?;
        let end = word.find(|c: char| c.is_ascii_digit());
        let end = number.len() + end.unwrap_or(word.len());
        let (part, rest) = text.split_at_checked(end)?;
        sum_ms = sum_ms.checked_add(parse_duration(part.trim())?)?;
        text = rest;
    }
    Some(sum_ms)
}

/// The size meant by a number with other people's unit.
pub(crate) fn meant_size(text: &str) -> Option<String> {
    meant(text, SIZE_WORDS)
}

/// The number of a rate, and the milliseconds it is for.
pub(crate) fn parse_rate(text: &str) -> Option<(u64, u64)> {
    let (number, period) = text.split_once('/')?;
    let (_, per_ms) = PERIODS.iter().find(|(name, _)| *name == period)?;
    let digits = number.bytes().all(|byte| byte.is_ascii_digit());
    // Too long a number is out of range like any other large one.
    (digits && !number.is_empty()).then(|| (number.parse().unwrap_or(u64::MAX), *per_ms))
}

/// The rate meant by a number alone, or with other people's words for its time.
pub(crate) fn meant_rate(text: &str) -> Option<String> {
    let (number, rest) = split(text);
    let rest = rest.to_ascii_lowercase();
    let words = rest.split(|c: char| c == '/' || c.is_whitespace());
    let fillers = [
        "", "r", "req", "reqs", "request", "requests", "per", "a", "every",
    ];
    let words: Vec<&str> = words.filter(|word| !fillers.contains(word)).collect();
    let word = words.concat();
    let (_, period) = PERIOD_WORDS
        .iter()
        .find(|(words, _)| words.contains(&&*word))?;
    (!number.is_empty()).then(|| format!("{number}/{period}"))
}

/// The spelling of a rate.
pub(crate) fn rate(count: u32, per_ms: u64) -> String {
    let period = PERIODS.iter().find(|(_, ms)| *ms == per_ms);
    format!("{count}/{}", period.map_or("s", |(name, _)| name))
}

/// The spelling of a duration of so many milliseconds.
pub fn duration(ms: u64) -> String {
    spell(ms, TIMES)
}

/// The spelling of a size of so many bytes.
pub fn size(bytes: u64) -> String {
    spell(bytes, SIZES)
}

fn parse(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let (number, unit) = split(text);
    let (_, factor) = units.iter().find(|(name, _)| *name == unit)?;
    number.parse::<u64>().ok()?.checked_mul(*factor)
}

fn meant(text: &str, words: &[(&[&str], &str)]) -> Option<String> {
    let (number, word) = split(text);
    let word = word.trim_start().to_ascii_lowercase();
    let (_, unit) = words.iter().find(|(words, _)| words.contains(&&*word))?;
    (!number.is_empty()).then(|| format!("{number}{unit}"))
}

/// A text's leading digits, and what follows.
fn split(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit());
    text.split_at(end.unwrap_or(text.len()))
}

fn spell(value: u64, units: &[(&str, u64)]) -> String {
    let fits = |factor: u64| value != 0 && value.is_multiple_of(factor);
    let smallest = units.last().copied().unwrap_or(("", 1));
    let (name, factor) = units
        .iter()
        .copied()
        .find(|(_, factor)| fits(*factor))
        .unwrap_or(smallest);
    format!("{}{name}", value / factor)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_spelt_reads_back_as_the_same(value in any::<u64>()) {
            prop_assert_eq!(parse_duration(&duration(value)), Some(value));
            prop_assert_eq!(parse_size(&size(value)), Some(value));
        }

        #[test]
        fn each_unit_is_so_many_of_the_next(number in 0..=u64::MAX / 86_400_000) {
            let same = [(1, "d"), (24, "h"), (1_440, "m"), (86_400, "s"), (86_400_000, "ms")];
            for (count, unit) in same {
                let text = format!("{}{unit}", number * count);
                prop_assert_eq!(parse_duration(&text), Some(number * 86_400_000), "{}", text);
            }
            let days = duration(number.max(1) * 86_400_000);
            prop_assert_eq!(days, format!("{}d", number.max(1)));
        }

        #[test]
        fn durations_in_a_row_mean_their_sum(days in 0..1_000_u64, hours in 0..100_u64, ms in 0..1_000_u64) {
            let meant = meant_duration(&format!("{days}d {hours}h{ms}ms"), 1_000);
            let sum = days * 86_400_000 + hours * 3_600_000 + ms;
            prop_assert_eq!(meant, Some(duration(sum)));
        }

        #[test]
        fn what_is_too_large_is_no_duration(number in u64::MAX / 86_400_000 + 1..) {
            prop_assert_eq!(parse_duration(&format!("{number}d")), None);
        }
    }

    #[test]
    fn a_number_alone_means_days_where_years_are_possible_and_seconds_elsewhere() {
        for (text, most, meant) in [
            ("365", "3650d", "365d"),
            ("31536000", "3650d", "31536000s"),
            ("30", "400d", "30d"),
            ("600", "30d", "600s"),
            ("5 min", "3650d", "5m"),
        ] {
            let most_ms = parse_duration(most).expect("a duration");
            assert_eq!(
                meant_duration(text, most_ms).as_deref(),
                Some(meant),
                "{text} {most}"
            );
        }
    }

    #[test]
    fn rates_are_read_as_they_are_written_and_otherwise_guessed_at() {
        for (text, expected) in [
            ("10/s", Ok((10, 1_000))),
            ("100/m", Ok((100, 60_000))),
            ("1/d", Ok((1, 86_400_000))),
            ("99999999999999999999/s", Ok((u64::MAX, 1_000))),
            ("10", Err(Some("10/s"))),
            ("10r/s", Err(Some("10/s"))),
            ("30 r/m", Err(Some("30/m"))),
            ("10 / s", Err(Some("10/s"))),
            ("10 requests per minute", Err(Some("10/m"))),
            ("5rps", Err(Some("5/s"))),
            ("10/sec", Err(Some("10/s"))),
            ("7/week", Err(None)),
            ("/s", Err(None)),
            ("-1/s", Err(None)),
            ("1.5/s", Err(None)),
            ("", Err(None)),
        ] {
            let read = parse_rate(text).ok_or_else(|| meant_rate(text));
            assert_eq!(
                read,
                expected.map_err(|meant| meant.map(str::to_owned)),
                "{text:?}"
            );
        }
        assert_eq!(rate(100, 60_000), "100/m");
    }
}
