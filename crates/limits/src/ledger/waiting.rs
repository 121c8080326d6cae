//! The way of a request that could not pass at once: admitted, refused or queued at the wait_queue.

use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use super::Books;
use super::attempt::Facts;
use super::entry::{Entry, Settings};
use super::fleet::STORE_WAIT;
use super::gate::Gate;
use super::holds::{Hold, Holds, Place};
use super::reserve::Reserved;
use super::route::{Bits, Keys, Need};
use super::wait_queue::{Charged, GateQueue, Record, WaitQueue, WaiterState, Wakers};
use crate::Time;
use crate::ask::{Ask, WANTS_MAX};
use crate::queue::{Prefix, Queue, Share, Waiter};
use crate::refusal::{Refusal, Why};

/// Times a gate that has both a free permit and waiters is served before a newcomer is judged.
const SERVES_MAX: u32 = 4;

/// What the wait_queue says to a newcomer.
#[derive(Debug)]
pub(super) enum Verdict {
    /// It holds its permits; these of its limits, in shadow, would have refused it.
    Admitted(Bits),
    /// It waits until then, under this number.
    Waiting(u64, Time),
    /// It may not go on.
    Refused(Box<Refusal>),
}

/// What came of one look at all gates.
#[derive(Debug)]
enum Considered {
    Admitted(Bits),
    /// Permits in cells are to be called in.
    Close(Hold),
    /// Permits are to be leased from the store.
    Lease(Hold),
    /// Somebody before the newcomer is to be served.
    Serve(Place),
    Need(Need),
    /// The newcomer is counted at this of its gates.
    Queued(usize, Facts, Vec<Hold>),
    Full(Facts),
}

impl Books {
    /// Decides what could not be decided without the wait_queue.
    pub(super) fn ask_wait_queue(
        &self,
        now: Time,
        ask: &Ask<'_>,
        keys: &mut Keys<WANTS_MAX>,
        holds: &mut Holds,
    ) -> Verdict {
        self.with_wait_queue(Some(now), |wait_queue, now, wakers| {
            let mut serves = 0;
            loop {
                match self.consider(wait_queue, now, ask, keys, holds, serves < SERVES_MAX) {
                    Considered::Admitted(over) => {
                        wait_queue.holds += i64::try_from(holds.len()).unwrap_or(0);
                        return Verdict::Admitted(over);
                    }
                    Considered::Close(hold) => self.close(wait_queue, hold),
                    Considered::Lease(hold) => self.lease(wait_queue, now, hold),
                    Considered::Serve(place) => {
                        serves += 1;
                        self.serve(wait_queue, now, place, wakers);
                    }
                    Considered::Need(need) => {
                        let table = wait_queue.table.clone();
                        self.provide(now, ask, &table, keys, need);
                    }
                    Considered::Queued(among, facts, gates) => {
                        let record = record(wait_queue, now, ask, &facts, among, gates);
                        return self.join(wait_queue, now, record, &facts, wakers);
                    }
                    Considered::Full(facts) => {
                        let refusal = facts.refuse(Why::Full, Duration::ZERO, None);
                        return Verdict::Refused(Box::new(refusal));
                    }
                }
            }
        })
    }

