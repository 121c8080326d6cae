//! A ledger with a clock of its own and words for what tests ask of it.
#![allow(dead_code, reason = "each test file uses its part")]

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use limits::{
    Admission, Ask, Change, Concurrent, Definition, GateLook, Keyed, Ledger, LimitId, LimitLook,
    Permit, RateCheck, RateTicket, Refusal, TenantDefinition, TenantId, Ticket, Time, Want,
};

/// What the ledger said.
pub(crate) type Said = Admission;

/// Counts how often somebody was woken.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Wake for Counter {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// A ledger, its limits and its clock.
pub(crate) struct Setting {
    pub(crate) ledger: Ledger,
    pub(crate) definitions: Vec<Definition>,
    pub(crate) limits: Vec<LimitId>,
    pub(crate) tenant: TenantId,
    pub(crate) keys_max: u32,
    /// Who asks.
    pub(crate) client: IpAddr,
    pub(crate) now: Time,
    counter: Arc<Counter>,
}

impl Setting {
    pub(crate) fn new(workers: usize, definitions: Vec<Definition>) -> Self {
        let ledger = Ledger::new(workers, [1, 2, 3, 4]);
        let tenant = ledger.define(Time::ZERO, &[], &[tenant(4096)]).tenants[0];
        let mut setting = Self {
            ledger,
            definitions: Vec::new(),
            limits: Vec::new(),
            tenant,
            keys_max: 4096,
            client: IpAddr::V4(Ipv4Addr::LOCALHOST),
            now: Time::ZERO,
            counter: Arc::default(),
        };
        setting.define(definitions);
        setting
    }

    pub(crate) fn define(&mut self, definitions: Vec<Definition>) {
        let tenants = [tenant(self.keys_max)];
        let defined = self.ledger.define(self.now, &definitions, &tenants);
        assert_eq!(defined.tenants, [self.tenant]);
        self.limits = defined.limits;
        self.definitions = definitions;
    }

    /// Asks with one key for each limit.
    pub(crate) fn say(&mut self, worker: usize, keys: &[&str]) -> Said {
        self.asking(keys, worker, |ledger, now, ask| ledger.admit(now, ask))
    }

    pub(crate) fn check_rates(&mut self, keys: &[&str]) -> Result<Vec<Refusal>, Box<Refusal>> {
        match self.asking(keys, 0, |ledger, now, ask| ledger.check_rates(now, ask)) {
            RateCheck::Passed(shadows) => Ok(shadows),
            RateCheck::Refused(refusal) => Err(refusal),
            waiting @ RateCheck::Waiting(_) => panic!("{keys:?}: {waiting:?}"),
        }
    }

    /// Asks whether a request comes too fast, where it may have to wait to know, or has waited.
    pub(crate) fn check_shared(&mut self, key: &str, ticket: Option<RateTicket>) -> RateCheck {
        self.asking(&[key], 0, |ledger, now, ask| match ticket {
            None => ledger.check_rates(now, ask),
            Some(ticket) => ledger.check_rates_again(now, ask, ticket),
        })
    }

    pub(crate) fn admitted(&mut self, worker: usize, keys: &[&str]) -> Permit {
        match self.say(worker, keys) {
            Admission::Admitted(permit) => permit,
            other => panic!("{keys:?}: {other:?}"),
        }
    }

    pub(crate) fn waiting(&mut self, worker: usize, keys: &[&str]) -> Ticket {
        match self.say(worker, keys) {
            Admission::Waiting(ticket) => ticket,
            other => panic!("{keys:?}: {other:?}"),
        }
    }

    pub(crate) fn refused(&mut self, worker: usize, keys: &[&str]) -> Refusal {
        match self.say(worker, keys) {
            Admission::Refused(refusal) => *refusal,
            other => panic!("{keys:?}: {other:?}"),
        }
    }

    /// What came of a wait, if anything has.
    pub(crate) fn poll(&self, ticket: &mut Ticket) -> Option<Result<Permit, Box<Refusal>>> {
        let waker = Waker::from(self.counter.clone());
        match ticket.poll_wait(self.now, &mut Context::from_waker(&waker)) {
            Poll::Ready(outcome) => Some(outcome),
            Poll::Pending => None,
        }
    }

    /// What a wait has come to: a permit.
    pub(crate) fn granted(&self, ticket: &mut Ticket) -> Permit {
        match self.poll(ticket) {
            Some(Ok(permit)) => permit,
            other => panic!("{other:?}"),
        }
    }

    /// How often somebody was woken so far.
    pub(crate) fn woken(&self) -> u64 {
        self.counter.0.load(Ordering::SeqCst)
    }

    pub(crate) fn change(&mut self, name: &str, change: Change) {
        self.ledger.change(self.now, self.limit(name), &change);
    }

    /// The busiest gate of a limit.
    pub(crate) fn look(&self, name: &str) -> GateLook {
        let mut looks = self.ledger.look(self.now, Some(self.limit(name)), 1000);
        looks.sort_by_key(|look| std::cmp::Reverse((look.queued, look.in_flight)));
        looks.into_iter().next().expect("the limit has a gate")
    }

    /// What a limit has come to, its forgotten keys included.
    pub(crate) fn totals(&self, name: &str) -> LimitLook {
        let mut looks = self.ledger.totals().into_iter();
        let found = looks.find(|look| look.limit == self.limit(name));
        found.expect("a limit in force")
    }

    pub(crate) fn in_flight(&self, name: &str) -> u32 {
        self.look(name).in_flight
    }

    pub(crate) fn queued(&self, name: &str) -> u32 {
        self.look(name).queued
    }

    fn limit(&self, name: &str) -> LimitId {
        let at = self
            .definitions
            .iter()
            .position(|definition| definition.name == name);
        self.limits[at.expect("a limit of the test")]
    }

    fn asking<R>(
        &self,
        keys: &[&str],
        worker: usize,
        asking: impl FnOnce(&Ledger, Time, &Ask<'_>) -> R,
    ) -> R {
        let wants: Vec<Want<'_>> = self
            .limits
            .iter()
            .zip(keys)
            .map(|(limit, key)| Want {
                limit: *limit,
                key: (!key.is_empty()).then_some(key.as_bytes()),
            })
            .collect();
        let ask = Ask::of(worker, self.tenant, self.client, &wants);
        asking(&self.ledger, self.now, &ask)
    }
}

pub(crate) fn ms(millis: u64) -> Time {
    Time(millis * 1_000_000)
}

pub(crate) fn tenant(keys_max: u32) -> TenantDefinition {
    TenantDefinition {
        name: "example".to_owned(),
        weight: 1,
        keys_max,
    }
}

/// A limit with one key, so many permits, no queue and two seconds of patience.
pub(crate) fn fixed(name: &str, concurrent: u32) -> Definition {
    Definition {
        concurrent: Some(Concurrent::Fixed(concurrent)),
        wait: Duration::from_secs(2),
        ..Definition::of(name)
    }
}

/// The same with a key for each request.
pub(crate) fn dynamic(name: &str, concurrent: u32) -> Definition {
    Definition {
        keyed: Keyed::Dynamic,
        ..fixed(name, concurrent)
    }
}

pub(crate) fn cap(definition: &Definition) -> u32 {
    match definition.concurrent {
        Some(Concurrent::Fixed(cap)) => cap,
        _ => u32::MAX,
    }
}
