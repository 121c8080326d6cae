//! A worker's own part of the ledger: a few permits of every fixed limit, under a lock of its own.

use std::sync::Arc;

use super::entry::{Entry, Table};
use super::gate::smoothed_us;
use super::holds::{Hold, Holds, Place};
use crate::ask::Want;

/// What one worker keeps for itself.
#[derive(Debug, Default)]
pub(crate) struct Cells {
    /// The limits in force; the same for all workers, replaced while all cells are locked.
    pub(crate) table: Arc<Table>,
    /// By index of the limit.
    pub(crate) cells: Vec<Cell>,
    /// Holds of this worker's permits, given out less come back.
    pub(crate) holds: i64,
}

/// A worker's permits of one fixed limit.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Cell {
    /// The limit's version, so that the usual way needs no look into the table.
    pub(crate) version: u32,
    /// Drawn from the gate, and not given out.
    pub(crate) free: u32,
    pub(crate) counted: Counted,
    /// Permits drawn at once, and given back at once.
    pub(crate) batch: u32,
    /// How long permits were held lately, in microseconds; 0: not measured.
    pub(crate) held_us: u32,
    /// Where the gate is.
    pub(crate) place: Place,
    /// Requests this worker admitted, be it from here or at a gate.
    pub(crate) admitted: u64,
}

/// Where a limit is counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Counted {
    /// At its gate.
    #[default]
    AtGate,
    /// In workers' cells.
    InCells,
    /// Nowhere: any number may be in flight.
    Nowhere,
}

impl Cells {
    /// Takes a permit of a request's only limit, if there is one right here.
    #[inline]
    pub(crate) fn take_one(&mut self, want: &Want<'_>) -> Option<Hold> {
        let cell = self.cells.get_mut(want.limit.index as usize)?;
        if cell.version != want.limit.version || !cell.is_open() || cell.free == 0 {
            return None;
        }
        cell.admit();
        self.holds += 1;
        Some(Hold::new(want.limit.index, cell.place, true))
    }

    /// Takes a permit of each limit, if all of them have one right here.
    pub(crate) fn take(&mut self, wants: &[Want<'_>], holds: &mut Holds) -> bool {
        if !self.has_all(wants) {
            return false;
        }
        for want in wants {
            if let Some(cell) = self.cells.get_mut(want.limit.index as usize)
                && cell.is_open()
            {
                cell.admit();
                self.holds += 1;
                holds.push(Hold::new(want.limit.index, cell.place, true));
            }
        }
        true
    }

    /// Whether there is a permit of each limit right here; one that is named twice is for others.
    fn has_all(&self, wants: &[Want<'_>]) -> bool {
        let mut before = &[][..];
        for (at, want) in wants.iter().enumerate() {
            let Some(cell) = self.cells.get(want.limit.index as usize) else {
                return false;
            };
            let has = match cell.counted {
                Counted::Nowhere => true,
                Counted::InCells => cell.free > 0,
                Counted::AtGate => false,
            };
            let is_named = |other: &Want<'_>| other.limit == want.limit;
            if !has || cell.version != want.limit.version || before.iter().any(is_named) {
                return false;
            }
            before = wants.get(..=at).unwrap_or(wants);
        }
        true
    }
}

impl Cell {
    /// The cell of a limit that was just put in force.
    pub(crate) fn of(entry: &Entry) -> Self {
        Self {
            version: entry.id.version,
            place: entry.place,
            counted: Counted::without_cells(entry),
            ..Self::default()
        }
    }

    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        self.counted == Counted::InCells
    }

    /// Gives out a permit that lies here.
    #[inline]
    pub(crate) fn admit(&mut self) {
        self.free -= 1;
        self.admitted += 1;
    }
}

impl Counted {
    /// Where a limit is counted that is not in cells.
    pub(crate) fn without_cells(entry: &Entry) -> Self {
        // One that is not in force any more is told by the table, as one that never was.
        if entry.settings.concurrent.is_none() && !entry.retired {
            Self::Nowhere
        } else {
            Self::AtGate
        }
    }
}

impl Cell {
    pub(crate) fn note_held(&mut self, held_ns: Option<u64>) {
        if let Some(held_ns) = held_ns {
            self.held_us = smoothed_us(self.held_us, held_ns);
        }
    }
}
