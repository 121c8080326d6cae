//! One tenant's part of a queue: its classes of requests by weight, and inside each its clients.
//!
//! Most tenants have no classes: then all their requests are of one, and nothing is shared at this
//! level.

use crate::time::Time;

use super::Waiter;
use super::group::{Group, Lane, Pick, Seed};
use super::ring::{Account, Newcomers, Ring, Turn};

/// One tenant's classes.
#[derive(Debug)]
pub(super) struct Division {
    /// The tenant's own account, among tenants.
    pub(super) account: Account,
    ring: Ring,
    /// By number: there are few.
    groups: Vec<(u8, Group)>,
    seed: Seed,
}

/// A class and a flow in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stand {
    pub(super) class: u8,
    pub(super) lane: Lane,
}

impl Division {
    pub(super) fn new(now: Time, weight: u32, seed: Seed) -> Self {
        Self {
            account: Account::new(now, weight),
            ring: Ring::new(Newcomers::Rested),
            groups: Vec::with_capacity(1),
            seed,
        }
    }

    /// Where somebody would stand.
    pub(super) fn stand(&self, waiter: &Waiter) -> Stand {
        let class = waiter.class.number;
        let group = self.group(class);
        let lane = group.map_or_else(
            || Lane::of(waiter.client, 0),
            |group| group.lane(waiter.client),
        );
        Stand { class, lane }
    }

    /// Adds a waiter to a flow.
    pub(super) fn push(
        &mut self,
        now: Time,
        waiter: &Waiter,
        lane: Lane,
        late_ns: Option<u64>,
        unit_ns: u64,
    ) {
        let (class, weight) = (waiter.class.number, waiter.class.weight);
        let at = self.groups.iter().position(|(number, _)| *number == class);
        let at = at.unwrap_or_else(|| {
            let group = Group::new(now, weight, self.seed);
            self.groups.push((class, group));
            self.groups.len() - 1
        });
        let Some((_, group)) = self.groups.get_mut(at) else {
            return;
        };
        self.ring.push(
            now,
            u64::from(class),
            &mut group.account,
            weight,
            unit_ns,
            late_ns,
        );
        group.push(now, lane, (waiter.arrived, waiter.id), late_ns, unit_ns);
    }

    /// Takes a waiter out; gives its flow if that has none left.
    pub(super) fn pop(&mut self, stand: Stand, waiter: (Time, u64)) -> Option<&mut Account> {
        let (_, group) = find(&mut self.groups, stand.class)?;
        self.ring.pop(u64::from(stand.class), &mut group.account);
        group.pop(stand.lane, waiter)
    }

    /// Chooses who is next, and judges whether it comes too late; `light`: the tenant is not to
    /// blame for the queue.
    pub(super) fn pick(
        &mut self,
        now: Time,
        late_ns: Option<u64>,
        light: bool,
        unit_ns: u64,
    ) -> Option<Pick> {
        let class = self.ring.first(Turn::Oldest)? as u8;
        let (_, group) = find(&mut self.groups, class)?;
        let light = light || self.ring.is_light(&group.account, unit_ns);
        group.pick(now, late_ns, light, unit_ns)
    }

    /// The one who would be served last in the class that is longest for its weight.
    pub(super) fn victim(&self) -> Option<u64> {
        let (_, class) = self.ring.longest()?;
        self.group(class as u8)?.victim(0)
    }

    /// Who of a newcomer's tenant should give way to it: of the class that is longest for its
    /// weight, if that is longer than the newcomer's would be; else of its own class.
    pub(super) fn rival(&self, newcomer: &Waiter, late_ns: Option<u64>) -> Option<u64> {
        let own = self.group(newcomer.class.number);
        let fresh = Account::new(newcomer.arrived, newcomer.class.weight);
        let own_length = own.map_or(&fresh, |group| &group.account).length(1);
        match self.ring.longest() {
            Some((length, _)) if length > own_length => self.victim(),
            _ => own?.rival((newcomer.arrived, newcomer.client), late_ns),
        }
    }