    /// Looks at all gates at once, and counts the newcomer where it passes or waits.
    fn consider(
        &self,
        wait_queue: &WaitQueue,
        now: Time,
        ask: &Ask<'_>,
        keys: &Keys<WANTS_MAX>,
        holds: &mut Holds,
        may_serve: bool,
    ) -> Considered {
        let table = &*wait_queue.table;
        let mut gates = Vec::with_capacity(ask.wants.len());
        let counted = |entry: &Entry| entry.settings.concurrent.is_some();
        let mut route = self.route(table, ask.wants, keys, &[], counted);
        let mut shards = self.lock_shards(route.shards);
        if let Err(need) = self.find_gates(now, table, ask, keys, &mut route, &mut shards) {
            return Considered::Need(need);
        }
        let mut stopped = None;
        for at in route.stops.iter() {
            let Some(entry) = route.entries[at] else {
                continue;
            };
            let place = route.places[at];
            let hold = Hold::new(entry.index(), place, entry.is_fixed());
            let gate = shards.gate(place);
            let full = gate.in_flight >= entry.cap_at(gate, now);
            if entry.is_unasked(gate) && wait_queue.fleet.is_joined() {
                // From here on it is not idle: nobody gives its place to another key.
                gate.is_listed = true;
                return Considered::Lease(hold);
            }
            if stopped.is_none() {
                if full && wait_queue.is_open(entry.index()) {
                    return Considered::Close(hold);
                }
                if gate.stops(entry, now) {
                    if !full && may_serve {
                        return Considered::Serve(place);
                    }
                    stopped = Some((at, gates.len(), entry));
                }
            }
            gates.push(hold);
        }
        let Some((at, among, entry)) = stopped else {
            let mut over = Bits::default();
            for (at, hold) in route.stops.iter().zip(gates) {
                let gate = shards.gate(hold.place());
                if gate.admit_queued(table.at(hold.limit), now) {
                    over.add(at);
                }
                holds.push(hold);
            }
            return Considered::Admitted(over);
        };
        let gate = shards.gate(route.places[at]);
        let facts = |gate: &Gate| Facts {
            entry: entry.clone(),
            gate: gate.clone(),
        };
        if entry.settings.queue == 0 && entry.to_come(gate) == 0 {
            gate.note_refusal(entry, Why::Full, now);
            return Considered::Full(facts(gate));
        }
        let facts = facts(gate);
        gate.waiting += 1;
        gate.queue = true;
        for hold in &gates {
            shards.gate(hold.place()).pins += 1;
        }
        Considered::Queued(among, facts, gates)
    }

    /// Lets a newcomer, who is counted at its gate already, wait there if it may.
    fn join(
        &self,
        wait_queue: &mut WaitQueue,
        now: Time,
        record: Record,
        facts: &Facts,
        wakers: &mut Wakers,
    ) -> Verdict {
        let place = record.gates[record.at].place();
        wait_queue.last_id += 1;
        let id = wait_queue.last_id;
        let newcomer = waiter(id, &record);
        let until = record.until;
        let (refused, predicted) = self.judge(wait_queue, now, place, facts, &newcomer, wakers);
        let Some(why) = refused else {
            wait_queue.records.insert(id, record);
            self.count(place, |gate| gate.note_wait(&facts.entry));
            self.queue_up(wait_queue, now, id);
            return Verdict::Waiting(id, until);
        };
        self.unpin(&record);
        let now_so = self.facts(wait_queue, record.gates[record.at], |gate, entry| {
            gate.note_refusal(entry, why, now)
        });
        let refusal = now_so
            .as_ref()
            .unwrap_or(facts)
            .refuse(why, Duration::ZERO, predicted);
        Verdict::Refused(Box::new(refusal))
    }

    /// Whether a newcomer may wait; one who takes more than its share may have to make room.
    fn judge(
        &self,
        wait_queue: &mut WaitQueue,
        now: Time,
        place: Place,
        facts: &Facts,
        newcomer: &Waiter,
        wakers: &mut Wakers,
    ) -> (Option<Why>, Option<Duration>) {
        let entry = &facts.entry;
        let seed = self.queue_seed;
        let here = wait_queue
            .queues
            .entry(place)
            .or_insert_with(|| GateQueue::new(now, facts, seed));
        let cap = facts.cap(now);
        here.queue.follow_services(facts.gate.held());
        here.queue.set_late(entry.settings.late);
        // Who is owed a permit has the next one.
        let of_tenant = here.queue.waiting_of(newcomer.tenant);
        let is_owed = entry.owes(newcomer.tenant, of_tenant.saturating_add(1));
        let predicted = here.queue.predicted_wait_for(now, cap, newcomer);
        // A prediction may be wrong: who may wait is refused by it only where the operator wants nobody to be late.
        let is_hopeless = predicted.is_some_and(|wait| wait > newcomer.until - now);
        if is_hopeless && entry.settings.late.is_some() && !is_owed {
            return (Some(Why::WaitTooLong), predicted);
        }
        let waiting = here.queue.len().saturating_sub(here.guests);
        let room = entry
            .settings
            .queue
            .saturating_add(entry.to_come(&facts.gate));
        if waiting < room as usize {
            return (None, predicted);
        }
        let Some(victim) = here.queue.push_out(newcomer, is_owed) else {
            return (Some(Why::QueueFull), predicted);
        };
        if wait_queue
            .records
            .get(&victim.id)
            .is_none_or(|record| record.guest)
        {
            // Who moved here counts against nothing, so it makes no room either.
            if let Some(here) = wait_queue.queues.get_mut(&place) {
                here.queue.push(now, victim);
            }
            return (Some(Why::QueueFull), predicted);
        }
        self.turn_away(wait_queue, now, victim.id, Why::QueueFull, wakers);
        (None, predicted)
    }

