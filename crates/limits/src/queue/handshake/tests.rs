//! The queue of handshakes beside floods, by a virtual clock, and called in any order.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

use proptest::prelude::{Strategy, prop, prop_oneof, proptest};

use super::{IDLE_MAX, Newcomer, Queue, Refused, StepKind, Turn};
use crate::time::Time;

const PLACES: usize = 1_024;
const SECOND_NS: u64 = 1_000_000_000;
const MS_NS: u64 = 1_000_000;

fn address(number: u32) -> IpAddr {
    IpAddr::V4(Ipv4Addr::from(0x0a00_0000 + number))
}

/// A full handshake of weight 1 that waits ten seconds from `now` on.
fn step(now: Time, client: u32, tenant: u64) -> Newcomer {
    Newcomer {
        client: address(client),
        tenant,
        weight: 1,
        kind: StepKind::Full,
        until: now + Duration::from_secs(10),
    }
}

/// What happens at a time: somebody comes, with what the step will take.
#[derive(Debug, Clone, Copy)]
struct Arrival {
    at_ns: u64,
    client: u32,
    tenant: u64,
    weight: u32,
    kind: StepKind,
    /// What it turns out to be.
    was: StepKind,
    cost_ns: u64,
}

impl Arrival {
    fn full(at_ns: u64, client: u32, tenant: u64, cost_ns: u64) -> Self {
        Self {
            at_ns,
            client,
            tenant,
            weight: 1,
            kind: StepKind::Full,
            was: StepKind::Full,
            cost_ns,
        }
    }

    fn short(at_ns: u64, client: u32, tenant: u64, cost_ns: u64) -> Self {
        Self {
            kind: StepKind::Short,
            was: StepKind::Short,
            ..Self::full(at_ns, client, tenant, cost_ns)
        }
    }
}

/// What came of an arrival: how long it waited, or why it did not get its turn.
type Fate = Result<u64, Refused>;

/// Serves arrivals on so many threads until 100 ms after the last; what waits then has no fate.
fn simulate(threads: usize, arrivals: Vec<Arrival>) -> Vec<(Arrival, Option<Fate>)> {
    simulate_patient(threads, usize::MAX, arrivals)
}

/// As [`simulate`], where a client does not come while so many of its own are under way.
fn simulate_patient(
    threads: usize,
    under_way_max: usize,
    mut arrivals: Vec<Arrival>,
) -> Vec<(Arrival, Option<Fate>)> {
    let mut under_way: HashMap<u32, usize> = HashMap::new();
    arrivals.sort_by_key(|arrival| arrival.at_ns);
    let end = arrivals.last().map_or(0, |last| last.at_ns) + 100 * MS_NS;
    let mut queue = Queue::new(PLACES, 7);
    let mut fates: Vec<Option<Fate>> = vec![None; arrivals.len()];
    let mut by_place = HashMap::new();
    let mut busy: Vec<Option<(u64, Turn, usize)>> = (0..threads).map(|_| None).collect();
    let mut next = 0;
    let mut now = 0;
    while now < end || next < arrivals.len() {
        for thread in &mut busy {
            if let Some((_, turn, who)) = thread.take_if(|(until, ..)| *until <= now) {
                let arrival: &Arrival = &arrivals[who];
                *under_way.entry(arrival.client).or_default() -= 1;
                queue.settle(Time(now), &turn, arrival.was, arrival.cost_ns);
            }
        }
        while let Some(arrival) = arrivals.get(next).filter(|it| it.at_ns <= now) {
            let asked = Newcomer {
                weight: arrival.weight,
                kind: arrival.kind,
                ..step(Time(now), arrival.client, arrival.tenant)
            };
            let own = under_way.entry(arrival.client).or_default();
            if *own >= under_way_max {
                next += 1;
                continue;
            }
            match queue.push(Time(now), &asked) {
                Err(why) => fates[next] = Some(Err(why)),
                Ok((place, pushed_out)) => {
                    *own += 1;
                    by_place.insert(place, next);
                    if let Some(who) = pushed_out.and_then(|out| by_place.remove(&out)) {
                        fates[who] = Some(Err(Refused::OverShare));
                        *under_way.entry(arrivals[who].client).or_default() -= 1;
                    }
                }
            }
            next += 1;
        }
        while let Some(place) = queue.expired(Time(now)) {
            let who = by_place.remove(&place).expect("it waited");
            fates[who] = Some(Err(Refused::Late));
            *under_way.entry(arrivals[who].client).or_default() -= 1;
        }
        for thread in busy.iter_mut().filter(|thread| thread.is_none()) {
            let Some(turn) = queue.next(Time(now)) else {
                break;
            };
            let who = by_place.remove(&turn.id).expect("it waited");
            fates[who] = Some(Ok(now - arrivals[who].at_ns));
            *thread = Some((now + arrivals[who].cost_ns, turn, who));
        }
        let ends = busy.iter().flatten().map(|(until, ..)| *until);
        let comes = arrivals.get(next).map(|it| it.at_ns);
        now = ends.chain(comes).min().unwrap_or(end).max(now + 1);
    }
    arrivals.into_iter().zip(fates).collect()
}

