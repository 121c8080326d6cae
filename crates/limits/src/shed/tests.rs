//! The course of a rule on a virtual clock: steps, ramps, square waves, recorded pressure, and
//! tenants that are shed by it.

use std::time::Duration;

use super::{Claim, Course, Meter, Scope, State, Thresholds, WHOLE, divide, excess, next, share};
use crate::time::Time;

/// Ten samples a second.
const SAMPLE_MS: u64 = 100;

/// What became of a course.
#[derive(Debug, Default)]
struct Run {
    /// When it changed, and to what.
    changes: Vec<(f64, State)>,
    /// The share after each sample.
    shares: Vec<f64>,
}

impl Run {
    /// The changes from one moment up to another.
    fn between(&self, from_s: f64, until_s: f64) -> Vec<State> {
        let within = |(at_s, _): &&(f64, State)| (from_s..until_s).contains(at_s);
        self.changes
            .iter()
            .filter(within)
            .map(|(_, to)| *to)
            .collect()
    }

    fn share_at(&self, at_s: f64) -> f64 {
        self.shares[(at_s * 10.0).round() as usize]
    }
}

/// Steps a course through so many seconds; the signal knows the time and the share.
fn run(
    mut course: Course,
    seconds: u64,
    excess: f64,
    mut signal: impl FnMut(f64, f64) -> Option<f64>,
) -> Run {
    let mut run = Run::default();
    for sample in 0..seconds * 1_000 / SAMPLE_MS {
        let now = Time::ZERO + Duration::from_millis(sample * SAMPLE_MS);
        let at_s = sample as f64 / 10.0;
        if let Some(change) = course.step(now, signal(at_s, course.share()), excess) {
            run.changes.push((at_s, change.to));
        }
        run.shares.push(course.share());
    }
    run
}

/// A rule about a pressure with the thresholds of `cpu_pressure`.
fn pressure() -> Course {
    let thresholds = Thresholds::rising(0.4, 0.24, Some(1.0));
    Course::new(thresholds, Scope::OverShare, Duration::from_secs(2))
}

/// A share of the last second, as the kernel's totals give it, of a stall that is there or not.
fn over_a_second(is_stalled: impl Fn(f64) -> bool) -> impl FnMut(f64, f64) -> Option<f64> {
    move |at_s, _| {
        let tenths = (0..10).map(|tenth| at_s - f64::from(tenth) / 10.0);
        Some(
            tenths
                .filter(|at_s| *at_s >= 0.0 && is_stalled(*at_s))
                .count() as f64
                / 10.0,
        )
    }
}

#[test]
fn a_step_is_answered_within_two_seconds_and_forgotten_within_forty() {
    let run = run(
        pressure(),
        150,
        0.0,
        over_a_second(|at_s| (10.0..60.0).contains(&at_s)),
    );
    assert_eq!(run.between(0.0, 12.0), [State::Yellow]);
    assert!(run.share_at(12.0) < 1.0);
    assert_eq!(run.between(12.0, 60.0), [State::Red]);
    assert!(run.share_at(40.0) < 0.06, "{}", run.share_at(40.0));
    assert_eq!(run.between(60.0, 150.0), [State::Yellow, State::Green]);
    assert!(run.share_at(100.0) >= 1.0, "{}", run.share_at(100.0));
}

#[test]
fn a_square_wave_changes_the_state_twice_an_edge() {
    let run = run(
        pressure(),
        450,
        0.0,
        over_a_second(|at_s| at_s % 90.0 < 30.0),
    );
    for period in 0..5 {
        let up_s = f64::from(period) * 90.0;
        assert_eq!(
            run.between(up_s, up_s + 30.0),
            [State::Yellow, State::Red],
            "{period}"
        );
        assert_eq!(
            run.between(up_s + 30.0, up_s + 90.0),
            [State::Yellow, State::Green]
        );
        assert!(run.share_at(up_s + 2.0) < 1.0 && run.share_at(up_s + 70.0) >= 1.0);
    }
}

#[test]
fn a_ramp_passes_each_state_once() {
    let ramp = |at_s: f64, _: f64| Some((at_s / 100.0).min((300.0 - at_s) / 100.0).clamp(0.0, 1.0));
    let run = run(pressure(), 400, 0.0, ramp);
    let states: Vec<State> = run.changes.iter().map(|(_, to)| *to).collect();
    assert_eq!(
        states,
        [State::Yellow, State::Red, State::Yellow, State::Green]
    );
}

