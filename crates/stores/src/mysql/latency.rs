//! How many statements may go over a connection together.
//!
//! A statement is known by its text and begins alone. Each batch that answers it quickly doubles how
//! many may go together, each that does not quite halves that, and a slow answer has it go alone
//! until many quick ones have made up for it. So one that is late now and then costs little, as on a
//! machine that has others to run, and a statement that turns out slow is by itself at once.

use std::cell::Cell;
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

/// An answer in such a time is a quick one.
const QUICK: Duration = Duration::from_millis(2);
/// An answer that takes longer is a slow one, whatever else the server had to do.
pub(super) const SLOW: Duration = Duration::from_millis(20);
/// How often the number that may go together is doubled.
const DOUBLED_MAX: i8 = 4;
/// Statements that go together at most.
pub(super) const TOGETHER_MAX: usize = 1 << DOUBLED_MAX;
/// Quick answers that make up for a slow one.
const MADE_UP: i8 = 16;
/// Statements remembered; one more, and all are forgotten.
const STATEMENTS_MAX: usize = 256;
/// The longest text of one.
const STATEMENT_BYTES_MAX: usize = 4 * 1024;

/// A statement and how quick it was.
#[derive(Debug)]
pub(super) struct Statement {
    pub(super) sql: Rc<[u8]>,
    /// How often one was doubled; below zero, what is to be made up for.
    doubled: Cell<i8>,
}

impl Statement {
    /// How many may go together with it, itself among them.
    pub(super) fn together(&self) -> usize {
        1 << self.doubled.get().clamp(0, DOUBLED_MAX)
    }

    /// Notes how long the answer of a batch took.
    pub(super) fn record(&self, latency: Latency) {
        let before = self.doubled.get();
        self.doubled.set(match latency.speed() {
            Speed::Quick => DOUBLED_MAX.min(before + 1),
            Speed::Middling => (before - 1).max(-MADE_UP),
            Speed::Slow => -MADE_UP,
        });
    }

    /// Notes that no answer has come for a while: until it comes, no other need wait for it.
    pub(super) fn record_silence(&self) {
        self.doubled.set(self.doubled.get().min(0));
    }
}

/// How long an answer took.
#[derive(Clone, Copy, Debug)]
pub(super) struct Latency {
    /// Since it was asked for, or the answer before it came.
    pub(super) time: Duration,
    /// The same for all that were asked together.
    pub(super) batch: Duration,
    /// How many those were.
    pub(super) size: usize,
    /// On how many connections the server was answering at that time.
    pub(super) among: usize,
    /// What of it the worker itself may have been late.
    pub(super) late: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Speed {
    Quick,
    Middling,
    Slow,
}

impl Latency {
    pub(super) fn speed(self) -> Speed {
        // The server has to come to a connection first, and then to each that was asked on it.
        let in_crowd = times_quick(self.among).min(SLOW);
        let batch = times_quick(self.size).max(in_crowd);
        if self.time <= QUICK + self.late {
            Speed::Quick
        } else if self.time > SLOW + self.late {
            Speed::Slow
        } else if self.batch <= batch + self.late {
            Speed::Quick
        } else {
            Speed::Middling
        }
    }
}

/// How long so many may take one after another.
fn times_quick(count: usize) -> Duration {
    QUICK.saturating_mul(u32::try_from(count).unwrap_or(u32::MAX))
}

/// The statements of a login at a server.
#[derive(Debug, Default)]
pub(super) struct Statements {
    known: HashMap<Rc<[u8]>, Rc<Statement>>,
}

impl Statements {
    /// A statement of which something was noted.
    pub(super) fn known(&self, sql: &[u8]) -> Option<&Rc<Statement>> {
        self.known.get(sql)
    }

    /// A statement to note something of; `None` for one that is too long.
    pub(super) fn statement(&mut self, sql: &[u8]) -> Option<Rc<Statement>> {
        if let Some(statement) = self.known.get(sql) {
            return Some(Rc::clone(statement));
        }
        if sql.len() > STATEMENT_BYTES_MAX {
            return None;
        }
        if self.known.len() >= STATEMENTS_MAX {
            self.known.clear();
        }
        let statement = Rc::new(Statement {
            sql: sql.into(),
            doubled: Cell::new(0),
        });
        self.known
            .insert(Rc::clone(&statement.sql), Rc::clone(&statement));
        Some(statement)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_micros(200);

    /// One of a single statement, with nothing else for the server to do.
    fn latency(time: Duration) -> Latency {
        Latency {
            time,
            batch: time,
            size: 1,
            among: 1,
            late: Duration::ZERO,
        }
    }

    fn statement() -> Rc<Statement> {
        Statements::default()
            .statement(b"SELECT 1")
            .expect("short enough")
    }

    fn full() -> Rc<Statement> {
        let statement = statement();
        (0..DOUBLED_MAX).for_each(|_| statement.record(latency(SOON)));
        assert_eq!(statement.together(), TOGETHER_MAX);
        statement
    }

    /// Notes a batch of answers, each waited for.
    fn record_batch(statement: &Statement, times: &[Duration]) {
        let longest = times.iter().max().expect("a batch of some");
        statement.record(Latency {
            batch: times.iter().sum(),
            size: times.len(),
            ..latency(*longest)
        });
    }

    /// Times of a machine that is held up at one answer of ten, as if by chance.
    fn times() -> impl Iterator<Item = Duration> {
        let mut state = 1_u64;
        std::iter::repeat_with(move || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let drawn = state >> 33;
            match drawn % 10 {
                0 => Duration::from_millis(3 + drawn / 10 % 6),
                _ => SOON,
            }
        })
    }

