//! Gates whose permits are leased from a store that several machines ask.
//!
//! The idea: such a gate lets in as many as are leased, which the store's answers raise and lower; whoever comes to one that has
//! too few waits in its queue, as if others were before it. What is leased ends by itself: the end is looked at whenever somebody is let
//! in, so no thread has to be on time. Claims are made of gates in turn, and first of those where somebody waits.
//! Left out: who carries calls to the store.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use super::Books;
use super::digest::{Kind, Secret};
use super::entry::{Entry, Table};
use super::fleet_rates::FleetRates;
use super::gate::{Gate, Standing};
use super::holds::{Hold, Place};
use super::wait_queue::{WaitQueue, Wakers};
use crate::Time;
use crate::ask::{LimitId, Want};
use crate::fleet::{
    Claim, Contact, FleetKey, FleetRules, FleetState, InUse, OnLoss, PermitLease, RateClaim,
    StoreReply,
};
use crate::queue::Next;
use crate::refusal::Why;

use super::digest::Digest;

/// How long one waits for the store at a limit without a queue.
pub(super) const STORE_WAIT: Duration = Duration::from_secs(1);
/// Claims in one call, beside those of rates, and how many of them may be of gates where somebody begins to wait: the others have their turn.
const CLAIMS_MAX: usize = 750;
const PROMPT_CLAIMS_MAX: usize = 560;
/// Leases looked at in one round, beside those of gates where somebody begins to wait.
pub(super) const LOOKS_A_ROUND: usize = 4_096;
/// How often leases are looked at in turn, a little less than a round.
const TURNS: Duration = Duration::from_millis(20);

/// What is leased, and of whom.
#[derive(Debug, Default)]
pub(super) struct Fleet {
    contact: Option<Contact>,
    leases: BTreeMap<Place, GateLease>,
    /// Where the keys are that leases are of.
    places: BTreeMap<FleetKey, Place>,
    /// Gates to be looked at before others: somebody waits for whom nothing was claimed yet, or they were called.
    prompt: BTreeSet<Place>,
    /// The gate in turn that was looked at last, and when turns were taken last.
    visited: Place,
    turned: Option<Time>,
    /// The number of the last call, and what was claimed in it.
    seq: u64,
    claimed: Vec<Place>,
    /// What is drawn.
    pub(super) rates: FleetRates,
    /// Whether somebody came to wait since that was asked last.
    is_drawn: bool,
}

#[derive(Debug)]
struct GateLease {
    /// Its limit, by index.
    limit: u32,
    /// `None` for keys that a tenant had no room for: these are counted together, and each machine has other ones.
    key: Option<FleetKey>,
    lease: PermitLease,
}

/// What is to be asked of the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FleetCall {
    /// Grows with each.
    pub seq: u64,
    /// For how long what is granted may be held.
    pub lease: Duration,
    /// May be none: then it is only to be known that the machine is there.
    pub claims: Vec<Claim>,
    /// What is to begin.
    pub rates: Vec<RateClaim>,
}

impl FleetCall {
    /// How often it is to be looked whether there is one.
    pub const ROUND: Duration = Duration::from_millis(25);
}

/// How the store is for this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FleetLook {
    /// Machines that the store has told of.
    pub machines: u32,
    /// Since when that was asked which was answered last; never.
    pub answered: Option<Duration>,
    /// How it is.
    pub state: FleetState,
    /// What is leased, by limit.
    pub leases: Vec<LeaseLook>,
}

/// What is leased of one limit, all its keys together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseLook {
    /// The limit.
    pub limit: LimitId,
    /// Keys in use.
    pub keys: u32,
    /// Permits that are leased.
    pub held: u64,
    /// Permits in flight.
    pub in_flight: u64,
    /// Requests that wait.
    pub waiting: u64,
}

impl Fleet {
    /// Whether there is a store to ask.
    pub(super) fn is_joined(&self) -> bool {
        self.contact.is_some()
    }

