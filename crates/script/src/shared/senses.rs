//! What scripts may ask of the machine's state: by name, answered by whoever measures.

use std::fmt;
use std::sync::OnceLock;

/// Answers what a sensor of some name says.
type Answer = dyn Fn(&str) -> Sensed + Send + Sync;

/// What is known of a name.
#[derive(Debug, Clone, PartialEq)]
pub enum Sensed {
    /// What the sensor says.
    Value(f64),
    /// There is such a sensor, but not here, or it says nothing.
    Missing,
    /// There is no such sensor; these there are.
    Unknown(String),
}

/// Who is asked.
#[derive(Default)]
pub(crate) struct Senses {
    answer: OnceLock<Box<Answer>>,
}

impl Senses {
    pub(super) fn answer_by(&self, answer: Box<Answer>) {
        // Nobody says it twice.
        let _ = self.answer.set(answer);
    }

    /// What the sensor of this name says; nothing, where nobody measures.
    pub(crate) fn ask(&self, name: &str) -> Sensed {
        let answer = self.answer.get();
        answer.map_or(Sensed::Missing, |answer| answer(name))
    }
}

impl fmt::Debug for Senses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Senses").finish_non_exhaustive()
    }
}
