//! What agents beside the upstreams' servers tell: sensors there, how much each server is up to,
//! and which of them is to be left alone.
//!
//! The idea: one thread asks all agents once a second ([`asking`]); what each said is kept in
//! atomics that the workers' pools hold ([`Told`]), so that choosing a server asks nobody. An agent
//! that has been silent for a while has said nothing: its server is weighed as configured.

mod asking;
mod line;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use config::model::sensor::{Gauge, Worse};

pub use asking::Asking;
pub use line::Line;

/// What a server is up to whose agent has said nothing: all of its weight.
const WHOLE_PERCENT: u32 = 100;

/// An upstream, and a server of it as it is called.
type Key = (String, Arc<str>);

/// What one agent said last.
#[derive(Debug)]
pub struct Told {
    /// Of its server's weight; 0 is none.
    percent: AtomicU32,
    numbers: [AtomicU64; Gauge::ALL.len()],
}

impl Default for Told {
    fn default() -> Self {
        Self {
            percent: AtomicU32::new(WHOLE_PERCENT),
            numbers: std::array::from_fn(|_| AtomicU64::new(f64::NAN.to_bits())),
        }
    }
}

impl Told {
    /// How much of its weight a server is up to, in percent; 0 while it is to be left alone.
    pub fn percent(&self) -> u32 {
        self.percent.load(Relaxed)
    }

    /// What a sensor there says.
    fn value(&self, gauge: Gauge) -> Option<f64> {
        let number = self.numbers.get(gauge.index())?;
        Some(f64::from_bits(number.load(Relaxed))).filter(|number| number.is_finite())
    }

    /// Takes over what it says now.
    pub(crate) fn note(&self, line: &Line) {
        self.percent.store(line.percent, Relaxed);
        for (gauge, shown) in Gauge::ALL.into_iter().zip(&self.numbers) {
            let number = line.value(gauge).unwrap_or(f64::NAN);
            shown.store(number.to_bits(), Relaxed);
        }
    }

    fn forget(&self) {
        self.percent.store(WHOLE_PERCENT, Relaxed);
        for number in &self.numbers {
            number.store(f64::NAN.to_bits(), Relaxed);
        }
    }
}

/// What all agents said last, by upstream and server.
#[derive(Debug, Default)]
pub struct Agents {
    /// Held for the length of a look; by workers when pools are made, and when a script asks.
    told: Mutex<HashMap<Key, Arc<Told>>>,
}

impl Agents {
    /// What the agent of this server said.
    pub fn of(&self, upstream: &str, server: &Arc<str>) -> Arc<Told> {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let told = told.entry((upstream.to_owned(), Arc::clone(server)));
        Arc::clone(told.or_default())
    }

    /// What a sensor says at an upstream: the worst of its servers'.
    pub fn value(&self, upstream: &str, gauge: Gauge) -> Option<f64> {
        let told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let of_upstream = told.iter().filter(|((name, _), _)| name == upstream);
        let values = of_upstream.filter_map(|(_, told)| told.value(gauge));
        values.reduce(|one, other| match gauge.worse() {
            Worse::Above => one.max(other),
            Worse::Below => one.min(other),
        })
    }

    /// Forgets servers that nobody asks for any more.
    fn sweep(&self) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        told.retain(|_, told| Arc::strong_count(told) > 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upstream_is_as_bad_as_its_worst_server() {
        let agents = Agents::default();
        let servers: Vec<Arc<str>> = ["a:1", "b:1"].map(Arc::from).into();
        let told: Vec<_> = servers.iter().map(|it| agents.of("app", it)).collect();
        assert_eq!(agents.value("app", Gauge::Load1), None);
        for (told, line) in told.iter().zip([
            "up 50% # load1=1.5 memory_available=0.25",
            "drain # load1=0.5 memory_available=0.75",
        ]) {
            told.note(&Line::read(line).expect("a line"));
        }
        assert_eq!(agents.value("app", Gauge::Load1), Some(1.5));
        assert_eq!(agents.value("app", Gauge::MemoryAvailable), Some(0.25));
        assert_eq!(agents.value("other", Gauge::Load1), None);
        assert_eq!((told[0].percent(), told[1].percent()), (50, 0));
        told[1].forget();
        assert_eq!(
            (told[1].percent(), told[1].value(Gauge::Load1)),
            (100, None)
        );
        agents.sweep();
        assert_eq!(agents.value("app", Gauge::Load1), Some(1.5));
        drop(told);
        agents.sweep();
        assert_eq!(agents.value("app", Gauge::Load1), None);
    }
}
