//! The way of nearly every request: all gates looked at and passed under a worker's own lock and
//! the locks of a few shards. What cannot be decided here goes to the wait_queue.

use std::sync::Arc;

use super::Books;
use super::cells::{Cell, Cells};
use super::entry::{Entry, Table};
use super::gate::Gate;
use super::holds::{Hold, Holds, Place};
use super::route::{Bits, Keys, Need};
use crate::Time;
use crate::adaptive::Outcome;
use crate::ask::Ask;
use crate::refusal::Why;

/// What came of looking at all gates at once.
#[derive(Debug)]
#[allow(
    clippy::large_enum_variant,
    reason = "made under the locks of shards, where nothing is allocated"
)]
pub(super) enum Attempt {
    /// Every gate gave a permit; these, in shadow, would not have.
    Taken(Bits),
    /// One gate is full and has no queue.
    Refused(Facts),
    /// Somebody has to wait, or permits are to be called in.
    WaitQueue,
    /// Nothing was done for want of something.
    Need(Need),
}

/// A limit and its gate, as they stood when something was decided.
#[derive(Debug)]
pub(super) struct Facts {
    pub(super) entry: Arc<Entry>,
    pub(super) gate: Gate,
}

impl Gate {
    /// Gives a permit. Tells whether the limit, in shadow, would not have.
    pub(super) fn take(&mut self, entry: &Entry, now: Time) -> bool {
        let cap = entry.cap_at(self, now);
        let over = self.in_flight >= cap
            && entry.would_refuse(self.in_flight, cap)
            && entry.to_come(self) == 0;
        if over {
            self.note_shadow(entry);
        }
        self.in_flight += 1;
        over
    }

    /// Whether a newcomer has to stop here.
    pub(super) fn stops(&self, entry: &Entry, now: Time) -> bool {
        entry.enforces() && (self.in_flight >= entry.cap_at(self, now) || self.waiting > 0)
    }
}

impl Books {
    /// Takes a permit at every gate, or at none.
    pub(super) fn attempt<const N: usize>(
        &self,
        worker: usize,
        now: Time,
        ask: &Ask<'_>,
        keys: &Keys<N>,
        holds: &mut Holds,
    ) -> Attempt {
        let mut own = self.cells[worker].lock();
        let Cells {
            table,
            cells,
            holds: count,
        } = &mut *own;
        let counted = |entry: &Entry| entry.settings.concurrent.is_some();
        let mut route = self.route(table, ask.wants, keys, cells, counted);
        let mut shards = self.lock_shards(route.shards);
        if let Err(need) = self.find_gates(now, table, ask, keys, &mut route, &mut shards) {
            return Attempt::Need(need);
        }
        for at in route.stops.iter().filter(|at| !route.local.has(*at)) {
            let Some(entry) = route.entries[at] else {
                continue;
            };
            let gate = shards.gate(route.places[at]);
            let full = gate.in_flight >= entry.cap_at(gate, now);
            if route.draws.has(at) {
                if full {
                    return Attempt::WaitQueue;
                }
            } else if entry.is_unasked(gate) {
                return Attempt::WaitQueue;
            } else if gate.stops(entry, now) {
                let may_wait = entry.settings.queue > 0 || entry.to_come(gate) > 0;
                if gate.waiting > 0 || may_wait {
                    return Attempt::WaitQueue;
                }
                gate.note_refusal(entry, Why::Full, now);
                let (entry, gate) = (entry.clone(), gate.clone());
                return Attempt::Refused(Facts { entry, gate });
            }
        }
        let mut over = Bits::default();
        for at in route.stops.iter() {
            let Some(entry) = route.entries[at] else {
                continue;
            };
            let place = route.places[at];
            match cells.get_mut(entry.index() as usize) {
                Some(cell) if route.local.has(at) => cell.admit(),
                Some(cell) if route.draws.has(at) => {
                    cell.draw(shards.gate(place), entry.cap());
                    cell.admit();
                }
                cell => {
                    let gate = shards.gate(place);
                    if gate.take(entry, now) {
                        over.add(at);
                    }
                    gate.admitted += 1;
                    // Counted here as well: the gate may be forgotten.
                    if let Some(cell) = cell {
                        cell.admitted += 1;
                    }
                }
            }
            holds.push(Hold::new(entry.index(), place, entry.is_fixed()));
        }
        *count += i64::try_from(holds.len()).unwrap_or(0);
        Attempt::Taken(over)
    }

    /// Gives permits back. Those are told that somebody waits for at the wait_queue, by their place.
    pub(super) fn give_back(&self, worker: usize, holds: &Holds, how: &Held) -> Bits {
        let mut freed = Bits::default();
        let mut own = self.cells[worker].lock();
        let mut give = |at, hold| {
            own.holds -= 1;
            if !self.give_to_cell(&mut own, hold, how) && self.give_to_gate(&own.table, hold, how) {
                freed.add(at);
            }
        };
        match holds.parts() {
            [[only], _] => give(0, only),
            [few, more] => {
                for (at, hold) in few.iter().chain(more).enumerate() {
                    give(at, hold);
                }
            }
        }
        freed
    }

    /// Puts a permit into the worker's cell, if its limit is counted there.
    #[inline]
    fn give_to_cell(&self, own: &mut Cells, hold: &Hold, how: &Held) -> bool {
        let Some(cell) = own.cells.get_mut(hold.limit as usize) else {
            return false;
        };
        if !hold.fixed || !cell.is_open() {
            return false;
        }
        cell.free += 1;
        cell.note_held(how.held_ns);
        if cell.free > cell.batch * 2 {
            self.give_batch(cell, hold.place());
        }
        true
    }

    /// Gives some of a cell's permits back to their gate.
    #[inline(never)]
    fn give_batch(&self, cell: &mut Cell, place: Place) {
        let mut shard = self.shards[usize::from(place.shard)].lock();
        shard.gate(place.slot).in_flight -= cell.batch;
        cell.free -= cell.batch;
    }

    /// Gives a permit back to its gate, and tells whether somebody waits for it. Apart, as all that
    /// is not needed where cells suffice.
    #[inline(never)]
    fn give_to_gate(&self, table: &Table, hold: &Hold, how: &Held) -> bool {
        let Place { shard, slot } = hold.place();
        let mut shard = self.shards[usize::from(shard)].lock();
        let gate = shard.gate(slot);
        if hold.fixed
            && let Some(entry) = table.at(hold.limit).filter(|entry| entry.is_auto())
        {
            entry.sample(gate, how);
        }
        gate.in_flight -= 1;
        if let Some(held_ns) = how.held_ns {
            gate.note_held(held_ns);
        }
        gate.waiting > 0
    }
}

/// How long a permit was held, and what came of it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Held {
    pub(super) now: Time,
    /// Unknown where a permit was only dropped.
    pub(super) held_ns: Option<u64>,
    pub(super) outcome: Outcome,
}

impl Entry {
    /// Lets `auto` learn from a permit that comes back.
    fn sample(&self, gate: &Gate, how: &Held) {
        let Some(held_ns) = how.held_ns else {
            return;
        };
        if let Some(adaptive) = &mut *self.life.adaptive.lock() {
            adaptive.sample(how.now, held_ns, gate.in_flight, gate.waiting, how.outcome);
            self.set_cap(adaptive.limit());
        }
    }
}

impl Cell {
    /// Draws a batch of a gate that is not full.
    fn draw(&mut self, gate: &mut Gate, cap: u32) {
        let drawn = self.batch.max(1).min(cap - gate.in_flight);
        gate.in_flight += drawn;
        self.free += drawn;
    }
}
