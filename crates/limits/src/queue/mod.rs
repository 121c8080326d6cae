//! The queue of one gate: who is next, who comes too late, how long a newcomer would wait.
//!
//! The idea: every flow (a tenant, inside it a class of requests, and inside that a client prefix) has an
//! account, and the flow that has used least for its weight is served next. What is left out: permits, deadlines' timers, wakers.
//! The queue is asked, and answers; it holds no clock.

mod codel;
mod division;
mod group;
pub mod handshake;
mod pace;
mod prefix;
mod ring;

#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use crate::ask::Class;
use crate::time::Time;

use division::{Division, Stand};
use group::{Lane, Seed};
use pace::{Average, Pace};
use ring::{Account, Newcomers, Ring, Turn};

pub(crate) use prefix::Prefix;

/// What a service costs before any was measured; also the quantum of weight 1 until then.
const UNIT: Duration = Duration::from_millis(10);
/// What is known of a flow is forgotten so long after its last waiter left: by then its debt is a quarter.
const FORGET_AFTER: Duration = Duration::from_secs(60);
/// At most so many flows without waiters are remembered in a queue.
const IDLE_FLOWS_MAX: usize = 1_024;
/// How many idle flows one call may forget.
const FORGET_MAX: usize = 4;

/// Somebody who waits at one gate and holds nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Waiter {
    /// Unique among those who wait in one queue.
    pub(crate) id: u64,
    /// When it came, at whichever gate that was.
    pub(crate) arrived: Time,
    /// When its patience ends.
    pub(crate) until: Time,
    /// Whose request it is, as a number.
    pub(crate) tenant: u32,
    /// The tenant's weight, 1 to 1000.
    pub(crate) weight: u32,
    /// Which of the tenant's requests it is.
    pub(crate) class: Class,
    /// The network the client is in.
    pub(crate) client: Prefix,
}

/// Among whom a queue shares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Share {
    /// Classes by weight, and inside each client prefixes, all alike: the limit belongs to one tenant.
    Clients,
    /// Tenants by weight, and inside each the same: several tenants share the limit.
    TenantsThenClients,
}

/// What a flow was charged in advance for one service; given back to [`Queue::settle`] or [`Queue::refund`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Charge {
    cost_ns: u64,
    class: u8,
    bucket: u8,
}

impl Charge {
    /// Nothing was charged: the request never waited.
    pub(crate) const NONE: Self = Self {
        cost_ns: 0,
        class: 0,
        bucket: 0,
    };

    /// Where the one stood that was charged.
    fn stand(self, client: Prefix) -> Stand {
        Stand {
            class: self.class,
            lane: Lane::of(client, self.bucket),
        }
    }
}

/// Who left the queue at its head, and what for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// It gets the permit.
    Serve(Waiter, Charge),
    /// It waited too long for being served to make sense: refuse it, and ask again.
    Late(Waiter),
}

/// One queue of one gate.
///
/// Memory: about 250 bytes for a waiter, 170 for an idle flow, 350 for the queue; `tests/memory.rs` prints it.
#[derive(Debug)]
pub(crate) struct Queue {
    share: Share,
    seed: Seed,
    tenants: Ring,
    divisions: HashMap<u32, Division, Seed>,
    waiting: HashMap<u64, Standing, Seed>,
    /// By the end of their patience.
    ends: BTreeSet<(Time, u64)>,
    /// By arrival.
    ages: BTreeSet<(Time, u64)>,
    /// Flows without waiters, by when the last one left.
    idle: BTreeSet<(Time, u32, u8, u64)>,
    cost: Average,
    pace: Pace,
    /// From which wait on somebody is late; `None`: nobody ever is.
    late_ns: Option<u64>,
    touched: Time,
}

/// A waiter and the flow it stands in.
#[derive(Debug, Clone, Copy)]
struct Standing {
    waiter: Waiter,
    stand: Stand,
}

impl Queue {
    /// Makes an empty queue.
    #[cfg(test)]
    pub(crate) fn new(share: Share, now: Time) -> Self {
        Self::with_seed(share, now, 0)
    }

