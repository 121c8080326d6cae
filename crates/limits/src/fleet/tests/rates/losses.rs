//! Machines that are killed, have just begun or stood still, and answers that are lost or late.

use super::*;

#[test]
fn a_machine_that_has_begun_or_stood_still_asks_before_it_counts_alone() {
    let rules = FleetRules {
        lease: Duration::from_millis(LEASE_MS),
        machines_min: 2,
    };
    let mut contact = Contact::new(rules);
    let at = |ms: u64| Time::ZERO + Duration::from_millis(ms);
    let by = |contact: &Contact, ms| RateLease::by(at(ms), contact, OnLoss::Share);
    assert_eq!(by(&contact, 1_000).0, RateBy::Store, "just begun");
    contact.ask(at(1_000));
    assert_eq!(by(&contact, 1_400).0, RateBy::Store, "just asked");
    assert_eq!(by(&contact, 1_500), (RateBy::Share(2), at(1_000)));
    contact.give_up();
    assert_eq!(by(&contact, 1_600), (RateBy::Share(2), at(1_000)));
    contact.ask(at(2_000));
    let reply = StoreReply {
        machines: 2,
        ..StoreReply::default()
    };
    contact.hear(at(2_000), &reply);
    // It stands still for long, and has no part of a burst from before it asks again.
    let late_ms = 2_000 + 10 * LEASE_MS;
    assert!(contact.is_lost(at(late_ms)) && contact.is_word_due(at(late_ms)));
    assert_eq!(by(&contact, late_ms).0, RateBy::Store);
    contact.ask(at(late_ms));
    contact.give_up();
    assert_eq!(by(&contact, late_ms), (RateBy::Share(2), at(late_ms)));
}

#[test]
fn an_answer_that_is_lost_or_late_takes_no_more_of_a_burst_than_what_began_without_it() {
    let rate = rate(1, 1_000, 10);
    let terms = RateTerms::of(&rate);
    let grant = RateGrant {
        count: 0,
        next_us: 0,
        full_us: 0,
    };
    for (alone, is_late) in [(0, false), (1, false), (1, true)] {
        let mut world = steady(rate);
        let now = world.machines[0].time(world.now_ms);
        let it = &mut world.machines[0];
        it.key.waiting.push(0);
        let claim = |it: &mut RateMachine, now| {
            let in_use = it.in_use();
            let (contact, stock) = (&it.contact, &it.key.stock);
            let claim = it
                .key
                .lease
                .claim(now, contact, (KEY, terms), stock, in_use);
            claim.map(|it| it.spent_us)
        };
        assert_eq!(claim(it, now), Some(0));
        it.key.stock.set_by(RateBy::Share(1));
        it.key.full_at = now + terms.unknown(RateBy::Share(1));
        for _ in 0..alone {
            let later = it.key.full_at;
            assert_eq!(it.may_begin(later, &rate, 0), Some(true));
        }
        match is_late {
            true => {
                it.key.full_at =
                    it.key
                        .lease
                        .hear(now, now, &grant, &mut it.key.stock, it.key.full_at)
            }
            false => it.key.lease.fail(now),
        }
        it.key.stock.set_by(RateBy::Store);
        it.key.stock.unlist();
        let soon = now + Duration::from_millis(200);
        let spent = claim(it, soon);
        assert_eq!(spent, Some(alone * 1_000_000), "{alone}, {is_late}");
        it.key.full_at = it
            .key
            .lease
            .hear(soon, soon, &grant, &mut it.key.stock, it.key.full_at);
        let later = soon + Duration::from_millis(200);
        assert_eq!(claim(it, later), Some(0), "it is told once");
    }
}

#[test]
fn a_machine_that_is_killed_takes_no_more_than_a_block_with_it() {
    let mut world = steady(rate(1_000, 1_000, 10));
    run(&mut world, [500.0, 0.0, 0.0], 2_000);
    let lost = world.machines[0]
        .key
        .stock
        .usable(world.machines[0].time(world.now_ms));
    world.machines[0] = RateMachine::new(0, 2, 77);
    world.trial.begun.clear();
    run(&mut world, [0.0, 2_000.0, 0.0], 1_000);
    println!(
        "{lost} were lost, and {} began in the next second",
        world.trial.begun.len()
    );
    assert!(lost <= 50 && world.trial.begun.len() > 930);
}
