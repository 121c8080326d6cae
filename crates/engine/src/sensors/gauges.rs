//! One number a gauge: what the sensors said last, for all to read.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use config::model::sensor::{Gauge, Sensor};
use script::Sensed;

use crate::agents::Agents;

/// What this machine does not tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// Whose sensors.
    pub gauges: &'static [Gauge],
    /// What was looked for, and what came of it.
    pub why: String,
    /// What would make it tell.
    pub remedy: &'static str,
}

/// How many gauges there are.
pub(super) const GAUGES: usize = Gauge::ALL.len();

/// A number of each gauge, by its index; NaN is none.
pub(crate) type Numbers = [f64; GAUGES];

/// What every sensor said at one moment.
#[derive(Debug, Clone)]
pub struct Snapshot {
    pub(super) now: Numbers,
    pub(super) mean: Numbers,
    /// How late each worker came to what was ready, in seconds; NaN is not known.
    pub(super) lags_s: Vec<f64>,
}

/// What every sensor said last.
#[derive(Debug)]
pub struct Sensors {
    now: [AtomicU64; GAUGES],
    mean: [AtomicU64; GAUGES],
    pub(super) lags: Box<[AtomicU64]>,
    /// What is told of upstreams.
    pub agents: Agents,
    /// Held to copy or replace it, every second at most.
    missing: Mutex<Arc<[Missing]>>,
}

impl Snapshot {
    /// What a sensor says; `None` where it has nothing to say.
    pub fn value(&self, sensor: &Sensor) -> Option<f64> {
        of(sensor, |gauge| self.now.get(gauge.index()).copied())
    }

    /// What it said on average over the last 10 s, as far as there is so much.
    pub fn mean(&self, sensor: &Sensor) -> Option<f64> {
        of(sensor, |gauge| self.mean.get(gauge.index()).copied())
    }

    /// One in which nothing is known yet.
    pub fn unknown(workers: usize) -> Self {
        Self {
            now: [f64::NAN; GAUGES],
            mean: [f64::NAN; GAUGES],
            lags_s: vec![f64::NAN; workers],
        }
    }
}

impl Sensors {
    /// Makes those of a server with so many workers; they say nothing yet.
    pub fn new(workers: usize) -> Self {
        let unknown = |_| AtomicU64::new(f64::NAN.to_bits());
        Self {
            now: std::array::from_fn(unknown),
            mean: std::array::from_fn(unknown),
            lags: (0..workers).map(unknown).collect(),
            agents: Agents::default(),
            missing: Mutex::new(Arc::from([])),
        }
    }

    /// Shows what was measured.
    pub fn publish(&self, snapshot: &Snapshot) {
        let pairs = [
            (&self.now[..], &snapshot.now[..]),
            (&self.mean, &snapshot.mean),
            (&self.lags, &snapshot.lags_s),
        ];
        for (shown, measured) in pairs {
            for (shown, measured) in shown.iter().zip(measured) {
                shown.store(measured.to_bits(), Relaxed);
            }
        }
    }

    /// What a sensor says; `None` where it has nothing to say.
    pub fn value(&self, sensor: &Sensor) -> Option<f64> {
        match sensor {
            Sensor::Upstream(upstream, gauge) => self.agents.value(upstream, *gauge),
            Sensor::Here(_) => of(sensor, |gauge| Some(read(self.now.get(gauge.index())?))),
        }
    }

    /// What a sensor said on average over the last 10 s.
    pub fn mean(&self, sensor: &Sensor) -> Option<f64> {
        match sensor {
            Sensor::Upstream(upstream, gauge) => self.agents.mean(upstream, *gauge),
            Sensor::Here(_) => of(sensor, |gauge| Some(read(self.mean.get(gauge.index())?))),
        }
    }

    /// How late each worker came to what was ready, in seconds, at worst in the last second.
    pub fn lags_s(&self) -> impl Iterator<Item = Option<f64>> {
        let lags = self.lags.iter().map(read);
        lags.map(|lag| Some(lag).filter(|lag| lag.is_finite()))
    }

    /// What this machine does not have.
    pub fn missing(&self) -> Arc<[Missing]> {
        let missing = self.missing.lock();
        Arc::clone(&missing.unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn set_missing(&self, missing: Vec<Missing>) {
        let mut held = self.missing.lock().unwrap_or_else(PoisonError::into_inner);
        *held = missing.into();
    }

    /// What scripts share, with the sensors they may ask.
    pub(crate) fn for_scripts(self: &Arc<Self>) -> Arc<script::Shared> {
        let (shared, sensors) = (script::Shared::default(), Arc::clone(self));
        shared.answer_sensors(move |name| sensors.sense(name));
        Arc::new(shared)
    }

    /// Answers a script.
    pub fn sense(&self, name: &str) -> Sensed {
        match Sensor::from_name(name) {
            Some(sensor) => self.value(&sensor).map_or(Sensed::Missing, Sensed::Value),
            None => Sensed::Unknown(known_names()),
        }
    }
}

/// The names scripts may ask for, as an exception lists them.
fn known_names() -> String {
    let names: Vec<_> = Gauge::ALL.iter().map(|gauge| gauge.name()).collect();
    names.join(", ")
}

fn of(sensor: &Sensor, number: impl Fn(Gauge) -> Option<f64>) -> Option<f64> {
    match sensor {
        Sensor::Here(gauge) => number(*gauge).filter(|number| number.is_finite()),
        Sensor::Upstream(..) => None,
    }
}

fn read(number: &AtomicU64) -> f64 {
    f64::from_bits(number.load(Relaxed))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(value: Option<f64>, expected: f64) -> bool {
        value.is_some_and(|value| (value - expected).abs() < 1e-9)
    }

    #[test]
    fn what_was_published_is_read_and_what_is_unknown_is_none() {
        let sensors = Sensors::new(2);
        let load1 = Sensor::Here(Gauge::Load1);
        assert_eq!((sensors.value(&load1), sensors.mean(&load1)), (None, None));
        let mut snapshot = Snapshot::unknown(2);
        snapshot.now[Gauge::Load1.index()] = 3.5;
        snapshot.mean[Gauge::Load1.index()] = 2.5;
        snapshot.now[Gauge::Ports.index()] = f64::INFINITY;
        snapshot.lags_s[1] = 0.25;
        sensors.publish(&snapshot);
        assert!(near(sensors.value(&load1), 3.5) && near(snapshot.value(&load1), 3.5));
        assert!(near(sensors.mean(&load1), 2.5) && near(snapshot.mean(&load1), 2.5));
        assert_eq!(sensors.value(&Sensor::Here(Gauge::Ports)), None);
        assert_eq!(sensors.lags_s().collect::<Vec<_>>(), [None, Some(0.25)]);
        let elsewhere = Sensor::Upstream("app".into(), Gauge::Load1);
        assert_eq!(sensors.value(&elsewhere), None);
    }

    #[test]
    fn scripts_ask_by_name() {
        let sensors = Sensors::new(1);
        for (name, expected) in [
            ("load1", Sensed::Missing),
            ("upstream.a.load1", Sensed::Missing),
            ("load", Sensed::Unknown(known_names())),
        ] {
            assert_eq!(sensors.sense(name), expected, "{name}");
        }
        assert!(known_names().starts_with("load1, load5, "));
    }
}
