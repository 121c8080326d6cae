//! What the queue does in single steps.

use std::time::Duration;

use super::{at_ms, waiter};
use crate::queue::{Charge, Next, Queue, Share, Waiter};
use crate::time::Time;

fn serve(queue: &mut Queue, now: Time) -> (u64, Charge) {
    match queue.next(now) {
        Some(Next::Serve(waiter, charge)) => (waiter.id, charge),
        other => panic!("{other:?}"),
    }
}

#[test]
fn who_came_from_another_gate_stands_where_it_came() {
    let mut queue = Queue::new(Share::Clients, Time::ZERO);
    queue.push(at_ms(10), waiter(1, 10, 0, 0));
    queue.push(at_ms(20), waiter(2, 20, 0, 0));
    queue.push(at_ms(30), waiter(3, 15, 0, 0));
    let order: Vec<u64> = (0..3).map(|_| serve(&mut queue, at_ms(40)).0).collect();
    assert_eq!(order, [1, 3, 2]);
}

/// As the wait_queue does when another gate of the one who is next is full.
fn put_back(queue: &mut Queue, now: Time, waiter: Waiter, charge: Charge) {
    queue.refund(now, waiter.tenant, waiter.client, charge);
    queue.push(now, waiter);
}

#[test]
fn who_is_put_back_is_next_again() {
    let mut queue = Queue::new(Share::Clients, Time::ZERO);
    (1..4).for_each(|id| queue.push(at_ms(id), waiter(id, id, 0, 0)));
    let Some(Next::Serve(first, charge)) = queue.next(at_ms(5)) else {
        panic!("three wait")
    };
    put_back(&mut queue, at_ms(5), first, charge);
    assert_eq!(queue.len(), 3);
    assert_eq!(serve(&mut queue, at_ms(6)).0, 1);
}

#[test]
fn who_is_put_back_again_and_again_owes_nothing() {
    let mut queue = Queue::new(Share::Clients, Time::ZERO);
    (0..8_u32).for_each(|id| queue.push(at_ms(0), waiter(u64::from(id), 0, 0, id % 2)));
    for _ in 0..11 {
        let Some(Next::Serve(waiter, charge)) = queue.next(at_ms(1)) else {
            panic!("eight wait")
        };
        put_back(&mut queue, at_ms(1), waiter, charge);
    }
    let even = (0..4)
        .filter(|_| serve(&mut queue, at_ms(1)).0.is_multiple_of(2))
        .count();
    assert_eq!(even, 2, "both clients are served alike");
}

#[test]
fn patience_ends_one_by_one_and_in_time() {
    let mut queue = Queue::new(Share::TenantsThenClients, Time::ZERO);
    queue.push(at_ms(0), waiter(1, 0, 1, 1));
    queue.push(at_ms(5), waiter(2, 5, 2, 2));
    assert_eq!(queue.expired(at_ms(9_999)), None);
    assert_eq!(
        queue.expired(at_ms(10_001)).map(|waiter| waiter.id),
        Some(1)
    );
    assert_eq!(queue.expired(at_ms(10_001)), None);
    assert_eq!((queue.len(), queue.oldest()), (1, Some(at_ms(5))));
}

#[test]
fn a_queue_is_worth_keeping_for_a_minute_after_its_last_use() {
    let mut queue = Queue::new(Share::Clients, Time::ZERO);
    queue.push(at_ms(0), waiter(1, 0, 0, 0));
    assert!(!queue.is_idle(at_ms(100_000)));
    assert!(queue.remove(1) && !queue.remove(1));
    assert!(!queue.is_idle(at_ms(59_999)));
    assert!(queue.is_idle(at_ms(60_000)));
}

#[test]
fn an_id_that_waits_already_is_ignored() {
    let mut queue = Queue::new(Share::Clients, Time::ZERO);
    queue.push(at_ms(0), waiter(1, 0, 0, 0));
    queue.push(at_ms(1), waiter(1, 1, 0, 5));
    assert_eq!(queue.len(), 1);
    assert_eq!(serve(&mut queue, at_ms(2)).0, 1);
    assert!(queue.next(at_ms(2)).is_none());
}

#[test]
fn idle_flows_are_forgotten_in_time_and_in_number() {
    let mut queue = Queue::new(Share::Clients, Time::ZERO);
    for id in 0..5_000_u32 {
        queue.push(at_ms(0), waiter(u64::from(id), 0, 0, id));
        serve(&mut queue, at_ms(0));
    }
    assert!(queue.idle.len() <= super::super::IDLE_FLOWS_MAX + 1);
    for _ in 0..1_000 {
        queue.expired(Time::ZERO + Duration::from_secs(120));
    }
    assert!(queue.idle.is_empty() && queue.divisions.is_empty());
}
