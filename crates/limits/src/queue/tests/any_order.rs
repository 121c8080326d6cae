//! Calls in any order: whoever was pushed comes out exactly once, and nothing panics.

use std::collections::HashMap;
use std::time::Duration;

use proptest::prelude::{Strategy, any, prop, prop_oneof, proptest};

use super::{network, waiter};
use crate::ask::Class;
use crate::queue::{Charge, Next, Queue, Share, Waiter};
use crate::time::Time;

#[derive(Debug, Clone)]
enum Call {
    Push {
        tenant: u32,
        client: u32,
        weight: u32,
        patience_ms: u64,
        late_ms: u64,
    },
    PushOut {
        tenant: u32,
        client: u32,
        weight: u32,
    },
    Next,
    PutBack,
    Refund,
    Remove(u64),
    Settle {
        measured_ns: u64,
    },
    Service {
        held_ns: u64,
    },
    Expired,
    Pass {
        ms: u64,
    },
    Predict {
        tenant: u32,
        client: u32,
        permits: u32,
    },
}

fn call() -> impl Strategy<Value = Call> {
    let pushed = (0..4_u32, 0..6_u32, 0..2_000_u32, 0..5_000_u64, 0..500_u64);
    prop_oneof![
        6 => pushed.prop_map(|(tenant, client, weight, patience_ms, late_ms)| Call::Push { tenant, client, weight, patience_ms, late_ms }),
        1 => (0..4_u32, 0..6_u32, 0..2_000_u32).prop_map(|(tenant, client, weight)| Call::PushOut { tenant, client, weight }),
        4 => prop::strategy::Just(Call::Next),
        1 => prop::strategy::Just(Call::PutBack),
        1 => prop::strategy::Just(Call::Refund),
        1 => (0..200_u64).prop_map(Call::Remove),
        3 => any::<u64>().prop_map(|measured_ns| Call::Settle { measured_ns: measured_ns >> (measured_ns % 64) }),
        1 => any::<u64>().prop_map(|held_ns| Call::Service { held_ns: held_ns >> (held_ns % 64) }),
        2 => prop::strategy::Just(Call::Expired),
        3 => (0..700_u64).prop_map(|ms| Call::Pass { ms }),
        1 => (0..5_u32, 0..6_u32, 0..9_u32).prop_map(|(tenant, client, permits)| Call::Predict { tenant, client, permits }),
    ]
}

/// The queue, and who ought to be in it.
struct Model {
    queue: Queue,
    now: Time,
    waiting: HashMap<u64, Waiter>,
    served: Vec<(Waiter, Charge)>,
    ids: u64,
}

impl Model {
    fn new(share: Share) -> Self {
        let queue = Queue::with_seed(share, Time::ZERO, 1);
        Self {
            queue,
            now: Time::ZERO,
            waiting: HashMap::new(),
            served: Vec::new(),
            ids: 0,
        }
    }

    fn newcomer(&mut self, tenant: u32, client: u32, weight: u32) -> Waiter {
        self.ids += 1;
        Waiter {
            weight,
            class: Class {
                number: (client % 3) as u8,
                weight: weight / 2 + client,
            },
            arrived: self.now,
            client: network(client),
            ..waiter(self.ids, 0, tenant, client)
        }
    }

    fn came_out(&mut self, waiter: &Waiter) {
        assert_eq!(
            self.waiting.remove(&waiter.id).as_ref(),
            Some(waiter),
            "out twice, or changed"
        );
    }

    fn call(&mut self, call: &Call) {
        match *call {
            Call::Push {
                tenant,
                client,
                weight,
                patience_ms,
                late_ms,
            } => {
                let mut waiter = self.newcomer(tenant, client, weight);
                waiter.arrived = Time(self.now.0.saturating_sub(late_ms * 1_000_000));
                waiter.until = waiter.arrived + Duration::from_millis(patience_ms);
                self.waiting.insert(waiter.id, waiter);
                self.queue.push(self.now, waiter);
            }
            Call::PushOut {
                tenant,
                client,
                weight,
            } => {
                let newcomer = self.newcomer(tenant, client, weight);
                if let Some(victim) = self.queue.push_out(&newcomer, false) {
                    self.came_out(&victim);
                }
            }
            Call::Next => self.next(),
            Call::PutBack => {
                if let Some((waiter, charge)) = self.served.pop() {
                    self.waiting.insert(waiter.id, waiter);
                    self.queue
                        .refund(self.now, waiter.tenant, waiter.client, charge);
                    self.queue.push(self.now, waiter);
                }
            }
            Call::Refund => {
                if let Some((waiter, charge)) = self.served.pop() {
                    self.queue
                        .refund(self.now, waiter.tenant, waiter.client, charge);
                }
            }
            Call::Remove(id) => {
                assert_eq!(self.queue.remove(id), self.waiting.remove(&id).is_some())
            }
            Call::Settle { measured_ns } => {
                if let Some((waiter, charge)) = self.served.pop() {
                    self.queue
                        .settle(self.now, waiter.tenant, waiter.client, charge, measured_ns);
                }
            }
            Call::Service { held_ns } => self.queue.note_service(held_ns),
            Call::Expired => self.expired(),
            Call::Pass { ms } => self.now = self.now + Duration::from_millis(ms),
            Call::Predict {
                tenant,
                client,
                permits,
            } => self.predict(tenant, client, permits),
        }
        self.check();
    }

    fn next(&mut self) {
        match self.queue.next(self.now) {
            None => assert!(
                self.waiting.is_empty(),
                "somebody waits, and nobody is served"
            ),
            Some(Next::Late(waiter)) => self.came_out(&waiter),
            Some(Next::Serve(waiter, charge)) => {
                self.came_out(&waiter);
                self.served.push((waiter, charge));
            }
        }
    }

    fn expired(&mut self) {
        while let Some(waiter) = self.queue.expired(self.now) {
            assert!(waiter.until <= self.now);
            self.came_out(&waiter);
        }
        assert!(self.waiting.values().all(|waiter| waiter.until > self.now));
    }

    fn predict(&mut self, tenant: u32, client: u32, permits: u32) {
        let newcomer = self.newcomer(tenant, client, 1);
        let one = self.queue.predicted_wait_for(self.now, permits, &newcomer);
        let all = self.queue.predicted_wait(self.now, permits);
        assert!(one <= all, "{one:?} for one, {all:?} for all");
    }

    fn check(&self) {
        assert_eq!(self.queue.len(), self.waiting.len());
        assert_eq!(
            self.queue.oldest(),
            self.waiting.values().map(|waiter| waiter.arrived).min()
        );
    }

    fn drain(&mut self) {
        for _ in 0..self.waiting.len() {
            self.next();
        }
        assert!(self.waiting.is_empty() && self.queue.next(self.now).is_none());
    }
}

proptest! {
    #[test]
    fn whoever_was_pushed_comes_out_exactly_once(calls in prop::collection::vec(call(), 1..150)) {
        for share in [Share::Clients, Share::TenantsThenClients] {
            let mut model = Model::new(share);
            calls.iter().for_each(|call| model.call(call));
            model.drain();
        }
    }
}
