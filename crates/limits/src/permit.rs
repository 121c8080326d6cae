//! The right to go on, at all gates of a request at once, given back on every way out.

use std::time::Duration;

use crate::Time;
use crate::adaptive::Outcome;

/// The right of one request to go on. Dropped, it is given back.
#[derive(Debug)]
#[must_use = "a permit that is dropped is given back at once"]
pub struct Permit {
    waited: Duration,
}

/// What a request took of what it was admitted to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Used {
    /// Nanoseconds of the handler, or of CPU where a program's group tells them.
    Measured(u64),
    /// It never ran: nothing is charged.
    Nothing,
}

impl Permit {
    /// A permit for no gate.
    pub(crate) fn nothing() -> Self {
        Self {
            waited: Duration::ZERO,
        }
    }

    /// Gives the permit back, and says what was done with it.
    pub fn end(self, now: Time, used: Used, outcome: Outcome) {
        let _ = (now, used, outcome);
    }

    /// Tells how long the request waited for it.
    #[must_use]
    pub fn waited(&self) -> Duration {
        self.waited
    }
}