#[test]
fn a_moments_peak_is_not_believed() {
    let peaks = |at_s: f64, _: f64| {
        Some(if (at_s * 10.0).round() as u64 % 20 < 2 {
            1.0
        } else {
            0.1
        })
    };
    assert_eq!(run(pressure(), 120, 0.0, peaks).changes, []);
}

#[test]
fn what_stays_somewhat_high_keeps_nobody_out_for_ever() {
    for (leave, high) in [(0.24, 0.3), (0.05, 0.2), (0.39, 0.395)] {
        let thresholds = Thresholds::rising(0.4, leave, Some(1.0));
        let course = Course::new(thresholds, Scope::OverShare, Duration::from_secs(2));
        let signal = |at_s: f64, _: f64| Some(if at_s < 30.0 { 1.0 } else { high });
        let run = run(course, 300, 0.0, signal);
        assert!(run.share_at(29.0) < 0.06);
        let states: Vec<State> = run.changes.iter().map(|(_, to)| *to).collect();
        assert_eq!(states, [State::Yellow, State::Red, State::Yellow]);
        assert!(run.share_at(299.0) >= 1.0, "{leave} {high}");
    }
}

#[test]
fn what_hovers_about_the_threshold_does_not_flap() {
    let hovering = |at_s: f64, _: f64| Some(0.4 + 0.1 * (at_s * 1.7).sin());
    let run = run(pressure(), 600, 0.0, hovering);
    assert_eq!(run.changes.len(), 1, "{:?}", run.changes);
}

/// CPU pressure of two cores on which several people build, ten values a second: the share of the
/// last second, off the totals of `/proc/pressure/cpu`.
const BUILDS: &str = include_str!("../../../../tests/vectors/pressure/builds.txt");

#[test]
fn recorded_pressure_with_its_gaps_changes_the_state_once_an_edge() {
    let recorded: Vec<f64> = BUILDS
        .lines()
        .filter_map(|line| line.parse().ok())
        .collect();
    assert_eq!(recorded.len(), 2_400);
    let quiet_s = 20.0;
    let played = |at_s: f64, _: f64| {
        let at = ((at_s - quiet_s) * 10.0).round();
        let value = (at >= 0.0).then(|| recorded.get(at as usize)).flatten();
        Some(value.copied().unwrap_or(0.02))
    };
    let run = run(pressure(), 340, 0.5, played);
    assert_eq!(run.between(0.0, 22.0), [State::Yellow]);
    assert_eq!(run.between(22.0, 260.0), [State::Red]);
    assert_eq!(run.between(260.0, 340.0), [State::Yellow, State::Green]);
    assert!(run.share_at(300.0) >= 1.0, "{}", run.share_at(300.0));
}

#[test]
fn a_load_that_shedding_relieves_settles() {
    // Twice as much is asked for as there is room for; the stall is seen half a second late.
    let mut admitted = [2.0; 5];
    let run = run(pressure(), 900, 0.0, |_, share| {
        admitted.rotate_left(1);
        admitted[4] = 2.0 * share;
        Some(((admitted[0] - 0.7) / 0.6).clamp(0.0, 1.0))
    });
    assert!(run.changes.len() <= 4, "{:?}", run.changes);
    let last = &run.shares[6_000..];
    let (least, most) = last.iter().fold((1.0_f64, 0.0_f64), |(least, most), it| {
        (least.min(*it), most.max(*it))
    });
    assert!(least > 0.35 && most < 0.6, "{least} to {most}");
}

#[test]
fn the_rule_people_know_compares_numbers() {
    let thresholds = Thresholds::rising(3.0, 3.0, None);
    let mut course = Course::new(thresholds, Scope::All, Duration::ZERO);
    for (sample, (load, is_shed)) in [
        (2.99, false),
        (3.0, false),
        (3.01, true),
        (3.5, true),
        (4.0, true),
        (9.9, true),
        (10.5, true),
        (12.0, true),
        (3.0, false),
    ]
    .into_iter()
    .enumerate()
    {
        let now = Time::ZERO + Duration::from_millis(SAMPLE_MS * sample as u64);
        let change = course.step(now, Some(load), 0.0);
        assert_eq!(course.admits_all(), !is_shed, "{load}");
        assert_eq!(share(course.share()), if is_shed { 0 } else { WHOLE });
        assert!(change.is_none_or(|change| (change.threshold - 3.0).abs() < 1e-9));
    }
}

