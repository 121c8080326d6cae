//! Answers that are kept for others who see the same.
//!
//! The idea: what goes on now is the same for all who look within a second, and is drawn once.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use ipc::console::{ConsoleAnswer, ConsoleQuestion};

/// Answers that are kept for others who see the same, how long, and the bytes of all.
const KEPT_MAX: usize = 64;
pub(super) const KEPT_AGE_MAX: Duration = Duration::from_secs(1);
const KEPT_BYTES_MAX: usize = 16 << 20;

/// Answers for others who see the same: of one look, for a second at most.
#[derive(Debug)]
pub(super) struct KeptAnswers {
    pub(super) since: Instant,
    pub(super) answers: HashMap<ConsoleQuestion, ConsoleAnswer>,
    bytes: usize,
}

impl Default for KeptAnswers {
    fn default() -> KeptAnswers {
        KeptAnswers {
            since: Instant::now(),
            answers: HashMap::new(),
            bytes: 0,
        }
    }
}

impl KeptAnswers {
    /// One of within the last second.
    pub(super) fn get(&mut self, question: &ConsoleQuestion) -> Option<ConsoleAnswer> {
        if self.since.elapsed() >= KEPT_AGE_MAX {
            *self = KeptAnswers::default();
        }
        self.answers.get(question).cloned()
    }

    /// Keeps one, where there is room for it.
    pub(super) fn keep(&mut self, question: ConsoleQuestion, answer: &ConsoleAnswer) {
        self.bytes += question.bytes() + answer.body.len();
        if self.answers.len() < KEPT_MAX && self.bytes <= KEPT_BYTES_MAX {
            self.answers.insert(question, answer.clone());
        }
    }
}
