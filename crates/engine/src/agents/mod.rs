//! What agents beside the upstreams' servers tell: sensors there, how much each server is up to,
//! and which of them is to be left alone.
//!
//! The idea: one thread asks all agents once a second ([`asking`]); what each said is kept in
//! atomics that the workers' pools hold ([`Told`]), so that choosing a server asks nobody. An agent
//! that has been silent for a while has said nothing: its server is weighed as configured.

pub(crate) mod asking;
pub mod line;
mod names;

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use config::model::sensor::{Gauge, Worse};

use line::AgentLine;

/// What a server is up to whose agent has said nothing: all of its weight.
pub(crate) const WHOLE_PERCENT: u32 = 100;
/// Answers of which the mean is taken: those of ten seconds.
const ANSWERS_KEPT: usize = 10;

/// An upstream, and a server of it as it is called.
pub(crate) type AgentKey = (String, Arc<str>);

/// What one agent said last.
#[derive(Debug)]
pub struct Told {
    /// Of its server's weight; 0 is none.
    percent: AtomicU32,
    numbers: [AtomicU64; Gauge::ALL.len()],
    /// The last answers, for means. Held to add one, or to look.
    answers: Mutex<VecDeque<AgentLine>>,
}

impl Default for Told {
    fn default() -> Self {
        Self {
            percent: AtomicU32::new(WHOLE_PERCENT),
            numbers: std::array::from_fn(|_| AtomicU64::new(f64::NAN.to_bits())),
            answers: Mutex::default(),
        }
    }
}

impl Told {
    /// How much of its weight a server is up to, in percent; 0 while it is to be left alone.
    pub fn percent(&self) -> u32 {
        self.percent.load(Relaxed)
    }

    /// The same, where it has said anything.
    fn percent_told(&self) -> Option<u32> {
        (!self.answers().is_empty()).then(|| self.percent())
    }

    /// What a sensor there says.
    fn value(&self, gauge: Gauge) -> Option<f64> {
        let number = self.numbers.get(gauge.index())?;
        Some(f64::from_bits(number.load(Relaxed))).filter(|number| number.is_finite())
    }

    /// What it said there on average over the last answers.
    fn mean(&self, gauge: Gauge) -> Option<f64> {
        let answers = self.answers();
        let values = answers.iter().filter_map(|line| line.value(gauge));
        let (sum, count) =
            values.fold((0.0, 0.0), |(sum, count), value| (sum + value, count + 1.0));
        Some(sum / count).filter(|mean: &f64| mean.is_finite())
    }

    fn answers(&self) -> MutexGuard<'_, VecDeque<AgentLine>> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes over what it says now.
    pub(crate) fn note(&self, line: &AgentLine) {
        let mut answers = self.answers();
        if answers.len() >= ANSWERS_KEPT {
            answers.pop_front();
        }
        answers.push_back(line.clone());
        drop(answers);
        self.percent.store(line.percent, Relaxed);
        for (gauge, shown) in Gauge::ALL.into_iter().zip(&self.numbers) {
            let number = line.value(gauge).unwrap_or(f64::NAN);
            shown.store(number.to_bits(), Relaxed);
        }
    }

    fn forget(&self) {
        self.answers().clear();
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
    told: Mutex<HashMap<AgentKey, Arc<Told>>>,
}

impl Agents {
    /// What the agent of this server said.
    pub fn of(&self, upstream: &str, server: &Arc<str>) -> Arc<Told> {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let told = told.entry((upstream.to_owned(), Arc::clone(server)));
        Arc::clone(told.or_default())
    }

    /// What agents say their servers are up to, in percent; those that have said something.
    pub(crate) fn percents(&self) -> Vec<(AgentKey, u32)> {
        let told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let said = told.iter();
        said.filter_map(|(key, told)| Some((key.clone(), told.percent_told()?)))
            .collect()
    }

    /// What a sensor says at an upstream: the worst of its servers'.
    pub fn value(&self, upstream: &str, gauge: Gauge) -> Option<f64> {
        self.worst(upstream, gauge, Told::value)
    }

    /// What it said there on average over ten seconds: the worst of its servers' means.
    pub fn mean(&self, upstream: &str, gauge: Gauge) -> Option<f64> {
        self.worst(upstream, gauge, Told::mean)
    }

    fn worst(
        &self,
        upstream: &str,
        gauge: Gauge,
        of: fn(&Told, Gauge) -> Option<f64>,
    ) -> Option<f64> {
        let told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let of_upstream = told.iter().filter(|((name, _), _)| name == upstream);
        let values = of_upstream.filter_map(|(_, told)| of(told, gauge));
        values.reduce(|one, other| match gauge.worse() {
            Worse::Above => one.max(other),
            Worse::Below => one.min(other),
        })
    }

    /// Forgets what those said who are not asked any more, and servers that no pool has.
    ///
    /// A generation that is on its way out may still have such a server: nobody brings what its
    /// agent said up to date.
    fn keep(&self, asked: &HashSet<&AgentKey>) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        told.retain(|key, told| {
            let is_asked = asked.contains(key);
            if !is_asked {
                told.forget();
            }
            is_asked || Arc::strong_count(told) > 1
        });
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
            told.note(&AgentLine::read(line).expect("a line"));
        }
        assert_eq!(agents.value("app", Gauge::Load1), Some(1.5));
        assert_eq!(agents.value("app", Gauge::MemoryAvailable), Some(0.25));
        assert_eq!(agents.value("other", Gauge::Load1), None);
        assert_eq!((told[0].percent(), told[1].percent()), (50, 0));
        assert_eq!(agents.percents().len(), 2);
        told[1].forget();
        let key = ("app".to_owned(), Arc::clone(&servers[0]));
        assert_eq!(agents.percents(), [(key, 50)]);
        assert_eq!(
            (told[1].percent(), told[1].value(Gauge::Load1)),
            (100, None)
        );
    }

    #[test]
    fn the_mean_is_that_of_the_last_ten_answers() {
        let agents = Agents::default();
        let told = agents.of("app", &Arc::from("a:1"));
        assert_eq!(agents.mean("app", Gauge::Load1), None);
        for load in [100.0, 1.0, 2.0, 3.0] {
            told.note(&AgentLine::new(100, [(Gauge::Load1, load)]));
        }
        assert_eq!(agents.mean("app", Gauge::Load1), Some(26.5));
        for _ in 0..ANSWERS_KEPT {
            told.note(&AgentLine::new(100, [(Gauge::Load1, 2.0)]));
        }
        assert_eq!(agents.mean("app", Gauge::Load1), Some(2.0));
        assert_eq!(agents.mean("app", Gauge::SwapIn), None);
        told.forget();
        assert_eq!(agents.mean("app", Gauge::Load1), None);
    }

    #[test]
    fn who_is_not_asked_any_more_says_nothing() {
        let agents = Agents::default();
        let key = ("app".to_owned(), Arc::from("a:1"));
        let told = agents.of(&key.0, &key.1);
        told.note(&AgentLine::new(30, [(Gauge::Load1, 9.0)]));
        agents.keep(&HashSet::from([&key]));
        assert_eq!(agents.value("app", Gauge::Load1), Some(9.0));
        // A pool of the generation before has it still.
        agents.keep(&HashSet::new());
        assert_eq!(agents.value("app", Gauge::Load1), None);
        assert_eq!(told.percent(), 100);
        assert!(Arc::ptr_eq(&told, &agents.of(&key.0, &key.1)));
        drop(told);
        agents.keep(&HashSet::new());
        assert!(agents.told.lock().expect("nobody panicked").is_empty());
    }
}