    /// What is known of the store.
    pub(super) fn contact(&self) -> Option<Contact> {
        self.contact
    }

    /// Notes that somebody waits at a gate that is leased.
    fn note_wait(&mut self, place: Place) {
        self.prompt.insert(place);
        self.note_draw();
    }

    /// Notes that somebody waits for the store.
    pub(super) fn note_draw(&mut self) {
        self.is_drawn = true;
    }

    /// The gates to be looked at before others, and those whose turn it is, if it is time for turns.
    fn next(&mut self, now: Time, is_asking: bool) -> (Vec<Place>, Vec<Place>) {
        let mut prompt = Vec::new();
        while !is_asking && prompt.len() < PROMPT_CLAIMS_MAX {
            let Some(place) = self.prompt.pop_first() else {
                break;
            };
            prompt.push(place);
        }
        if self.turned.is_some_and(|turned| now - turned < TURNS) {
            return (prompt, Vec::new());
        }
        self.turned = Some(now);
        let behind = (Bound::Excluded(self.visited), Bound::Unbounded);
        let leases = self.leases.range(behind);
        let leases = leases.chain(self.leases.range(..=self.visited));
        let turn = leases.take(LOOKS_A_ROUND).map(|(place, _)| *place);
        (prompt, turn.collect())
    }

    /// Waits for no answer any more.
    fn give_up(&mut self, sent: Time) {
        if let Some(contact) = &mut self.contact {
            contact.give_up();
        }
        self.rates.give_up(sent);
        for place in std::mem::take(&mut self.claimed) {
            if let Some(it) = self.leases.get_mut(&place) {
                it.lease.fail(sent);
            }
        }
    }
}

impl Books {
    /// What a key of a leased limit is found by: what all machines make of it, hidden.
    pub(super) fn leased_digest(&self, table: &Table, want: &Want<'_>, key: &[u8]) -> Digest {
        let number = table.limit(want.limit).and_then(|entry| entry.fleet);
        let (_, number) = number.unwrap_or((OnLoss::Closed, 0));
        self.secret
            .hide(Secret::FLEET.digest(number, Kind::Key, key))
    }

    pub(super) fn join_fleet(&self, rules: Option<FleetRules>) {
        self.with_wait_queue(None, |wait_queue, _, wakers| {
            let fleet = &mut wait_queue.fleet;
            match (rules, fleet.contact.as_mut()) {
                (Some(rules), Some(contact)) => contact.set_rules(rules),
                (Some(rules), None) => fleet.contact = Some(Contact::new(rules)),
                (None, _) => {
                    // What is in flight there is counted at its gate; the next to come has it leased anew.
                    for place in fleet.leases.keys() {
                        self.with_gate(*place, Gate::unlist);
                    }
                    for place in fleet.rates.end(wakers) {
                        self.with_gate(place, Gate::unlist);
                    }
                    *fleet = Fleet {
                        seq: fleet.seq,
                        rates: std::mem::take(&mut fleet.rates),
                        ..Fleet::default()
                    };
                }
            }
        });
    }

    pub(super) fn take_draw(&self) -> bool {
        self.with_wait_queue(None, |wait_queue, _, _| {
            std::mem::take(&mut wait_queue.fleet.is_drawn)
        })
    }

    /// Has permits of a gate leased from now on, until nobody needs any.
    pub(super) fn lease(&self, wait_queue: &mut WaitQueue, now: Time, hold: Hold) {
        let place = hold.place();
        let entry = wait_queue.table.at(hold.limit);
        let key = self.with_gate(place, |gate| {
            gate.is_listed = true;
            self.key_of(entry, gate)
        });
        let fleet = &mut wait_queue.fleet;
        let lease = GateLease {
            limit: hold.limit,
            key,
            lease: PermitLease::default(),
        };
        fleet.leases.insert(place, lease);
        fleet.places.extend(key.map(|key| (key, place)));
        fleet.note_wait(place);
        // Where the store is away it is known at once how many there may be.
        self.look_at_lease(wait_queue, now, place, (false, None));
    }

