//! When a queue runs late: bursts are absorbed, overload is shed, and order returns.

use std::time::Duration;

use super::simulation::{Arrivals, Service, Simulation, Source, quantile};
use super::{at_ms, events, waiter};
use crate::queue::{Next, Queue, Share};
use crate::time::Time;

/// A tenth of what those of the simulations wait at most.
const LATE: Duration = Duration::from_millis(200);

fn one_source(arrivals: Arrivals) -> Simulation {
    let source = Source {
        tenant: 0,
        weight: 1,
        client: 0,
        arrivals,
        service: Service::Even(50),
    };
    Simulation::new(Share::Clients, 4, vec![source])
}

#[test]
fn bursts_are_absorbed() {
    // 80 a second fit; half of that comes evenly, and 24 more within 100 ms of each second.
    for (late, lost_max) in [(None, 0.0), (Some(LATE), 0.01)] {
        let mut simulation = one_source(Arrivals::Bursts(24, 36.0));
        simulation.queue.set_late(late);
        simulation.run_until(at_ms((events() as u64 * 5).min(100_000)));
        let outcome = &simulation.outcomes[0];
        let lost = outcome.lost() as f64 / (outcome.lost() + outcome.served()) as f64;
        eprintln!(
            "late {late:?}: lost {lost}, p99 {} ms",
            quantile(&outcome.waits_ns, 0.99) / 1_000_000
        );
        assert!(lost <= lost_max, "{late:?}: {lost}");
    }
}

#[test]
fn under_steady_overload_those_served_have_not_waited_long() {
    let mut simulation = one_source(Arrivals::Poisson(160.0));
    simulation.queue.set_late(Some(LATE));
    simulation.run(events().max(5_000));
    let outcome = &simulation.outcomes[0];
    eprintln!(
        "served {} refused {} late {} expired {}, p50 {} ms, p90 {} ms, p99 {} ms",
        outcome.served(),
        outcome.refused,
        outcome.late,
        outcome.expired,
        quantile(&outcome.waits_ns, 0.5) / 1_000_000,
        quantile(&outcome.waits_ns, 0.9) / 1_000_000,
        quantile(&outcome.waits_ns, 0.99) / 1_000_000,
    );
    assert!(outcome.lost() > 0);
    assert!(quantile(&outcome.waits_ns, 0.9) <= LATE.as_nanos() as u64);
}

/// A queue in which half a second is late.
fn impatient() -> Queue {
    let mut queue = Queue::new(Share::Clients, Time::ZERO);
    queue.set_late(Some(Duration::from_millis(500)));
    queue
}

fn served(queue: &mut Queue, now_ms: u64) -> Option<u64> {
    match queue.next(at_ms(now_ms))? {
        Next::Serve(waiter, _) => Some(waiter.id),
        Next::Late(_) => None,
    }
}

/// Makes it run late for two intervals: twenty wait, of which 0, 1 and 19 are served.
fn overloaded() -> Queue {
    let mut queue = impatient();
    (0..20).for_each(|id| queue.push(at_ms(0), waiter(id, 0, 0, 0)));
    assert_eq!(
        served(&mut queue, 600),
        Some(0),
        "the first interval begins"
    );
    assert_eq!(served(&mut queue, 900), Some(1), "oldest first");
    assert_eq!(
        served(&mut queue, 1_101),
        Some(19),
        "the interval is over: newest first"
    );
    queue.push(at_ms(1_600), waiter(100, 1_600, 0, 0));
    assert_eq!(
        served(&mut queue, 1_602),
        Some(100),
        "a second one over: the late will go"
    );
    queue
}

#[test]
fn a_late_queue_serves_the_newest_first_and_drops_the_late() {
    let mut queue = overloaded();
    queue.push(at_ms(1_690), waiter(101, 1_690, 0, 0));
    assert_eq!(served(&mut queue, 1_700), Some(101));
    assert!(matches!(queue.next(at_ms(1_700)), Some(Next::Late(late)) if late.id == 18));
}

#[test]
fn the_last_of_a_flow_is_served_however_late() {
    let mut queue = overloaded();
    let nexts: Vec<Next> = std::iter::from_fn(|| queue.next(at_ms(1_800))).collect();
    let served = nexts
        .iter()
        .filter(|next| matches!(next, Next::Serve(..)))
        .count();
    assert_eq!((nexts.len(), served), (17, 1));
    assert!(matches!(nexts.last(), Some(Next::Serve(last, _)) if last.id == 2));
}

