//! How often the statistics err, seen by simulation with fixed seeds.
//!
//! `NAGAYA_SIMULATIONS=2000 cargo test --profile quick -p bench --lib simulation -- --nocapture`
//! prints the rates to a per cent; the tests here run fewer and are content with less.

use super::noise::Noise;
use super::{Better, Interval, Looks, Verdict, bootstrap, verdict, widening};

/// Simulations of an ordinary test run.
const SHORT: usize = 40;

const NOISES: [Noise; 3] = [Noise::Normal, Noise::Lognormal, Noise::Heavy];

fn simulations() -> usize {
    let asked = std::env::var("NAGAYA_SIMULATIONS").ok();
    asked.and_then(|text| text.parse().ok()).unwrap_or(SHORT)
}

/// More in a long run, where the tails are looked at.
fn resamples() -> usize {
    if simulations() > SHORT { 2000 } else { 200 }
}

/// Of the logarithm of one ratio: what slices of CPU time per request have, and a bad day.
fn deviations() -> Vec<f64> {
    if simulations() > SHORT {
        vec![0.01, 0.02, 0.03, 0.04, 0.05]
    } else {
        vec![0.04]
    }
}

/// The logarithms of the ratios of a block: B to A, and B to the second A. `deviation` is that of
/// one such ratio.
fn block(noise: Noise, effect: f64, deviation: f64, random: &mut fastrand::Rng) -> Vec<f64> {
    let mut slice = || deviation / 2.0_f64.sqrt() * noise.draw(random);
    let (a, b, second) = (slice(), slice(), slice());
    vec![effect + b - a, effect + b - second]
}

fn judge(blocks: &[Vec<f64>], level: f64, seed: u64) -> Verdict {
    let ratio = bootstrap::interval(blocks, level, resamples(), seed).expect("enough blocks");
    let middles: Vec<f64> = blocks.iter().map(|b| f64::midpoint(b[0], b[1])).collect();
    let ratio = ratio.widened(widening(&middles)).exponential();
    verdict(&ratio, blocks.len(), 0.01, Better::Lower)
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
        last = (judge(&blocks, looks.level(), seed), *at);
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
            let holds = |interval: &Interval| interval.low <= 0.0 && interval.high >= 0.0;
            let held = (0..runs)
                .filter_map(|seed| {
                    let blocks: Vec<Vec<f64>> = (0..count)
                        .map(|_| block(noise, 0.0, 0.03, &mut random))
                        .collect();
                    bootstrap::interval(&blocks, 0.95, resamples(), seed as u64)
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
