//! `concurrent = "auto"`: a limit that finds its own number.

use crate::Time;

/// How an admitted request ended, as far as a limit that adapts cares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It was answered; its time says something about the back end.
    Fine,
    /// The back end failed it.
    Failed,
    /// Says nothing: a tunnel, a long poll, a client that left, an answer of our own.
    Ignored,
}

/// The number of an adaptive limit, and what it was found by.
#[derive(Debug, Clone)]
pub struct Adaptive {
    floor: u32,
    ceiling: u32,
    limit: u32,
}

impl Adaptive {
    /// Begins between `floor` (number of cores) and `ceiling`.
    #[must_use]
    pub fn new(floor: u32, ceiling: u32, _now: Time) -> Self {
        let floor = floor.max(1);
        let ceiling = ceiling.max(floor);
        Self {
            floor,
            ceiling,
            limit: 20.clamp(floor, ceiling),
        }
    }

    /// The limit now: how many requests may be in flight.
    #[must_use]
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// Takes note of a request that ended: how long it held its permit, and how many (it included)
    /// were in flight and how many waited just before its end.
    pub fn sample(
        &mut self,
        now: Time,
        held_ns: u64,
        in_flight: u32,
        queued: u32,
        outcome: Outcome,
    ) {
        let _ = (now, held_ns, in_flight, queued, outcome);
    }

    /// To be called some times a second, so that a back end that answers nothing is noticed too.
    pub fn tick(&mut self, now: Time, in_flight: u32, queued: u32) {
        let _ = (now, in_flight, queued);
    }

    /// Changes the bounds; the limit is brought between them at once.
    pub fn set_bounds(&mut self, floor: u32, ceiling: u32) {
        self.floor = floor.max(1);
        self.ceiling = ceiling.max(self.floor);
        self.limit = self.limit.clamp(self.floor, self.ceiling);
    }
}