/// 2,000 full handshakes a second for ten seconds from 200 clients; whose name is said by each.
fn flood(name: impl Fn(u64) -> u64) -> Vec<Arrival> {
    (0..20_000_u64)
        .map(|number| {
            let client = fastrand::Rng::with_seed(number).u32(0..200);
            Arrival::full(number * SECOND_NS / 2_000, client, name(number), MS_NS)
        })
        .collect()
}

/// Twenty handshakes a second, each of a client that was not here before.
fn strangers(tenant: u64) -> Vec<Arrival> {
    (20..220_u32)
        .map(|number| {
            Arrival::full(
                u64::from(number) * SECOND_NS / 20 + 333,
                10_000 + number,
                tenant,
                MS_NS,
            )
        })
        .collect()
}

/// All honest ones got their turn; how long they waited at most.
fn longest_wait_ns(fates: &[(Arrival, Option<Fate>)]) -> u64 {
    let honest = fates.iter().filter(|(it, _)| it.client >= 10_000);
    let waits: Vec<u64> = honest
        .map(|(it, fate)| {
            let fate = fate.unwrap_or_else(|| panic!("{it:?} waits still"));
            fate.unwrap_or_else(|why| panic!("{it:?}: {why:?}"))
        })
        .collect();
    assert!(waits.len() >= 190, "{}", waits.len());
    waits.into_iter().max().unwrap_or(0)
}

#[test]
fn beside_a_flood_on_one_name_nobody_else_is_lost_or_late() {
    for (whose, tenant) in [("of the same name", 1), ("of another", 2)] {
        let mut arrivals = flood(|_| 1);
        arrivals.extend(strangers(tenant));
        let fates = simulate(1, arrivals);
        let wait_ns = longest_wait_ns(&fates);
        assert!(wait_ns < 30 * MS_NS, "a stranger {whose}: {wait_ns} ns");
        let served = fates.iter().filter(|(_, fate)| matches!(fate, Some(Ok(_))));
        assert!(served.count() > 9_900, "nothing is wasted");
    }
}

#[test]
fn beside_a_flood_over_ten_thousand_names_nobody_else_is_lost_or_late() {
    let name = |number: u64| fastrand::Rng::with_seed(!number).u64(0..10_000);
    let mut arrivals = flood(name);
    arrivals.extend(strangers(77));
    let wait_ns = longest_wait_ns(&simulate(1, arrivals));
    assert!(wait_ns < 30 * MS_NS, "{wait_ns} ns");
}

#[test]
fn who_comes_anew_waits_for_nobody_who_has_had_his_turn() {
    // Each of the flood begins another when one of its own is done: all wait all the time, and have had the same.
    for (own, tenant) in [(1, 1), (2, 1), (5, 1), (1, 77), (2, 77), (5, 77)] {
        let mut arrivals = flood(|number| match tenant {
            1 => 1,
            _ => fastrand::Rng::with_seed(!number).u64(0..10_000),
        });
        for arrival in &mut arrivals {
            arrival.cost_ns = fastrand::Rng::with_seed(arrival.at_ns).u64(700_000..1_300_000);
        }
        arrivals.extend(strangers(tenant));
        let wait_ns = longest_wait_ns(&simulate_patient(1, own, arrivals));
        assert!(wait_ns < 8 * MS_NS, "{own} each, {tenant}: {wait_ns} ns");
    }
}

