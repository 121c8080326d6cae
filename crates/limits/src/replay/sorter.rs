//! Puts requests that were logged when they ended into the order in which they came.
//!
//! A line can only be passed on when no later line can be of an earlier arrival. Durations have no
//! bound, memory has: beyond the window or the number kept, a straggler counts as come just now.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use super::Arrival;
use crate::Time;

/// Arrivals kept back at most.
pub const KEPT_MAX: usize = 1 << 18;

/// Sorts arrivals by their time, within a window.
#[derive(Debug)]
pub struct Sorter<I> {
    lines: I,
    window: Duration,
    /// When the latest request read so far ended.
    ended: Time,
    /// The arrival passed on last.
    passed: Time,
    kept: BinaryHeap<Reverse<Kept>>,
    number: u64,
    late: u64,
}

/// An arrival with its line's number, so that those of one instant keep their order.
#[derive(Debug)]
struct Kept {
    number: u64,
    arrival: Arrival,
}

impl Kept {
    fn rank(&self) -> (Time, u64) {
        (self.arrival.arrived, self.number)
    }
}

impl PartialEq for Kept {
    fn eq(&self, other: &Self) -> bool {
        self.rank() == other.rank()
    }
}

impl Eq for Kept {}

impl PartialOrd for Kept {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Kept {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.rank().cmp(&other.rank())
    }
}

impl<I: Iterator<Item = (Time, Arrival)>> Sorter<I> {
    /// Sorts lines, each with the time at which its request ended; `window` is how long a request
    /// may have taken and still be put where it belongs.
    pub fn new(lines: I, window: Duration) -> Self {
        Self {
            lines,
            window,
            ended: Time::ZERO,
            passed: Time::ZERO,
            kept: BinaryHeap::new(),
            number: 0,
            late: 0,
        }
    }

    /// How many requests took longer than the window and were moved to a later arrival.
    pub fn late(&self) -> u64 {
        self.late
    }

    fn keep(&mut self, ended: Time, arrival: Arrival) {
        self.ended = self.ended.max(ended);
        self.number += 1;
        self.kept.push(Reverse(Kept {
            number: self.number,
            arrival,
        }));
    }

    /// Whether the earliest kept back may go on.
    fn is_due(&self) -> bool {
        self.kept.peek().is_some_and(|Reverse(first)| {
            self.kept.len() > KEPT_MAX || first.arrival.arrived + self.window < self.ended
        })
    }
}

impl<I: Iterator<Item = (Time, Arrival)>> Iterator for Sorter<I> {
    type Item = Arrival;

    fn next(&mut self) -> Option<Arrival> {
        while !self.is_due() {
            match self.lines.next() {
                Some((ended, arrival)) => self.keep(ended, arrival),
                None => break,
            }
        }
        let Reverse(Kept { mut arrival, .. }) = self.kept.pop()?;
        if arrival.arrived < self.passed {
            self.late += 1;
            arrival.arrived = self.passed;
        }
        self.passed = arrival.arrived;
        Some(arrival)
    }
}
