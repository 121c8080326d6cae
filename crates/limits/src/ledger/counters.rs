//! What a limit has come to so far, whatever became of its keys: counts that only grow.
//!
//! A key is forgotten when nobody uses it, and its own counts with it. These belong to the limit,
//! and to the one that takes its place under its identity. Whoever passes at a gate is counted in
//! its worker's cell, which is locked anyway; all others, few, count here.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::entry::Entry;
use super::gate::Gate;
use crate::Time;
use crate::look::Totals;
use crate::refusal::Why;

/// Counts of one limit, but for those admitted by workers.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// Admitted at the wait_queue, or by cells that are no more.
    admitted: AtomicU64,
    waited: AtomicU64,
    would_refuse: AtomicU64,
    refused: [AtomicU64; Why::ALL.len()],
}

impl Gate {
    /// Gives a permit from the wait_queue. Tells whether the limit, in shadow, would not have.
    pub(super) fn admit_queued(&mut self, entry: Option<&Arc<Entry>>, now: Time) -> bool {
        let Some(entry) = entry else {
            self.in_flight += 1;
            return false;
        };
        self.admitted += 1;
        entry.life.counters.admitted.fetch_add(1, Relaxed);
        self.take(entry, now)
    }

    /// Counts one that waits here.
    pub(super) fn note_wait(&mut self, entry: &Entry) {
        self.waited = self.waited.saturating_add(1);
        entry.life.counters.waited.fetch_add(1, Relaxed);
    }

    /// Counts one that is refused here.
    pub(super) fn note_refusal(&mut self, entry: &Entry, why: Why, now: Time) {
        let (each, turns) = entry.turn(why, self.held());
        self.note_lost(now, each, turns);
        self.refused = self.refused.saturating_add(1);
        if let Some(count) = entry.life.counters.refused.get(why as usize) {
            count.fetch_add(1, Relaxed);
        }
    }

    /// Counts one that would be refused here, were the limit not in shadow.
    pub(super) fn note_shadow(&mut self, entry: &Entry) {
        self.shadow_refused = self.shadow_refused.saturating_add(1);
        entry.life.counters.would_refuse.fetch_add(1, Relaxed);
    }
}

impl Counters {
    /// Takes over what a worker's cell has counted of a limit that is not in force any more.
    pub(super) fn take_over(&self, admitted: &mut u64) {
        self.admitted.fetch_add(std::mem::take(admitted), Relaxed);
    }

    /// What they say, with so many admitted by workers.
    pub(super) fn totals(&self, admitted_by_workers: u64) -> Totals {
        Totals {
            admitted: self.admitted.load(Relaxed) + admitted_by_workers,
            waited: self.waited.load(Relaxed),
            shadow_refused: self.would_refuse.load(Relaxed),
            refused: self.refused.each_ref().map(|count| count.load(Relaxed)),
        }
    }
}