/// How often each of these clients got its turn.
fn turns(fates: &[(Arrival, Option<Fate>)], of: impl Fn(&Arrival) -> bool) -> f64 {
    let turns = fates
        .iter()
        .filter(|(it, fate)| of(it) && matches!(fate, Some(Ok(_))));
    turns.count() as f64
}

#[test]
fn a_client_with_ten_thousand_names_has_one_share() {
    let mut arrivals = Vec::new();
    for number in 0..20_000_u64 {
        let at_ns = number * SECOND_NS / 2_000;
        arrivals.push(Arrival::full(at_ns, 0, number % 10_000, MS_NS));
        let client = 1 + (number % 9) as u32;
        arrivals.push(Arrival::full(at_ns, client, 20_000, MS_NS));
    }
    let fates = simulate(1, arrivals);
    let (his, all) = (turns(&fates, |it| it.client == 0), turns(&fates, |_| true));
    assert!(his / all < 0.12, "{his} of {all}");
    assert!(his / all > 0.05, "nor is he kept from it: {his} of {all}");
}

#[test]
fn what_a_step_takes_counts_and_not_how_many_there_are() {
    let mut arrivals = Vec::new();
    for number in 0..10_000_u64 {
        let at_ns = number * SECOND_NS / 1_000;
        arrivals.push(Arrival::full(at_ns, 1, 1, 4 * MS_NS));
        arrivals.push(Arrival::full(at_ns, 2, 2, MS_NS));
    }
    let fates = simulate(1, arrivals);
    let costly = turns(&fates, |it| it.client == 1);
    let cheap = turns(&fates, |it| it.client == 2);
    let ratio = cheap / costly;
    assert!((3.5..4.5).contains(&ratio), "{cheap} to {costly}");
}

#[test]
fn tenants_share_by_weight_where_clients_are_alike() {
    // Each from a client of its own: nothing tells them apart but whose name they say.
    let arrivals = (0..30_000_u32)
        .flat_map(|number| {
            let at_ns = u64::from(number) * SECOND_NS / 3_000;
            let heavy = Arrival {
                weight: 3,
                ..Arrival::full(at_ns, 2 * number, 1, MS_NS)
            };
            [heavy, Arrival::full(at_ns, 2 * number + 1, 2, MS_NS)]
        })
        .collect();
    let fates = simulate(1, arrivals);
    let (heavy, light) = (
        turns(&fates, |it| it.tenant == 1),
        turns(&fates, |it| it.tenant == 2),
    );
    let ratio = heavy / light;
    assert!((2.5..3.5).contains(&ratio), "{heavy} to {light}");
}

#[test]
fn a_crowd_of_strangers_on_one_name_leaves_another_its_own() {
    let mut arrivals: Vec<_> = (0..20_000_u32)
        .map(|number| {
            let at_ns = u64::from(number) * SECOND_NS / 2_000;
            Arrival::full(at_ns, 100_000 + number, 1, MS_NS)
        })
        .collect();
    arrivals.extend(strangers(2));
    let fates = simulate(1, arrivals);
    let fates: Vec<_> = fates.into_iter().filter(|(it, _)| it.tenant == 2).collect();
    let wait_ns = longest_wait_ns(&fates);
    assert!(wait_ns < 30 * MS_NS, "{wait_ns} ns");
}

