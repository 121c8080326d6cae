//! Gates of rates that several machines share, and whoever waits there for the store.
//!
//! The idea: a request takes what was drawn for its gate, or is refused as long as the store is known to have no more; else it waits for
//! an answer, is called when there is one, and looks again. Who has waited goes before those who come later, and nobody waits
//! beyond a deadline, so there is no queue. In shadow nobody waits, and what passed is drawn afterwards.
//! Left out: who carries calls to the store (`fleet` puts them together).

use std::collections::btree_map::Entry as Listed;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use super::Books;
use super::entry::Entry;
use super::fleet::{LOOKS_A_ROUND, STORE_WAIT};
use super::gate::Gate;
use super::handle::Handle;
use super::holds::Place;
use super::wait_queue::{WaitQueue, Wakers};
use crate::Time;
use crate::fleet::{
    Contact, FleetKey, Offer, OnLoss, RateBy, RateClaim, RateGrant, RateLease, RateTerms, RateUse,
};

/// Claims of rates in one call.
const RATES_MAX: usize = 300;

/// What is drawn of rates, and who waits.
#[derive(Debug, Default)]
pub(super) struct FleetRates {
    gates: BTreeMap<Place, RateGate>,
    /// Gates to be looked at before others.
    prompt: BTreeSet<Place>,
    /// The gate in turn that was looked at last.
    visited: Place,
    claimed: Vec<Place>,
    waits: BTreeMap<u64, RateWait>,
    last_wait: u64,
}

#[derive(Debug, Default)]
struct RateGate {
    /// Its limit, by index.
    limit: u32,
    /// `None` for keys that a tenant had no room for.
    key: Option<FleetKey>,
    lease: RateLease,
    /// Who is called when there is an answer.
    waits: Vec<u64>,
}

#[derive(Debug, Default)]
struct RateWait {
    is_called: bool,
    waker: Option<Waker>,
}

/// A request that waits for the store to say whether it comes too fast. Dropped, it waits no longer.
#[derive(Debug)]
#[must_use = "who drops it does not wait"]
pub struct RateTicket {
    handle: Arc<Handle>,
    id: u64,
    until: Time,
    /// Where it is counted as waiting.
    places: Vec<Place>,
}

/// Whether a request may be told to wait, and where it has.
#[derive(Debug, Clone, Copy)]
pub(super) enum RateTurn<'a> {
    /// It has just come.
    First,
    /// It has waited at these gates.
    Again(&'a [Place]),
    /// It has waited for as long as it may at these.
    Last(&'a [Place]),
    /// There is no store: this machine counts alone.
    Alone,
}

/// What a rate says at a gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RateSaid {
    /// One may begin; this is when the bucket is full then.
    Counted(Time),
    /// One may begin of what was drawn.
    Drawn,
    /// None may for so long.
    Over(Duration),
    /// The store is to be asked.
    Ask,
}

impl RateTicket {
    /// Asks whether there is an answer, or it is late: then the rates are to be checked again.
    pub fn poll_answer(&mut self, now: Time, waker: &Waker) -> Poll<()> {
        match now >= self.until {
            true => Poll::Ready(()),
            false => self.handle.books.poll_rate(self.id, waker),
        }
    }

    /// Tells until when it waits. Polled then it is ready.
    #[must_use]
    pub fn deadline(&self) -> Time {
        self.until
    }
}

impl Drop for RateTicket {
    fn drop(&mut self) {
        self.handle.books.leave_rates(self.id, &self.places);
    }
}

impl RateTicket {
    pub(super) fn turn(&self, now: Time) -> RateTurn<'_> {
        match now >= self.until {
            true => RateTurn::Last(&self.places),
            false => RateTurn::Again(&self.places),
        }
    }
}

impl RateTurn<'_> {
    /// Whether somebody was counted as waiting at a gate.
    pub(super) fn has_waited(self, place: Place) -> bool {
        match self {
            Self::Again(places) | Self::Last(places) => places.contains(&place),
            Self::First | Self::Alone => false,
        }
    }
}

