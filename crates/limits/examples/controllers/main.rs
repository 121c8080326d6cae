//! Compares limits that adapt: step responses in a simulator, as a table.
//!
//! `cargo run --release -p limits --example controllers` prints, for each experiment and
//! controller, the replies in time as a share of what the best fixed limit reaches in the same
//! seconds: before the change, from ten seconds after it, from ten seconds after it is undone, and
//! all the time it lasts; the worst of some seeds. Two arguments choose: a part of an experiment's
//! name, and the beginning of a controller's.

mod rivals;
mod scenarios;
mod simulator;

use limits::{Adaptive, Time};

use rivals::{Aimd, Gradient2, Vegas};
use simulator::{Controller, Fixed, Scenario, Second, goodput, run};

/// Seconds measured, for each column.
const SPANS: [(usize, usize); 4] = [(15, 30), (40, 60), (70, 90), (30, 60)];
const SEEDS: [u64; 3] = [1, 2, 3];
const NAMES: [&str; 5] = ["AIMD", "Vegas", "Gradient2", "Gradient2, floor 2", "ours"];

fn main() {
    let only = std::env::args().nth(1).unwrap_or_default();
    let name = std::env::args().nth(2).unwrap_or_default();
    let names: Vec<_> = NAMES
        .into_iter()
        .filter(|known| known.starts_with(&name))
        .collect();
    for scenario in scenarios::all()
        .iter()
        .filter(|scenario| scenario.name.contains(&only))
    {
        table(scenario, &names);
    }
}

fn controller(name: &str, seed: u64) -> Box<dyn Controller> {
    match name {
        "AIMD" => Box::new(Aimd::new()),
        "Vegas" => Box::new(Vegas::new(seed)),
        "Gradient2" => Box::new(Gradient2::new(20)),
        "Gradient2, floor 2" => Box::new(Gradient2::new(2)),
        _ => Box::new(Adaptive::new(2, 1_000, Time::ZERO)),
    }
}

fn table(scenario: &Scenario, names: &[&str]) {
    let best: Vec<_> = SEEDS
        .iter()
        .map(|seed| best_fixed(scenario, *seed))
        .collect();
    println!(
        "\n{} ({} arrivals a second)",
        scenario.name, scenario.arrivals_per_second
    );
    print!(
        "  {:<20} {:>8} {:>8} {:>8} {:>8}",
        "", "before", "changed", "back", "30-60 s"
    );
    println!(" {:>8}  limit at 29, 59, 89 s", "refused");
    print!("  {:<20}", "best fixed");
    for span in 0..SPANS.len() {
        let mean = best.iter().map(|best| best[span]).sum::<f64>() / best.len() as f64;
        print!(" {mean:>7.0}/s");
    }
    println!();
    for name in names {
        let runs: Vec<_> = SEEDS
            .iter()
            .map(|seed| run(scenario, controller(name, *seed).as_mut(), *seed))
            .collect();
        row(name, &best, &runs);
    }
}

fn row(name: &str, best: &[[f64; 4]], runs: &[Vec<Second>]) {
    print!("  {name:<20}");
    for (span, (from, until)) in SPANS.into_iter().enumerate() {
        let shares = runs
            .iter()
            .zip(best)
            .map(|(run, best)| goodput(run, from, until) / best[span]);
        print!(" {:>8.0}%", 100.0 * shares.fold(f64::MAX, f64::min));
    }
    let total = |count: fn(&Second) -> u32| -> u64 {
        runs.iter()
            .flatten()
            .map(|second| u64::from(count(second)))
            .sum()
    };
    let refused = total(|second| second.refused) as f64 / total(|second| second.arrived) as f64;
    let limits = [29, 59, 89].map(|second| runs[0][second].limit.to_string());
    println!(" {:>7.1}%  {}", 100.0 * refused, limits.join(", "));
}

/// For each span the most that any fixed limit reaches in it, with the same arrivals.
fn best_fixed(scenario: &Scenario, seed: u64) -> [f64; 4] {
    let limits = (4..=24).step_by(2).chain([30, 40, 50, 60, 80]);
    let mut best = [0.0; 4];
    for limit in limits {
        let seconds = run(scenario, &mut Fixed(limit), seed);
        for (best, (from, until)) in best.iter_mut().zip(SPANS) {
            *best = goodput(&seconds, from, until).max(*best);
        }
    }
    best
}