#[test]
fn short_steps_go_first_and_leave_full_ones_a_quarter() {
    let mut arrivals = Vec::new();
    for number in 0..40_000_u32 {
        let at_ns = u64::from(number) * SECOND_NS / 4_000;
        arrivals.push(Arrival::short(at_ns, 1_000 + number % 200, 1, MS_NS / 2));
        arrivals.push(Arrival::full(at_ns, 2_000 + number % 200, 1, MS_NS));
    }
    let fates = simulate(1, arrivals);
    let short_ns = turns(&fates, |it| it.kind == StepKind::Short) * 0.5;
    let full_ns = turns(&fates, |it| it.kind == StepKind::Full);
    let part = full_ns / (short_ns + full_ns);
    assert!((0.2..0.55).contains(&part), "{part}");

    // Where there are few of them, they wait for nobody but whoever has his turn.
    let few = (0..100).map(|number| {
        let at_ns = u64::from(number) * SECOND_NS / 10 + 77;
        Arrival::short(at_ns, 10_000 + number, 1, MS_NS / 5)
    });
    let mut arrivals: Vec<_> = few.collect();
    for number in 0..20_000_u32 {
        let at_ns = u64::from(number) * SECOND_NS / 2_000;
        arrivals.push(Arrival::full(at_ns, 100_000 + number, 1, MS_NS));
    }
    let fates = simulate(1, arrivals);
    for (it, fate) in fates.iter().filter(|(it, _)| it.kind == StepKind::Short) {
        let wait_ns = fate.expect("a turn").expect("no refusal");
        assert!(wait_ns <= 2 * MS_NS, "{it:?} waited {wait_ns} ns");
    }
}

#[test]
fn who_says_short_and_is_not_is_no_longer_believed() {
    let mut queue = Queue::new(PLACES, 1);
    let said = |client| Newcomer {
        kind: StepKind::Short,
        ..step(Time::ZERO, client, 1)
    };
    let (_, _) = queue.push(Time::ZERO, &said(1)).expect("a place");
    let turn = queue.next(Time::ZERO).expect("a turn");
    queue.settle(Time::ZERO, &turn, StepKind::Full, MS_NS);
    let (liar, _) = queue.push(Time::ZERO, &said(1)).expect("a place");
    let (other, _) = queue.push(Time::ZERO, &said(2)).expect("a place");
    assert_eq!(queue.next(Time::ZERO).expect("a turn").id, other);
    assert_eq!(queue.next(Time::ZERO).expect("a turn").id, liar);
}

#[test]
fn while_full_steps_cannot_be_made_short_ones_go_on() {
    let mut queue = Queue::new(PLACES, 1);
    for client in 0..5 {
        let full = step(Time::ZERO, client, 1);
        queue.push(Time::ZERO, &full).expect("a place");
        let short = Newcomer {
            kind: StepKind::Short,
            ..step(Time::ZERO, 100 + client, 1)
        };
        queue.push(Time::ZERO, &short).expect("a place");
        let behind = Newcomer {
            kind: StepKind::Short,
            ..full
        };
        queue.push(Time::ZERO, &behind).expect("a place");
    }
    let made = std::iter::from_fn(|| queue.next_short(Time::ZERO)).count();
    assert!((5..=10).contains(&made), "{made}");
    assert_eq!(queue.len(), 15 - made);
    let rest = std::iter::from_fn(|| queue.next(Time::ZERO)).count();
    assert_eq!(rest, 15 - made);
}

#[test]
fn nobody_starves_behind_newcomers_without_end() {
    // One who has used much comes back, and beside him strangers who never used anything.
    let mut arrivals = vec![Arrival::full(0, 1, 1, 50 * MS_NS)];
    arrivals.extend((1..20).map(|at_ns| Arrival::full(at_ns, 1, 1, MS_NS)));
    for number in 0..20_000_u32 {
        let at_ns = u64::from(number) * SECOND_NS / 2_000;
        arrivals.push(Arrival::full(at_ns, 100_000 + number, 2, MS_NS));
    }
    let fates = simulate(1, arrivals);
    assert_eq!(turns(&fates, |it| it.client == 1), 20.0);
}

