//! The wait_queue: everything that waits. Queues, waiters, and the hand-over of what was freed.
//!
//! Whoever holds the wait_queue is the only one who queues, serves and opens or closes cells; others
//! may still pass gates that nobody waits at. A gate that somebody waits at is counted centrally
//! and says so under its shard's lock, so a permit freed there always comes by the wait_queue.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use super::Books;
use super::attempt::Facts;
use super::entry::{Entry, Table};
use super::fleet::Fleet;
use super::gate::Gate;
use super::holds::{Hold, Place};
use super::reserve::Reserved;
use super::route::Bits;
use super::shadow::Shadow;
use crate::Time;
use crate::ask::{Class, WANTS_MAX};
use crate::queue::{Charge, Next, Prefix, Queue};
use crate::refusal::{Refusal, Why};

/// What a refused request is told to wait where nothing was measured yet.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Everything that waits.
#[derive(Debug, Default)]
pub(super) struct WaitQueue {
    /// The limits in force; the same as in all cells.
    pub(super) table: Arc<Table>,
    /// The latest instant heard of, for those who give back without knowing the time.
    pub(super) latest: Time,
    pub(super) queues: BTreeMap<Place, GateQueue>,
    pub(super) records: BTreeMap<u64, Record>,
    pub(super) last_id: u64,
    /// By index of the limit: whether it is counted in cells.
    pub(super) open: Vec<bool>,
    /// Limits that suit cells and are counted centrally: since when they are little used.
    pub(super) unsettled: BTreeMap<u32, Option<Time>>,
    /// Holds of permits that were given out here.
    pub(super) holds: i64,
    /// Where the next tick goes on looking for idle keys: a tenant.
    pub(super) sweep: u32,
    /// The queue that was looked at last.
    pub(super) visited: Place,
    /// What is leased from the store.
    pub(super) fleet: Fleet,
}

/// The queue of one gate.
#[derive(Debug)]
pub(super) struct GateQueue {
    pub(super) queue: Queue,
    /// Its limit, by index.
    pub(super) limit: u32,
    /// Those who moved here from another gate; they count against nothing.
    pub(super) guests: usize,
}

/// Somebody who waits, or has waited and does not know yet what came of it.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) tenant: u32,
    pub(super) weight: u32,
    pub(super) class: Class,
    pub(super) client: Prefix,
    pub(super) arrived: Time,
    pub(super) until: Time,
    /// All its gates, most specific first.
    pub(super) gates: Box<[Hold]>,
    /// At which of them it waits.
    pub(super) at: usize,
    /// Whether it came from another gate.
    pub(super) guest: bool,
    pub(super) state: WaiterState,
}

/// How far a waiter has come.
#[derive(Debug)]
pub(super) enum WaiterState {
    /// In a queue.
    Waiting(Option<Waker>),
    /// Its permits are taken, and counted; what limits in shadow would have refused, and what of them is
    /// its tenant's before others'.
    Granted(Time, Charged, Vec<Refusal>, Reserved),
    /// Its wait is over without.
    Refused(Box<Refusal>),
}

/// What a queue charged for a permit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Charged {
    pub(crate) place: Place,
    pub(crate) tenant: u32,
    pub(crate) client: Prefix,
    pub(crate) charge: Charge,
}

/// Wakers to be called, or dropped, when nothing is locked any more: both run others' code.
#[derive(Debug, Default)]
pub(super) struct Wakers {
    pub(super) wake: Vec<Waker>,
    pub(super) drop: Vec<Waker>,
}

impl Books {
    /// Does something at the wait_queue, and calls the wakers afterwards.
    pub(super) fn with_wait_queue<R>(
        &self,
        now: Option<Time>,
        work: impl FnOnce(&mut WaitQueue, Time, &mut Wakers) -> R,
    ) -> R {
        let mut wakers = Wakers::default();
        let result = {
            let mut wait_queue = self.wait_queue.lock();
            wait_queue.latest = wait_queue.latest.max(now.unwrap_or_default());
            let now = now.unwrap_or(wait_queue.latest);
            work(&mut wait_queue, now, &mut wakers)
        };
        for waker in wakers.wake {
            waker.wake();
        }
        result
    }