    /// Makes an empty queue whose hashes nobody outside can foresee.
    #[must_use]
    pub(crate) fn with_seed(share: Share, now: Time, seed: u64) -> Self {
        let seed = Seed(seed);
        Self {
            share,
            seed,
            tenants: Ring::new(Newcomers::Rested),
            divisions: HashMap::with_hasher(seed),
            waiting: HashMap::with_hasher(seed),
            ends: BTreeSet::new(),
            ages: BTreeSet::new(),
            idle: BTreeSet::new(),
            cost: Average::default(),
            pace: Pace::default(),
            late_ns: None,
            touched: now,
        }
    }

    /// Says from which wait on somebody is late; `None`: each flow is served in order, and nobody ever is.
    pub(crate) fn set_late(&mut self, late: Option<Duration>) {
        let late_ns = late.map(|late| u64::try_from(late.as_nanos()).unwrap_or(u64::MAX));
        if self.late_ns != late_ns {
            self.late_ns = late_ns;
            let divisions = self.divisions.values_mut();
            divisions.for_each(Division::restore_order);
        }
    }

    /// How many wait.
    #[must_use]
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// How many of a tenant wait.
    #[must_use]
    pub(crate) fn waiting_of(&self, tenant: u32) -> u32 {
        let division = self.divisions.get(&self.tenant(tenant));
        division.map_or(0, |division| division.account.waiting())
    }

    /// How many tenants wait; of one tenant's queue one, if anybody does.
    #[must_use]
    pub(crate) fn tenants(&self) -> u32 {
        u32::try_from(self.tenants.len()).unwrap_or(u32::MAX)
    }

    /// Whether nobody waits.
    #[must_use]
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Lets somebody wait, behind those of its flow who came before it.
    /// An id that waits already is ignored.
    pub(crate) fn push(&mut self, now: Time, waiter: Waiter) {
        self.touch(now);
        self.stand(now, waiter);
        self.forget(now);
    }

    /// Makes room for `newcomer` in a full queue: takes out one of those who take more than their share of it.
    /// `None`: the newcomer has no better right than anybody who waits, so it is refused.
    ///
    /// That is the one to be served last in the longest flow for its weight, and only if that flow is longer than
    /// the newcomer's would be: first among tenants, then among the classes and clients of the newcomer's own.
    /// Where the newcomer's tenant `is_owed` a permit, its flow counts as the shortest.
    pub(crate) fn push_out(&mut self, newcomer: &Waiter, is_owed: bool) -> Option<Waiter> {
        let tenant = self.tenant_of(newcomer);
        let own = self.divisions.get(&tenant);
        let fresh = Account::new(self.touched, self.weight_of(newcomer));
        let own_length = match is_owed {
            true => 0,
            false => own.map_or(&fresh, |own| &own.account).length(1),
        };
        let longest = self
            .tenants
            .longest()
            .filter(|&(length, _)| length > own_length);
        let id = match longest.and_then(|(_, tenant)| self.divisions.get(&(tenant as u32))) {
            Some(division) => division.victim(),
            None => own?.rival(newcomer, self.late_ns),
        };
        self.take(id?).map(|standing| standing.waiter)
    }

    /// As [`Self::next_of`], where nobody is owed anything.
    #[cfg(test)]
    pub(crate) fn next(&mut self, now: Time) -> Option<Next> {
        self.next_of(now, std::iter::empty())
    }

    /// Takes out who is to be served next, or who should not be served any more.
    /// `None` only if nobody waits. Those of tenants that are owed a permit come first.
    pub(crate) fn next_of(&mut self, now: Time, owed: impl Iterator<Item = u32>) -> Option<Next> {
        self.touch(now);
        let place = |tenant: u32| {
            let account = &self.divisions.get(&tenant)?.account;
            (account.waiting() > 0).then(|| (account.place(), tenant))
        };
        let owed = owed.filter_map(place).min().map(|(_, tenant)| tenant);
        let tenant = match owed {
            Some(tenant) => tenant,
            None => self.tenants.first(Turn::Oldest)? as u32,
        };
        let unit_ns = self.unit_ns();
        let division = self.divisions.get_mut(&tenant)?;
        let light = owed.is_some() || self.tenants.is_light(&division.account, unit_ns);
        let pick = division.pick(now, self.late_ns, light, unit_ns)?;
        let Standing { waiter, stand } = self.take(pick.id)?;
        if pick.late {
            return Some(Next::Late(waiter));
        }
        let charge = self.charge(now, tenant, stand);
        Some(Next::Serve(waiter, charge))
    }