impl Gate {
    /// What the rate of a limit says to a request. Changes nothing.
    pub(super) fn ask_rate(
        &self,
        entry: &Entry,
        now: Time,
        at: Place,
        turn: RateTurn<'_>,
    ) -> Option<RateSaid> {
        let rate = entry.rate()?;
        let by_clock = |machines| match rate.shared(machines).check(self.tat, now) {
            Ok(tat) => RateSaid::Counted(tat),
            Err(retry_after) => RateSaid::Over(retry_after),
        };
        if !entry.shares_rate() || matches!(turn, RateTurn::Alone) {
            return Some(by_clock(1));
        }
        let before = if turn.has_waited(at) { 0 } else { self.waiting };
        let said = match (self.stock.by, self.stock.offer(now, before)) {
            (RateBy::Share(machines), _) => by_clock(u32::from(machines)),
            (RateBy::Closed, _) => RateSaid::Over(STORE_WAIT),
            (_, Offer::Ready) => RateSaid::Drawn,
            (_, Offer::Spent(retry_after)) => RateSaid::Over(retry_after),
            (_, Offer::Unknown) if matches!(turn, RateTurn::Last(_)) => RateSaid::Over(STORE_WAIT),
            (_, Offer::Unknown) => RateSaid::Ask,
        };
        Some(said)
    }

    /// Has one more wait for the store.
    pub(super) fn await_rate(&mut self) {
        // From here on it is not idle: nobody gives its place to another key.
        (self.waiting, self.is_listed) = (self.waiting + 1, true);
    }

    /// Has one begin. Tells whether it is to be drawn afterwards.
    pub(super) fn begin(&mut self, said: RateSaid, now: Time) -> bool {
        match said {
            RateSaid::Counted(tat) => {
                self.tat = tat;
                self.stock.note_own();
            }
            RateSaid::Drawn => self.stock.take(now),
            RateSaid::Ask => {
                self.stock.debt = self.stock.debt.saturating_add(1);
                self.is_listed = true;
            }
            RateSaid::Over(_) => {}
        }
        said == RateSaid::Ask
    }

    fn rate_use(&self) -> RateUse {
        let counted = u64::from(self.refused) + u64::from(self.waiting);
        RateUse {
            arrived: self.admitted + counted,
            waiting: self.waiting,
            full_at: self.tat,
        }
    }
}

impl FleetRates {
    /// Calls whoever waits at a gate.
    fn call(&mut self, place: Place, wakers: &mut Wakers) {
        let waits = self
            .gates
            .get_mut(&place)
            .map(|it| std::mem::take(&mut it.waits));
        for id in waits.into_iter().flatten() {
            if let Some(wait) = self.waits.get_mut(&id) {
                wait.is_called = true;
                wakers.wake.extend(wait.waker.take());
            }
        }
    }

    /// Waits for no answer any more.
    pub(super) fn give_up(&mut self, sent: Time) {
        for place in std::mem::take(&mut self.claimed) {
            if let Some(it) = self.gates.get_mut(&place) {
                it.lease.fail(sent);
            }
        }
    }

    /// The gates to be looked at, and where turns go on; those whose turn it is only where it is time for turns.
    fn next(&mut self, is_turn: bool, is_asking: bool) -> Vec<Place> {
        let mut next = Vec::new();
        while !is_asking && next.len() < RATES_MAX {
            let Some(place) = self.prompt.pop_first() else {
                break;
            };
            next.push(place);
        }
        if is_turn {
            let behind = (Bound::Excluded(self.visited), Bound::Unbounded);
            let gates = self.gates.range(behind);
            let gates = gates.chain(self.gates.range(..=self.visited));
            next.extend(gates.take(LOOKS_A_ROUND).map(|(place, _)| *place));
            self.visited = next.last().copied().unwrap_or_default();
        }
        next
    }

    /// Takes what was claimed.
    pub(super) fn claim(&mut self, claims: Vec<(Place, RateClaim)>) -> Vec<RateClaim> {
        let (places, claims) = claims.into_iter().unzip();
        self.claimed = places;
        claims
    }

    /// Whether so many answers are to what was claimed.
    pub(super) fn suits(&self, grants: &[RateGrant]) -> bool {
        self.claimed.len() == grants.len()
    }

