//! What time asks for: waits that end, cells that open and close, keys that are forgotten.

use std::ops::Bound;
use std::time::Duration;

use super::Books;
use super::cells::Counted;
use super::holds::{Hold, Place};
use super::route::forgotten;
use super::shard::Forget;
use super::wait_queue::{Charged, GateQueue, WaitQueue, Wakers};
use crate::Time;
use crate::ask::LimitId;
use crate::look::Steered;
use crate::permit::Used;
use crate::refusal::Why;

/// How long a gate has to be little used before it is counted in cells again.
const SETTLED: Duration = Duration::from_secs(1);
/// How long a key that nobody uses is remembered.
const KEY_AGE_S: u32 = 60;
/// Keys of one shard looked at in one tick.
const LOOKS_A_TICK: u32 = 64;
/// Tenants whose idle keys are looked for in one tick.
const TENANTS_A_TICK: usize = 16;

/// Queues looked at in one tick.
const QUEUES_A_TICK: usize = 1_024;

impl Books {
    /// Does what time asks for.
    pub(super) fn tick(&self, now: Time) {
        // Somebody who has it replaces all limits: then the next tick will do.
        let mut register = self.register.try_lock();
        self.with_wait_queue(Some(now), |wait_queue, now, wakers| {
            self.visit_queues(wait_queue, now, wakers);
            self.adapt(wait_queue, now, wakers);
            self.settle(wait_queue, now);
            if let Some(register) = &mut register {
                self.forget_retired(register, wait_queue, now, wakers);
            }
        });
        drop(register);
        self.forget_keys(now);
    }

    /// Counts a limit at its gate alone: every permit in a cell is called in.
    pub(super) fn close(&self, wait_queue: &mut WaitQueue, hold: Hold) {
        let Some(open) = wait_queue.open.get_mut(hold.limit as usize) else {
            return;
        };
        *open = false;
        if wait_queue
            .table
            .at(hold.limit)
            .is_some_and(|entry| entry.suits_cells(self.cells.len()))
        {
            wait_queue.unsettled.insert(hold.limit, None);
        }
        let mut all = Vec::with_capacity(self.cells.len());
        all.extend(self.cells.iter().map(|cells| cells.lock()));
        let place = hold.place();
        let mut shard = self.shards[usize::from(place.shard)].lock();
        let gate = shard.gate(place.slot);
        for cells in &mut all {
            if let Some(cell) = cells.cells.get_mut(hold.limit as usize) {
                gate.in_flight -= std::mem::take(&mut cell.free);
                cell.counted = Counted::AtGate;
                if cell.held_us > 0 {
                    gate.held_us = std::mem::take(&mut cell.held_us);
                }
            }
        }
    }

    /// Lets workers count a limit in their cells. Nobody may wait at its gate.
    pub(super) fn open(&self, wait_queue: &mut WaitQueue, limit: u32) {
        let Some(entry) = wait_queue.table.at(limit) else {
            return;
        };
        let batch = entry.batch(self.cells.len());
        let mut all = Vec::with_capacity(self.cells.len());
        all.extend(self.cells.iter().map(|cells| cells.lock()));
        for cells in &mut all {
            if let Some(cell) = cells.cells.get_mut(limit as usize) {
                cell.counted = Counted::InCells;
                cell.batch = batch;
            }
        }
        if let Some(open) = wait_queue.open.get_mut(limit as usize) {
            *open = true;
        }
    }

    /// Opens the cells of limits that have been little used for a while.
    fn settle(&self, wait_queue: &mut WaitQueue, now: Time) {
        let mut settled = Vec::new();
        let mut unsettled = std::mem::take(&mut wait_queue.unsettled);
        unsettled.retain(|limit, since| {
            let Some(entry) = wait_queue.table.at(*limit) else {
                return false;
            };
            if !entry.suits_cells(self.cells.len()) {
                return false;
            }
            let mut shard = self.shards[usize::from(entry.place.shard)].lock();
            let gate = shard.gate(entry.place.slot);
            if gate.waiting > 0 || gate.in_flight >= entry.cap() / 2 {
                *since = None;
                return true;
            }
            let since = *since.get_or_insert(now);
            if now - since >= SETTLED {
                settled.push(*limit);
                return false;
            }
            true
        });
        wait_queue.unsettled = unsettled;
        for limit in settled {
            self.open(wait_queue, limit);
        }
    }

    /// Ends waits whose time is up and drops queues in which nothing is worth keeping, in a bounded
    /// number of queues at a time: whoever waits asks by itself when its time is up.
    fn visit_queues(&self, wait_queue: &mut WaitQueue, now: Time, wakers: &mut Wakers) {
        let behind = (Bound::Excluded(wait_queue.visited), Bound::Unbounded);
        let queues = wait_queue.queues.range(behind);
        let queues = queues.chain(wait_queue.queues.range(..=wait_queue.visited));
        let places: Vec<Place> = queues
            .take(QUEUES_A_TICK)
            .map(|(place, _)| *place)
            .collect();
        for place in places {
            wait_queue.visited = place;
            self.end_waits(wait_queue, now, place, wakers);
            self.drop_idle_queue(wait_queue, now, place);
        }
    }