    /// Lets somebody leave; `false` if it does not wait here.
    pub(crate) fn remove(&mut self, id: u64) -> bool {
        self.take(id).is_some()
    }

    /// Replaces what was charged in advance by what the service really took, in nanoseconds of handler or CPU time.
    ///
    /// What is owed beyond the charge is at most ten quanta, what is given back leaves at most two of credit.
    pub(crate) fn settle(
        &mut self,
        now: Time,
        tenant: u32,
        client: Prefix,
        charge: Charge,
        measured_ns: u64,
    ) {
        self.touch(now);
        self.correct(now, tenant, client, charge, measured_ns);
        self.cost.note(measured_ns);
        let tenant = self.tenant(tenant);
        if let Some(division) = self.divisions.get_mut(&tenant) {
            division.note_cost(charge.stand(client), measured_ns);
        }
    }

    /// Gives back what was charged for a service that never happened, as when the waiter moved to another gate.
    pub(crate) fn refund(&mut self, now: Time, tenant: u32, client: Prefix, charge: Charge) {
        self.correct(now, tenant, client, charge, 0);
    }

    /// Tells how long a permit of this gate was held.
    pub(crate) fn note_service(&mut self, held_ns: u64) {
        self.pace.note(held_ns);
    }

    /// Tells how long permits of this gate were held lately; of use where nobody waits, as then
    /// nobody tells of each.
    pub(crate) fn follow_services(&mut self, mean: Duration) {
        if self.is_empty() && !mean.is_zero() {
            self.pace
                .follow(u64::try_from(mean.as_nanos()).unwrap_or(u64::MAX));
        }
    }

    /// How long somebody behind all others would wait with so many permits; `None` until a service was measured.
    /// Never less than the one who came first has waited by now.
    #[must_use]
    pub(crate) fn predicted_wait(&self, now: Time, permits: u32) -> Option<Duration> {
        let wait = self.pace.services(self.len() as u64 + 1, permits)?;
        Some(self.oldest().map_or(wait, |oldest| wait.max(now - oldest)))
    }

    /// How long this newcomer would wait, given its flow's place among the others; `None` until a service was measured.
    ///
    /// Before it go those of its own flow, those who have not paid beyond the round, and of every other
    /// flow as many as its share allows in the meantime: the rest of a long queue does not count. What
    /// comes later and goes first is not foreseen, nor are others with credit: beside other flows the prediction
    /// tends to be too short, so nobody is refused because of what others might do.
    #[must_use]
    pub(crate) fn predicted_wait_for(
        &self,
        now: Time,
        permits: u32,
        newcomer: &Waiter,
    ) -> Option<Duration> {
        let unit_ns = self.unit_ns();
        let fresh = Account::new(now, self.weight_of(newcomer));
        let (account, own, oldest) = match self.divisions.get(&self.tenant_of(newcomer)) {
            None => (&fresh, 0, None),
            Some(division) => {
                let (own, oldest) = division.ahead(newcomer, unit_ns);
                (&division.account, own, oldest)
            }
        };
        let ahead = self
            .tenants
            .ahead(account, own, unit_ns)
            .min(self.len() as u64);
        let wait = self.pace.services(ahead + 1, permits)?;
        Some(oldest.map_or(wait, |oldest| wait.max(now - oldest)))
    }

    /// When the one who waits longest came.
    #[must_use]
    pub(crate) fn oldest(&self) -> Option<Time> {
        self.ages.first().map(|&(arrived, _)| arrived)
    }

    /// Takes out one whose patience has ended; to be called until there is none.
    pub(crate) fn expired(&mut self, now: Time) -> Option<Waiter> {
        self.forget(now);
        let &(until, id) = self.ends.first()?;
        if until > now {
            return None;
        }
        self.take(id).map(|standing| standing.waiter)
    }

    /// Whether nothing here is worth keeping: nobody waits, and what is known is old.
    #[must_use]
    pub(crate) fn is_idle(&self, now: Time) -> bool {
        self.is_empty() && now.since_ns(self.touched) >= FORGET_AFTER.as_nanos() as u64
    }
}

/// The insides.
impl Queue {
    fn touch(&mut self, now: Time) {
        self.touched = self.touched.max(now);
    }

