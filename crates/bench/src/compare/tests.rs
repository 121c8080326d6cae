//! Comparisons of simulated servers: what is called what, and what is run again.

use std::time::Duration;

use super::comparison::{Comparison, Ended, Figures, Metric, Side, Weight};
use super::noise;
use super::slice::Slice;
use super::{Options, blocks};
use load::client::Live;
use load::server::Which;
use load::stats::Verdict;

/// Servers that differ by `effect`, and slices that deviate by `deviation`.
struct Simulated {
    effect: f64,
    deviation: f64,
    random: fastrand::Rng,
    slices: usize,
}

impl Simulated {
    fn new(effect: f64, deviation: f64) -> Simulated {
        Simulated {
            effect,
            deviation,
            random: fastrand::Rng::with_seed(3),
            slices: 0,
        }
    }

    fn slice(&mut self, side: Side) -> Slice {
        self.slices += 1;
        let effect = if side == Side::B { self.effect } else { 0.0 };
        let wobble = self.deviation * noise::normal(&mut self.random);
        let cpu_us = 20.0 * (effect + wobble).exp();
        Slice {
            figures: Figures {
                per_second: 1e6 / cpu_us,
                cpu_us: Some(cpu_us),
                p50_us: 100.0,
                p90_us: 200.0,
                p99_us: 300.0,
                requests: 10_000,
                failed: 0,
            },
            ..Slice::default()
        }
    }
}

fn options(blocks_max: usize) -> Options {
    Options {
        names: ["a".to_owned(), "b".to_owned()],
        servers: [Which::MachineOnly, Which::MachineOnly],
        blocks_max,
        slice: Duration::from_secs(1),
        margin: 0.01,
        seed: 1,
    }
}

fn compare(blocks_max: usize, slice: &mut dyn FnMut(Side) -> Slice) -> Comparison {
    let options = options(blocks_max);
    let metric = Metric::CpuPerRequest;
    let mut slice = |side| Ok(slice(side));
    blocks::run(&options, metric, &Live::new(), &mut |_| {}, &mut slice).expect("nothing can fail")
}

#[test]
fn a_slowdown_is_found_and_ends_the_comparison() {
    let mut servers = Simulated::new(0.05, 0.01);
    let seen = compare(60, &mut |side| servers.slice(side));
    assert_eq!(
        seen.judgement.verdict,
        Verdict::Slower,
        "{}",
        seen.sentence()
    );
    assert_eq!((seen.blocks.len(), seen.ended), (10, Ended::Decided));
    // Two slices are run before anything counts.
    assert_eq!(servers.slices, 2 + 3 * 10);
    assert_eq!(seen.exit_status(), 1);
    assert!(seen.judgement.chance < 0.01);
}

#[test]
fn equals_are_called_the_same_and_faster_is_no_failure() {
    let mut servers = Simulated::new(0.0, 0.003);
    let seen = compare(60, &mut |side| servers.slice(side));
    assert_eq!(seen.judgement.verdict.to_string(), "same within ±1 %");
    assert_eq!(seen.exit_status(), 0);
    let mut servers = Simulated::new(-0.05, 0.01);
    let seen = compare(60, &mut |side| servers.slice(side));
    assert_eq!(seen.judgement.verdict, Verdict::Faster);
    assert_eq!(seen.exit_status(), 0);
}

#[test]
fn wild_noise_ends_in_doubt_and_says_how_many_blocks_it_would_take() {
    let mut servers = Simulated::new(0.01, 0.3);
    let seen = compare(20, &mut |side| servers.slice(side));
    assert!(
        matches!(seen.judgement.verdict, Verdict::CannotTell { more_blocks } if more_blocks > 10),
        "{}",
        seen.sentence()
    );
    assert_eq!((seen.blocks.len(), seen.ended), (20, Ended::UsedUp));
    assert_eq!(seen.exit_status(), 3);
}

#[test]
fn disturbed_blocks_are_run_again_within_a_bound() {
    let mut servers = Simulated::new(0.05, 0.01);
    let mut count = 0;
    let seen = compare(10, &mut |side| {
        count += 1;
        let mut slice = servers.slice(side);
        // One slice in thirty was disturbed.
        slice.noise = (count % 30 == 3).then(|| ("hypervisor", "it took a lot".to_owned()));
        slice
    });
    assert_eq!(seen.voided.get("hypervisor"), Some(&2));
    assert_eq!(seen.blocks.len(), 10);
    assert!(seen.blocks.iter().all(|block| block.noise.is_none()));

    let seen = compare(10, &mut |side| {
        let mut slice = servers.slice(side);
        slice.noise = Some(("hypervisor", "it always does".to_owned()));
        slice
    });
    assert_eq!((seen.voided(), seen.blocks.len()), (10, 10));
    let told = seen.judgement.doubts.iter();
    assert!(
        told.clone()
            .any(|doubt| doubt.text.contains("no end to it"))
    );
}

