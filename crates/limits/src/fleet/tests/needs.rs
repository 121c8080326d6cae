//! Who has what of a limit once all is well: whoever needs it, and where all do in equal parts.

use super::*;

/// A fleet without trouble, after what there was of it.
fn healed(seed: u64, machines: usize, limit: u32) -> PermitWorld {
    let trouble = Trouble {
        on_loss: OnLoss::Share,
        lost: 20,
        delay_ms: 60,
        stray: 0,
        has_cuts: true,
    };
    let mut world = PermitWorld::of_limit(seed, machines, limit, trouble);
    for _ in 0..100 {
        world.happen();
        world.step();
    }
    (world.is_up, world.trouble.lost, world.trouble.delay_ms) = (true, 0, 2);
    world
        .machines
        .iter_mut()
        .for_each(|it| (it.is_cut, it.key.waiting) = (false, 0));
    let until_ms = world.now_ms + 2 * LEASE_MS;
    while world.now_ms < until_ms {
        world.step();
    }
    world
}

#[test]
fn two_leases_after_any_trouble_the_whole_limit_is_used_by_whoever_needs_it() {
    for seed in 0..300 {
        let mut world = healed(seed, 3, 24);
        assert_eq!(world.store.held(KEY, world.now_ms), 0, "history {seed}");
        for at in [0, 1, 2, 0] {
            world.machines.iter_mut().for_each(|it| it.key.waiting = 0);
            // Those before it have ended, and it has been asked for.
            let from_ms = world.now_ms;
            while world.now_ms < from_ms + 2_500 {
                world.machines[at].key.waiting = 100;
                world.step();
            }
            let in_use = world.machines[at].in_use().in_flight;
            assert_eq!(in_use, 24, "history {seed}, machine {at}");
        }
    }
}

#[test]
fn a_key_that_was_granted_before_others_has_its_share_as_soon_as_its_lease_is_over() {
    let rules = FleetRules {
        lease: Duration::from_millis(LEASE_MS),
        machines_min: 0,
    };
    let (mut contact, mut lease) = (Contact::new(rules), PermitLease::default());
    let terms = (FleetKey([1, 1]), 100, OnLoss::Share);
    let in_use = InUse {
        in_flight: 50,
        ..InUse::default()
    };
    let grant = Grant {
        held: 62,
        part: 62,
        is_contended: false,
        is_coming: false,
    };
    let answer = |contact: &mut Contact, now| {
        let reply = StoreReply {
            machines: 2,
            ..StoreReply::default()
        };
        contact.ask(now);
        contact.hear(now, &reply);
    };
    for now_ms in (LEASE_MS..=LEASE_MS * 2).step_by(500) {
        let now = Time::ZERO + Duration::from_millis(now_ms);
        answer(&mut contact, now);
        if lease.claim(now, &contact, terms, in_use).is_some() {
            lease.hear(now, now, &contact, &grant, in_use);
        }
    }
    // Of another key it is heard a little longer, then of none.
    let begun_ms = LEASE_MS * 2;
    answer(
        &mut contact,
        Time::ZERO + Duration::from_millis(begun_ms + LEASE_MS / 4),
    );
    for now_ms in (begun_ms + LEASE_MS / 3..begun_ms + LEASE_MS * 3).step_by(25) {
        let now = Time::ZERO + Duration::from_millis(now_ms);
        if lease.claim(now, &contact, terms, in_use).is_some() {
            contact.ask(now);
            contact.give_up();
            lease.fail(now);
        }
        let (budget, until) = lease.budget(now, &contact, 100, OnLoss::Share);
        assert!(budget >= 50 && until > now, "{budget} at {now_ms} ms");
    }
}

#[test]
fn machines_that_compete_come_to_equal_parts_and_each_has_its_turn() {
    for limit in [1, 2, 24] {
        let mut world = healed(1, 3, limit);
        let mut served = [0_u64; 3];
        for _ in 0..8_000 {
            for at in 0..3 {
                world.machines[at].key.waiting = 50;
            }
            let (until_ms, before) = (world.now_ms + 10, world.now_ms);
            world.deliver(until_ms);
            world.serve();
            for (at, served) in served.iter_mut().enumerate() {
                *served += u64::from(world.machines[at].in_use().in_flight);
            }
            assert!(world.sum() <= limit && before < until_ms);
        }
        let all: u64 = served.iter().sum();
        let squares: u64 = served.iter().map(|it| it * it).sum();
        let jain = (all * all) as f64 / (3.0 * squares as f64);
        assert!(jain > 0.93, "limit {limit}: {served:?}");
        let share = all as f64 / f64::from(limit) / 8_000.0;
        assert!(share > 0.6, "limit {limit}: {served:?}, {share}");
    }
}