    /// Has permits leased of a gate where somebody begins to wait, if it is one whose permits are.
    pub(super) fn draw(&self, wait_queue: &mut WaitQueue, now: Time, hold: Hold) {
        let entry = wait_queue.table.at(hold.limit);
        if !wait_queue.fleet.is_joined() || entry.is_none_or(|entry| entry.fleet.is_none()) {
            return;
        }
        match wait_queue.fleet.leases.contains_key(&hold.place()) {
            true => wait_queue.fleet.note_wait(hold.place()),
            false => self.lease(wait_queue, now, hold),
        }
    }

    /// Looks at leases, and puts together what is to be claimed.
    pub(super) fn fleet_round(&self, now: Time) -> Option<FleetCall> {
        self.with_wait_queue(Some(now), |wait_queue, now, wakers| {
            let contact = wait_queue.fleet.contact?;
            if let Some(sent) = contact.unanswered(now) {
                wait_queue.fleet.give_up(sent);
            }
            let is_asking = wait_queue.fleet.contact.is_some_and(|it| it.is_asking());
            let mut claims = Vec::new();
            let (prompt, turn) = wait_queue.fleet.next(now, is_asking);
            let is_turn = wait_queue.fleet.turned == Some(now);
            let rates = self.rates_round(wait_queue, now, (is_turn, is_asking), wakers);
            for place in prompt {
                if self.look_at_lease(wait_queue, now, place, (true, Some(&mut claims))) {
                    self.serve_leased(wait_queue, now, place, wakers);
                }
            }
            for place in turn {
                let room = (!is_asking && claims.len() < CLAIMS_MAX).then_some(&mut claims);
                if room.is_some() {
                    // Those behind the last that had room are the first of the next turn.
                    wait_queue.fleet.visited = place;
                }
                if self.look_at_lease(wait_queue, now, place, (true, room)) {
                    self.serve_leased(wait_queue, now, place, wakers);
                }
            }
            let Fleet {
                contact,
                seq,
                claimed,
                rates: drawn,
                ..
            } = &mut wait_queue.fleet;
            let contact = contact.as_mut()?;
            let has_claims = !claims.is_empty() || !rates.is_empty();
            if is_asking || !has_claims && !contact.is_word_due(now) {
                return None;
            }
            contact.ask(now);
            *seq += 1;
            let (places, claims) = claims.into_iter().unzip();
            *claimed = places;
            Some(FleetCall {
                seq: *seq,
                lease: contact.rules().lease,
                claims,
                rates: drawn.claim(rates),
            })
        })
    }

    pub(super) fn hear_fleet(&self, now: Time, seq: u64, reply: Option<&StoreReply>) {
        self.with_wait_queue(Some(now), |wait_queue, now, wakers| {
            let fleet = &mut wait_queue.fleet;
            let Some(contact) = &mut fleet.contact else {
                return;
            };
            let Some(sent) = contact.asked_at().filter(|_| contact.is_asking()) else {
                return;
            };
            if seq != fleet.seq {
                return;
            }
            let reply = reply.filter(|it| it.grants.len() == fleet.claimed.len());
            let reply = reply.filter(|it| fleet.rates.suits(&it.rates));
            let Some(reply) = reply else {
                return fleet.give_up(sent);
            };
            contact.hear(sent, reply);
            let contact = *contact;
            let claimed = std::mem::take(&mut fleet.claimed);
            for (place, grant) in claimed.into_iter().zip(&reply.grants) {
                let in_use = self.in_use(wait_queue, place);
                if let Some(it) = wait_queue.fleet.leases.get_mut(&place) {
                    it.lease.hear(sent, now, &contact, grant, in_use);
                }
                if self.look_at_lease(wait_queue, now, place, (false, None)) {
                    self.serve_leased(wait_queue, now, place, wakers);
                }
            }
            self.hear_rates(wait_queue, (sent, now), &reply.rates, wakers);
            self.call_leases(wait_queue, now, &reply.called);
        });
    }