#[test]
fn a_state_lasts_as_long_as_it_is_asked_to() {
    let thresholds = Thresholds::rising(3.0, 3.0, None);
    let course = Course::new(thresholds, Scope::All, Duration::from_secs(20));
    let peak = |at_s: f64, _: f64| Some(if (5.0..6.0).contains(&at_s) { 4.0 } else { 1.0 });
    let run = run(course, 60, 0.0, peak);
    assert_eq!(run.changes, [(5.0, State::Red), (25.0, State::Green)]);
}

#[test]
fn what_falls_is_bad_below_its_threshold() {
    let thresholds = Thresholds::falling(0.1, 0.15);
    let course = Course::new(thresholds, Scope::OverShare, Duration::ZERO);
    let fills = |at_s: f64, _: f64| {
        Some(if (10.0..40.0).contains(&at_s) {
            0.04
        } else {
            0.5
        })
    };
    let run = run(course, 120, 0.0, fills);
    assert_eq!(run.between(10.0, 40.0), [State::Yellow, State::Red]);
    assert_eq!(run.between(40.0, 120.0), [State::Yellow, State::Green]);
}

#[test]
fn a_sensor_that_falls_silent_sheds_nobody_for_long() {
    for scope in [Scope::OverShare, Scope::All] {
        let thresholds = Thresholds::rising(0.4, 0.24, Some(1.0));
        let course = Course::new(thresholds, scope, Duration::from_secs(2));
        let silent = |at_s: f64, _: f64| (at_s < 10.0).then_some(1.0);
        let run = run(course, 60, 0.0, silent);
        let (_, last) = run.changes.last().expect("changes");
        assert_eq!(*last, State::Green, "{scope:?} {:?}", run.changes);
        assert!(run.between(10.0, 12.9).is_empty(), "{:?}", run.changes);
        assert!(run.share_at(59.0) >= 1.0);
    }
}

#[test]
fn what_is_no_number_is_no_value_and_spoils_none_that_come_after() {
    for odd in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let signal = |at_s: f64, _: f64| {
            Some(match at_s {
                0.0..1.0 => odd,
                1.0..10.0 => 1.0,
                _ => 0.0,
            })
        };
        let run = run(pressure(), 60, f64::NAN, signal);
        assert_eq!(run.between(0.0, 1.0), [], "{odd}");
        assert_eq!(run.between(1.0, 10.0), [State::Yellow, State::Red], "{odd}");
        assert_eq!(run.between(10.0, 60.0), [State::Yellow, State::Green]);
        assert!(run.shares.iter().all(|share| (0.05..=1.0).contains(share)));
    }
}

#[test]
fn time_that_goes_backwards_or_leaps_does_no_harm() {
    let mut course = pressure();
    for now_s in [100, 101, 102, 103, 50, 0, 104, 105, 106, 4_000, 4_001] {
        course.step(Time::ZERO + Duration::from_secs(now_s), Some(1.0), 0.0);
        assert!((0.05..=1.0).contains(&course.share()), "{now_s}");
    }
    assert_eq!(course.state(), State::Red);
    course.reset();
    assert!(course.admits_all());
}

#[test]
fn a_tenants_share_is_spread_evenly_over_its_requests() {
    for (wanted, of) in [(0.5, 10), (0.05, 100), (0.9, 10), (1.0, 10)] {
        let mut left_over = 0;
        let admitted: Vec<bool> = (0..of * 50)
            .map(|_| {
                let (is_admitted, rest) = next(left_over, share(wanted));
                left_over = rest;
                is_admitted
            })
            .collect();
        for window in admitted.windows(of) {
            let count = window.iter().filter(|it| **it).count();
            let expected = wanted * of as f64;
            assert!(
                (count as f64 - expected).abs() <= 1.0,
                "{wanted}: {count} of {of}"
            );
        }
    }
    assert_eq!(next(0, 0), (false, 0));
    assert_eq!(next(u16::MAX, u16::MAX), (true, WHOLE));
}

/// Tenants in front of a machine that others load.
struct Tenants {
    /// Requests each would have under way, of 200 ms each.
    demands: Vec<f64>,
    meters: Vec<Meter>,
    left_over: Vec<u16>,
    /// Requests each is owed, in parts.
    due: Vec<f64>,
    shares: Vec<f64>,
    /// The least share each ever had.
    least: Vec<f64>,
}

impl Tenants {
    fn new(demands: &[f64]) -> Self {
        let count = demands.len();
        Self {
            demands: demands.to_vec(),
            meters: vec![Meter::default(); count],
            left_over: vec![0; count],
            due: vec![0.0; count],
            shares: vec![1.0; count],
            least: vec![1.0; count],
        }
    }