#[test]
fn a_server_that_fails_is_not_called_faster() {
    let mut servers = Simulated::new(-0.5, 0.01);
    let seen = compare(10, &mut |side| {
        let mut slice = servers.slice(side);
        slice.figures.failed = if side == Side::B { 5_000 } else { 0 };
        slice
    });
    assert!(matches!(seen.judgement.verdict, Verdict::CannotTell { .. }));
    let doubt = seen.judgement.doubts.first().expect("a doubt");
    assert_eq!(doubt.weight, Weight::Refusal);
    assert!(doubt.text.contains("50 % of those to B"), "{}", doubt.text);
}

#[test]
fn a_busy_generator_refuses_capacities_but_not_cpu_time() {
    for (metric, expected) in [(Metric::CpuPerRequest, 1), (Metric::PerSecond, 3)] {
        let mut servers = Simulated::new(0.05, 0.01);
        let options = options(10);
        let mut slice = |side| {
            Ok(Slice {
                is_generator_bound: true,
                ..servers.slice(side)
            })
        };
        let seen = blocks::run(&options, metric, &Live::new(), &mut |_| {}, &mut slice)
            .expect("nothing can fail");
        assert_eq!(seen.exit_status(), expected, "{metric:?}");
        assert!(
            seen.judgement
                .doubts
                .iter()
                .any(|d| d.text.contains("generator"))
        );
    }
}

#[test]
fn a_control_that_is_off_refuses_the_verdict() {
    let mut servers = Simulated::new(0.05, 0.002);
    let seen = compare(10, &mut |side| {
        let mut slice = servers.slice(side);
        let times = if side == Side::Again { 1.04 } else { 1.0 };
        slice.figures.cpu_us = slice.figures.cpu_us.map(|cpu| cpu * times);
        slice
    });
    assert_eq!(seen.exit_status(), 3, "{}", seen.sentence());
    assert!(
        seen.judgement
            .doubts
            .iter()
            .any(|d| d.text.contains("A differs from itself"))
    );
}

#[test]
fn whoever_stops_it_gets_what_there_is() {
    let mut servers = Simulated::new(0.05, 0.01);
    let live = Live::new();
    let mut count = 0;
    let mut slice = |side| {
        count += 1;
        if count == 12 {
            live.stop();
        }
        Ok(servers.slice(side))
    };
    let metric = Metric::CpuPerRequest;
    let mut told = 0;
    let seen = blocks::run(&options(60), metric, &live, &mut |_| told += 1, &mut slice)
        .expect("nothing can fail");
    assert_eq!((seen.blocks.len(), seen.ended), (3, Ended::Interrupted));
    assert_eq!(told, 3);
    assert_eq!(
        seen.judgement.verdict.to_string(),
        "cannot tell yet (about 7 more blocks)"
    );
}

#[test]
fn nothing_measured_is_a_report_as_well() {
    let live = Live::new();
    live.stop();
    let metric = Metric::PerSecond;
    let mut slice = |_| Ok(Slice::default());
    let seen = blocks::run(&options(60), metric, &live, &mut |_| {}, &mut slice)
        .expect("nothing can fail");
    assert!(seen.document().to_markdown().contains("cannot tell yet"));
    assert!(!seen.to_json().is_empty());
}

#[test]
fn a_comparison_is_written_as_json_and_as_a_page() {
    let mut servers = Simulated::new(0.05, 0.01);
    let seen = compare(10, &mut |side| servers.slice(side));
    let read: serde_json::Value = serde_json::from_str(&seen.to_json()).expect("our own JSON");
    assert_eq!(read["judgement"]["verdict"], "Slower");
    assert_eq!(
        read["blocks"].as_array().map(Vec::len),
        Some(seen.blocks.len())
    );
    let page = seen.document().to_html();
    assert!(page.contains("slower") && page.contains("<svg"), "{page}");
    assert!(!page.contains("10 s<"), "blocks are no seconds: {page}");
}
