//! What the ledger promises, case by case, as the gateway will use it.

use crate::setting;
use std::net::IpAddr;
use std::time::Duration;

use limits::{
    Admission, Change, Concurrent, Definition, Keyed, Mode, Outcome, RateDefinition, Time, Used,
    Why,
};

use crate::setting::{Said, Setting, dynamic, fixed, ms};

#[test]
fn a_third_request_is_refused_where_two_may_be_in_flight() {
    let mut setting = Setting::new(2, vec![dynamic("file", 2)]);
    let first = setting.admitted(0, &["a"]);
    let _second = setting.admitted(1, &["a"]);
    let refusal = setting.refused(0, &["a"]);
    assert_eq!(refusal.why, Why::Full);
    assert_eq!(refusal.to_string(), "limit file=a concurrent 2/2 queue 0/0");
    let admits = "concurrent >= 3, or queue >= 1 with a wait as long as they take";
    assert_eq!(refusal.admits_if(), admits);
    setting
        .admitted(0, &["b"])
        .end(ms(1), Used::Nothing, Outcome::Ignored);
    first.end(ms(5), Used::Measured(1), Outcome::Fine);
    drop(setting.admitted(1, &["a"]));
}

#[test]
fn every_permit_of_a_fixed_limit_can_be_had_by_one_worker_and_not_one_more() {
    for cap in [1, 2, 7, 8, 9, 100, 1000] {
        let mut setting = Setting::new(2, vec![fixed("site", cap)]);
        let other = setting.admitted(1, &[""]);
        let mut held: Vec<_> = (1..cap).map(|_| setting.admitted(0, &[""])).collect();
        assert_eq!(setting.refused(0, &[""]).in_flight, cap);
        assert_eq!(setting.refused(1, &[""]).why, Why::Full);
        other.end(ms(1), Used::Nothing, Outcome::Fine);
        held.push(setting.admitted(0, &[""]));
        assert_eq!(setting.in_flight("site"), cap);
        drop(held);
        assert_eq!((setting.in_flight("site"), setting.ledger.drift()), (0, 0));
    }
}

#[test]
fn an_attempt_that_fails_leaves_nothing_behind() {
    let mut setting = Setting::new(2, vec![dynamic("file", 5), fixed("site", 1)]);
    let held = setting.admitted(0, &["a", ""]);
    for _ in 0..10 {
        assert_eq!(&*setting.refused(1, &["b", ""]).name, "site");
    }
    drop(held);
    let mut setting = Setting::new(2, vec![dynamic("file", 1), fixed("site", 100)]);
    let held = setting.admitted(0, &["a", ""]);
    for _ in 0..200 {
        assert_eq!(&*setting.refused(1, &["a", ""]).name, "file");
    }
    assert_eq!(setting.in_flight("site"), 1);
    drop(held);
}

#[test]
fn a_freed_permit_goes_to_who_came_first_and_to_nobody_else() {
    let mut setting = Setting::new(2, vec![queued(dynamic("file", 1), 8)]);
    let held = setting.admitted(0, &["a"]);
    let mut first = setting.waiting(1, &["a"]);
    let mut second = setting.waiting(0, &["a"]);
    assert!(setting.poll(&mut first).is_none());
    assert!(setting.poll(&mut second).is_none());
    held.end(ms(3), Used::Measured(3_000_000), Outcome::Fine);
    // Somebody who comes now does not barge in, though the waiter has not looked yet.
    let _third = setting.waiting(1, &["a"]);
    assert_eq!(setting.woken(), 1);
    assert!(setting.poll(&mut second).is_none());
    let permit = setting.poll(&mut first).expect("woken").expect("admitted");
    assert_eq!(permit.waited(), Duration::from_millis(3));
}

#[test]
fn a_vanished_waiter_passes_its_permit_on() {
    let mut setting = Setting::new(2, vec![queued(dynamic("file", 1), 8)]);
    let held = setting.admitted(0, &["a"]);
    let first = setting.waiting(1, &["a"]);
    let gone = setting.waiting(1, &["a"]);
    let mut last = setting.waiting(1, &["a"]);
    drop(gone);
    drop(held);
    drop(first);
    assert!(setting.poll(&mut last).expect("passed on").is_ok());
    assert_eq!(setting.ledger.drift(), 0);
}