    /// Hands on what is free at a gate, until nothing is free or nobody waits.
    pub(super) fn serve(
        &self,
        wait_queue: &mut WaitQueue,
        now: Time,
        place: Place,
        wakers: &mut Wakers,
    ) {
        // Each turn takes one out of this queue, and nobody joins it meanwhile while it has a
        // free permit; the bound is for what was not foreseen.
        let turns_max = wait_queue
            .queues
            .get(&place)
            .map_or(0, |queue| queue.queue.len());
        for _ in 0..=turns_max {
            if !self.has_free(wait_queue, now, place) {
                return;
            }
            let WaitQueue { queues, table, .. } = &mut *wait_queue;
            let next = queues.get_mut(&place).and_then(|here| {
                let entry = table.at(here.limit);
                let owed = entry.into_iter().flat_map(|entry| entry.owed());
                here.queue.next_of(now, owed)
            });
            let Some(next) = next else {
                return;
            };
            match next {
                Next::Late(waiter) => {
                    self.turn_away(wait_queue, now, waiter.id, Why::Late, wakers);
                }
                Next::Serve(waiter, charge) if waiter.until <= now => {
                    wait_queue.refund(now, place, waiter.id, charge);
                    self.turn_away(wait_queue, now, waiter.id, Why::WaitedTooLong, wakers);
                }
                Next::Serve(waiter, charge) => {
                    self.serve_one(wait_queue, now, place, waiter.id, charge, wakers);
                }
            }
        }
    }

    /// Takes all permits of a waiter whose turn has come, or lets it wait at another gate.
    fn serve_one(
        &self,
        wait_queue: &mut WaitQueue,
        now: Time,
        place: Place,
        id: u64,
        charge: Charge,
        wakers: &mut Wakers,
    ) {
        let Some(mut record) = wait_queue.records.remove(&id) else {
            return;
        };
        match self.take_all(wait_queue, now, &record) {
            Ok(over) => {
                wait_queue.holds += i64::try_from(record.gates.len()).unwrap_or(0);
                wait_queue.leave(place, &record);
                let charged = Charged {
                    place,
                    tenant: record.tenant,
                    client: record.client,
                    charge,
                };
                let shadows = self.shadows_of(wait_queue, now, &record, over);
                let reserved = wait_queue
                    .table
                    .reserved(record.tenant, record.gates.iter());
                let granted = WaiterState::Granted(now, charged, shadows, reserved);
                if let WaiterState::Waiting(Some(waker)) =
                    std::mem::replace(&mut record.state, granted)
                {
                    wakers.wake.push(waker);
                }
                wait_queue.records.insert(id, record);
            }
            Err(at) => {
                wait_queue.leave(place, &record);
                wait_queue.records.insert(id, record);
                wait_queue.refund(now, place, id, charge);
                if let Some(record) = wait_queue.records.get_mut(&id) {
                    record.guest |= record.at != at;
                    record.at = at;
                }
                self.queue_up(wait_queue, now, id);
            }
        }
    }

