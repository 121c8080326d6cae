//! A worker's own part of the ledger: a few permits of every fixed limit, under a lock of its own.

use std::sync::Arc;

use super::entry::Table;
use super::gate::smoothed_us;
use super::holds::{Hold, Holds};
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
    /// Drawn from the gate, and not given out.
    pub(crate) free: u32,
    /// Whether the limit is counted here, or at its gate alone.
    pub(crate) open: bool,
    /// Permits drawn at once, and given back at once.
    pub(crate) batch: u32,
    /// How long permits were held lately, in microseconds; 0: not measured.
    pub(crate) held_us: u32,
    /// Requests admitted from here.
    pub(crate) admitted: u64,
}

impl Cells {
    /// Takes a permit of each limit, if all of them have one right here.
    pub(crate) fn take(&mut self, wants: &[Want<'_>], holds: &mut Holds) -> bool {
        for (at, want) in wants.iter().enumerate() {
            let Some(entry) = self.table.counted(want.limit) else {
                continue;
            };
            let twice = wants.iter().take(at).any(|other| other.limit == want.limit);
            let cell = self.cells.get(entry.index() as usize);
            if twice || !cell.is_some_and(|cell| cell.open && cell.free > 0) {
                return false;
            }
        }
        for want in wants {
            if let Some(entry) = self.table.counted(want.limit)
                && let Some(cell) = self.cells.get_mut(entry.index() as usize)
            {
                cell.free -= 1;
                cell.admitted += 1;
                holds.push(Hold::new(entry.index(), entry.place, true));
            }
        }
        self.holds += i64::try_from(holds.len()).unwrap_or(0);
        true
    }
}

impl Cell {
    pub(crate) fn note_held(&mut self, held_ns: Option<u64>) {
        if let Some(held_ns) = held_ns {
            self.held_us = smoothed_us(self.held_us, held_ns);
        }
    }
}
