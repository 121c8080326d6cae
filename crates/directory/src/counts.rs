//! What a directory counts of itself.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use ipc::codec::cut;
use ipc::directory::{DirectoryState, REASON_BYTES_MAX, SLOWEST_MAX};
use tokio::time::Instant;

/// Questions of which the slowest are told: those of the last minutes.
const OF_LATE: Duration = Duration::from_secs(300);

/// Counters, and what went wrong last.
#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) asked: Cell<u64>,
    pub(crate) source: Cell<u64>,
    pub(crate) memcached: Cell<u64>,
    pub(crate) snapshot: Cell<u64>,
    pub(crate) missing: Cell<u64>,
    pub(crate) wrong: Cell<u64>,
    pub(crate) down: Cell<u64>,
    pub(crate) changes: Cell<u64>,
    is_up: Cell<bool>,
    answered_at: Cell<Option<Instant>>,
    error: RefCell<Option<(String, Instant)>>,
    slowest: RefCell<Vec<(String, Duration, Instant)>>,
}

/// One more.
pub(crate) fn count(counter: &Cell<u64>) {
    counter.set(counter.get() + 1);
}

impl Counts {
    /// The source has answered a question.
    pub(crate) fn answered(&self, host: &str, time: Duration) {
        count(&self.source);
        self.is_up.set(true);
        self.answered_at.set(Some(Instant::now()));
        let mut slowest = self.slowest.borrow_mut();
        slowest.retain(|(_, _, at)| at.elapsed() < OF_LATE);
        let place = slowest.partition_point(|(_, other, _)| *other >= time);
        if place < SLOWEST_MAX {
            slowest.insert(place, (host.to_owned(), time, Instant::now()));
            slowest.truncate(SLOWEST_MAX);
        }
    }

    /// The source has not answered; says whether that is new.
    pub(crate) fn failed(&self, why: &str) -> bool {
        let was_up = self.is_up.replace(false);
        self.complain(why) || was_up
    }

    /// Something went wrong beside questions; says whether that is new.
    pub(crate) fn complain(&self, why: &str) -> bool {
        let before = self.error.replace(Some((why.to_owned(), Instant::now())));
        before.is_none_or(|(before, _)| before != why)
    }

    /// As the server is told.
    pub(crate) fn state(&self, rows: u64) -> DirectoryState {
        let error = self.error.borrow();
        let error = error.as_ref().map(|(why, at)| {
            let mut why = why.clone();
            cut(&mut why, REASON_BYTES_MAX);
            (why, ms(at.elapsed()))
        });
        let slowest = self.slowest.borrow();
        let slowest = slowest.iter().map(|(host, time, _)| {
            let us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
            (host.clone(), us)
        });
        DirectoryState {
            is_up: self.is_up.get(),
            answered_ms: self.answered_at.get().map(|at| ms(at.elapsed())),
            error: error.unwrap_or_default(),
            asked: self.asked.get(),
            source: self.source.get(),
            memcached: self.memcached.get(),
            snapshot: self.snapshot.get(),
            missing: self.missing.get(),
            wrong: self.wrong.get(),
            down: self.down.get(),
            rows,
            changes: self.changes.get(),
            slowest: slowest.collect(),
        }
    }
}

/// Whole milliseconds.
pub(crate) fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
