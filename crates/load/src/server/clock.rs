//! The units /proc counts time in.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Ticks a second; fixed by the kernel's user interface.
const TICKS_PER_SECOND: u64 = 100;
/// Nanoseconds of a tick.
pub(super) const TICK_NS: u64 = 1_000_000_000 / TICKS_PER_SECOND;

/// The time of so many ticks.
pub(super) fn of_ticks(ticks: u64) -> Duration {
    Duration::from_nanos(ticks.saturating_mul(TICK_NS))
}

/// Ticks since the machine began, as the starts of processes are told.
pub(super) fn ticks_since_boot() -> u64 {
    let time = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanoseconds = u64::try_from(time.tv_nsec).unwrap_or(0);
    seconds * TICKS_PER_SECOND + nanoseconds / TICK_NS
}