    /// How many of this tenant's go before a newcomer, and when the first of its own flow came.
    pub(super) fn ahead(&self, newcomer: &Waiter, unit_ns: u64) -> (u64, Option<Time>) {
        let fresh = Account::new(Time::ZERO, newcomer.class.weight);
        let (account, own, oldest) = match self.group(newcomer.class.number) {
            None => (&fresh, 0, None),
            Some(group) => {
                let (own, oldest) = group.ahead(newcomer.client, unit_ns);
                (&group.account, own, oldest)
            }
        };
        let ahead = self.ring.ahead(account, own, unit_ns);
        (ahead.min(u64::from(self.account.waiting())), oldest)
    }

    /// Charges class and flow what a service is likely to cost, and tells that.
    pub(super) fn charge(&mut self, now: Time, stand: Stand, unit_ns: u64) -> u64 {
        let own = self.account.cost.value_ns();
        let Some((_, group)) = find(&mut self.groups, stand.class) else {
            return unit_ns;
        };
        let cost_ns = group.estimate_ns(stand.lane).or(own).unwrap_or(unit_ns);
        let class = u64::from(stand.class);
        self.ring.charge(now, class, &mut group.account, cost_ns);
        if let Some(flow) = group.flows.get_mut(&stand.lane.0) {
            group.ring.charge(now, stand.lane.0, flow, cost_ns);
        }
        cost_ns
    }

    /// Replaces a charge of class and flow by what it should have been.
    pub(super) fn correct(
        &mut self,
        now: Time,
        stand: Stand,
        (charged_ns, cost_ns): (u64, u64),
        unit_ns: u64,
    ) {
        let Some((_, group)) = find(&mut self.groups, stand.class) else {
            return;
        };
        let (class, account) = (u64::from(stand.class), &mut group.account);
        self.ring
            .correct(now, class, account, charged_ns, cost_ns, unit_ns);
        if let Some(flow) = group.flows.get_mut(&stand.lane.0) {
            let ring = &mut group.ring;
            ring.correct(now, stand.lane.0, flow, charged_ns, cost_ns, unit_ns);
        }
    }

    /// Remembers what a service has cost.
    pub(super) fn note_cost(&mut self, stand: Stand, measured_ns: u64) {
        self.account.cost.note(measured_ns);
        if let Some((_, group)) = find(&mut self.groups, stand.class) {
            group.account.cost.note(measured_ns);
            if let Some(flow) = group.flows.get_mut(&stand.lane.0) {
                flow.cost.note(measured_ns);
            }
        }
    }

    /// When the last waiter of a flow left that has none now.
    pub(super) fn idle_since(&self, stand: Stand) -> Option<Time> {
        let flow = self.group(stand.class)?.flows.get(&stand.lane.0)?;
        (flow.waiting() == 0).then_some(flow.idle_since)
    }

    /// Forgets a flow; tells whether nothing is left to know.
    pub(super) fn forget(&mut self, stand: Stand) -> bool {
        if let Some((_, group)) = find(&mut self.groups, stand.class) {
            group.flows.remove(&stand.lane.0);
        }
        self.groups.retain(|(_, group)| !group.flows.is_empty());
        self.groups.is_empty()
    }

    /// Serves in order until the queue runs late anew.
    pub(super) fn restore_order(&mut self) {
        let groups = self.groups.iter_mut();
        groups.for_each(|(_, group)| group.restore_order());
    }

    fn group(&self, class: u8) -> Option<&Group> {
        let mut groups = self.groups.iter();
        let found = groups.find(|(number, _)| *number == class);
        found.map(|(_, group)| group)
    }
}

/// Beside the ring of the same division, which is changed meanwhile.
fn find(groups: &mut [(u8, Group)], class: u8) -> Option<&mut (u8, Group)> {
    groups.iter_mut().find(|(number, _)| *number == class)
}
