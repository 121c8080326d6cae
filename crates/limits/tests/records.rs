//! What is told of limits: counts that never fall, whatever becomes of keys, and what limits in
//! shadow would have refused.

use crate::setting;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use limits::{
    Admission, Ask, Definition, Keyed, Ledger, Mode, Outcome, RateDefinition, Time, Totals, Used,
    Want, Why,
};

use crate::setting::{Setting, dynamic, fixed, ms};

fn queued(definition: Definition, queue: u32) -> Definition {
    Definition {
        queue,
        ..definition
    }
}

fn in_shadow(definition: Definition) -> Definition {
    Definition {
        mode: Mode::Shadow,
        ..definition
    }
}

fn rated(definition: Definition, burst: u32) -> Definition {
    Definition {
        concurrent: None,
        rate: Some(RateDefinition {
            count: 1,
            per: Duration::from_secs(10),
            burst,
        }),
        ..definition
    }
}

/// Counts of refusals with so many for one reason.
fn refused(why: Why, count: u64) -> [u64; Why::ALL.len()] {
    Why::ALL.map(|it| if it == why { count } else { 0 })
}

#[test]
fn totals_count_keys_that_are_forgotten_and_never_fall() {
    let mut setting = Setting::new(2, vec![dynamic("client", 1)]);
    setting.keys_max = 8;
    setting.define(vec![dynamic("client", 1)]);
    let mut before = Totals::default();
    for nth in 0..10_000_u64 {
        setting.now = ms(nth * 100);
        let key = format!("192.0.2.{nth}");
        let worker = usize::from(nth % 2 == 0);
        let held = setting.admitted(worker, &[&key]);
        assert_eq!(setting.refused(worker, &[&key]).why, Why::Full);
        held.end(setting.now, Used::Nothing, Outcome::Fine);
        if nth % 16 == 0 {
            setting.ledger.tick(setting.now);
        }
        if nth % 100 == 0 {
            let look = setting.totals("client");
            assert!(look.keys <= 9, "{look:?}");
            let grown = look.totals.admitted > before.admitted;
            assert!(grown || nth == 0, "{before:?} {look:?}");
            assert_eq!(look.totals.admitted, nth + 1);
            before = look.totals;
        }
    }
    let look = setting.totals("client");
    let expected = Totals {
        admitted: 10_000,
        refused: refused(Why::Full, 10_000),
        ..Totals::default()
    };
    assert_eq!((look.totals, look.in_flight), (expected, 0));
}

#[test]
fn totals_outlive_reloads_of_a_limit_even_where_its_keys_become_others() {
    let mut setting = Setting::new(2, vec![fixed("site", 100)]);
    let admit = |setting: &mut Setting, times: u64| {
        (0..times).for_each(|at| drop(setting.admitted(usize::from(at % 2 == 0), &["a"])));
    };
    admit(&mut setting, 10);
    setting.define(vec![fixed("site", 3)]);
    admit(&mut setting, 10);
    assert_eq!(setting.totals("site").totals.admitted, 20);
    setting.define(vec![dynamic("site", 3)]);
    assert_eq!(setting.totals("site").totals.admitted, 20);
    admit(&mut setting, 10);
    setting.ledger.tick(ms(1_000));
    setting.define(vec![fixed("site", 100)]);
    admit(&mut setting, 10);
    setting.ledger.tick(ms(100_000));
    setting.ledger.tick(ms(200_000));
    assert_eq!(setting.totals("site").totals.admitted, 40);
    // Gone, with a permit out, and back again.
    let held = setting.admitted(0, &["a"]);
    setting.define(Vec::new());
    assert_eq!(setting.ledger.totals(), []);
    setting.define(vec![fixed("site", 100)]);
    admit(&mut setting, 9);
    assert_eq!(setting.totals("site").totals.admitted, 50);
    assert_eq!(setting.totals("site").in_flight, 1);
    drop(held);
}

#[test]
fn whatever_way_a_request_is_admitted_it_is_counted_once() {
    for definition in [fixed("site", 2), fixed("site", 40), dynamic("site", 2)] {
        let cap = u64::from(setting::cap(&definition));
        let mut setting = Setting::new(2, vec![queued(definition, 8)]);
        let mut held = Vec::new();
        for nth in 0..cap {
            held.push(setting.admitted(usize::from(nth % 2 == 0), &["a"]));
        }
        let mut waiters = [setting.waiting(0, &["a"]), setting.waiting(1, &["a"])];
        held.truncate(held.len() - 2);
        for waiter in &mut waiters {
            let permit = setting.poll(waiter).expect("its turn");
            held.push(permit.expect("a permit"));
        }
        drop(held);
        let look = setting.totals("site");
        assert_eq!((look.totals.admitted, look.totals.waited), (cap + 2, 2));
        assert_eq!((look.in_flight, look.queued), (0, 0));
        assert_eq!(setting.look("site").admitted, cap + 2);
    }
}

