//! Reserves against a model: never above the limit, no permit idle while somebody waits, and the next
//! one that comes back is a tenant's that has less than its reserve.

use std::task::{Context, Poll, Waker};
use std::time::Duration;

use limits::{
    Admission, Ask, Concurrent, Definition, Ledger, LimitId, Outcome, Permit, Shared,
    TenantDefinition, TenantId, Ticket, Time, Used, Want,
};
use proptest::prelude::{Strategy, prop, prop_oneof, proptest};

use crate::setting::fixed;

const PERMITS: usize = 4;
const QUEUE: u32 = 6;
/// What each tenant is to have before others.
const RESERVES: [usize; 4] = [0, 2, 1, 0];

#[derive(Debug, Clone)]
enum Call {
    Ask { tenant: usize, client: u8 },
    End(usize),
    Leave(usize),
}

fn call() -> impl Strategy<Value = Call> {
    prop_oneof![
        4 => (0..4_usize, 0..3_u8).prop_map(|(tenant, client)| Call::Ask { tenant, client }),
        3 => (0..PERMITS).prop_map(Call::End),
        1 => (0..8_usize).prop_map(Call::Leave),
    ]
}

struct Model {
    ledger: Ledger,
    limit: LimitId,
    tenants: Vec<TenantId>,
    now: Time,
    held: Vec<(usize, Permit)>,
    waiting: Vec<(usize, Ticket)>,
}

impl Model {
    fn new(workers: usize) -> Self {
        let ledger = Ledger::new(workers, [1, 2, 3, 4]);
        let limit = Definition {
            shared: Shared::Tenants,
            queue: QUEUE,
            wait: Duration::from_secs(100_000),
            concurrent: Some(Concurrent::Fixed(PERMITS as u32)),
            ..fixed("all", 0)
        };
        let tenants = (0..RESERVES.len()).map(|tenant| TenantDefinition {
            name: tenant.to_string(),
            weight: 1,
            keys_max: 9,
        });
        let tenants: Vec<_> = tenants.collect();
        let defined = ledger.define(Time::ZERO, &[limit], &tenants);
        let mut model = Self {
            ledger,
            limit: defined.limits[0],
            tenants: defined.tenants,
            now: Time::ZERO,
            held: Vec::new(),
            waiting: Vec::new(),
        };
        model.reserve();
        model
    }

    fn reserve(&mut self) {
        let tenants = self.tenants.iter().zip(RESERVES);
        let reserves = tenants.filter(|(_, permits)| *permits > 0);
        let reserves: Vec<_> = reserves
            .map(|(tenant, permits)| (self.limit, *tenant, permits as u32))
            .collect();
        self.ledger.set_reserves(self.now, &reserves);
    }

    fn held_by(&self, tenant: usize) -> usize {
        self.held.iter().filter(|(of, _)| *of == tenant).count()
    }

    fn waiting_of(&self, tenant: usize) -> usize {
        self.waiting.iter().filter(|(of, _)| *of == tenant).count()
    }

    fn ask(&mut self, tenant: usize, client: u8) {
        let is_owed = self.held_by(tenant) + self.waiting_of(tenant) < RESERVES[tenant];
        let want = Want {
            limit: self.limit,
            key: None,
        };
        let wants = [want];
        let ask = Ask::of(
            tenant,
            self.tenants[tenant],
            [10, 0, client, 1].into(),
            &wants,
        );
        match self.ledger.admit(self.now, &ask) {
            Admission::Admitted(permit) => self.held.push((tenant, permit)),
            Admission::Waiting(ticket) => self.waiting.push((tenant, ticket)),
            Admission::Refused(refusal) => assert!(!is_owed, "{refusal:?}"),
        }
    }

    fn end(&mut self, at: usize) {
        let (_, permit) = self.held.remove(at);
        let owed: Vec<usize> = (0..RESERVES.len())
            .filter(|it| self.held_by(*it) < RESERVES[*it] && self.waiting_of(*it) > 0)
            .collect();
        let before: Vec<usize> = (0..RESERVES.len()).map(|it| self.held_by(it)).collect();
        permit.end(self.now, Used::Measured(10_000_000), Outcome::Ignored);
        self.poll();
        let is_more = |it: &usize| self.held_by(*it) > before[*it];
        let next: Vec<usize> = (0..RESERVES.len()).filter(is_more).collect();
        if !owed.is_empty() {
            assert!(
                next.len() == 1 && owed.contains(&next[0]),
                "{owed:?}: {next:?}"
            );
        }
    }

    fn poll(&mut self) {
        let mut cx = Context::from_waker(Waker::noop());
        for (tenant, mut ticket) in std::mem::take(&mut self.waiting) {
            match ticket.poll_wait(self.now, &mut cx) {
                Poll::Pending => self.waiting.push((tenant, ticket)),
                Poll::Ready(Ok(permit)) => self.held.push((tenant, permit)),
                // Somebody who is owed a place, or waits less, has taken this one's.
                Poll::Ready(Err(_)) => {}
            }
        }
    }

    fn call(&mut self, call: &Call) {
        self.now = self.now + Duration::from_millis(10);
        match *call {
            Call::Ask { tenant, client } => self.ask(tenant, client),
            Call::End(at) if at < self.held.len() => self.end(at),
            Call::Leave(at) if at < self.waiting.len() => drop(self.waiting.remove(at)),
            Call::End(_) | Call::Leave(_) => {}
        }
        self.poll();
        assert!(self.held.len() <= PERMITS);
        assert!(
            self.waiting.is_empty() || self.held.len() == PERMITS,
            "one lies idle"
        );
        assert_eq!(self.ledger.drift(), 0);
    }

    /// Nothing was left counted: whoever has a reserve has the next permit of a full limit.
    fn close(mut self) {
        self.waiting.clear();
        self.held.clear();
        for (tenant, permits) in RESERVES.into_iter().enumerate() {
            while self.held.len() < PERMITS {
                self.ask(0, 0);
            }
            self.ask(0, 1);
            for _ in 0..permits {
                self.ask(tenant, 2);
            }
            for taken in 1..=permits {
                let at = self.held.iter().position(|(of, _)| *of == 0);
                self.end(at.expect("the others'"));
                assert_eq!(self.held_by(tenant), taken);
            }
            self.waiting.clear();
            self.held.clear();
        }
    }
}

proptest! {
    #[test]
    fn a_permit_that_comes_back_is_the_tenants_that_is_owed_one(
        calls in prop::collection::vec(call(), 1..120),
        again in 0..120_usize,
    ) {
        for workers in [1, 4] {
            let mut model = Model::new(workers);
            for (at, call) in calls.iter().enumerate() {
                if at == again {
                    // As a reload says it.
                    model.reserve();
                }
                model.call(call);
            }
            model.close();
        }
    }
}

#[test]
fn what_is_reserved_is_lent_while_nobody_comes_and_taken_back_within_one_request() {
    let mut model = Model::new(2);
    for _ in 0..PERMITS + 2 {
        model.ask(0, 0);
    }
    assert_eq!(
        (model.held.len(), model.waiting.len()),
        (PERMITS, 2),
        "all are lent"
    );
    for taken in 1..=2 {
        model.ask(1, 0);
        model.end(0);
        assert_eq!(model.held_by(1), taken);
    }
    // It has its own: now it takes its turn as others do.
    model.ask(1, 0);
    model.end(0);
    assert_eq!((model.held_by(1), model.held_by(0)), (2, 2));
}