#[test]
fn a_full_queue_refuses_whoever_has_most_in_it() {
    let mut queue = Queue::new(16, 1);
    let now = Time::ZERO;
    let push = |queue: &mut Queue, client, tenant| queue.push(now, &step(now, client, tenant));
    assert!(push(&mut queue, 1, 1).is_ok());
    assert!(push(&mut queue, 1, 1).is_ok());
    let third = push(&mut queue, 1, 1);
    assert_eq!(third.unwrap_err(), Refused::OverShare, "an eighth of 16");
    for client in 2..9 {
        assert!(push(&mut queue, client, 1).is_ok());
        assert!(push(&mut queue, client, 2).is_ok());
    }
    assert_eq!(queue.len(), 16);
    let (place, out) = push(&mut queue, 20, 3).expect("a place");
    assert_ne!(out, None, "somebody with two left for it");
    assert!(queue.remove(place) && !queue.remove(place));
    for client in 20..28 {
        let _ = push(&mut queue, client, 1);
    }
    // All have one by now, and nobody's tenant may have more than another's.
    let mut crowd = 100;
    while let Ok((_, out)) = push(&mut queue, crowd, 5) {
        crowd += 1;
        assert!(out.is_some() || queue.len() <= 16);
        assert!(crowd < 200, "it ends");
    }
    assert_eq!(queue.len(), 16);
    let over = push(&mut queue, 300, 5).unwrap_err();
    assert_eq!(over.reason(), "handshake_over_share");
}

#[test]
fn a_queue_full_of_equals_is_full() {
    let mut queue = Queue::new(16, 1);
    for client in 0..16 {
        let of = step(Time::ZERO, client, u64::from(client));
        assert!(queue.push(Time::ZERO, &of).is_ok());
    }
    let more = queue.push(Time::ZERO, &step(Time::ZERO, 99, 99));
    assert_eq!(more.unwrap_err().reason(), "handshake_queue_full");
}

#[test]
fn patience_ends() {
    let mut queue = Queue::new(16, 1);
    let (place, _) = queue
        .push(Time::ZERO, &step(Time::ZERO, 1, 1))
        .expect("a place");
    let end = Time::ZERO + Duration::from_secs(10);
    assert_eq!(queue.next_end(), Some(end));
    assert_eq!(queue.expired(Time(end.0 - 1)), None);
    assert_eq!(queue.expired(end), Some(place));
    assert_eq!(queue.expired(end), None);
    assert!(queue.next(end).is_none() && queue.is_empty());
}

#[test]
fn a_client_is_an_address_or_a_64_and_names_add_nothing() {
    let same = |one: &str, other: &str| {
        let of = |text: &str| super::client_number(text.parse().expect("an address"));
        of(one) == of(other)
    };
    assert!(same("2001:db8:0:1::1", "2001:db8:0:1:ffff::2"));
    assert!(same("::ffff:192.0.2.1", "192.0.2.1"));
    assert!(!same("2001:db8:0:1::1", "2001:db8:0:2::1"));
    assert!(!same("192.0.2.1", "192.0.2.2"));
    assert!(!same("192.0.2.1", "::c000:201"));
}

#[test]
fn what_is_known_of_clients_is_bounded_and_forgotten() {
    let mut queue = Queue::new(PLACES, 1);
    let mut now = Time::ZERO;
    for client in 0..60_000_u32 {
        now = now + Duration::from_micros(100);
        let address = Ipv6Addr::from(u128::from(client) << 64 | 1 << 125);
        let step = Newcomer {
            client: address.into(),
            ..step(now, 0, u64::from(client))
        };
        queue.push(now, &step).expect("a place");
        let turn = queue.next(now).expect("a turn");
        queue.settle(now, &turn, StepKind::Full, MS_NS);
    }
    assert!(
        queue.accounts() <= 2 * (IDLE_MAX + 2),
        "{}",
        queue.accounts()
    );
    for _ in 0..60_000 {
        now = now + Duration::from_millis(2);
        queue.push(now, &step(now, 1, 1)).expect("a place");
        let turn = queue.next(now).expect("a turn");
        queue.settle(now, &turn, StepKind::Full, MS_NS);
    }
    assert_eq!(queue.accounts(), 2, "one client, one tenant");
}

#[derive(Debug, Clone)]
enum Call {
    Push {
        client: u32,
        tenant: u64,
        weight: u32,
        short: bool,
        patience_ms: u64,
    },
    Next,
    Settle {
        full: bool,
        cpu_ns: u64,
    },
    Remove(usize),
    Expired,
    Pass {
        ms: u64,
    },
}