#[test]
fn a_limit_of_a_rate_alone_counts_whom_it_lets_pass() {
    for definition in [fixed("calls", 1), dynamic("calls", 1)] {
        let mut setting = Setting::new(2, vec![rated(definition, 3)]);
        let passed = (0..5).filter(|_| setting.check_rates(&["a"]).is_ok());
        assert_eq!(passed.count(), 3);
        let totals = setting.totals("calls").totals;
        assert_eq!(
            (totals.admitted, totals.refused),
            (3, refused(Why::Rate, 2))
        );
        assert_eq!(setting.look("calls").admitted, 3);
    }
}

#[test]
fn a_permit_tells_what_limits_in_shadow_would_have_refused() {
    for definition in [fixed("site", 9), dynamic("site", 9), fixed("site", 1)] {
        let cap = setting::cap(&definition);
        let mut setting = Setting::new(2, vec![in_shadow(definition.clone())]);
        let mut held: Vec<_> = (0..cap).map(|_| setting.admitted(0, &["a"])).collect();
        assert!(
            held.iter_mut()
                .all(|permit| permit.take_shadows().is_empty())
        );
        held.push(setting.admitted(1, &["a"]));
        let mut above = setting.admitted(0, &["a"]);
        let [shadow] = &above.take_shadows()[..] else {
            panic!("one limit would have refused");
        };
        assert_eq!((shadow.why, shadow.mode), (Why::Full, Mode::Shadow));
        assert_eq!((shadow.in_flight, shadow.cap), (cap + 1, cap));
        let is_dynamic = definition.keyed == Keyed::Dynamic;
        assert_eq!(shadow.key, if is_dynamic { "a" } else { "" });
        let (concurrent, queue) = (cap + 2, 2);
        let wait = "with a wait as long as they take";
        let admits = format!("concurrent >= {concurrent}, or queue >= {queue} {wait}");
        assert_eq!(shadow.admits_if(), admits);
        assert!(above.take_shadows().is_empty(), "told once");
        assert_eq!(setting.totals("site").totals.shadow_refused, 2);
    }
}

#[test]
fn what_could_have_waited_is_not_counted_as_refused_in_shadow() {
    let mut setting = Setting::new(1, vec![in_shadow(queued(dynamic("file", 1), 2))]);
    let mut held: Vec<_> = (0..3).map(|_| setting.admitted(0, &["a"])).collect();
    assert_eq!(setting.totals("file").totals.shadow_refused, 0);
    held.push(setting.admitted(0, &["a"]));
    let shadows = held.last_mut().expect("just taken").take_shadows();
    assert_eq!(shadows.first().map(|it| it.why), Some(Why::QueueFull));
    assert_eq!(setting.totals("file").totals.shadow_refused, 1);
}

#[test]
fn all_limits_in_shadow_are_told_in_the_order_of_the_request() {
    let limits = || {
        vec![
            in_shadow(dynamic("file", 1)),
            in_shadow(dynamic("client", 9)),
            in_shadow(fixed("site", 1)),
        ]
    };
    let names = |mut permit: limits::Permit| {
        let shadows = permit.take_shadows().into_iter();
        shadows.map(|it| it.name.to_string()).collect::<Vec<_>>()
    };
    let mut setting = Setting::new(1, limits());
    let _first = setting.admitted(0, &["a", "x", ""]);
    assert_eq!(
        names(setting.admitted(0, &["a", "x", ""])),
        ["file", "site"]
    );
    // The same for one that waited at a limit in force.
    let mut with_queue = limits();
    with_queue.push(queued(fixed("process", 2), 8));
    let mut setting = Setting::new(1, with_queue);
    let _first = setting.admitted(0, &["a", "x", "", ""]);
    let second = setting.admitted(0, &["b", "x", "", ""]);
    let mut waiter = setting.waiting(0, &["a", "x", "", ""]);
    drop(second);
    let permit = setting.poll(&mut waiter).expect("its turn");
    assert_eq!(names(permit.expect("a permit")), ["file", "site"]);
}

