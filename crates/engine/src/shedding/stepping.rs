//! The steps of the rules, taken by the thread that reads the sensors.

use std::sync::PoisonError;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use config::model::sensor::{Sensor, Unit, Worse};
use config::model::{Mode, ShedScope};
use limits::Time;
use limits::shed::{self, Change, State};
use os::cgroup::Layout;

use super::compiled::{Shedding, active};
use super::rule::Rule;
use super::standing::Standing;
use crate::worker::shared::Shared;

/// How often tenants are measured.
const MEASURED_EVERY_MS: u64 = 500;

/// Takes a step with the rules of the generation in force: after each sample of the sensors, which
/// `read` gives.
pub(crate) fn step(shared: &Shared, now_ms: u64, read: impl Fn(&Sensor) -> Option<f64>) {
    let Some(generation) = shared.generation() else {
        return;
    };
    if let Some(shedding) = &generation.shedding {
        shedding.step(now_ms, &generation.layout, read);
    }
}

/// Lets everybody in: the thread that steps has ended, however that came.
pub(crate) fn let_go(shared: &Shared) {
    let Some(generation) = shared.generation() else {
        return;
    };
    if let Some(shedding) = &generation.shedding {
        shedding
            .rules
            .iter()
            .for_each(|rule| rule.standing.let_go());
        shedding.active.store(active(&shedding.rules), Relaxed);
    }
}

impl Shedding {
    fn step(&self, now_ms: u64, layout: &Layout, read: impl Fn(&Sensor) -> Option<f64>) {
        let now = Time::ZERO + Duration::from_millis(now_ms);
        let is_measured = self.measure(now_ms, layout);
        let mut claims = self.claims.lock().unwrap_or_else(PoisonError::into_inner);
        if is_measured {
            *claims = self.tenants.claims();
        }
        let excess = shed::excess(&claims);
        let mut changes = Vec::new();
        for (index, rule) in self.rules.iter().enumerate() {
            let value = read(&rule.standing.sensor);
            let mut course = rule.standing.course();
            let share = course.share();
            let change = course.step(now, value, excess);
            // While all are let in there is nothing to divide.
            let is_due = (is_measured && share < 1.0) || course.share() != share;
            if rule.scope == ShedScope::OverShare && is_due {
                self.tenants.divide(index, course.share(), &claims);
            }
            rule.standing.show(&course, value);
            drop(course);
            changes.extend(change.map(|change| (rule, change)));
        }
        self.active.store(active(&self.rules), Relaxed);
        // What the log tells is in force.
        for (rule, change) in changes {
            tell(rule, &change);
        }
    }

    /// Measures the tenants, if it is time.
    fn measure(&self, now_ms: u64, layout: &Layout) -> bool {
        let last_ms = self.measured_ms.load(Relaxed);
        let is_due = self.measures && now_ms.saturating_sub(last_ms) >= MEASURED_EVERY_MS;
        if is_due {
            self.measured_ms.store(now_ms, Relaxed);
            self.tenants.measure(Instant::now(), layout);
        }
        is_due
    }
}

/// One line for each change of state.
fn tell(rule: &Rule, change: &Change) {
    let standing = &*rule.standing;
    let Standing { name, sensor, .. } = standing;
    let (from, to) = (change.from.word(), change.to.word());
    let unit = sensor.unit();
    let value = change.value.map(|value| rounded(unit, value));
    let threshold = rounded(unit, change.threshold);
    let text = words(sensor, change, (standing.enter, standing.leave));
    let shedding = match standing.mode {
        Mode::Enforce => "shedding",
        Mode::Shadow => "shedding (shadow)",
    };
    tracing::warn!(rule = %name, %sensor, value, threshold, "{shedding} goes from {from} to {to}: {text}");
}

/// A number to the place that its words have it to, or somewhat further.
fn rounded(unit: Unit, value: f64) -> f64 {
    let parts = match unit {
        Unit::PerSecond | Unit::Count | Unit::Bytes => 10.0,
        Unit::Load => 100.0,
        Unit::Share => 1_000.0,
        Unit::Seconds => 10_000.0,
    };
    (value * parts).round() / parts
}

/// `load1 is 3.42, above 3.00`
fn words(sensor: &Sensor, change: &Change, (enter, leave): (f64, f64)) -> String {
    let unit = sensor.unit();
    let threshold = unit.show(change.threshold);
    let Some(value) = change.value else {
        return format!("{sensor} has no value any more");
    };
    let is_worse = level(change.to) > level(change.from);
    let side = match (sensor.worse(), is_worse) {
        (Worse::Above, true) => "above",
        (Worse::Above, false) => "not above",
        (Worse::Below, true) => "below",
        (Worse::Below, false) => "not below",
    };
    // These two thresholds stand in no configuration: they are made of those that do.
    let derived = match (change.from, change.to) {
        (State::Yellow, State::Red) => {
            format!(
                ", which is far too much where enter is {}",
                unit.show(enter)
            )
        }
        (State::Red, State::Yellow) => format!(
            ", so no longer far too much where enter is {} and leave {}",
            unit.show(enter),
            unit.show(leave)
        ),
        _ => String::new(),
    };
    let value = unit.show(value);
    format!("{sensor} is {value}, {side} {threshold}{derived}")
}

fn level(state: State) -> u8 {
    state as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_told_with_value_and_threshold() {
        let change = |from, to, value, threshold| Change {
            from,
            to,
            value,
            threshold,
        };
        for (sensor, change, expected) in [
            (
                "load1",
                change(State::Green, State::Red, Some(3.42), 3.0),
                "load1 is 3.42, above 3.00",
            ),
            (
                "cpu_pressure",
                change(State::Yellow, State::Red, Some(0.937_844_8), 0.7),
                "cpu_pressure is 93.8%, above 70.0%, which is far too much where enter is 40.0%",
            ),
            (
                "cpu_pressure",
                change(State::Red, State::Yellow, Some(0.2), 0.42),
                "cpu_pressure is 20.0%, not above 42.0%, so no longer far too much where enter is 40.0% and leave 24.0%",
            ),
            (
                "cpu_pressure",
                change(State::Yellow, State::Green, Some(0.2), 0.24),
                "cpu_pressure is 20.0%, not above 24.0%",
            ),
            (
                "memory_available",
                change(State::Green, State::Yellow, Some(0.05), 0.1),
                "memory_available is 5.0%, below 10.0%",
            ),
            (
                "conntrack",
                change(State::Yellow, State::Green, None, 0.7),
                "conntrack has no value any more",
            ),
        ] {
            let sensor = Sensor::from_name(sensor).expect("a sensor");
            assert_eq!(words(&sensor, &change, (0.4, 0.24)), expected);
        }
    }

    #[test]
    fn numbers_for_programs_are_as_long_as_those_for_people() {
        for (unit, value, expected) in [
            (Unit::Share, 0.937_844_880_441_650_2, "0.938"),
            (Unit::Load, 3.421_7, "3.42"),
            (Unit::Seconds, 0.012_345_6, "0.0123"),
            (Unit::PerSecond, 11.25, "11.3"),
            (Unit::Count, 41.0, "41"),
            (Unit::Count, 2.5, "2.5"),
        ] {
            assert_eq!(rounded(unit, value).to_string(), expected);
        }
    }
}