fn call() -> impl Strategy<Value = Call> {
    let pushed = (
        0..30_u32,
        0..6_u64,
        0..2_000_u32,
        prop::bool::ANY,
        0..500_u64,
    );
    prop_oneof![
        6 => pushed.prop_map(|(client, tenant, weight, short, patience_ms)| Call::Push { client, tenant, weight, short, patience_ms }),
        4 => prop::strategy::Just(Call::Next),
        3 => (prop::bool::ANY, prop::num::u64::ANY).prop_map(|(full, cpu_ns)| Call::Settle { full, cpu_ns: cpu_ns >> (cpu_ns % 64) }),
        1 => (0..64_usize).prop_map(Call::Remove),
        1 => prop::strategy::Just(Call::Expired),
        1 => (0..30_000_u64).prop_map(|ms| Call::Pass { ms }),
    ]
}

fn kind(short: bool) -> StepKind {
    if short {
        StepKind::Short
    } else {
        StepKind::Full
    }
}

proptest! {
    /// Whoever was let wait leaves exactly once, whatever is called in which order, and no turn is made up.
    #[test]
    fn whoever_waits_leaves_once(calls in prop::collection::vec(call(), 1..400)) {
        let mut queue = Queue::new(32, 3);
        let mut now = Time::ZERO;
        let mut waiting = Vec::new();
        let mut served = Vec::new();
        for call in calls {
            match call {
                Call::Push { client, tenant, weight, short, patience_ms } => {
                    let until = now + Duration::from_millis(patience_ms);
                    let asked = Newcomer { weight, kind: kind(short), until, ..step(now, client, tenant) };
                    if let Ok((place, out)) = queue.push(now, &asked) {
                        waiting.retain(|it| Some(*it) != out);
                        waiting.push(place);
                    }
                }
                Call::Next => match queue.next(now) {
                    None => assert!(waiting.is_empty()),
                    Some(turn) => {
                        let before = waiting.len();
                        waiting.retain(|it| *it != turn.id);
                        assert_eq!(waiting.len() + 1, before);
                        served.push(turn);
                    }
                },
                Call::Settle { full, cpu_ns } => {
                    if let Some(turn) = served.pop() {
                        queue.settle(now, &turn, kind(!full), cpu_ns);
                    }
                }
                Call::Remove(at) => {
                    if at < waiting.len() {
                        assert!(queue.remove(waiting.swap_remove(at)));
                    }
                }
                Call::Expired => {
                    while let Some(place) = queue.expired(now) {
                        let before = waiting.len();
                        waiting.retain(|it| *it != place);
                        assert_eq!(waiting.len() + 1, before);
                    }
                }
                Call::Pass { ms } => now = now + Duration::from_millis(ms),
            }
            assert_eq!(queue.len(), waiting.len());
            assert!(queue.len() <= 32);
        }
        let left: HashSet<_> = std::iter::from_fn(|| queue.next(now)).map(|turn| turn.id).collect();
        assert_eq!(left, waiting.into_iter().collect());
        assert!(queue.client_lengths.is_empty() && queue.tenant_lengths.is_empty());
        assert!(queue.outside.len() == 0 && queue.classes.len() == 0);
    }
}

#[test]
#[ignore = "prints figures that depend on the machine"]
fn what_an_operation_costs() {
    for clients in [100_u32, 1_000, 10_000, 100_000] {
        let mut queue = Queue::new(200_000, 1);
        for client in 0..clients {
            let of = step(Time::ZERO, client, u64::from(client % 10_000));
            queue.push(Time::ZERO, &of).expect("a place");
        }
        let begun = Instant::now();
        let rounds = 100_000_u32;
        for number in 0..rounds {
            let now = Time(u64::from(number) * 1_000);
            let turn = queue.next(now).expect("a turn");
            queue.settle(now, &turn, StepKind::Full, MS_NS);
            let of = step(now, number % clients, u64::from(number % 10_000));
            let _ = queue.push(now, &of);
        }
        let each = begun.elapsed().as_nanos() / u128::from(rounds);
        println!("{clients} waiting: {each} ns for a push, a turn and its settlement");
    }
}