#[test]
fn who_waits_holds_nothing_and_moves_to_an_outer_gate_with_its_deadline() {
    let limits = vec![queued(dynamic("file", 1), 8), queued(fixed("site", 1), 1)];
    let mut setting = Setting::new(2, limits);
    let held = setting.admitted(0, &["a", ""]);
    let mut other = setting.waiting(1, &["b", ""]);
    let mut waiter = setting.waiting(0, &["a", ""]);
    assert_eq!((setting.in_flight("site"), setting.queued("file")), (1, 1));
    let until = waiter.deadline();
    // Its file is free now, and the site's permit goes to who came before it.
    held.end(ms(2), Used::Nothing, Outcome::Fine);
    assert!(setting.poll(&mut waiter).is_none());
    assert_eq!((setting.queued("file"), setting.queued("site")), (0, 1));
    assert_eq!((setting.in_flight("file"), waiter.deadline()), (1, until));
    let permit = setting.poll(&mut other).expect("served").expect("admitted");
    // It counts against nothing: the site's queue of one is still open.
    let _third = setting.waiting(1, &["c", ""]);
    drop(permit);
    assert!(setting.poll(&mut waiter).expect("served").is_ok());
}

#[test]
fn a_wait_ends_with_its_deadline_whether_polled_or_ticked() {
    let mut setting = Setting::new(1, vec![queued(dynamic("file", 1), 8)]);
    let held = setting.admitted(0, &["a"]);
    let mut polled = setting.waiting(0, &["a"]);
    let mut ticked = setting.waiting(0, &["a"]);
    assert!(setting.poll(&mut ticked).is_none());
    setting.now = polled.deadline();
    let refusal = setting.poll(&mut polled).expect("over").expect_err("late");
    assert_eq!(
        (refusal.why, refusal.waited),
        (Why::WaitedTooLong, Duration::from_secs(2))
    );
    setting.ledger.tick(setting.now);
    assert_eq!(setting.woken(), 1);
    assert!(setting.poll(&mut ticked).expect("over").is_err());
    assert_eq!(setting.queued("file"), 0);
    drop(held);
}

#[test]
fn a_full_queue_refuses() {
    let mut setting = Setting::new(1, vec![queued(dynamic("file", 1), 2)]);
    let _held = setting.admitted(0, &["a"]);
    let _waiters = [setting.waiting(0, &["a"]), setting.waiting(0, &["a"])];
    let refusal = setting.refused(0, &["a"]);
    assert_eq!((refusal.why, refusal.queued), (Why::QueueFull, 2));
    let admits = "concurrent >= 4, or queue >= 3 with a wait as long as they take";
    assert_eq!(refusal.admits_if(), admits);
}

#[test]
fn a_lowered_cap_evicts_nobody_and_a_raised_one_hands_out_at_once() {
    let mut setting = Setting::new(2, vec![queued(fixed("site", 100), 8)]);
    let mut held: Vec<_> = (0..50).map(|at| setting.admitted(at % 2, &[""])).collect();
    setting.change("site", Change::Concurrent(Some(Concurrent::Fixed(10))));
    assert_eq!(setting.in_flight("site"), 50);
    let mut waiters = [setting.waiting(0, &[""]), setting.waiting(1, &[""])];
    held.truncate(10);
    assert!(setting.poll(&mut waiters[0]).is_none());
    setting.change("site", Change::Concurrent(Some(Concurrent::Fixed(12))));
    for waiter in &mut waiters {
        held.push(setting.poll(waiter).expect("handed out").expect("admitted"));
    }
    assert_eq!(setting.in_flight("site"), 12);
    setting.change("site", Change::Concurrent(None));
    held.extend((0..90).map(|_| setting.admitted(0, &[""])));
    drop(held);
    assert_eq!(setting.ledger.drift(), 0);
}

