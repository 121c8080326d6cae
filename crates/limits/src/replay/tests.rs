//! A replay decides what the ledger decided when the log was written.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use proptest::prelude::*;

use super::*;

const MILLISECOND: u64 = 1_000_000;

fn limit(permits: u32, queue: u32, wait: Duration) -> Definition {
    Definition {
        keyed: Keyed::Dynamic,
        concurrent: Some(Concurrent::Fixed(permits)),
        queue,
        wait,
        ..Definition::of("file")
    }
}

fn tenants() -> Vec<TenantDefinition> {
    let tenant = |name: &str| TenantDefinition {
        name: name.to_owned(),
        weight: 1,
        keys_max: 4_096,
    };
    vec![tenant("one"), tenant("two")]
}

fn arrival(arrived_ms: u64, held_ms: u64, key: &str) -> Arrival {
    Arrival {
        arrived: Time(arrived_ms * MILLISECOND),
        held: Duration::from_millis(held_ms),
        tenant: 0,
        client: Ipv4Addr::LOCALHOST.into(),
        key: key.as_bytes().into(),
    }
}

fn decisions(limit: &Definition, arrivals: Vec<Arrival>) -> (Report, Vec<Decided>) {
    let mut decided = Vec::new();
    let report = run(limit, &tenants(), arrivals.into_iter(), |one| {
        decided.push(*one)
    });
    decided.sort_by_key(|decided| decided.number);
    (report, decided)
}

/// The page of the field report: three seconds, opened so many times within a second.
fn opened(times: u64) -> Vec<Arrival> {
    (0..times)
        .map(|number| arrival(number * 100, 3_000, "/var/www/html/sleep.php"))
        .collect()
}

#[test]
fn of_three_visitors_to_two_permits_the_third_is_refused() {
    let (report, decided) = decisions(&limit(2, 0, Duration::ZERO), opened(3));
    let said: Vec<_> = decided.iter().map(|decided| decided.decision).collect();
    let admitted = Decision::Admitted(Duration::ZERO);
    assert_eq!(said, [admitted, admitted, Decision::Refused(Why::Full)]);
    assert_eq!(report.total.refused, [(Why::Full, 1)]);
    assert_eq!((report.total.peak, report.total.wanted), (2, 3));
    assert_eq!(report.keys[0].key, "/var/www/html/sleep.php");
}

#[test]
fn with_a_queue_all_ten_are_served_in_order() {
    let (report, decided) = decisions(&limit(2, 8, Duration::from_secs(20)), opened(10));
    assert_eq!((report.total.admitted, report.total.waited), (10, 8));
    assert_eq!(
        report.total.wait_max,
        Duration::from_millis(4 * 3_000 - 800)
    );
    let begun = decided.iter().map(|decided| match decided.decision {
        Decision::Admitted(waited) => decided.arrived + waited,
        Decision::Refused(why) => panic!("refused: {why:?}"),
    });
    assert!(begun.is_sorted());
}

#[test]
fn who_waits_in_vain_is_refused_when_its_time_is_up() {
    let (report, _) = decisions(&limit(1, 8, Duration::from_millis(500)), opened(2));
    assert_eq!(report.total.refused, [(Why::WaitedTooLong, 1)]);
}

#[test]
fn a_rate_is_replayed_too() {
    let rate = crate::RateDefinition {
        count: 1,
        per: Duration::from_secs(1),
        burst: 2,
    };
    let limit = Definition {
        concurrent: None,
        rate: Some(rate),
        ..limit(1, 0, Duration::ZERO)
    };
    let arrivals = [0, 10, 20, 1_000, 1_500]
        .map(|at| arrival(at, 5, "a"))
        .into();
    let (report, _) = decisions(&limit, arrivals);
    assert_eq!(
        (report.total.admitted, &*report.total.refused),
        (3, &[(Why::Rate, 2)][..])
    );
}

#[test]
fn keys_beyond_the_number_shown_are_told_together() {
    let keys = KEYS_MAX as u64 + 10;
    let arrivals = (0..keys)
        .map(|number| arrival(number, 1, &number.to_string()))
        .collect();
    let (report, _) = decisions(&limit(1, 0, Duration::ZERO), arrivals);
    assert_eq!(report.keys.len(), KEYS_MAX + 1);
    let others = report
        .keys
        .iter()
        .find(|key| key.key == OTHER)
        .expect("told together");
    assert_eq!(others.admitted + others.refused_total(), 10);
    assert_eq!(report.total.admitted + report.total.refused_total(), keys);
}

#[test]
fn nothing_comes_of_no_arrivals() {
    let (report, decided) = decisions(&limit(1, 0, Duration::ZERO), Vec::new());
    assert!(decided.is_empty() && report.keys.is_empty());
    let found = thresholds(&limit(1, 0, Duration::ZERO), &[], std::iter::empty);
    assert_eq!(
        found,
        Thresholds {
            without_waits: 1,
            without_refusals: Some(1)
        }
    );
}

fn any_arrivals() -> impl Strategy<Value = Vec<Arrival>> {
    let one = (
        0_u64..60_000_000,
        0_u64..400_000_000,
        0_usize..2,
        0_u8..6,
        0_u8..3,
    );
    proptest::collection::vec(one, 1..200).prop_map(|all| {
        let mut now_ns = 1_000 * MILLISECOND;
        all.into_iter()
            .map(|(gap_ns, held_ns, tenant, client, key)| {
                now_ns += gap_ns + 1;
                Arrival {
                    arrived: Time(now_ns),
                    held: Duration::from_nanos(held_ns),
                    tenant,
                    client: Ipv4Addr::new(192, 0, client, 1).into(),
                    key: [b'a' + key].into(),
                }
            })
            .collect()
    })
}

