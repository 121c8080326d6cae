//! The adaptive limit against a simulated back end: it finds the limit somebody who knew would set.
//!
//! The same simulator and experiments as `examples/controllers`, which prints them as a table.

#[path = "../examples/controllers/scenarios.rs"]
mod scenarios;
#[path = "../examples/controllers/simulator.rs"]
mod simulator;

use limits::{Adaptive, Time};

use simulator::{Fixed, Scenario, Second, goodput, run};

const SEEDS: std::ops::Range<u64> = 10..15;

fn scenario(name: &str) -> Scenario {
    let mut all = scenarios::all().into_iter();
    all.find(|scenario| scenario.name == name)
        .expect("there is such a scenario")
}

fn ours(scenario: &Scenario, seed: u64) -> Vec<Second> {
    run(scenario, &mut Adaptive::new(2, 1_000, Time::ZERO), seed)
}

/// Replies in time in these seconds, as a share of what the best of these fixed limits reaches.
fn check(name: &str, spans: &[(usize, usize)], fixed: &[u32], share_min: f64) {
    let scenario = scenario(name);
    for seed in SEEDS {
        let ours = ours(&scenario, seed);
        let rivals: Vec<_> = fixed
            .iter()
            .map(|limit| run(&scenario, &mut Fixed(*limit), seed))
            .collect();
        for (from, until) in spans.iter().copied() {
            let best = rivals
                .iter()
                .map(|rival| goodput(rival, from, until))
                .fold(0.0, f64::max);
            let share = goodput(&ours, from, until) / best;
            assert!(
                share >= share_min,
                "{name}, seed {seed}, {from} to {until} s: {share:.2}"
            );
        }
    }
}

#[test]
fn half_the_capacity_is_found_in_ten_seconds_and_so_is_its_return() {
    check(
        "capacity halved and back, collapses",
        &[(40, 60), (70, 90)],
        &[10, 20],
        0.8,
    );
}

#[test]
fn a_back_end_that_shares_its_capacity_loses_nothing() {
    check(
        "capacity halved and back, shares",
        &[(15, 30), (40, 60), (70, 90)],
        &[10, 20, 30],
        0.95,
    );
}

#[test]
fn a_tenth_of_a_second_more_on_every_reply_is_not_taken_for_overload() {
    check(
        "+100 ms on every reply, at 50 %",
        &[(30, 60)],
        &[20, 40, 80],
        0.95,
    );
}

#[test]
fn requests_that_take_twice_as_long_need_no_lower_limit() {
    check(
        "every request twice as long",
        &[(40, 60), (70, 90)],
        &[10, 20, 40],
        0.8,
    );
}

#[test]
fn times_that_vary_widely_do_not_lead_it_astray() {
    check("lognormal, 2 x offered", &[(15, 90)], &[10, 20, 30], 0.75);
}

#[test]
fn a_few_requests_a_second_are_never_refused() {
    let scenario = scenarios::few();
    for seed in SEEDS {
        let refused: u32 = ours(&scenario, seed)
            .iter()
            .map(|second| second.refused)
            .sum();
        assert_eq!(refused, 0, "seed {seed}");
    }
}

#[test]
fn a_raise_that_brings_nothing_is_undone() {
    let scenario = scenario("fixed capacity, 10 x offered");
    for seed in SEEDS {
        let seconds = ours(&scenario, seed);
        assert!(
            seconds[15..]
                .iter()
                .all(|second| (15..=25).contains(&second.limit)),
            "seed {seed}"
        );
        assert!(goodput(&seconds, 15, 90) >= 0.9 * 400.0, "seed {seed}");
    }
}