    fn claims(&self) -> Vec<Claim> {
        let claim = |meter: &Meter| Claim {
            demand: meter.demand(),
            weight: 1.0,
        };
        self.meters.iter().map(claim).collect()
    }

    /// Their requests of a tenth of a second, and what came of them.
    fn serve(&mut self) {
        for tenant in 0..self.demands.len() {
            self.due[tenant] += self.demands[tenant] / 0.2 * 0.1;
            let offered = self.due[tenant] as u64;
            self.due[tenant] -= offered as f64;
            let mut admitted = 0;
            for _ in 0..offered {
                let (is_admitted, rest) = next(self.left_over[tenant], share(self.shares[tenant]));
                self.left_over[tenant] = rest;
                admitted += u64::from(is_admitted);
            }
            let used = admitted as f64 * 0.2;
            self.meters[tenant].note(Duration::from_millis(SAMPLE_MS), used, offered, admitted);
        }
    }

    /// Lives with a rule for so many seconds.
    fn live(&mut self, seconds: u64, mut signal: impl FnMut(f64, f64) -> Option<f64>) -> Run {
        let (mut course, mut run) = (pressure(), Run::default());
        for sample in 0..seconds * 1_000 / SAMPLE_MS {
            self.serve();
            let claims = self.claims();
            let now = Time::ZERO + Duration::from_millis(sample * SAMPLE_MS);
            let at_s = sample as f64 / 10.0;
            if let Some(change) = course.step(now, signal(at_s, 0.0), excess(&claims)) {
                run.changes.push((at_s, change.to));
            }
            self.shares = divide(course.share(), &claims);
            for (least, share) in self.least.iter_mut().zip(&self.shares) {
                *least = least.min(*share);
            }
            run.shares.push(self.shares[0]);
        }
        run
    }
}

#[test]
fn those_within_their_share_are_served_throughout_while_others_are_above_theirs() {
    let mut demands = vec![20.0];
    demands.extend([0.8; 9]);
    let mut tenants = Tenants::new(&demands);
    let run = tenants.live(
        390,
        over_a_second(|at_s| (30.0..).contains(&at_s) && at_s % 90.0 >= 60.0),
    );
    assert!(
        tenants.least[1..].iter().all(|least| *least > 0.999),
        "{:?}",
        tenants.least
    );
    for period in 0..4 {
        let up_s = 60.0 + f64::from(period) * 90.0;
        assert!(run.share_at(up_s - 0.1) >= 0.999, "back in time {period}");
        assert!(run.share_at(up_s + 2.0) < 0.97, "cut in time {period}");
        assert!(
            run.between(up_s, up_s + 30.0).len() <= 2,
            "{:?}",
            run.changes
        );
        if up_s + 70.0 < 390.0 {
            assert!(
                run.share_at(up_s + 70.0) >= 0.999,
                "{}",
                run.share_at(up_s + 70.0)
            );
            assert!(run.between(up_s + 30.0, up_s + 90.0).len() <= 2);
        }
    }
    assert!(tenants.least[0] < 0.3, "{:?}", tenants.least);
}

#[test]
fn all_pay_when_it_stays_red_with_nothing_left_to_take_from_those_above() {
    let mut tenants = Tenants::new(&[6.0, 1.0, 1.0]);
    tenants.live(25, over_a_second(|_| true));
    assert!(
        tenants.least[1] > 0.999,
        "spared at first: {:?}",
        tenants.least
    );
    let mut tenants = Tenants::new(&[6.0, 1.0, 1.0]);
    tenants.live(60, over_a_second(|_| true));
    assert!(tenants.least[1] < 0.5, "{:?}", tenants.least);
}

#[test]
fn a_flood_is_cut_to_about_what_each_of_the_others_asks_for() {
    let mut demands = vec![200.0];
    demands.extend([1.0; 9]);
    let mut tenants = Tenants::new(&demands);
    tenants.live(30, over_a_second(|_| true));
    let (flood, others) = (tenants.shares[0] * 200.0, &tenants.least[1..]);
    assert!(flood < 4.0, "{flood}");
    assert!(others.iter().all(|least| *least > 0.999), "{others:?}");
}

#[test]
fn equals_pay_alike() {
    let mut tenants = Tenants::new(&[2.0; 4]);
    tenants.live(20, over_a_second(|_| true));
    let (least, most) = (tenants.shares[0] - 0.05, tenants.shares[0] + 0.05);
    assert!(
        tenants
            .shares
            .iter()
            .all(|share| (least..most).contains(share)),
        "{:?}",
        tenants.shares
    );
    assert!(most < 0.3);
}