    /// Hears from the store, between its answers, that these keys are to be claimed.
    pub(super) fn call_fleet(&self, now: Time, called: &[FleetKey]) {
        self.with_wait_queue(Some(now), |wait_queue, now, _| {
            self.call_leases(wait_queue, now, called);
        });
    }

    fn call_leases(&self, wait_queue: &mut WaitQueue, now: Time, called: &[FleetKey]) {
        for key in called {
            let Some(place) = wait_queue.fleet.places.get(key).copied() else {
                continue;
            };
            let in_use = self.in_use(wait_queue, place);
            if let Some(it) = wait_queue.fleet.leases.get_mut(&place) {
                it.lease.call(now, in_use);
                wait_queue.fleet.prompt.insert(place);
            }
        }
    }

    /// Makes a gate's permits what they may be, and claims what is to be claimed. Tells whether it is worth serving.
    ///
    /// What is in flight is counted, claimed and let in further under one lock: whoever is let in meanwhile would be in no
    /// claim, and his permit be given to another machine.
    fn look_at_lease(
        &self,
        wait_queue: &mut WaitQueue,
        now: Time,
        place: Place,
        (is_turn, claims): (bool, Option<&mut Vec<(Place, Claim)>>),
    ) -> bool {
        let queue = wait_queue.queues.get(&place);
        let tenants = queue.map_or(0, |it| it.queue.tenants());
        let Fleet {
            contact,
            leases,
            places,
            ..
        } = &mut wait_queue.fleet;
        let (Some(contact), Some(it)) = (contact.as_ref(), leases.get_mut(&place)) else {
            return false;
        };
        let entry = wait_queue.table.at(it.limit);
        let on_loss = entry
            .and_then(|it| it.fleet)
            .map_or(OnLoss::Closed, |it| it.0);
        let limit = entry.filter(|it| !it.retired).map_or(0, |it| it.cap());
        let (is_over, is_worth) = self.with_gate(place, |gate| {
            let in_use = in_use(gate, tenants);
            let is_apart = it.key.is_none();
            if let Some((claims, key)) = claims.zip(it.key) {
                let terms = (key, limit, on_loss);
                let claim = it.lease.claim(now, contact, terms, in_use);
                claims.extend(claim.map(|claim| (place, claim)));
            }
            let (budget, until) = match is_apart {
                true => {
                    let budget = match on_loss {
                        OnLoss::Closed if contact.is_away(now) => 0,
                        OnLoss::Open if contact.is_away(now) => limit,
                        _ => contact.share(limit).max(1),
                    };
                    (budget, Time(u64::MAX))
                }
                false => it.lease.budget(now, contact, limit, on_loss),
            };
            let is_away = it.lease.is_lost(now, contact);
            let is_short = it.lease.is_short(now) || is_away || contact.is_away(now) || is_apart;
            // Only in turn: whoever has just come is not counted yet.
            let is_over = match is_apart {
                _ if !is_turn => false,
                true => in_use == InUse::default(),
                false => it.lease.is_over(now, in_use),
            };
            match is_over {
                true => gate.unlist(),
                false => {
                    (gate.is_listed, gate.is_short, gate.is_away) = (true, is_short, is_away);
                    (gate.leased, gate.leased_until) = (budget, until);
                }
            }
            let is_worth = gate.waiting > 0 && (gate.in_flight < budget || is_short);
            (is_over, is_worth)
        });
        if let Some(it) = is_over.then(|| leases.remove(&place)).flatten() {
            it.key.map(|key| places.remove(&key));
        }
        is_worth
    }