    fn end_waits(&self, wait_queue: &mut WaitQueue, now: Time, place: Place, wakers: &mut Wakers) {
        // Each turn takes one out of the queue, which is bounded.
        while let Some(waiter) = wait_queue
            .queues
            .get_mut(&place)
            .and_then(|here| here.queue.expired(now))
        {
            self.turn_away(wait_queue, now, waiter.id, Why::WaitedTooLong, wakers);
        }
    }

    fn drop_idle_queue(&self, wait_queue: &mut WaitQueue, now: Time, place: Place) {
        let is_idle = |here: &GateQueue| here.queue.is_idle(now);
        if wait_queue.queues.get(&place).is_some_and(is_idle) {
            wait_queue.queues.remove(&place);
            let mut shard = self.shards[usize::from(place.shard)].lock();
            shard.gate(place.slot).queue = false;
        }
    }

    /// Lets `auto` notice what does not come back.
    fn adapt(&self, wait_queue: &mut WaitQueue, now: Time, wakers: &mut Wakers) {
        let table = wait_queue.table.clone();
        for entry in table
            .limits
            .iter()
            .flatten()
            .filter(|entry| entry.is_auto())
        {
            {
                let mut shard = self.shards[usize::from(entry.place.shard)].lock();
                let gate = shard.gate(entry.place.slot);
                if let Some(adaptive) = &mut *entry.life.adaptive.lock() {
                    adaptive.tick(now, gate.in_flight, gate.waiting);
                    entry.set_cap(adaptive.limit());
                }
            }
            self.serve(wait_queue, now, entry.place, wakers);
        }
    }

    /// Has somebody else decide how many permits a fixed limit has from now on.
    pub(super) fn steer(&self, now: Time, limit: LimitId, decide: impl FnOnce(Steered) -> u32) {
        self.with_wait_queue(Some(now), |wait_queue, now, wakers| {
            let table = wait_queue.table.clone();
            let Some(entry) = table.limit(limit).filter(|entry| entry.is_fixed()) else {
                return;
            };
            let index = entry.index() as usize;
            let (mut free, mut admitted) = (0, 0);
            for cells in &self.cells {
                if let Some(cell) = cells.lock().cells.get(index) {
                    free += cell.free;
                    admitted += cell.admitted;
                }
            }
            let steered = {
                let mut shard = self.shards[usize::from(entry.place.shard)].lock();
                let gate = shard.gate(entry.place.slot);
                Steered {
                    in_flight: gate.in_flight.saturating_sub(free),
                    waiting: gate.waiting,
                    admitted: entry.life.counters.totals(admitted).admitted,
                }
            };
            let cap = decide(steered);
            if cap == entry.cap() {
                return;
            }
            if wait_queue.is_open(entry.index()) {
                self.close(wait_queue, Hold::new(entry.index(), entry.place, true));
            }
            entry.set_cap(cap);
            if entry.suits_cells(self.cells.len()) {
                wait_queue.unsettled.insert(entry.index(), None);
            }
            self.serve(wait_queue, now, entry.place, wakers);
        });
    }

    /// Forgets keys that were not used for a while, a bounded number at a time.
    fn forget_keys(&self, now: Time) {
        let (table, first) = self.with_wait_queue(Some(now), |wait_queue, _, _| {
            let first = wait_queue.sweep as usize;
            let tenants = wait_queue.table.tenants.len().max(1);
            wait_queue.sweep = u32::try_from((first + TENANTS_A_TICK) % tenants).unwrap_or(0);
            (wait_queue.table.clone(), first)
        });
        let tenants = table.tenants.len();
        let bounds = Forget {
            looks_max: LOOKS_A_TICK,
            forget_max: LOOKS_A_TICK,
            age_s: KEY_AGE_S,
        };
        for step in 0..TENANTS_A_TICK.min(tenants) {
            let tenant = u32::try_from((first + step) % tenants).unwrap_or(0);
            for shard in &self.shards {
                let mut shard = shard.lock();
                shard.forget_idle(now, tenant, bounds, |gate| forgotten(&table, gate));
            }
        }
    }
}

impl WaitQueue {
    /// Replaces what a queue charged in advance by what was really taken.
    pub(super) fn settle(&mut self, now: Time, charged: &Charged, used: Option<Used>) {
        let Some(here) = self.queues.get_mut(&charged.place) else {
            return;
        };
        let Charged {
            tenant,
            client,
            charge,
            ..
        } = *charged;
        match used {
            Some(Used::Measured(nanos)) => here.queue.settle(now, tenant, client, charge, nanos),
            Some(Used::Nothing) => here.queue.refund(now, tenant, client, charge),
            None => {}
        }
    }

    /// Tells a queue how long a permit of its gate was held.
    pub(super) fn note_service(&mut self, place: Place, held_ns: Option<u64>) {
        if let (Some(here), Some(held_ns)) = (self.queues.get_mut(&place), held_ns) {
            here.queue.note_service(held_ns);
        }
    }
}
