//! The queue of one gate: who is next, who comes too late, how long a newcomer would wait.
//!
//! The idea: every flow (a tenant, and inside it a client prefix) has an account, and the flow that
//! has used least for its weight is served next. What is left out: permits, deadlines' timers, wakers.
//! The queue is asked, and answers; it holds no clock.

mod prefix;

use std::collections::VecDeque;
use std::time::Duration;

use crate::time::Time;

pub use prefix::Prefix;

/// Somebody who waits at one gate and holds nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Waiter {
    /// Unique among those who wait in one queue.
    pub id: u64,
    /// When it came, at whichever gate that was.
    pub arrived: Time,
    /// When its patience ends.
    pub until: Time,
    /// Whose request it is, as a number.
    pub tenant: u32,
    /// The tenant's weight, 1 to 1000.
    pub weight: u32,
    /// The network the client is in.
    pub client: Prefix,
}

/// Among whom a queue shares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Share {
    /// Client prefixes, all alike: the limit belongs to one tenant.
    Clients,
    /// Tenants by weight, and inside each its client prefixes: several tenants share the limit.
    TenantsThenClients,
}

/// What a flow was charged in advance for one service; given back to [`Queue::settle`] or [`Queue::refund`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Charge {
    cost_ns: u64,
    bucket: u8,
}

impl Charge {
    /// Nothing was charged: the request never waited.
    pub const NONE: Self = Self {
        cost_ns: 0,
        bucket: 0,
    };
}

/// Who left the queue at its head, and what for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// It gets the permit.
    Serve(Waiter, Charge),
    /// It waited too long for being served to make sense: refuse it, and ask again.
    Late(Waiter),
}

/// One queue of one gate.
#[derive(Debug)]
pub struct Queue {
    waiters: VecDeque<Waiter>,
    share: Share,
}

impl Queue {
    /// Makes an empty queue.
    #[must_use]
    pub fn new(share: Share, now: Time) -> Self {
        Self::with_seed(share, now, 0)
    }

    /// Makes an empty queue whose hashes nobody outside can foresee.
    #[must_use]
    pub fn with_seed(share: Share, _now: Time, _seed: u64) -> Self {
        Self {
            waiters: VecDeque::new(),
            share,
        }
    }

    /// Among whom it shares.
    #[must_use]
    pub fn share(&self) -> Share {
        self.share
    }

    /// How many wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.waiters.len()
    }

    /// Whether nobody waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    /// Lets somebody wait, behind those of its flow who came before it.
    /// An id that waits already is ignored.
    pub fn push(&mut self, _now: Time, waiter: Waiter) {
        self.waiters.push_back(waiter);
    }

    /// Makes room for `newcomer` in a full queue: takes out one of those who take more than their share of it.
    /// `None`: the newcomer has no better right than anybody who waits.
    pub fn push_out(&mut self, _newcomer: &Waiter) -> Option<Waiter> {
        None
    }

    /// Takes out who is to be served next, or who should not be served any more.
    /// `None` only if nobody waits.
    pub fn next(&mut self, _now: Time) -> Option<Next> {
        Some(Next::Serve(self.waiters.pop_front()?, Charge::NONE))
    }

    /// Undoes a [`Next::Serve`]: the waiter stands where it stood, its flow has its charge back.
    pub fn put_back(&mut self, now: Time, waiter: Waiter, charge: Charge) {
        self.refund(now, waiter.tenant, waiter.client, charge);
        self.waiters.push_front(waiter);
    }

    /// Lets somebody leave; `false` if it does not wait here.
    pub fn remove(&mut self, id: u64) -> bool {
        let place = self.waiters.iter().position(|waiter| waiter.id == id);
        place.is_some_and(|place| self.waiters.remove(place).is_some())
    }

    /// Replaces what was charged in advance by what the service really took.
    pub fn settle(
        &mut self,
        _now: Time,
        _tenant: u32,
        _client: Prefix,
        _charge: Charge,
        _measured_ns: u64,
    ) {
    }

    /// Gives back what was charged for a service that never happened, as when the waiter moved to another gate.
    pub fn refund(&mut self, _now: Time, _tenant: u32, _client: Prefix, _charge: Charge) {}

    /// Tells how long a permit of this gate was held.
    pub fn note_service(&mut self, _held_ns: u64) {}

    /// How long the last in the queue would wait with so many permits; `None` until a service was measured.
    #[must_use]
    pub fn predicted_wait(&self, _now: Time, _permits: u32) -> Option<Duration> {
        None
    }

    /// How long this newcomer would wait, given its flow's place among the others; `None` until a service was measured.
    #[must_use]
    pub fn predicted_wait_for(
        &self,
        _now: Time,
        _permits: u32,
        _newcomer: &Waiter,
    ) -> Option<Duration> {
        None
    }

    /// When the one who waits longest came.
    #[must_use]
    pub fn oldest(&self) -> Option<Time> {
        self.waiters.iter().map(|waiter| waiter.arrived).min()
    }

    /// When the next waiter's patience ends.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Time> {
        self.waiters.iter().map(|waiter| waiter.until).min()
    }

    /// Takes out one whose patience has ended.
    pub fn expired(&mut self, now: Time) -> Option<Waiter> {
        let place = self.waiters.iter().position(|waiter| waiter.until <= now)?;
        self.waiters.remove(place)
    }

    /// Whether nothing here is worth keeping: nobody waits, and what is known is old.
    #[must_use]
    pub fn is_idle(&self, _now: Time) -> bool {
        self.waiters.is_empty()
    }
}
