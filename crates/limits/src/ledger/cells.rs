//! A worker's own part of the ledger: a few permits of every fixed limit, under a lock of its own.

use std::sync::Arc;

use super::entry::{Entry, Table};
use super::gate::smoothed_us;
use super::holds::{Hold, Holds, Place};
use crate::ask::{LimitId, Want};

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
    /// Requests admitted from here.
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
    /// Takes a permit of each limit, if all of them have one right here.
    pub(crate) fn take(&mut self, wants: &[Want<'_>], holds: &mut Holds) -> bool {
        for (at, want) in wants.iter().enumerate() {
            let LimitId { index, version } = want.limit;
            let Some(cell) = self.cells.get(index as usize) else {
                return false;
            };
            if cell.version != version {
                return false;
            }
            match cell.counted {
                Counted::Nowhere => continue,
                Counted::InCells if cell.free > 0 => {}
                Counted::InCells | Counted::AtGate => return false,
            }
            if at > 0 && wants.iter().take(at).any(|other| other.limit == want.limit) {
                return false;
            }
            holds.push(Hold::new(index, cell.place, true));
        }
        for part in holds.parts() {
            for hold in part {
                if let Some(cell) = self.cells.get_mut(hold.limit as usize) {
                    cell.free -= 1;
                    cell.admitted += 1;
                }
            }
        }
        self.holds += i64::try_from(holds.len()).unwrap_or(0);
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

    pub(crate) fn is_open(&self) -> bool {
        self.counted == Counted::InCells
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