#[test]
fn a_shadow_counts_and_lets_everybody_pass() {
    for definition in [fixed("site", 9), dynamic("site", 9), fixed("site", 1)] {
        let cap = setting::cap(&definition);
        let mut setting = Setting::new(2, vec![definition]);
        setting.change("site", Change::Mode(Mode::Shadow));
        let held: Vec<_> = (0..cap + 3).map(|_| setting.admitted(0, &["a"])).collect();
        let look = setting.look("site");
        assert_eq!(
            (look.in_flight, look.shadow_refused, look.refused),
            (cap + 3, 3, 0)
        );
        setting.change("site", Change::Mode(Mode::Enforce));
        assert_eq!(setting.refused(1, &["a"]).why, Why::Full);
        drop(held);
    }
}

#[test]
fn going_into_shadow_lets_the_waiters_pass() {
    let mut setting = Setting::new(1, vec![queued(dynamic("file", 1), 8)]);
    let _held = setting.admitted(0, &["a"]);
    let mut waiter = setting.waiting(0, &["a"]);
    setting.change("file", Change::Mode(Mode::Shadow));
    assert!(setting.poll(&mut waiter).expect("let pass").is_ok());
}

#[test]
fn a_reload_keeps_what_is_in_flight_and_says_anew_what_holds() {
    let limits = vec![dynamic("file", 2), fixed("site", 100)];
    let mut setting = Setting::new(2, limits.clone());
    let held = [
        setting.admitted(0, &["a", ""]),
        setting.admitted(1, &["a", ""]),
    ];
    setting.change("site", Change::Concurrent(Some(Concurrent::Fixed(3))));
    assert_eq!(setting.look("site").cap, Some(3));
    setting.define(limits.clone());
    assert_eq!(setting.look("site").cap, Some(100));
    assert_eq!(&*setting.refused(0, &["a", ""]).name, "file");
    let mut limits = limits;
    limits[1].concurrent = Some(Concurrent::Fixed(2));
    setting.define(limits);
    assert_eq!(&*setting.refused(0, &["b", ""]).name, "site");
    drop(held);
    assert_eq!((setting.in_flight("site"), setting.ledger.drift()), (0, 0));
}

#[test]
fn a_limit_that_is_gone_lets_its_waiters_pass_and_is_forgotten_with_its_last_permit() {
    let mut setting = Setting::new(2, vec![queued(fixed("site", 1), 1)]);
    let held = setting.admitted(0, &[""]);
    let mut waiter = setting.waiting(1, &[""]);
    let (old, gone) = (setting.limits.clone(), setting.limits[0]);
    setting.define(vec![dynamic("file", 1)]);
    let permit = setting
        .poll(&mut waiter)
        .expect("let pass")
        .expect("admitted");
    setting.now = ms(100_000);
    setting.ledger.tick(setting.now);
    drop((held, permit));
    setting.ledger.tick(setting.now);
    setting.define(vec![dynamic("file", 1), fixed("other", 1)]);
    assert_ne!(setting.limits[1], gone);
    let _held = setting.admitted(0, &["a", ""]);
    // A request of an earlier generation does not meet the limit that has taken the place.
    setting.limits = old;
    drop(setting.admitted(0, &[""]));
    assert_eq!(setting.ledger.drift(), 0);
}

#[test]
fn keys_beyond_a_tenants_share_count_together_once_none_is_idle() {
    let mut setting = Setting::new(2, vec![dynamic("file", 2)]);
    setting.keys_max = 3;
    setting.define(vec![dynamic("file", 2)]);
    for key in 0..50 {
        drop(setting.admitted(0, &[&format!("idle{key}")]));
    }
    let held = ["a", "b", "c", "d", "e"].map(|key| setting.admitted(1, &[key]));
    let refusal = setting.refused(0, &["f"]);
    assert_eq!((&*refusal.key, refusal.in_flight), ("(other)", 2));
    assert_eq!(setting.ledger.look(setting.now, None, 100).len(), 4);
    drop(held);
    // None was idle a moment ago; for a tenth of a second that is believed.
    setting.now = ms(100);
    let _held = ["f", "g", "h"].map(|key| setting.admitted(0, &[key]));
    assert_eq!(setting.look("file").in_flight, 1);
}

#[test]
fn two_new_keys_of_a_request_with_room_for_one_are_counted() {
    let mut setting = Setting::new(2, vec![]);
    setting.keys_max = 1;
    setting.define(vec![dynamic("file", 2), dynamic("client", 2)]);
    let permit = setting.admitted(0, &["x", "y"]);
    let looks = setting.ledger.look(setting.now, None, 10);
    assert_eq!(looks.iter().filter(|look| look.overflow).count(), 1);
    drop(permit);
    assert_eq!(setting.ledger.drift(), 0);
}