    /// Puts somebody into the queue of the gate where it is counted as waiting.
    pub(super) fn queue_up(&self, wait_queue: &mut WaitQueue, now: Time, id: u64) {
        let WaitQueue {
            records,
            queues,
            table,
            ..
        } = wait_queue;
        let Some(record) = records.get(&id) else {
            return;
        };
        let hold = record.gates[record.at];
        let here = queues.entry(hold.place()).or_insert_with(|| {
            GateQueue::empty(now, hold.limit, table.at(hold.limit), self.queue_seed)
        });
        here.guests += usize::from(record.guest);
        here.queue.push(now, waiter(id, record));
        self.draw(wait_queue, now, hold);
    }

    /// Counts something at a gate.
    fn count(&self, place: Place, counting: impl FnOnce(&mut Gate)) {
        let mut shard = self.shards[usize::from(place.shard)].lock();
        counting(shard.gate(place.slot));
    }

    /// Asks for what came of a wait; while nothing has, the waker is kept.
    pub(super) fn poll(&self, now: Time, id: u64, waker: Waker) -> Poll<Option<Outcome>> {
        self.with_wait_queue(Some(now), |wait_queue, now, wakers| {
            if wait_queue
                .records
                .get(&id)
                .is_some_and(|record| record.is_over(now))
            {
                self.expire(wait_queue, now, id, wakers);
            }
            let Some(record) = wait_queue.records.get_mut(&id) else {
                wakers.drop.push(waker);
                return Poll::Ready(None);
            };
            if let WaiterState::Waiting(kept) = &mut record.state {
                wakers.drop.extend(kept.replace(waker));
                return Poll::Pending;
            }
            wakers.drop.push(waker);
            Poll::Ready(wait_queue.records.remove(&id).map(outcome))
        })
    }

    /// Ends a wait whose time is up.
    pub(super) fn expire(
        &self,
        wait_queue: &mut WaitQueue,
        now: Time,
        id: u64,
        wakers: &mut Wakers,
    ) {
        let place = wait_queue
            .records
            .get(&id)
            .and_then(|record| record.gates.get(record.at))
            .map(Hold::place);
        if let Some(here) = place.and_then(|place| wait_queue.queues.get_mut(&place)) {
            here.queue.remove(id);
        }
        self.turn_away(wait_queue, now, id, Why::WaitedTooLong, wakers);
    }

    /// Lets somebody go who does not want to know any more what came of its wait.
    pub(super) fn abandon(&self, id: u64) {
        let gone = self.with_wait_queue(None, |wait_queue, now, wakers| {
            let mut record = wait_queue.records.remove(&id)?;
            match &mut record.state {
                WaiterState::Waiting(_) => {
                    let place = record.gates[record.at].place();
                    if let Some(here) = wait_queue.queues.get_mut(&place) {
                        here.queue.remove(id);
                    }
                    wait_queue.leave(place, &record);
                    self.unpin(&record);
                }
                WaiterState::Granted(_, charged, _, reserved) => {
                    reserved.release(|_| true);
                    if let Some(here) = wait_queue.queues.get_mut(&charged.place) {
                        let Charged {
                            tenant,
                            client,
                            charge,
                            ..
                        } = *charged;
                        here.queue.refund(now, tenant, client, charge);
                    }
                    wait_queue.holds -= i64::try_from(record.gates.len()).unwrap_or(0);
                    self.free_here(wait_queue, now, &record.gates, wakers);
                }
                WaiterState::Refused(_) => {}
            }
            // Its waker is somebody else's code: dropped outside.
            Some(record)
        });
        drop(gone);
    }