    /// Serves whom a lease lets pass. Where there is no queue nobody waits for what the store does not have, but who has
    /// waited at another gate before.
    fn serve_leased(
        &self,
        wait_queue: &mut WaitQueue,
        now: Time,
        place: Place,
        wakers: &mut Wakers,
    ) {
        self.serve(wait_queue, now, place, wakers);
        let is_short = self.with_gate(place, |gate| gate.is_short && gate.waiting > 0);
        let Some(here) = wait_queue.queues.get(&place).filter(|_| is_short) else {
            return;
        };
        if here.queue.len() <= here.guests {
            return;
        }
        let entry = wait_queue.table.at(here.limit);
        if entry.is_none_or(|entry| entry.settings.queue > 0 || !entry.enforces()) {
            return;
        }
        let mut guests = Vec::new();
        // Each turn takes one out of the queue.
        while let Some(next) = wait_queue
            .queues
            .get_mut(&place)
            .and_then(|it| it.queue.next_of(now, std::iter::empty()))
        {
            let waiter = match next {
                Next::Late(waiter) => waiter,
                Next::Serve(waiter, charge) => {
                    wait_queue.refund(now, place, waiter.id, charge);
                    waiter
                }
            };
            let record = wait_queue.records.get(&waiter.id);
            match record.is_some_and(|it| it.guest) {
                true => guests.push(waiter),
                false => self.turn_away(wait_queue, now, waiter.id, Why::Full, wakers),
            }
        }
        if let Some(here) = wait_queue.queues.get_mut(&place) {
            guests.into_iter().for_each(|it| here.queue.push(now, it));
        }
    }

    fn in_use(&self, wait_queue: &WaitQueue, place: Place) -> InUse {
        let queue = wait_queue.queues.get(&place);
        let tenants = queue.map_or(0, |it| it.queue.tenants());
        self.with_gate(place, |gate| in_use(gate, tenants))
    }

    pub(super) fn key_of(&self, entry: Option<&Arc<Entry>>, gate: &Gate) -> Option<FleetKey> {
        let (_, number) = entry?.fleet?;
        match gate.standing {
            Standing::Overflow => None,
            Standing::Key => Some(FleetKey(self.secret.shown(gate.digest))),
            _ => Some(FleetKey(Secret::FLEET.digest(number, Kind::Overflow, &[]))),
        }
    }

    pub(super) fn with_gate<R>(&self, place: Place, work: impl FnOnce(&mut Gate) -> R) -> R {
        let mut shard = self.shards[usize::from(place.shard)].lock();
        work(shard.gate(place.slot))
    }

    pub(super) fn fleet_state(&self, now: Time) -> Option<(FleetState, FleetRules)> {
        self.with_wait_queue(None, |wait_queue, _, _| {
            let contact = wait_queue.fleet.contact?;
            Some((contact.state(now), contact.rules()))
        })
    }

    pub(super) fn fleet_look(&self, now: Time) -> Option<FleetLook> {
        self.with_wait_queue(Some(now), |wait_queue, now, _| {
            let contact = wait_queue.fleet.contact?;
            let mut leases: BTreeMap<LimitId, LeaseLook> = BTreeMap::new();
            for (place, it) in &wait_queue.fleet.leases {
                let Some(limit) = wait_queue.table.at(it.limit).map(|entry| entry.id) else {
                    continue;
                };
                let in_use = self.in_use(wait_queue, *place);
                let look = leases.entry(limit).or_insert(LeaseLook {
                    limit,
                    keys: 0,
                    held: 0,
                    in_flight: 0,
                    waiting: 0,
                });
                look.keys += 1;
                look.held += u64::from(it.lease.held(now));
                look.in_flight += u64::from(in_use.in_flight);
                look.waiting += u64::from(in_use.waiting);
            }
            Some(FleetLook {
                machines: contact.machines(),
                answered: contact.answered().map(|answered| now - answered),
                state: contact.state(now),
                leases: leases.into_values().collect(),
            })
        })
    }
}

/// What a gate has in use, where so many tenants wait in its queue.
fn in_use(gate: &Gate, tenants: u32) -> InUse {
    InUse {
        in_flight: gate.in_flight,
        waiting: gate.waiting,
        tenants: tenants.min(gate.waiting),
    }
}
