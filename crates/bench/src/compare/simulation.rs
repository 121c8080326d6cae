//! How often comparisons err, seen by simulation with fixed seeds: everything but the slices is what
//! runs.
//!
//! `NAGAYA_SIMULATIONS=2000 cargo test --profile quick -p bench --lib simulation -- --nocapture`
//! prints the rates to a per cent; the tests here run fewer and are content with less.

use std::time::Duration;

use super::Options;
use super::comparison::{BlockRecord, Figures, Metric, Side};
use super::judgement::{Bootstrap, judge};
use super::noise::Noise;
use load::server::Which;
use load::stats::{Interval, Looks, RESAMPLES, Verdict};

/// Simulations of an ordinary test run.
const SHORT: usize = 40;

const NOISES: [Noise; 3] = [Noise::Normal, Noise::Lognormal, Noise::Heavy];

fn simulations() -> usize {
    let asked = std::env::var("NAGAYA_SIMULATIONS").ok();
    asked.and_then(|text| text.parse().ok()).unwrap_or(SHORT)
}

/// All of them in a long run, where the tails are looked at.
fn resamples() -> usize {
    if simulations() > SHORT {
        RESAMPLES
    } else {
        200
    }
}

/// Of the logarithm of one ratio: what slices of CPU time per request have, and a bad day.
fn deviations() -> Vec<f64> {
    if simulations() > SHORT {
        vec![0.01, 0.02, 0.03, 0.04, 0.05]
    } else {
        vec![0.04]
    }
}

/// A block of which all but the CPU times is nothing. `deviation` is that of the logarithm of B's to
/// one A's.
fn block(noise: Noise, effect: f64, deviation: f64, random: &mut fastrand::Rng) -> BlockRecord {
    let mut slice = |effect: f64| Figures {
        cpu_us: Some(20.0 * (effect + deviation / 2.0_f64.sqrt() * noise.draw(random)).exp()),
        ..Figures::default()
    };
    BlockRecord {
        order: [Side::A, Side::B, Side::Again],
        a: slice(0.0),
        b: slice(effect),
        again: slice(0.0),
        noise: None,
        generator_bound: 0,
    }
}

fn options(seed: u64) -> Options {
    Options {
        names: ["a".to_owned(), "b".to_owned()],
        servers: [Which::MachineOnly, Which::MachineOnly],
        blocks_max: 60,
        slice: Duration::from_secs(1),
        margin: 0.01,
        seed,
    }
}

/// A comparison as it is run: the verdict, and after how many blocks it fell.
fn comparison(noise: Noise, effect: f64, deviation: f64, seed: u64) -> (Verdict, usize) {
    let looks = Looks::until(60);
    let mut random = fastrand::Rng::with_seed(seed);
    let mut blocks = Vec::new();
    let mut last = (Verdict::CannotTell { more_blocks: 10 }, 0);
    for at in looks.at() {
        while blocks.len() < *at {
            blocks.push(block(noise, effect, deviation, &mut random));
        }
        let judged = judge(&blocks, Metric::CpuPerRequest, &options(seed), resamples());
        last = (judged.verdict, *at);
        if !matches!(last.0, Verdict::CannotTell { .. }) {
            break;
        }
    }
    last
}

/// Shares of verdicts, and blocks needed on average.
#[derive(Debug, Default)]
struct Rates {
    faster: f64,
    slower: f64,
    same: f64,
    blocks: f64,
}

fn rates(noise: Noise, effect: f64, deviation: f64) -> Rates {
    let runs = simulations();
    let each = 1.0 / runs as f64;
    let mut rates = Rates::default();
    for seed in 0..runs as u64 {
        let (verdict, blocks) = comparison(noise, effect, deviation, seed);
        rates.blocks += each * blocks as f64;
        match verdict {
            Verdict::Faster => rates.faster += each,
            Verdict::Slower => rates.slower += each,
            Verdict::Same { .. } => rates.same += each,
            Verdict::CannotTell { .. } => {}
        }
    }
    println!("{noise:?} effect {effect} deviation {deviation}: {rates:.3?}");
    rates
}

#[test]
fn the_interval_holds_the_truth_as_often_as_it_says() {
    for noise in NOISES {
        for count in [10, 20, 40] {
            let mut random = fastrand::Rng::with_seed(42);
            let runs = simulations();
            let holds = |interval: &Interval| interval.low <= 1.0 && interval.high >= 1.0;
            let held = (0..runs)
                .filter_map(|seed| {
                    let blocks: Vec<BlockRecord> = (0..count)
                        .map(|_| block(noise, 0.0, 0.03, &mut random))
                        .collect();
                    let bootstrap = Bootstrap {
                        level: 0.95,
                        resamples: resamples(),
                        seed: seed as u64,
                    };
                    bootstrap.ratio(&blocks, Metric::CpuPerRequest, 1.0)
                })
                .filter(holds)
                .count();
            let share = held as f64 / runs as f64;
            println!("{noise:?} {count} blocks: {share:.3}");
            // Three deviations of forty runs below 95 %.
            assert!(share >= 0.85, "{noise:?} {count}: {share}");
        }
    }
}

#[test]
fn equals_are_hardly_ever_called_different() {
    for noise in NOISES {
        for deviation in deviations() {
            let seen = rates(noise, 0.0, deviation);
            let different = seen.faster + seen.slower;
            // In forty runs one more or less is chance.
            let most = if simulations() > SHORT { 0.05 } else { 0.1 };
            assert!(different <= most, "{noise:?} {deviation}: {seen:?}");
        }
    }
}

#[test]
fn a_slowdown_of_three_per_cent_is_found_within_sixty_blocks() {
    for noise in NOISES {
        for deviation in deviations() {
            let seen = rates(noise, 1.03_f64.ln(), deviation);
            assert!(seen.slower >= 0.9, "{noise:?} {deviation}: {seen:?}");
            assert!(seen.faster <= 0.01, "{noise:?} {deviation}: {seen:?}");
        }
    }
}

#[test]
fn what_is_alike_is_called_the_same_where_the_noise_allows_it() {
    let seen = rates(Noise::Normal, 0.0, 0.015);
    assert!(seen.same >= 0.9, "{seen:?}");
    // Twice the margin is never called the same.
    let seen = rates(Noise::Normal, 1.02_f64.ln(), 0.015);
    assert!(seen.same <= 0.05, "{seen:?}");
}
