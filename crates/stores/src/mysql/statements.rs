//! Which statements may go over a connection together.
//!
//! A statement is known by its text, once it was answered alone. From then on [`TOGETHER_MAX`] go
//! together, whatever they are; but one that is silent for [`SLOW`] goes alone for [`ALONE`], so that
//! what takes its time holds up others once in that, and is asked twice no more often.
//!
//! A number that follows how quick each statement is was measured beside this and is no better: at 4,
//! 16 and 64 users, with none and with one statement of twenty slow, it cost as much CPU time or more
//! and left quick ones as long behind slow ones.

use std::cell::Cell;
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

use tokio::time::Instant;

/// An answer that takes longer is a slow one, whatever else the server had to do.
pub(super) const SLOW: Duration = Duration::from_millis(20);
/// Statements that go together at most.
pub(super) const TOGETHER_MAX: usize = 4;
/// For so long a slow one goes alone.
const ALONE: Duration = Duration::from_secs(1);
/// Statements remembered; one more, and all are forgotten.
const STATEMENTS_MAX: usize = 256;
/// The longest text of one.
const STATEMENT_BYTES_MAX: usize = 4 * 1024;

/// A statement, and whether it was slow.
#[derive(Debug)]
pub(super) struct Statement {
    pub(super) sql: Rc<[u8]>,
    slow_at: Cell<Option<Instant>>,
}

impl Statement {
    /// How many may go together with it, itself among them.
    pub(super) fn together(&self, now: Instant) -> usize {
        match self.slow_at.get() {
            Some(at) if now.duration_since(at) < ALONE => 1,
            _ => TOGETHER_MAX,
        }
    }

    /// Notes that it takes its time: no other need wait for it.
    pub(super) fn record_slow(&self, now: Instant) {
        self.slow_at.set(Some(now));
    }
}

/// The statements of a login at a server.
#[derive(Debug, Default)]
pub(super) struct Statements {
    known: HashMap<Rc<[u8]>, Rc<Statement>>,
}

impl Statements {
    /// A statement that was answered before.
    pub(super) fn known(&self, sql: &[u8]) -> Option<&Rc<Statement>> {
        self.known.get(sql)
    }

    /// Remembers a statement, unless it is too long, and whether it was slow.
    pub(super) fn record(&mut self, sql: &[u8], time: Duration) {
        if sql.len() > STATEMENT_BYTES_MAX {
            return;
        }
        if !self.known.contains_key(sql) {
            if self.known.len() >= STATEMENTS_MAX {
                self.known.clear();
            }
            let (sql, slow_at): (Rc<[u8]>, _) = (sql.into(), Cell::new(None));
            let key = Rc::clone(&sql);
            self.known.insert(key, Rc::new(Statement { sql, slow_at }));
        }
        if let Some(statement) = self.known.get(sql).filter(|_| time > SLOW) {
            statement.record_slow(Instant::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SQL: &[u8] = b"SELECT 1";

    #[test]
    fn one_that_was_slow_goes_alone_for_a_while() {
        let mut statements = Statements::default();
        assert!(statements.known(SQL).is_none());
        statements.record(SQL, SLOW);
        let statement = Rc::clone(statements.known(SQL).expect("it is known"));
        let now = Instant::now();
        assert_eq!(statement.together(now), TOGETHER_MAX);
        statements.record(SQL, SLOW * 2);
        assert_eq!(statement.together(now), 1);
        statement.record_slow(now);
        assert_eq!(statement.together(now + ALONE / 2), 1);
        assert_eq!(statement.together(now + ALONE), TOGETHER_MAX);
    }

    #[test]
    fn what_is_remembered_has_a_bound() {
        let mut statements = Statements::default();
        let long = [b' '; STATEMENT_BYTES_MAX + 1];
        statements.record(&long, SLOW);
        assert!(statements.known(&long).is_none());
        for number in 0..STATEMENTS_MAX * 2 {
            statements.record(number.to_string().as_bytes(), SLOW);
        }
        assert!(statements.known.len() <= STATEMENTS_MAX);
    }
}