    /// Gives permits back from the wait_queue, which no worker has had.
    fn free_here(
        &self,
        wait_queue: &mut WaitQueue,
        now: Time,
        gates: &[Hold],
        wakers: &mut Wakers,
    ) {
        for hold in gates {
            self.count(hold.place(), |gate| gate.in_flight -= 1);
        }
        for hold in gates {
            self.serve(wait_queue, now, hold.place(), wakers);
        }
    }
}

/// What is to be told with permits that were waited for.
#[derive(Debug)]
pub(crate) struct Wait {
    pub(crate) charged: Charged,
    pub(crate) waited: Duration,
    /// What limits in shadow would have refused.
    pub(crate) shadows: Vec<Refusal>,
    /// What is counted at reserves.
    pub(crate) reserved: Reserved,
}

/// What came of a wait.
#[derive(Debug)]
pub(super) enum Outcome {
    /// Permits, since then, at these gates.
    Granted(Time, Holds, Wait),
    Refused(Box<Refusal>),
}

impl GateQueue {
    fn new(now: Time, facts: &Facts, seed: u64) -> Self {
        let entry = &facts.entry;
        let mut queue = Self::empty(now, entry.index(), Some(entry), seed);
        if facts.gate.held_us > 0 {
            let held_us = u64::from(facts.gate.held_us);
            queue.queue.note_service(held_us.saturating_mul(1000));
        }
        queue
    }

    fn empty(now: Time, limit: u32, entry: Option<&Arc<Entry>>, seed: u64) -> Self {
        let share = match entry.is_some_and(|entry| entry.is_shared()) {
            true => Share::TenantsThenClients,
            false => Share::Clients,
        };
        let mut queue = Queue::with_seed(share, now, seed);
        queue.set_late(entry.and_then(|entry| entry.settings.late));
        Self {
            queue,
            limit,
            guests: 0,
        }
    }
}

impl Facts {
    /// How long one may wait: where there is no queue, for the store alone.
    fn patience(&self) -> Duration {
        let Settings { queue, wait, .. } = self.entry.settings;
        match queue {
            0 => wait.min(STORE_WAIT),
            _ => wait,
        }
    }
}

impl Record {
    fn is_over(&self, now: Time) -> bool {
        matches!(self.state, WaiterState::Waiting(_)) && self.until <= now
    }
}

fn outcome(record: Record) -> Outcome {
    let arrived = record.arrived;
    let gates = record.gates;
    match record.state {
        WaiterState::Granted(since, charged, shadows, reserved) => {
            let mut holds = Holds::with_capacity(gates.len());
            gates.iter().for_each(|hold| holds.push(*hold));
            let wait = Wait {
                charged,
                waited: since - arrived,
                shadows,
                reserved,
            };
            Outcome::Granted(since, holds, wait)
        }
        WaiterState::Refused(refusal) => Outcome::Refused(refusal),
        WaiterState::Waiting(_) => unreachable!("only a wait that is over has an outcome"),
    }
}

fn waiter(id: u64, record: &Record) -> Waiter {
    Waiter {
        id,
        arrived: record.arrived,
        until: record.until,
        tenant: record.tenant,
        weight: record.weight,
        class: record.class,
        client: record.client,
    }
}

fn record(
    wait_queue: &WaitQueue,
    now: Time,
    ask: &Ask<'_>,
    facts: &Facts,
    at: usize,
    gates: Vec<Hold>,
) -> Record {
    Record {
        tenant: ask.tenant.0,
        weight: wait_queue
            .table
            .tenant(ask.tenant)
            .map_or(1, |tenant| tenant.weight()),
        class: ask.class,
        client: Prefix::of(ask.client),
        arrived: now,
        until: now + facts.patience(),
        gates: gates.into_boxed_slice(),
        at,
        guest: false,
        state: WaiterState::Waiting(None),
    }
}
