//! Amounts that ranges of keys are written in: milliseconds and bytes.

/// Milliseconds of a second.
pub(super) const SECOND: u64 = 1_000;
/// Milliseconds of an hour.
pub(super) const HOUR: u64 = 3_600 * SECOND;
/// Milliseconds of a day, the longest duration of most keys.
pub(super) const DAY: u64 = 24 * HOUR;
pub(super) const KIB: u64 = 1 << 10;
pub(super) const MIB: u64 = 1 << 20;
pub(super) const GIB: u64 = 1 << 30;
pub(super) const TIB: u64 = 1 << 40;
