//! Classes of a tenant's requests: shares by weight whatever services cost, none starves, and room in
//! a full queue is made at the cost of those who take too much of it.

use std::time::Duration;

use proptest::prelude::{ProptestConfig, prop, prop_assert, proptest};

use super::{at_ms, waiter};
use crate::ask::Class;
use crate::queue::{Next, Queue, Share, Waiter};
use crate::time::Time;

/// Waiters that each class always has.
const BACKLOG: u64 = 20;

fn of_class(number: u8, weight: u32, waiter: Waiter) -> Waiter {
    Waiter {
        class: Class { number, weight },
        ..waiter
    }
}

/// Classes of one tenant that always wait, each with a weight and what its services cost, in
/// milliseconds; how long each was served of so many services.
fn served_ms(share: Share, classes: &[(u32, u64)], services: usize) -> Vec<u64> {
    let mut queue = Queue::new(share, Time::ZERO);
    let (mut now, mut id) = (Time::ZERO, 0);
    let mut served = vec![0; classes.len()];
    let mut push = |queue: &mut Queue, now: Time, class: usize| {
        id += 1;
        let (weight, _) = classes[class];
        let mut newcomer = of_class(class as u8, weight, waiter(id, 0, 1, class as u32));
        newcomer.arrived = now;
        newcomer.until = now + Duration::from_secs(1_000_000);
        queue.push(now, newcomer);
    };
    for class in 0..classes.len() {
        (0..BACKLOG).for_each(|_| push(&mut queue, now, class));
    }
    for _ in 0..services {
        let Some(Next::Serve(next, charge)) = queue.next(now) else {
            panic!("they always wait, and nobody is late")
        };
        let class = usize::from(next.class.number);
        let cost_ms = classes[class].1;
        now = now + Duration::from_millis(cost_ms);
        served[class] += cost_ms;
        queue.settle(now, next.tenant, next.client, charge, cost_ms * 1_000_000);
        push(&mut queue, now, class);
    }
    served
}

#[test]
fn classes_that_always_wait_are_served_by_weight_whatever_their_services_cost() {
    for share in [Share::Clients, Share::TenantsThenClients] {
        let classes = [(1, 20), (4, 5), (16, 50)];
        let served = served_ms(share, &classes, 20_000);
        let first = served[0] as f64;
        for (served, (weight, _)) in served.iter().zip(classes) {
            let ratio = *served as f64 / first / f64::from(weight);
            assert!(
                (0.95..1.05).contains(&ratio),
                "weight {weight} got {ratio} of it"
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn no_class_waits_longer_than_its_weight_says(
        classes in prop::collection::vec((1..10_u32, 1..50_u64), 2..6),
    ) {
        let served = served_ms(Share::Clients, &classes, 5_000);
        let all: u64 = served.iter().sum();
        let weights: u64 = classes.iter().map(|(weight, _)| u64::from(*weight)).sum();
        for (at, (weight, _)) in classes.iter().enumerate() {
            let weight = u64::from(*weight);
            // Fourteen quanta by weight, and a service of the dearest on either side.
            let slack = (14 * 50 + 50) * weight + 50;
            prop_assert!(served[at] + slack >= all * weight / weights, "{classes:?}: {served:?}");
        }
    }
}

#[test]
fn a_log_in_that_comes_to_a_crawlers_queue_is_served_next() {
    let mut queue = Queue::new(Share::Clients, Time::ZERO);
    for id in 0..500 {
        queue.push(at_ms(0), waiter(id, 0, 1, id as u32 % 7));
    }
    for round in 1..20_u64 {
        let now = at_ms(round * 100);
        for _ in 0..3 {
            assert!(matches!(queue.next(now), Some(Next::Serve(..))));
        }
        let log_in = of_class(1, 8, waiter(1_000 + round, round * 100, 1, 9));
        let wait = queue
            .predicted_wait_for(now, 1, &log_in)
            .unwrap_or_default();
        queue.push(now, log_in);
        let Some(Next::Serve(next, _)) = queue.next(now) else {
            panic!("somebody waits")
        };
        assert_eq!(next.id, log_in.id, "{wait:?}");
    }
}

#[test]
fn a_full_queue_makes_room_for_a_class_at_the_cost_of_the_one_that_is_longest_for_its_weight() {
    for share in [Share::Clients, Share::TenantsThenClients] {
        let mut queue = Queue::new(share, Time::ZERO);
        for id in 0..10 {
            // Each from a network of its own: only the class tells that they are many.
            queue.push(at_ms(id), waiter(id, id, 1, id as u32));
        }
        let log_in = |id| of_class(1, 4, waiter(id, id, 1, 99));
        let victim = queue
            .push_out(&log_in(20), false)
            .expect("ten are more than one");
        assert_eq!(victim.class, Class::NONE);
        // Eleven for its weight, and nine are left of the others.
        (20..64).for_each(|id| queue.push(at_ms(id), log_in(id)));
        let victim = queue.push_out(&waiter(100, 100, 1, 61), false);
        assert_eq!(victim.map(|it| it.class.number), Some(1));
        let of_its_own = queue.push_out(&log_in(101), false);
        assert_eq!(of_its_own, None, "nobody gives way to the longest");
    }
}

#[test]
fn a_tenants_classes_take_nothing_of_other_tenants() {
    let mut queue = Queue::new(Share::TenantsThenClients, Time::ZERO);
    for id in 0..100_u64 {
        let heavy = of_class((id % 4) as u8 + 1, 1_000, waiter(id, 0, 1, id as u32));
        queue.push(at_ms(0), heavy);
        queue.push(at_ms(0), waiter(1_000 + id, 0, 2, 7));
    }
    let mut counts = [0; 2];
    for _ in 0..80 {
        let Some(Next::Serve(next, charge)) = queue.next(at_ms(1)) else {
            panic!("somebody waits")
        };
        queue.settle(at_ms(1), next.tenant, next.client, charge, 10_000_000);
        counts[next.tenant as usize - 1] += 1;
    }
    assert!(counts[0] >= 38 && counts[1] >= 38, "{counts:?}");
}
