//! Durations and sizes as people write them: `"2s"`, `"64KiB"`.
//!
//! The idea: whole numbers of one unit each, so that every value has one shortest spelling and
//! what is printed reads back as the same value.

/// Durations' units in milliseconds, largest first.
const TIMES: &[(&str, u64)] = &[("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];
/// Sizes' units in bytes, largest first.
const SIZES: &[(&str, u64)] = &[
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("", 1),
];

/// Milliseconds of a duration.
pub(crate) fn parse_duration(text: &str) -> Option<u64> {
    parse(text, TIMES)
}

/// Bytes of a size.
pub(crate) fn parse_size(text: &str) -> Option<u64> {
    parse(text, SIZES)
}

/// The spelling of a duration of so many milliseconds.
pub(crate) fn duration(ms: u64) -> String {
    spell(ms, TIMES)
}

/// The spelling of a size of so many bytes.
pub(crate) fn size(bytes: u64) -> String {
    spell(bytes, SIZES)
}

fn parse(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at_checked(digits)?;
    let (_, factor) = units.iter().find(|(name, _)| *name == unit)?;
    number.parse::<u64>().ok()?.checked_mul(*factor)
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
