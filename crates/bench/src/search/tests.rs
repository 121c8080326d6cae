//! Searches on simulated servers with a known knee.

use super::climb::Climb;
use super::probe::{Probe, Result as ProbeResult};
use super::{Knee, Search, Step, VERSION};
use load::client::Live;

fn probe(rate: f64, result: ProbeResult) -> Probe {
    Probe {
        offered: rate,
        achieved: rate,
        result,
        missed: Vec::new(),
        requests: 10_000,
        requests_needed: 1000,
        p50_us: 100.0,
        p99_us: 1000.0,
        max_us: 2000.0,
        failed_share: 0.0,
        cores_used: Some(0.5),
        pss_bytes: None,
    }
}

/// Searches where `answer` says what a rate comes to.
fn search(closed_loop: f64, answer: &mut dyn FnMut(f64) -> ProbeResult) -> Search {
    let live = Live::new();
    let mut told = |_: &super::Tried| {};
    let mut climb = Climb::new(0.04, &mut told);
    let knee = climb
        .run(closed_loop, &live, &mut |rate| {
            Ok(Some(probe(rate, answer(rate))))
        })
        .expect("nothing can fail");
    Search {
        version: VERSION,
        name: "a".to_owned(),
        goals: "p99<50ms".to_owned(),
        knee,
        closed_loop,
        connections: 10,
        probes: climb.into_probes(),
        seconds: 1.0,
    }
}

fn holds_below(knee: f64) -> impl FnMut(f64) -> ProbeResult {
    move |rate| match rate < knee {
        true => ProbeResult::Holds,
        false => ProbeResult::Fails,
    }
}

#[test]
fn the_knee_is_found_wherever_the_search_begins() {
    for begin in [1.0, 300.0, 4000.0, 1e6] {
        for knee in [7.0, 900.0, 5000.0] {
            let seen = search(begin, &mut holds_below(knee));
            let Knee::Found { holds, fails } = seen.knee else {
                panic!("{begin} {knee}: {:?}", seen.knee);
            };
            assert!(
                holds < knee && knee <= fails,
                "{begin} {knee}: {holds} {fails}"
            );
            assert!(fails / holds <= 1.0401, "{begin} {knee}: {holds} {fails}");
            let confirmations = seen.probes.iter().filter(|p| p.step == Step::Confirm);
            assert_eq!(confirmations.count(), 3);
            assert_eq!(seen.exit_status(), 0);
        }
    }
}

#[test]
fn a_rate_that_held_by_luck_is_stepped_down_from() {
    let mut random = fastrand::Rng::with_seed(9);
    // Between 1000 and 1200 it depends on the day.
    let mut answer = |rate: f64| {
        let share = ((1200.0 - rate) / 200.0).clamp(0.0, 1.0);
        match random.f64() < share {
            true => ProbeResult::Holds,
            false => ProbeResult::Fails,
        }
    };
    let seen = search(2000.0, &mut answer);
    let Knee::Found { holds, .. } = seen.knee else {
        panic!("{:?}", seen.knee);
    };
    assert!((900.0..1200.0).contains(&holds), "{holds}");
}

#[test]
fn the_generators_limit_is_not_called_the_servers() {
    let mut answer = |rate: f64| match rate < 3000.0 {
        true => ProbeResult::Holds,
        false => ProbeResult::GeneratorBound,
    };
    let seen = search(1000.0, &mut answer);
    assert!(matches!(seen.knee, Knee::GeneratorBound { holds } if holds > 2800.0));
    assert!(seen.sentence().contains("the generator is the limit"));
    assert_eq!(seen.exit_status(), 3);
}

#[test]
fn goals_that_hold_nowhere_or_everywhere_end_the_search() {
    let seen = search(1000.0, &mut |_| ProbeResult::Fails);
    assert!(matches!(seen.knee, Knee::Nowhere { tried } if tried <= 1.0));
    assert_eq!(seen.exit_status(), 1);
    let seen = search(1000.0, &mut |_| ProbeResult::Holds);
    assert!(matches!(seen.knee, Knee::Everywhere { .. }));
}

#[test]
fn a_server_of_moods_ends_the_search_all_the_same() {
    let mut random = fastrand::Rng::with_seed(4);
    for _ in 0..50 {
        let seen = search(100.0, &mut |_| match random.u8(..3) {
            0 => ProbeResult::Holds,
            1 => ProbeResult::Fails,
            _ => ProbeResult::GeneratorBound,
        });
        assert!(seen.probes.len() <= 62, "{}", seen.probes.len());
        assert!(seen.document().to_html().contains("<svg"));
    }
}

#[test]
fn whoever_stops_it_gets_what_there_is() {
    let live = Live::new();
    let mut told = |_: &super::Tried| live.stop();
    let mut climb = Climb::new(0.04, &mut told);
    let knee = climb
        .run(1000.0, &live, &mut |rate| {
            Ok(Some(probe(rate, ProbeResult::Holds)))
        })
        .expect("nothing can fail");
    assert_eq!(knee, Knee::Unfinished { holds: 500.0 });
    assert_eq!(climb.into_probes().len(), 1);
}

#[test]
fn a_probe_that_was_cut_short_says_nothing() {
    for whole in 0..20_usize {
        let mut left = whole;
        let mut told = |_: &super::Tried| {};
        let mut climb = Climb::new(0.04, &mut told);
        let knee = climb
            .run(1000.0, &Live::new(), &mut |rate| {
                let seen = left > 0;
                left = left.saturating_sub(1);
                Ok(seen.then(|| probe(rate, holds_below(900.0)(rate))))
            })
            .expect("nothing can fail");
        let probes = climb.into_probes().len();
        match knee {
            Knee::Unfinished { .. } => assert_eq!(probes, whole),
            knee => assert!(
                matches!(knee, Knee::Found { .. }) && probes <= whole,
                "{knee:?}"
            ),
        }
    }
}

#[test]
fn a_generator_that_is_always_late_is_given_up() {
    let seen = search(20_000.0, &mut |_| ProbeResult::GeneratorBound);
    assert_eq!(seen.knee, Knee::GeneratorBound { holds: 0.0 });
    assert_eq!(seen.probes.len(), 6);
    assert!(seen.sentence().contains("late at every rate"));
}

#[test]
fn a_search_is_written_as_json_and_as_a_page() {
    let seen = search(1000.0, &mut holds_below(1234.0));
    let read: serde_json::Value = serde_json::from_str(&seen.to_json()).expect("our own JSON");
    assert!(read["knee"]["found"]["holds"].is_number(), "{read}");
    assert_eq!(
        read["probes"].as_array().map(Vec::len),
        Some(seen.probes.len())
    );
    assert!(seen.document().to_markdown().contains("holds up to"));
    let page = seen.document().to_html();
    assert!(!page.contains("min<"), "rates are no times: {page}");
}