/// What an access log holds of a request.
struct Line {
    ended: Time,
    waited: Duration,
    arrival: Arrival,
    decision: Decision,
}

/// A gateway so simple that it asks everybody who waits after everything that happens.
struct Gateway {
    ledger: Ledger,
    limit: LimitId,
    tenants: Vec<TenantId>,
    events: BTreeMap<(Time, u64), Event>,
    number: u64,
    waiting: Vec<(Arrival, Ticket)>,
    log: Vec<Line>,
}

enum Event {
    Arrives(Arrival),
    Ends(Permit, u64),
    Looks,
}

impl Gateway {
    fn log_of(limit: &Definition, arrivals: &[Arrival]) -> Vec<Line> {
        let ledger = Ledger::new(1, [1, 2, 3, 4]);
        let defined = ledger.define(arrivals[0].arrived, std::slice::from_ref(limit), &tenants());
        let mut gateway = Self {
            ledger,
            limit: defined.limits[0],
            tenants: defined.tenants,
            events: BTreeMap::new(),
            number: 0,
            waiting: Vec::new(),
            log: Vec::new(),
        };
        for arrival in arrivals {
            gateway.schedule(arrival.arrived, Event::Arrives(arrival.clone()));
        }
        for tick in 1..400 {
            gateway.schedule(Time((tick + 10) * TICK_NS), Event::Looks);
        }
        while let Some(((now, _), event)) = gateway.events.pop_first() {
            gateway.happens(now, event);
            gateway.ask_all(now);
        }
        gateway.log
    }

    fn schedule(&mut self, at: Time, event: Event) {
        self.number += 1;
        self.events.insert((at, self.number), event);
    }

    fn happens(&mut self, now: Time, event: Event) {
        match event {
            Event::Ends(permit, held_ns) => permit.end(now, Used::Measured(held_ns), Outcome::Fine),
            Event::Looks => self.ledger.tick(now),
            Event::Arrives(arrival) => {
                let want = Want {
                    limit: self.limit,
                    key: Some(&arrival.key),
                };
                let tenant = self.tenants[arrival.tenant];
                let wants = [want];
                let ask = Ask::of(0, tenant, arrival.client, &wants);
                match self.ledger.admit(now, &ask) {
                    Admission::Admitted(permit) => self.answered(now, arrival, Ok(permit)),
                    Admission::Refused(refusal) => self.answered(now, arrival, Err(refusal)),
                    Admission::Waiting(ticket) => {
                        // Looked at when its time is up.
                        self.schedule(ticket.deadline(), Event::Looks);
                        self.waiting.push((arrival, ticket));
                    }
                }
            }
        }
    }

    fn ask_all(&mut self, now: Time) {
        let mut context = Context::from_waker(Waker::noop());
        for (arrival, mut ticket) in std::mem::take(&mut self.waiting) {
            match ticket.poll_wait(now, &mut context) {
                Poll::Ready(answer) => self.answered(now, arrival, answer),
                Poll::Pending => self.waiting.push((arrival, ticket)),
            }
        }
    }

    fn answered(&mut self, now: Time, arrival: Arrival, answer: Result<Permit, Box<Refusal>>) {
        let waited = now - arrival.arrived;
        let line = |ended, decision| Line {
            ended,
            waited,
            arrival: arrival.clone(),
            decision,
        };
        match answer {
            Err(refusal) => self.log.push(line(now, Decision::Refused(refusal.why))),
            Ok(permit) => {
                let ended = now + arrival.held;
                self.log.push(line(ended, Decision::Admitted(waited)));
                let held_ns = arrival.held.as_nanos() as u64;
                self.schedule(ended, Event::Ends(permit, held_ns));
            }
        }
    }
}

/// As a reader of a log sees a line: how long it took in all, and how long of that it waited.
fn read(line: &Line) -> Arrival {
    let took = line.ended - line.arrival.arrived;
    Arrival {
        held: took - line.waited,
        ..line.arrival.clone()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_replay_of_what_the_ledger_decided_decides_the_same(
        arrivals in any_arrivals(),
        permits in 1_u32..5,
        queue in 0_u32..6,
        wait_ms in 1_u64..600,
    ) {
        let limit = limit(permits, queue, Duration::from_millis(wait_ms));
        let mut log = Gateway::log_of(&limit, &arrivals);
        log.sort_by_key(|line| line.arrival.arrived);
        let (_, decided) = decisions(&limit, log.iter().map(read).collect());
        prop_assert_eq!(decided.len(), arrivals.len());
        for (line, decided) in log.iter().zip(decided) {
            prop_assert_eq!(line.arrival.arrived, decided.arrived);
            prop_assert_eq!(line.decision, decided.decision);
        }
    }

    #[test]
    fn with_as_many_permits_as_were_wanted_at_once_nobody_waits(arrivals in any_arrivals()) {
        let limit = limit(1, 100, Duration::from_secs(1));
        let found = thresholds(&limit, &tenants(), || arrivals.iter().cloned());
        let with = |permits| {
            let concurrent = Some(Concurrent::Fixed(permits));
            let limit = Definition { concurrent, ..limit.clone() };
            decisions(&limit, arrivals.clone()).0.total
        };
        let enough = with(found.without_waits);
        prop_assert_eq!((enough.waited, enough.refused_total()), (0, 0));
        prop_assert_eq!(enough.admitted, arrivals.len() as u64);
        if found.without_waits > 1 {
            let fewer = with(found.without_waits - 1);
            prop_assert!(fewer.waited + fewer.refused_total() > 0);
        }
        let least = found.without_refusals.expect("three keys are told apart");
        prop_assert!(least <= found.without_waits && with(least).refused_total() == 0);
        prop_assert!(least == 1 || with(least - 1).refused_total() > 0);
    }
}