    fn tenant(&self, tenant: u32) -> u32 {
        match self.share {
            Share::Clients => 0,
            Share::TenantsThenClients => tenant,
        }
    }

    fn tenant_of(&self, waiter: &Waiter) -> u32 {
        self.tenant(waiter.tenant)
    }

    fn weight_of(&self, waiter: &Waiter) -> u32 {
        match self.share {
            Share::Clients => 1,
            Share::TenantsThenClients => waiter.weight,
        }
    }

    /// The quantum of weight 1: what a service costs on average.
    fn unit_ns(&self) -> u64 {
        self.cost.value_ns().unwrap_or(UNIT.as_nanos() as u64)
    }

    fn stand(&mut self, now: Time, waiter: Waiter) {
        if self.waiting.contains_key(&waiter.id) {
            return;
        }
        let (tenant, weight) = (self.tenant_of(&waiter), self.weight_of(&waiter));
        let (seed, unit_ns, late_ns) = (self.seed, self.unit_ns(), self.late_ns);
        let division = self
            .divisions
            .entry(tenant)
            .or_insert_with(|| Division::new(now, weight, seed));
        let stand = division.stand(&waiter);
        if let Some(since) = division.idle_since(stand) {
            self.idle
                .remove(&(since, tenant, stand.class, stand.lane.0));
        }
        let account = &mut division.account;
        self.tenants
            .push(now, u64::from(tenant), account, weight, unit_ns, late_ns);
        division.push(now, &waiter, stand.lane, late_ns, unit_ns);
        self.waiting.insert(waiter.id, Standing { waiter, stand });
        self.ends.insert((waiter.until, waiter.id));
        self.ages.insert((waiter.arrived, waiter.id));
    }

    fn take(&mut self, id: u64) -> Option<Standing> {
        let standing = self.waiting.remove(&id)?;
        let Standing { waiter, stand } = standing;
        self.ends.remove(&(waiter.until, id));
        self.ages.remove(&(waiter.arrived, id));
        let tenant = self.tenant_of(&waiter);
        let division = self.divisions.get_mut(&tenant)?;
        self.tenants.pop(u64::from(tenant), &mut division.account);
        if let Some(flow) = division.pop(stand, (waiter.arrived, id)) {
            flow.idle_since = self.touched;
            self.idle
                .insert((self.touched, tenant, stand.class, stand.lane.0));
        }
        Some(standing)
    }

    fn charge(&mut self, now: Time, tenant: u32, stand: Stand) -> Charge {
        let unit_ns = self.unit_ns();
        let Some(division) = self.divisions.get_mut(&tenant) else {
            return Charge::NONE;
        };
        let cost_ns = division.charge(now, stand, unit_ns);
        self.tenants
            .charge(now, u64::from(tenant), &mut division.account, cost_ns);
        Charge {
            cost_ns,
            class: stand.class,
            bucket: stand.lane.bucket(),
        }
    }

    fn correct(&mut self, now: Time, tenant: u32, client: Prefix, charge: Charge, cost_ns: u64) {
        let (tenant, unit_ns) = (self.tenant(tenant), self.unit_ns());
        let Some(division) = self.divisions.get_mut(&tenant) else {
            return;
        };
        self.tenants.correct(
            now,
            u64::from(tenant),
            &mut division.account,
            charge.cost_ns,
            cost_ns,
            unit_ns,
        );
        let costs = (charge.cost_ns, cost_ns);
        division.correct(now, charge.stand(client), costs, unit_ns);
    }

    /// Forgets flows that have had no waiter for long, or the longest idle of too many.
    fn forget(&mut self, now: Time) {
        for _ in 0..FORGET_MAX {
            let Some(&idle) = self.idle.first() else {
                return;
            };
            let (since, tenant, class, lane) = idle;
            let old = now.since_ns(since) >= FORGET_AFTER.as_nanos() as u64;
            if !old && self.idle.len() <= IDLE_FLOWS_MAX {
                return;
            }
            self.idle.remove(&idle);
            let lane = Lane(lane);
            let Some(division) = self.divisions.get_mut(&tenant) else {
                continue;
            };
            if division.forget(Stand { class, lane }) {
                self.divisions.remove(&tenant);
            }
        }
    }
}
