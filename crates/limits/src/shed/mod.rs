//! Shedding: how much of what is asked for is still admitted when a sensor says that there is too
//! much of it, and of whom.
//!
//! Three parts, none of which knows a clock or a request. A [`Course`] follows one rule's sensor
//! through green, yellow and red and says which share of all that is asked for is admitted. A
//! [`Meter`] says what a tenant asks for. [`divide()`] makes of that share one for each tenant, such
//! that those above their share of the machine pay first; [`next`] spreads a tenant's share evenly
//! over its requests.

mod course;
mod divide;
mod meter;
#[cfg(test)]
mod tests;
mod thresholds;

pub use course::{Change, Course, Scope, State};
pub use divide::{Claim, divide, excess};
pub use meter::Meter;
pub use thresholds::Thresholds;

/// The share of somebody who is admitted whole, as [`next`] counts.
pub const WHOLE: u16 = 1 << 14;

/// A share as [`next`] counts it.
#[must_use]
pub fn share(share: f64) -> u16 {
    // Within the range of the type, and cut off where it is not.
    (share.clamp(0.0, 1.0) * f64::from(WHOLE)) as u16
}

/// Whether the next request is admitted at a share, and what of it is left over for the one after.
///
/// What is left over is carried on, as a printer carries on the error of a dot: of any number of
/// requests in a row as many are admitted as the share says, to within one, evenly spread.
#[must_use]
pub fn next(left_over: u16, share: u16) -> (bool, u16) {
    let sum = left_over.min(WHOLE) + share.min(WHOLE);
    match sum.checked_sub(WHOLE) {
        Some(rest) => (true, rest),
        None => (false, sum),
    }
}