    /// Ends every wait, as nobody asks the store any more; the gates that were drawn of.
    pub(super) fn end(&mut self, wakers: &mut Wakers) -> impl Iterator<Item = Place> {
        let ended = std::mem::take(self);
        self.last_wait = ended.last_wait;
        wakers
            .wake
            .extend(ended.waits.into_values().filter_map(|it| it.waker));
        ended.gates.into_keys()
    }
}

impl Books {
    /// Has a request wait at these gates, where it is counted already, and where it has waited; `None` where there is no store.
    pub(super) fn await_rates(
        &self,
        handle: &Arc<Handle>,
        now: Time,
        ticket: Option<RateTicket>,
        places: Vec<Place>,
    ) -> Option<RateTicket> {
        let mut ticket = ticket.unwrap_or_else(|| RateTicket {
            handle: handle.clone(),
            id: 0,
            until: now + STORE_WAIT,
            places: Vec::new(),
        });
        ticket.places.extend(places);
        let id = self.with_wait_queue(Some(now), |wait_queue, now, _| {
            if !wait_queue.fleet.is_joined() {
                let places = ticket.places.iter();
                places.for_each(|place| self.with_gate(*place, Gate::unlist));
                return None;
            }
            let rates = &mut wait_queue.fleet.rates;
            let id = match ticket.id {
                0 => rates.last_wait + 1,
                id => id,
            };
            rates.last_wait = rates.last_wait.max(id);
            rates.waits.insert(id, RateWait::default());
            for place in &ticket.places {
                self.list_rate(wait_queue, now, *place);
                if let Some(it) = wait_queue.fleet.rates.gates.get_mut(place) {
                    it.waits.push(id);
                }
            }
            wait_queue.fleet.note_draw();
            Some(id)
        });
        ticket.id = id?;
        Some(ticket)
    }

    /// Has gates drawn of from now on at which requests passed in shadow.
    pub(super) fn draw_later(&self, now: Time, places: &[Place]) {
        self.with_wait_queue(Some(now), |wait_queue, now, _| {
            for place in places {
                match wait_queue.fleet.is_joined() {
                    true => self.list_rate(wait_queue, now, *place),
                    false => self.with_gate(*place, Gate::unlist),
                }
            }
        });
    }

    fn list_rate(&self, wait_queue: &mut WaitQueue, now: Time, place: Place) {
        let WaitQueue { fleet, table, .. } = wait_queue;
        if let Listed::Vacant(vacant) = fleet.rates.gates.entry(place) {
            let (limit, key) = self.with_gate(place, |gate| {
                gate.is_listed = true;
                (gate.limit, self.key_of(table.at(gate.limit), gate))
            });
            vacant.insert(RateGate {
                limit,
                key,
                ..RateGate::default()
            });
            // Where the store is away it is known at once who decides.
            let _ = self.look_at_rate(wait_queue, now, place, (false, None));
        }
        wait_queue.fleet.rates.prompt.insert(place);
    }

    fn poll_rate(&self, id: u64, waker: &Waker) -> Poll<()> {
        self.with_wait_queue(None, |wait_queue, _, wakers| {
            match wait_queue.fleet.rates.waits.get_mut(&id) {
                Some(wait) if !wait.is_called => {
                    wakers.drop.extend(wait.waker.replace(waker.clone()));
                    Poll::Pending
                }
                _ => Poll::Ready(()),
            }
        })
    }

    fn leave_rates(&self, id: u64, places: &[Place]) {
        self.with_wait_queue(None, |wait_queue, _, wakers| {
            let rates = &mut wait_queue.fleet.rates;
            let wait = rates.waits.remove(&id);
            wakers.drop.extend(wait.and_then(|it| it.waker));
            for place in places {
                if let Some(it) = rates.gates.get_mut(place) {
                    it.waits.retain(|other| *other != id);
                }
                self.with_gate(*place, |gate| gate.waiting -= 1);
            }
        });
    }