#[test]
fn two_new_rates_of_a_request_with_room_for_one_are_charged() {
    let rate = RateDefinition {
        count: 10,
        per: Duration::from_secs(1),
        burst: 10,
    };
    let rated = |name| limits::Definition {
        rate: Some(rate),
        ..dynamic(name, 2)
    };
    let mut setting = Setting::new(2, vec![]);
    setting.keys_max = 1;
    setting.now = ms(1_000);
    setting.define(vec![rated("file"), rated("client")]);
    for _ in 0..10 {
        setting.check_rates(&["x", "y"]).unwrap();
    }
    setting.check_rates(&["x", "y"]).unwrap_err();
}

#[test]
fn a_limit_that_comes_back_is_as_it_is_defined_and_not_as_it_was_set() {
    let mut setting = Setting::new(2, vec![fixed("site", 10)]);
    let _first = setting.admitted(0, &[""]);
    setting.change("site", Change::Concurrent(Some(Concurrent::Fixed(1))));
    setting.define(vec![]);
    setting.define(vec![fixed("site", 10)]);
    let _second = setting.admitted(0, &[""]);
    assert_eq!(setting.in_flight("site"), 2);
}

#[test]
fn one_slow_service_does_not_close_the_queue_to_those_after_it() {
    let mut setting = Setting::new(2, vec![queued(fixed("site", 1), 10)]);
    let service_ms = 100;
    let mut now_ms = 1_000;
    let end = |permit: limits::Permit, now_ms| {
        let used = Used::Measured(service_ms * 1_000_000);
        permit.end(ms(now_ms), used, Outcome::Fine);
    };
    for _ in 0..20 {
        setting.now = ms(now_ms);
        let permit = setting.admitted(0, &[""]);
        now_ms += service_ms;
        end(permit, now_ms);
    }
    // It takes 90 s, and somebody waits as it ends.
    let slow = setting.admitted(0, &[""]);
    now_ms += 89_500;
    setting.now = ms(now_ms);
    let mut ticket = setting.waiting(0, &[""]);
    assert!(setting.poll(&mut ticket).is_none());
    now_ms += 500;
    setting.now = ms(now_ms);
    end(slow, now_ms);
    let mut permit = setting.poll(&mut ticket).unwrap().unwrap();
    for _ in 0..100 {
        setting.now = ms(now_ms + service_ms / 2);
        let mut ticket = setting.waiting(0, &[""]);
        assert!(setting.poll(&mut ticket).is_none());
        now_ms += service_ms;
        setting.now = ms(now_ms);
        end(permit, now_ms);
        permit = setting.poll(&mut ticket).unwrap().unwrap();
    }
}

#[test]
fn a_queue_that_began_with_a_slow_service_opens_again_though_nobody_waits() {
    let late = Some(Duration::from_secs(1));
    let site = Definition {
        late,
        ..queued(fixed("site", 1), 10)
    };
    let mut setting = Setting::new(2, vec![site]);
    let slow = setting.admitted(0, &[""]);
    setting.now = ms(30_000);
    let mut ticket = setting.waiting(0, &[""]);
    assert!(setting.poll(&mut ticket).is_none());
    setting.now = ms(31_000);
    slow.end(setting.now, Used::Measured(1), Outcome::Fine);
    let mut permit = setting.poll(&mut ticket).unwrap().unwrap();
    let mut refused = 0;
    // Services of 100 ms follow, and somebody comes in the middle of each.
    for service in 0..100 {
        setting.now = ms(31_050 + service * 100);
        if let Admission::Waiting(_) = setting.say(0, &[""]) {
            break;
        }
        refused += 1;
        setting.now = ms(31_100 + service * 100);
        permit.end(setting.now, Used::Measured(1), Outcome::Fine);
        permit = setting.admitted(0, &[""]);
    }
    assert!((1..40).contains(&refused), "{refused} refused");
}