    /// Takes a permit at every gate of a waiter, and tells which of them, in shadow, would have
    /// refused it. If one is full, tells which, and the waiter is counted there from then on; gates
    /// are asked most specific first.
    fn take_all(
        &self,
        wait_queue: &mut WaitQueue,
        now: Time,
        record: &Record,
    ) -> Result<Bits, usize> {
        let table = wait_queue.table.clone();
        let mask = record
            .gates
            .iter()
            .fold(0, |mask, hold| mask | 1 << hold.place().shard);
        // Calling permits in settles one gate for good, so this ends after as many turns as gates.
        loop {
            let mut shards = self.lock_shards::<WANTS_MAX>(mask);
            let mut blocked = None;
            for (at, hold) in record.gates.iter().enumerate() {
                let Some(entry) = table.at(hold.limit) else {
                    continue;
                };
                let gate = shards.gate(hold.place());
                let full = gate.in_flight >= entry.cap_at(gate, now);
                if full && hold.fixed && wait_queue.is_open(hold.limit) {
                    blocked = Some((at, true));
                    break;
                }
                let queued = gate.waiting > 0 && at != record.at;
                if entry.enforces() && (full || queued) {
                    blocked = Some((at, false));
                    break;
                }
            }
            match blocked {
                Some((at, true)) => {
                    drop(shards);
                    self.close(wait_queue, record.gates[at]);
                }
                Some((at, false)) => {
                    shards.gate(record.gates[record.at].place()).waiting -= 1;
                    let gate = shards.gate(record.gates[at].place());
                    gate.waiting += 1;
                    gate.queue = true;
                    return Err(at);
                }
                None => {
                    shards.gate(record.gates[record.at].place()).waiting -= 1;
                    let mut over = Bits::default();
                    for (at, hold) in record.gates.iter().enumerate() {
                        let gate = shards.gate(hold.place());
                        if gate.admit_queued(table.at(hold.limit), now) {
                            over.add(at);
                        }
                        gate.pins -= 1;
                    }
                    return Ok(over);
                }
            }
        }
    }

    /// Ends a wait without a permit. The waiter has left its queue already.
    pub(super) fn turn_away(
        &self,
        wait_queue: &mut WaitQueue,
        now: Time,
        id: u64,
        why: Why,
        wakers: &mut Wakers,
    ) {
        let Some(mut record) = wait_queue.records.remove(&id) else {
            return;
        };
        let Some(hold) = record.gates.get(record.at).copied() else {
            return;
        };
        self.unpin(&record);
        let facts = self.facts(wait_queue, hold, |gate, entry| {
            gate.note_refusal(entry, why, now)
        });
        wait_queue.leave(hold.place(), &record);
        let waited = now - record.arrived;
        let refusal = facts.map(|facts| {
            let predicted = wait_queue.predicted(now, hold.place(), &facts);
            facts.refuse(why, waited, predicted)
        });
        let Some(refusal) = refusal else {
            return;
        };
        let refused = WaiterState::Refused(Box::new(refusal));
        if let WaiterState::Waiting(Some(waker)) = std::mem::replace(&mut record.state, refused) {
            wakers.wake.push(waker);
        }
        wait_queue.records.insert(id, record);
    }

    /// Takes a waiter's marks from its gates.
    pub(super) fn unpin(&self, record: &Record) {
        for (at, hold) in record.gates.iter().enumerate() {
            let place = hold.place();
            let mut shard = self.shards[usize::from(place.shard)].lock();
            let gate = shard.gate(place.slot);
            gate.pins -= 1;
            if at == record.at {
                gate.waiting -= 1;
            }
        }
    }

    /// What the limits in shadow among a waiter's gates would have said.
    fn shadows_of(
        &self,
        wait_queue: &WaitQueue,
        now: Time,
        record: &Record,
        over: Bits,
    ) -> Vec<Refusal> {
        let holds = over.iter().filter_map(|at| record.gates.get(at));
        let facts = holds.filter_map(|hold| self.facts(wait_queue, *hold, |_, _| {}));
        facts
            .map(|facts| facts.shadow(now, Shadow::Permits))
            .collect()
    }

    /// Counts something at a gate of a waiter, and notes how the gate stands.
    pub(super) fn facts(
        &self,
        wait_queue: &WaitQueue,
        hold: Hold,
        counting: impl FnOnce(&mut Gate, &Entry),
    ) -> Option<Facts> {
        let entry = wait_queue.table.at(hold.limit)?.clone();
        let place = hold.place();
        let mut shard = self.shards[usize::from(place.shard)].lock();
        let gate = shard.gate(place.slot);
        counting(gate, &entry);
        let gate = gate.clone();
        Some(Facts { entry, gate })
    }

