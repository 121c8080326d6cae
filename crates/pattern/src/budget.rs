//! How many steps matches may take.

use std::fmt;

/// Steps of one match, or of all matches of one call.
const STEPS: u64 = 1_000_000;
/// More of them for each byte of the text.
const STEPS_A_BYTE: u64 = 8;
/// And no more, however long the text: some 40 ms of a core.
const STEPS_MAX: u64 = 4_000_000;
/// Steps of one match of an expression of a configuration.
const FEW_STEPS: u64 = 50_000;
/// And no more of those, however long the text: some 2 ms of a core.
const FEW_STEPS_MAX: u64 = 200_000;

/// The steps that matches may take.
#[derive(Debug)]
pub struct Budget {
    left: u64,
}

impl Budget {
    /// As many.
    pub fn of_steps(left: u64) -> Self {
        Self { left }
    }

    /// How many are left after a match that was not given up.
    pub fn left(&self) -> u64 {
        self.left
    }

    /// For a text of that many bytes.
    pub fn of_text(bytes: usize) -> Self {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        Self {
            left: bytes
                .saturating_mul(STEPS_A_BYTE)
                .saturating_add(STEPS)
                .min(STEPS_MAX),
        }
    }

    /// For a text of that many bytes that every request may bring.
    pub fn few(bytes: usize) -> Self {
        let Self { left } = Self::of_text(bytes);
        let of_bytes = left.saturating_sub(STEPS);
        Self {
            left: of_bytes.saturating_add(FEW_STEPS).min(FEW_STEPS_MAX),
        }
    }

    pub(super) fn take(&mut self, steps: u64) -> Result<(), Exhausted> {
        match self.left.checked_sub(steps) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => Err(Exhausted),
        }
    }
}

/// A match took too many steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exhausted;

impl fmt::Display for Exhausted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the match was given up after more than {STEPS} steps: a repetition within a \
             repetition, as (a+)+, is the usual reason"
        )
    }
}

impl std::error::Error for Exhausted {}