#[test]
fn a_prediction_refuses_nobody_whose_wait_may_be_kept() {
    // A service of 30 s was measured, and those that follow take a tenth of a second.
    let mut setting = Setting::new(2, vec![queued(fixed("site", 1), 10)]);
    let slow = setting.admitted(0, &[""]);
    setting.now = ms(30_000);
    slow.end(setting.now, Used::Measured(1), Outcome::Fine);
    let fast = setting.admitted(0, &[""]);
    let mut waiters: Vec<_> = (0..10).map(|_| setting.waiting(0, &[""])).collect();
    let mut last = Some(fast);
    for waiter in &mut waiters {
        setting.now = Time(setting.now.0 + 100_000_000);
        last.take()
            .expect("one is served")
            .end(setting.now, Used::Measured(1), Outcome::Fine);
        last = Some(setting.poll(waiter).expect("its turn").expect("a permit"));
    }
    assert_eq!(setting.totals("site").totals.refused, [0; Why::ALL.len()]);
}

#[test]
fn late_can_be_set_and_taken_back_while_somebody_waits() {
    let mut setting = Setting::new(1, vec![queued(fixed("site", 1), 10)]);
    let mut held = setting.admitted(0, &[""]);
    let mut waiters: Vec<_> = (0..6).map(|_| setting.waiting(0, &[""])).collect();
    let turn = |setting: &mut Setting, held: limits::Permit, now_ms| {
        setting.now = ms(now_ms);
        held.end(setting.now, Used::Measured(1), Outcome::Fine);
    };
    let next = |setting: &Setting, waiters: &mut Vec<limits::Ticket>| {
        let served = waiters.iter_mut().enumerate();
        let mut served = served.filter_map(|(at, it)| Some((at, setting.poll(it)?.ok()?)));
        let (at, permit) = served.next().expect("somebody's turn");
        drop(served);
        drop(waiters.remove(at));
        (at, permit)
    };
    setting.change("site", Change::Late(Some(Duration::from_millis(100))));
    turn(&mut setting, held, 200);
    let (at, permit) = next(&setting, &mut waiters);
    assert_eq!(at, 0, "the first interval begins");
    turn(&mut setting, permit, 350);
    let (at, permit) = next(&setting, &mut waiters);
    assert_eq!(at, 4, "the newest of five");
    setting.change("site", Change::Late(None));
    turn(&mut setting, permit, 600);
    let (at, permit) = next(&setting, &mut waiters);
    assert_eq!(at, 0, "in order again");
    held = permit;
    drop(held);
}

#[test]
fn keys_that_nobody_uses_are_forgotten() {
    let mut setting = Setting::new(2, vec![dynamic("file", 2)]);
    for key in 0..500 {
        drop(setting.admitted(0, &[&format!("{key}")]));
    }
    let _held = setting.admitted(0, &["kept"]);
    setting.now = ms(120_000);
    (0..100).for_each(|_| setting.ledger.tick(setting.now));
    let looks = setting.ledger.look(setting.now, None, 1000);
    assert_eq!(
        looks.iter().map(|look| &*look.key).collect::<Vec<_>>(),
        ["kept"]
    );
}

#[test]
fn rates_are_charged_all_or_none() {
    let per_second = |name, keyed, count| {
        let mut definition = fixed(name, 1);
        definition.keyed = keyed;
        definition.concurrent = None;
        definition.rate = Some(RateDefinition {
            count,
            per: Duration::from_secs(1),
            burst: count,
        });
        definition
    };
    let limits = vec![
        per_second("client", Keyed::Dynamic, 5),
        per_second("site", Keyed::Fixed, 8),
    ];
    let mut setting = Setting::new(2, limits);
    let passed = |setting: &mut Setting, key| {
        (0..10)
            .filter(|_| setting.check_rates(&[key, ""]).is_ok())
            .count()
    };
    assert_eq!(passed(&mut setting, "a"), 5);
    // What the client's rate refused was not charged to the site.
    assert_eq!(passed(&mut setting, "b"), 3);
    let refusal = setting.check_rates(&["b", ""]).expect_err("used up");
    assert_eq!((&*refusal.name, refusal.why), ("site", Why::Rate));
    // Seven more of `b` were refused before it.
    let admits = "burst >= 16, or it had come 126ms later";
    assert_eq!(refusal.admits_if(), admits);
    assert_eq!(refusal.retry_after, Duration::from_millis(125));
    setting.now = Time(setting.now.0 + 125_000_000);
    assert!(setting.check_rates(&["b", ""]).is_ok());
    setting.change("site", Change::Mode(Mode::Shadow));
    assert!(setting.check_rates(&["c", ""]).is_ok());
    assert_eq!(setting.look("site").shadow_refused, 1);
}