    /// Whether a waiter of a gate could have a permit of it.
    fn has_free(&self, wait_queue: &WaitQueue, now: Time, place: Place) -> bool {
        let mut shard = self.shards[usize::from(place.shard)].lock();
        let gate = shard.gate(place.slot);
        let Some(entry) = wait_queue.table.at(gate.limit) else {
            return gate.waiting > 0;
        };
        gate.waiting > 0 && (!entry.enforces() || gate.in_flight < entry.cap_at(gate, now))
    }
}

impl WaitQueue {
    pub(super) fn is_open(&self, limit: u32) -> bool {
        self.open.get(limit as usize).copied().unwrap_or(false)
    }

    /// Gives back what a queue charged for a service that did not come about.
    pub(super) fn refund(&mut self, now: Time, place: Place, id: u64, charge: Charge) {
        if let (Some(record), Some(queue)) = (self.records.get(&id), self.queues.get_mut(&place)) {
            let Record { tenant, client, .. } = *record;
            queue.queue.refund(now, tenant, client, charge);
        }
    }

    /// Keeps count of a waiter that has left a queue.
    pub(super) fn leave(&mut self, place: Place, record: &Record) {
        if record.guest
            && let Some(queue) = self.queues.get_mut(&place)
        {
            queue.guests = queue.guests.saturating_sub(1);
        }
    }

    /// How long somebody who came now would wait at a gate.
    pub(super) fn predicted(&self, now: Time, place: Place, facts: &Facts) -> Option<Duration> {
        let queue = self.queues.get(&place)?;
        queue.queue.predicted_wait(now, facts.cap(now))
    }
}

impl Facts {
    /// Permits to reckon a wait with: those that are leased, and what the store is taken to have beyond them.
    pub(super) fn cap(&self, now: Time) -> u32 {
        match self.entry.fleet {
            None => self.entry.cap(),
            Some(_) => {
                let (leased, to_come) = (
                    self.entry.cap_at(&self.gate, now),
                    self.entry.to_come(&self.gate),
                );
                leased.saturating_add(to_come).max(1)
            }
        }
    }

    /// Permits that are given out, those included that other machines hold.
    fn in_flight(&self) -> u32 {
        let Self { entry, gate } = self;
        match entry.fleet {
            None => gate.in_flight,
            Some(_) if gate.is_away || entry.settings.concurrent.is_none() => gate.in_flight,
            Some(_) => gate
                .in_flight
                .saturating_add(entry.cap().saturating_sub(gate.leased)),
        }
    }

    /// Puts a refusal into words. Nothing needs to be locked, and nothing should be.
    pub(super) fn refuse(
        &self,
        why: Why,
        waited: Duration,
        predicted: Option<Duration>,
    ) -> Refusal {
        let Self { entry, gate } = self;
        let retry_after = predicted.unwrap_or_else(|| self.next_free());
        Refusal {
            limit: entry.id,
            name: entry.name.clone(),
            identity: entry.identity.clone(),
            key: gate.shown(),
            why,
            mode: entry.settings.mode,
            in_flight: self.in_flight(),
            cap: if gate.is_away {
                gate.leased
            } else {
                entry.cap()
            },
            away: entry
                .fleet
                .filter(|_| gate.is_away)
                .map(|(on_loss, _)| on_loss),
            queued: gate.waiting,
            queue_max: entry.settings.queue,
            waited,
            wait: entry.settings.wait,
            late: entry.settings.late,
            held: gate.held(),
            lost: gate.lost,
            lost_in_row: gate.lost_in_row,
            retry_after,
            rate: entry.settings.rate,
        }
    }

    /// When a permit is likely to be free, from how long they were held lately.
    fn next_free(&self) -> Duration {
        if self.gate.held_us == 0 {
            return RETRY_AFTER;
        }
        let held = self.gate.held();
        held.saturating_mul(self.gate.waiting.saturating_add(1)) / self.entry.cap().max(1)
    }
}