#[test]
fn order_returns_only_after_two_intervals_without_overload() {
    let mut queue = overloaded();
    while queue.next(at_ms(1_610)).is_some() {}
    // From now on two come together, and both are served at once.
    let mut firsts = Vec::new();
    for now_ms in (1_620..3_300).step_by(10) {
        queue.push(at_ms(now_ms), waiter(now_ms * 2, now_ms, 0, 0));
        queue.push(at_ms(now_ms), waiter(now_ms * 2 + 1, now_ms, 0, 0));
        firsts.push((
            now_ms,
            served(&mut queue, now_ms + 1).is_some_and(|id| id % 2 == 1),
        ));
        assert!(served(&mut queue, now_ms + 1).is_some());
    }
    // The first interval ends at 2102 ms, the second half a second later.
    assert!(
        firsts
            .iter()
            .all(|&(now_ms, newest)| newest == (now_ms < 2_602)),
        "{firsts:?}"
    );
}

#[test]
fn an_emptied_queue_is_served_in_order_again() {
    let mut queue = overloaded();
    while queue.next(at_ms(1_700)).is_some() {}
    queue.push(at_ms(5_000), waiter(200, 5_000, 0, 0));
    queue.push(at_ms(5_001), waiter(201, 5_001, 0, 0));
    assert_eq!(served(&mut queue, 5_002), Some(200));
}

#[test]
fn a_queue_nobody_was_taken_from_for_an_interval_is_overloaded() {
    let mut queue = impatient();
    (0..3).for_each(|id| queue.push(at_ms(0), waiter(id, 0, 0, 0)));
    assert_eq!(served(&mut queue, 0), Some(0), "the interval begins");
    queue.push(at_ms(1_190), waiter(9, 1_190, 0, 0));
    assert_eq!(served(&mut queue, 1_200), Some(9));
}

#[test]
fn without_late_it_stays_in_order_however_long_it_lasts() {
    let mut queue = Queue::new(Share::Clients, Time::ZERO);
    (0..20).for_each(|id| queue.push(at_ms(0), waiter(id, 0, 0, 0)));
    for id in 0..20 {
        queue.note_service(1_000_000);
        assert_eq!(served(&mut queue, id * 450), Some(id));
    }
}

#[test]
fn order_returns_at_once_where_nobody_shall_be_late_any_more() {
    let mut queue = overloaded();
    queue.set_late(None);
    for id in 2..19 {
        assert_eq!(served(&mut queue, 1_700), Some(id));
    }
}

#[test]
fn ten_requests_for_a_slow_page_are_served_in_order() {
    // Two permits, three seconds each: the case an operator tries first.
    let mut queue = Queue::new(Share::Clients, Time::ZERO);
    (0..8).for_each(|id| queue.push(at_ms(id), waiter(id, id, 0, 0)));
    for id in 0..8 {
        let now_ms = 3_000 * (id / 2 + 1);
        queue.note_service(3_000_000_000);
        assert_eq!(served(&mut queue, now_ms), Some(id));
    }
}

#[test]
fn many_clients_with_one_request_each_are_served_newest_first_under_overload() {
    let sources = (0..400).map(|client| Source {
        tenant: 0,
        weight: 1,
        client,
        arrivals: Arrivals::Poisson(0.4),
        service: Service::Even(50),
    });
    let mut simulation = Simulation::new(Share::Clients, 4, sources.collect());
    simulation.queue.set_late(Some(LATE));
    simulation.run(events().max(5_000));
    let waits_ns: Vec<u64> = simulation
        .outcomes
        .iter()
        .flat_map(|outcome| outcome.waits_ns.iter().copied())
        .collect();
    let (half_ns, most_ns) = (quantile(&waits_ns, 0.5), quantile(&waits_ns, 0.9));
    eprintln!(
        "p50 {} ms, p90 {} ms",
        half_ns / 1_000_000,
        most_ns / 1_000_000
    );
    assert!(half_ns <= LATE.as_nanos() as u64, "{half_ns}");
    assert!(simulation.patience >= Duration::from_secs(2));
}