    /// Looks at gates of rates, and puts together what is to be claimed where the store may be asked.
    pub(super) fn rates_round(
        &self,
        wait_queue: &mut WaitQueue,
        now: Time,
        (is_turn, is_asking): (bool, bool),
        wakers: &mut Wakers,
    ) -> Vec<(Place, RateClaim)> {
        let mut claims = Vec::new();
        if is_asking && !is_turn {
            return claims;
        }
        for place in wait_queue.fleet.rates.next(is_turn, is_asking) {
            let room = (!is_asking && claims.len() < RATES_MAX).then_some(&mut claims);
            let looked = self.look_at_rate(wait_queue, now, place, (true, room));
            if looked != LookedAt::Shared {
                wait_queue.fleet.rates.call(place, wakers);
            }
            if looked == LookedAt::Over {
                wait_queue.fleet.rates.gates.remove(&place);
            }
        }
        claims
    }

    /// Hears what the store said of rates.
    pub(super) fn hear_rates(
        &self,
        wait_queue: &mut WaitQueue,
        (sent, now): (Time, Time),
        grants: &[RateGrant],
        wakers: &mut Wakers,
    ) {
        let claimed = std::mem::take(&mut wait_queue.fleet.rates.claimed);
        for (place, grant) in claimed.into_iter().zip(grants) {
            if let Some(it) = wait_queue.fleet.rates.gates.get_mut(&place) {
                self.with_gate(place, |gate| {
                    gate.tat = it.lease.hear(sent, now, grant, &mut gate.stock, gate.tat);
                });
            }
            let _ = self.look_at_rate(wait_queue, now, place, (false, None));
            wait_queue.fleet.rates.call(place, wakers);
        }
    }

    /// Has a gate go by whoever decides now, and claims what is to be claimed.
    fn look_at_rate(
        &self,
        wait_queue: &mut WaitQueue,
        now: Time,
        place: Place,
        (is_turn, claims): (bool, Option<&mut Vec<(Place, RateClaim)>>),
    ) -> LookedAt {
        let WaitQueue { fleet, table, .. } = wait_queue;
        let (Some(contact), Some(it)) = (fleet.contact(), fleet.rates.gates.get_mut(&place)) else {
            return LookedAt::Shared;
        };
        let entry = table.at(it.limit);
        let entry = entry.filter(|it| !it.retired && it.shares_rate());
        let terms = entry.and_then(|entry| {
            let rate = entry.settings.rate?;
            Some((entry.fleet?.0, RateTerms::of(&rate)))
        });
        self.with_gate(place, |gate| {
            let Some((on_loss, terms)) = terms else {
                gate.unlist();
                return LookedAt::Over;
            };
            let (by, since) = match it.key {
                Some(_) => RateLease::by(now, &contact, on_loss),
                None => (apart(now, &contact, on_loss), Time::ZERO),
            };
            if gate.stock.set_by(by) {
                gate.tat = gate.tat.max(since + terms.unknown(by));
            }
            gate.is_away = by != RateBy::Store;
            gate.stock.bound(now, &terms);
            if by == RateBy::Store {
                gate.tat = gate.tat.min(now + terms.full());
            }
            let in_use = gate.rate_use();
            it.lease.note(now, &terms, in_use.arrived);
            if let Some((claims, key)) = claims.zip(it.key) {
                let claim = it
                    .lease
                    .claim(now, &contact, (key, terms), &gate.stock, in_use);
                claims.extend(claim.map(|claim| (place, claim)));
            }
            if is_turn && it.lease.is_over(now, &gate.stock, in_use) {
                gate.unlist();
                return LookedAt::Over;
            }
            match by {
                RateBy::Store => LookedAt::Shared,
                _ => LookedAt::Away,
            }
        })
    }
}

/// What a look at a gate has come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LookedAt {
    /// The store decides.
    Shared,
    /// The store does not decide now.
    Away,
    /// It is not to be looked at any more.
    Over,
}

/// Who decides about keys that have no room: each machine has other ones, and counts them by its part.
fn apart(now: Time, contact: &Contact, on_loss: OnLoss) -> RateBy {
    let part = u16::try_from(contact.sharing().max(1)).unwrap_or(u16::MAX);
    match on_loss {
        OnLoss::Closed if contact.is_away(now) => RateBy::Closed,
        OnLoss::Open if contact.is_away(now) => RateBy::Share(1),
        _ => RateBy::Share(part),
    }
}