#[test]
fn a_panic_while_a_permit_is_held_frees_it() {
    let mut setting = Setting::new(2, vec![dynamic("file", 1), fixed("site", 100)]);
    let permit = setting.admitted(0, &["a", ""]);
    let panicked = std::thread::spawn(move || {
        let _held = permit;
        std::panic::resume_unwind(Box::new("for the test"));
    });
    assert!(panicked.join().is_err());
    assert_eq!(setting.ledger.drift(), 0);
    drop(setting.admitted(1, &["a", ""]));
}

#[test]
fn an_idle_limit_is_counted_in_cells_again_and_stays_exact() {
    let mut setting = Setting::new(2, vec![fixed("site", 20)]);
    for round in 0..20_u64 {
        let held: Vec<_> = (0..20).map(|at| setting.admitted(at % 2, &[""])).collect();
        assert!(matches!(setting.say(1, &[""]), Said::Refused(_)));
        drop(held);
        for step in 0..3 {
            setting.now = ms(round * 10_000 + step * 1500);
            setting.ledger.tick(setting.now);
        }
        assert_eq!((setting.in_flight("site"), setting.ledger.drift()), (0, 0));
    }
}

#[test]
fn more_limits_than_a_permit_keeps_at_hand_are_all_counted() {
    let limits: Vec<_> = (0..12)
        .map(|at| dynamic(&format!("limit{at}"), 3))
        .collect();
    let mut setting = Setting::new(2, limits);
    let keys = ["k"; 12];
    let held = [(); 3].map(|()| setting.admitted(0, &keys));
    assert_eq!(&*setting.refused(1, &keys).name, "limit0");
    assert_eq!(setting.in_flight("limit11"), 3);
    drop(held);
    assert_eq!(
        (setting.in_flight("limit11"), setting.ledger.drift()),
        (0, 0)
    );
}

fn queued(definition: limits::Definition, queue: u32) -> limits::Definition {
    limits::Definition {
        queue,
        ..definition
    }
}

/// Whether a client that gave back the place it had waited for, having used so much, comes before
/// another that used a second.
fn comes_first_again(used: Used, by_the_end: Used) -> bool {
    let mut setting = Setting::new(1, vec![queued(fixed("place", 1), 10), fixed("site", 10)]);
    let [one, other, third] = [1, 2, 3].map(|at| IpAddr::from([192, at, 2, 1]));
    let (second, fine) = (Used::Measured(1_000_000_000), Outcome::Fine);
    let held = setting.admitted(0, &["", ""]);
    let wait = |setting: &mut Setting, client| {
        setting.client = client;
        setting.waiting(0, &["", ""])
    };
    let mut others = wait(&mut setting, other);
    let mut ones = wait(&mut setting, one);
    held.end(setting.now, second, fine);
    let held = setting.granted(&mut others);
    held.end(setting.now, second, fine);
    let mut early = setting.granted(&mut ones);
    let mut thirds = wait(&mut setting, third);
    early.end_of(setting.now, used, &[setting.limits[0]]);
    let held = setting.granted(&mut thirds);
    assert_eq!(setting.in_flight("site"), 2, "it keeps the other limit's");
    early.end(setting.now, by_the_end, fine);
    let _others = wait(&mut setting, other);
    let mut ones = wait(&mut setting, one);
    held.end(setting.now, second, fine);
    setting.poll(&mut ones).is_some()
}

#[test]
fn a_permit_given_back_before_others_is_charged_what_it_took_and_once() {
    let (little, much) = (Used::Measured(1), Used::Measured(10_000_000_000));
    assert!(comes_first_again(little, little));
    assert!(comes_first_again(Used::Nothing, little));
    assert!(!comes_first_again(much, little), "what it took counts");
    assert!(comes_first_again(little, much), "and was settled by then");
}
