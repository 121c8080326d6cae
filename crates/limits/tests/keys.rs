//! Whether a tenant whose keys are nearly used up still has room for those who come by honestly.

use std::time::Duration;

use limits::{Admission, Definition, RateDefinition};

use crate::setting::{Setting, dynamic, ms};

const KEYS_MAX: u32 = 16_000;
/// Pairs of newcomers between two ticks, which are 200 ms apart.
const PAIRS_A_TICK: usize = 500;

/// One request a day for a key: whoever sends one keeps its key busy for as long.
fn once_a_day() -> Definition {
    Definition {
        concurrent: None,
        rate: Some(RateDefinition {
            count: 1,
            per: Duration::from_secs(86_400),
            burst: 1,
        }),
        ..dynamic("day", 1)
    }
}

/// Of so many pairs of newcomers, each with a key of its own and one permit for it, those of whom
/// one was refused because both counted together with all others; after somebody has made all
/// keys but these busy for a day in one go.
fn counted_together(idle: u32, pairs: usize) -> usize {
    let mut setting = Setting::new(2, Vec::new());
    setting.keys_max = KEYS_MAX;
    setting.define(vec![dynamic("file", 1), once_a_day()]);
    for key in idle..KEYS_MAX {
        let rates = setting.check_rates(&["", &format!("minted{key}")]);
        rates.expect("its first request");
    }
    let mut refused = 0;
    for pair in 0..pairs {
        let _first = setting.admitted(0, &[&format!("first{pair}")]);
        match setting.say(0, &[&format!("second{pair}")]) {
            Admission::Admitted(_) => {}
            Admission::Refused(refusal) if refusal.key == "(other)" => refused += 1,
            other => panic!("{other:?}"),
        }
        if pair % PAIRS_A_TICK == 0 {
            setting.now = ms(setting.now.0 / 1_000_000 + 200);
            setting.ledger.tick(setting.now);
        }
    }
    assert_eq!(setting.ledger.drift(), 0);
    refused
}

#[test]
fn minted_keys_do_not_keep_newcomers_from_the_room_of_idle_ones() {
    for idle in [200, 2_000, 8_000] {
        let together = counted_together(idle, 10_000);
        assert!(together <= 100, "{together} of 10000 with room for {idle}");
    }
}

#[test]
fn where_no_key_is_idle_newcomers_count_together() {
    assert_eq!(counted_together(0, 500), 500);
}
