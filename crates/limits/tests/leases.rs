//! Places of tenants whom no generation names.

use limits::{Admission, TenantDefinition};

use crate::setting::{Setting, dynamic, fixed, ms, tenant};

fn called(name: &str) -> TenantDefinition {
    TenantDefinition {
        name: name.to_owned(),
        ..tenant(16)
    }
}

#[test]
fn a_place_is_a_tenants_until_its_lease_is_dropped_and_its_keys_are_forgotten() {
    let mut setting = Setting::new(2, vec![dynamic("page", 1)]);
    let named = setting.tenant;
    let first = setting.ledger.lend(setting.now, &called("a"));
    let second = setting.ledger.lend(setting.now, &called("b"));
    let places = [named, first.tenant(), second.tenant()];
    assert!(places[0] != places[1] && places[1] != places[2] && places[0] != places[2]);
    setting.tenant = first.tenant();
    let permit = setting.admitted(0, &["x"]);
    drop(first);
    let third = setting.ledger.lend(setting.now, &called("c"));
    assert!(!places.contains(&third.tenant()), "a key of it is at work");
    drop(permit);
    setting.ledger.tick(ms(3_600_000));
    setting.ledger.tick(ms(7_200_000));
    let now = ms(7_200_000);
    let mut later = (0..1_000).map(|_| setting.ledger.lend(now, &called("d")));
    assert!(later.any(|lease| lease.tenant() == places[1]));
    assert_eq!(setting.ledger.drift(), 0);
}

#[test]
fn a_generation_leaves_places_that_are_lent_and_takes_those_that_are_not() {
    let mut setting = Setting::new(2, vec![fixed("site", 1)]);
    let lent = setting.ledger.lend(setting.now, &called("a"));
    let again = |setting: &Setting| {
        let tenants = [tenant(setting.keys_max), called("new")];
        setting
            .ledger
            .define(setting.now, &setting.definitions, &tenants)
            .tenants
    };
    let defined = again(&setting);
    assert_eq!(defined[0], setting.tenant);
    assert!(!defined.contains(&lent.tenant()));
    setting.tenant = lent.tenant();
    let permit = setting.admitted(0, &[""]);
    assert!(matches!(setting.say(1, &[""]), Admission::Refused(_)));
    drop((permit, lent));
    let mut fresh = (0..1_000).map(|_| setting.ledger.lend(setting.now, &called("b")));
    assert!(
        fresh.any(|lease| lease.tenant() == setting.tenant),
        "nobody has it any more"
    );
    assert_eq!(setting.ledger.drift(), 0);
}

#[test]
fn ten_thousand_tenants_who_come_and_go_have_places_for_those_who_are_there() {
    let setting = Setting::new(2, vec![fixed("site", 1)]);
    let written: Vec<_> = (0..100).map(|at| called(&format!("own{at}"))).collect();
    setting
        .ledger
        .define(setting.now, &setting.definitions, &written);
    // These stay, at the front of all places.
    let staying: Vec<_> = (0..100)
        .map(|_| setting.ledger.lend(setting.now, &called("stays")))
        .collect();
    let mut held = std::collections::VecDeque::new();
    let mut places = std::collections::HashSet::new();
    for at in 0..10_000 {
        let lease = setting.ledger.lend(setting.now, &called(&format!("t{at}")));
        places.insert(lease.tenant());
        held.push_back(lease);
        if held.len() > 300 {
            held.pop_front();
        }
    }
    assert!(places.len() < 1_500, "{}", places.len());
    drop(staying);
    assert_eq!(setting.ledger.drift(), 0);
}

#[test]
fn places_are_lent_while_others_ask() {
    let setting = Setting::new(4, vec![fixed("site", 1_000)]);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for at in 0..200 {
                    let lease = setting.ledger.lend(setting.now, &called(&format!("t{at}")));
                    let mut places = vec![lease.tenant()];
                    places.extend(
                        (0..3).map(|_| setting.ledger.lend(setting.now, &called("other")).tenant()),
                    );
                    assert_eq!(places.iter().filter(|it| **it == lease.tenant()).count(), 1);
                }
            });
        }
    });
    assert_eq!(setting.ledger.drift(), 0);
}