    #[test]
    fn quick_answers_double_how_many_go_together_and_others_halve_it() {
        let statement = statement();
        for together in [1, 2, 4, 8, 16, 16] {
            assert_eq!(statement.together(), together);
            statement.record(latency(QUICK));
        }
        for together in [8, 4, 2, 1, 1] {
            statement.record(latency(SLOW));
            assert_eq!(statement.together(), together);
        }
        (0..2).for_each(|_| statement.record(latency(QUICK)));
        assert_eq!(statement.together(), 2, "one more was to be made up for");
    }

    #[test]
    fn a_slow_one_goes_alone_until_many_quick_answers_have_made_up_for_it() {
        let statement = full();
        statement.record(latency(SLOW * 2));
        for _ in 0..MADE_UP {
            assert_eq!(statement.together(), 1);
            statement.record(latency(QUICK));
        }
        assert_eq!(statement.together(), 1);
        statement.record(latency(QUICK));
        assert_eq!(statement.together(), 2);
    }

    #[test]
    fn one_without_an_answer_goes_alone_until_it_comes() {
        let statement = full();
        statement.record_silence();
        assert_eq!(statement.together(), 1);
        statement.record(latency(QUICK));
        assert_eq!(statement.together(), 2);
        statement.record(latency(SLOW * 2));
        statement.record_silence();
        statement.record(latency(QUICK));
        assert_eq!(
            statement.together(),
            1,
            "what was to be made up for still is"
        );
    }

    #[test]
    fn answers_that_are_held_up_now_and_then_do_not_stop_the_sharing() {
        for waiting in [1, 2, 3, 5, 16] {
            let (statement, mut times, mut alone) = (full(), times(), 0);
            for _ in 0..10_000 {
                let size = waiting.min(statement.together());
                let batch: Vec<_> = times.by_ref().take(size).collect();
                record_batch(&statement, &batch);
                alone += usize::from(statement.together() == 1);
            }
            assert!(alone < 100, "{alone} of 10000 batches of {waiting}");
        }
    }

    #[test]
    fn what_always_takes_long_goes_alone() {
        for time in [QUICK * 2, SLOW, SLOW * 5 / 2] {
            let statement = statement();
            for _ in 0..100 {
                statement.record(latency(time));
                assert_eq!(statement.together(), 1, "{time:?}");
            }
        }
        let (statement, long) = (full(), SLOW * 5 / 2);
        for _ in 0..100 {
            record_batch(&statement, &vec![long; statement.together()]);
            assert_eq!(statement.together(), 1);
        }
    }

    #[test]
    fn the_worker_itself_and_other_answers_are_not_held_against_a_statement() {
        let one = latency(QUICK * 9);
        let late = QUICK * 8;
        let together = Latency {
            time: QUICK * 9,
            batch: QUICK * 16,
            size: 16,
            ..one
        };
        let cases = [
            (one, Speed::Middling),
            (Latency { late, ..one }, Speed::Quick),
            (Latency { among: 9, ..one }, Speed::Quick),
            (together, Speed::Quick),
            (
                Latency {
                    size: 15,
                    ..together
                },
                Speed::Middling,
            ),
            // Two that take their time do so however much else there is.
            (
                Latency {
                    batch: SLOW * 2,
                    size: 2,
                    among: 900,
                    ..one
                },
                Speed::Middling,
            ),
        ];
        for (latency, speed) in cases {
            assert_eq!(latency.speed(), speed, "{latency:?}");
        }
        let long = latency(SLOW * 2);
        let in_crowd = Latency {
            size: 900,
            among: 900,
            ..long
        };
        assert_eq!(in_crowd.speed(), Speed::Slow);
        let late = SLOW;
        assert_eq!(Latency { late, ..in_crowd }.speed(), Speed::Quick);
    }

    #[test]
    fn what_is_remembered_has_a_bound() {
        let mut statements = Statements::default();
        assert!(
            statements
                .statement(&[b' '; STATEMENT_BYTES_MAX + 1])
                .is_none()
        );
        for number in 0..STATEMENTS_MAX * 2 {
            statements.statement(number.to_string().as_bytes());
        }
        assert!(statements.known.len() <= STATEMENTS_MAX);
    }
}