#[test]
fn a_rate_in_shadow_tells_when_it_would_have_let_it_pass() {
    let rate = in_shadow(rated(dynamic("client", 1), 1));
    let mut setting = Setting::new(1, vec![rate]);
    assert_eq!(setting.check_rates(&["a"]), Ok(Vec::new()));
    let shadows = setting.check_rates(&["a"]).expect("in shadow");
    assert_eq!((shadows[0].why, &*shadows[0].key), (Why::Rate, "a"));
    assert_eq!(shadows[0].retry_after, Duration::from_secs(10));
    assert_eq!(setting.check_rates(&["b"]), Ok(Vec::new()));
    assert_eq!(setting.totals("client").totals.shadow_refused, 1);
}

#[test]
fn a_clock_that_leaps_or_runs_back_lets_nobody_above_a_limit() {
    let rate = rated(fixed("calls", 1), 2);
    let limits = vec![queued(dynamic("file", 1), 2), fixed("site", 40), rate];
    let mut setting = Setting::new(2, limits);
    let keys = &["a", "", ""];
    let mut passed = 0;
    for (round, now_ms) in [0, 50_000, 10, 86_400_000, 0, 5].into_iter().enumerate() {
        setting.now = ms(now_ms);
        passed += (0..9).filter(|_| setting.check_rates(keys).is_ok()).count();
        let held = setting.admitted(round % 2, keys);
        let mut waiter = setting.waiting(0, keys);
        // Back by as much as it can go, with somebody under way and somebody waiting.
        setting.now = Time::ZERO;
        setting.ledger.tick(setting.now);
        assert!(setting.poll(&mut waiter).is_none());
        held.end(setting.now, Used::Measured(1), Outcome::Fine);
        drop(
            setting
                .poll(&mut waiter)
                .expect("its turn")
                .expect("a permit"),
        );
        let look = setting.totals("file");
        assert_eq!((look.in_flight, look.queued), (0, 0));
        assert_eq!(setting.ledger.drift(), 0);
    }
    // Two at the beginning and two more for each leap forwards; nothing for going back.
    assert_eq!(passed, 6);
}

/// Asks of each of two threads that mint keys.
const ASKS: u64 = 20_000;

#[test]
fn totals_do_not_fall_while_threads_mint_keys() {
    let ledger = Arc::new(Ledger::new(2, [1, 2, 3, 4]));
    // Room for both where they share what is left of the keys.
    let limits = [dynamic("client", 2)];
    let defined = ledger.define(Time::ZERO, &limits, &[setting::tenant(16)]);
    let is_done = Arc::new(AtomicBool::new(false));
    let reader = {
        let (ledger, is_done) = (Arc::clone(&ledger), Arc::clone(&is_done));
        thread::spawn(move || {
            let mut before = 0;
            while !is_done.load(Ordering::Acquire) {
                let admitted = ledger.totals()[0].totals.admitted;
                assert!(admitted >= before, "{before} {admitted}");
                before = admitted;
            }
        })
    };
    thread::scope(|scope| {
        for worker in 0..2 {
            let (ledger, limit, tenant) = (&ledger, defined.limits[0], defined.tenants[0]);
            scope.spawn(move || {
                for nth in 0..ASKS {
                    let key = format!("{worker} {nth}");
                    let wants = [Want {
                        limit,
                        key: Some(key.as_bytes()),
                    }];
                    let client = std::net::Ipv4Addr::LOCALHOST.into();
                    let ask = Ask::of(worker, tenant, client, &wants);
                    let now = ms(nth);
                    match ledger.admit(now, &ask) {
                        Admission::Admitted(permit) => {
                            permit.end(now, Used::Nothing, Outcome::Fine);
                        }
                        other => panic!("{other:?}"),
                    }
                }
            });
        }
    });
    is_done.store(true, Ordering::Release);
    reader.join().expect("nothing fell");
    assert_eq!(ledger.totals()[0].totals.admitted, 2 * ASKS);
    assert_eq!(ledger.drift(), 0);
}

#[test]
fn a_key_that_was_not_sent_is_shown_as_none() {
    let mut setting = Setting::new(1, vec![dynamic("header:x-key", 1)]);
    let _held = setting.admitted(0, &[""]);
    assert_eq!(setting.refused(0, &[""]).key, "(none)");
    assert_eq!(setting.look("header:x-key").key, "(none)");
    assert_eq!(setting.totals("header:x-key").in_flight_most, 1);
}
