//! What is told of a refusal: the error, a line a second in the log, and the ring behind
//! `nagaya why`.
//!
//! A refusal is made to be cheap, because they come when there is too much of everything: the
//! reply's words are fixed, the log hears of each limit and key once a second with a count, and
//! the ring takes the facts as they are; they are put into words when somebody asks.

use std::collections::{HashSet, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use limits::{LimitId, Refusal, Why};

use super::wants;
use crate::error::{Error, Kind};
use crate::exchange::{Exchange, RequestId};
use crate::worker::Worker;

/// Refusals that are remembered.
const REMEMBERED_MAX: usize = 4_096;
/// Limits and keys that get a line of their own in a second of the log.
const LINES_MAX: usize = 32;
/// How often the log hears of refusals.
const LINES_EVERY_MS: u64 = 1_000;
/// What a client is told to wait, at least and at most.
const RETRY_S_MIN: u64 = 1;
const RETRY_S_MAX: u64 = 60;
/// The status where the limit is not known any more.
const STATUS: u16 = 503;

/// Refusals of the last time, and what the log has yet to hear.
#[derive(Debug, Default)]
pub struct Refusals {
    /// Held for one refusal, or to copy what is asked for.
    recent: Mutex<Recent>,
}

#[derive(Debug, Default)]
struct Recent {
    ring: VecDeque<Remembered>,
    /// In the order of limits.
    counts: Vec<(LimitId, Counts)>,
    lines: Vec<Line>,
    /// Those of limits and keys beyond the lines.
    unnamed: u64,
    said_ms: u64,
}

/// Refusals of a limit by their reason, in the order of [`REASONS`].
pub type Counts = [u64; REASONS.len()];

/// Every reason of a refusal.
pub const REASONS: [Why; 6] = [
    Why::Full,
    Why::QueueFull,
    Why::WaitTooLong,
    Why::WaitedTooLong,
    Why::Late,
    Why::Rate,
];

/// One refusal, as it is remembered.
#[derive(Debug, Clone)]
pub struct Remembered {
    /// The request.
    pub id: RequestId,
    /// When, since 1970.
    pub at: Duration,
    /// The site it was for.
    pub site: Arc<str>,
    /// Everything the ledger says.
    pub refusal: Box<Refusal>,
}

/// Refusals of a limit and key.
#[derive(Debug)]
struct Line {
    /// The first of them, with the figures of the last.
    refusal: Refusal,
    count: u64,
}

/// Makes an error of a refusal, and remembers it.
pub(super) fn refuse(worker: &Worker, exchange: &mut Exchange, refusal: Box<Refusal>) -> Error {
    let limit = wants::limit(exchange, refusal.limit);
    let status = limit.map_or(STATUS, |limit| limit.status);
    let site = exchange.route.site().map(|site| Arc::clone(&site.name));
    let record = &mut exchange.record;
    record.limit = Some(Arc::clone(&refusal.identity));
    record.limit_key.push_str(&refusal.key);
    record.waited_us.get_or_insert(0);
    let kind = Kind::OverLimit {
        status,
        retry_after_s: retry_after_s(refusal.retry_after, worker.draw()),
    };
    let reason = refusal.why.word();
    worker.shared.limits.refusals.add(Remembered {
        id: exchange.request.id,
        at: worker.clock.unix_at(exchange.request.received),
        site: site.unwrap_or_default(),
        refusal,
    });
    Error::new(kind, reason, String::new())
}

/// Whole seconds, spread over half as much again: who was sent away together shall not come back
/// together.
pub(super) fn retry_after_s(predicted: Duration, random: u64) -> u8 {
    let predicted_ms = u64::try_from(predicted.as_millis()).unwrap_or(u64::MAX);
    let predicted_ms = predicted_ms.clamp(1, RETRY_S_MAX * 1_000);
    let spread_ms = predicted_ms * (random % 1_024) / 2_048;
    let seconds = (predicted_ms + spread_ms).div_ceil(1_000);
    u8::try_from(seconds.clamp(RETRY_S_MIN, RETRY_S_MAX)).unwrap_or(u8::MAX)
}

impl Refusals {
    fn add(&self, remembered: Remembered) {
        let mut recent = self.lock();
        recent.count(&remembered.refusal);
        recent.note(&remembered.refusal);
        let oldest = match recent.ring.len() < REMEMBERED_MAX {
            true => None,
            false => recent.ring.pop_front(),
        };
        recent.ring.push_back(remembered);
        drop(recent);
        // Only now: its memory goes back while nobody waits.
        drop(oldest);
    }

    /// The last refusal of this request, if it is remembered.
    pub fn find(&self, id: &[u8]) -> Option<Remembered> {
        let recent = self.lock();
        let found = recent.ring.iter().rev().find(|it| it.id.as_bytes() == id);
        found.cloned()
    }

    /// Refusals of a limit so far.
    pub fn counts(&self, limit: LimitId) -> Counts {
        let recent = self.lock();
        let at = recent.counts.binary_search_by_key(&limit, |(id, _)| *id);
        let found = at.ok().and_then(|at| recent.counts.get(at));
        found.map(|(_, counts)| *counts).unwrap_or_default()
    }

    /// Forgets what was counted of limits that are no more.
    pub(super) fn retain(&self, in_force: &HashSet<LimitId>) {
        let mut recent = self.lock();
        recent.counts.retain(|(limit, _)| in_force.contains(limit));
    }

    /// Tells the log of the refusals since the last time, once a second.
    pub(super) fn say(&self, now_ms: u64, shadow: impl FnOnce() -> Vec<(Arc<str>, u64)>) {
        let mut recent = self.lock();
        if now_ms.saturating_sub(recent.said_ms) < LINES_EVERY_MS {
            return;
        }
        recent.said_ms = now_ms;
        let lines = std::mem::take(&mut recent.lines);
        let unnamed = std::mem::take(&mut recent.unnamed);
        drop(recent);
        for line in &lines {
            let (refusal, reason) = (&line.refusal, line.refusal.why.word());
            tracing::warn!(limit = %refusal.identity, reason, "{line}");
        }
        for (limit, count) in shadow().into_iter().take(LINES_MAX) {
            tracing::warn!(%limit, "limit in shadow: {count} would be refused");
        }
        if unnamed > 0 {
            tracing::warn!("limits with further keys: {unnamed} refused");
        }
    }

    /// The lines the log would get now.
    #[cfg(test)]
    pub(super) fn take_lines(&self) -> Vec<String> {
        let lines = std::mem::take(&mut self.lock().lines);
        lines.iter().map(Line::to_string).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Recent> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Recent {
    fn count(&mut self, refusal: &Refusal) {
        let found = self
            .counts
            .binary_search_by_key(&refusal.limit, |(id, _)| *id);
        let at = found.unwrap_or_else(|at| {
            self.counts.insert(at, (refusal.limit, Counts::default()));
            at
        });
        let counts = self.counts.get_mut(at);
        if let Some(count) = counts.and_then(|(_, it)| it.get_mut(refusal.why as usize)) {
            *count += 1;
        }
    }

    fn note(&mut self, refusal: &Refusal) {
        let is_same = |line: &&mut Line| {
            line.refusal.limit == refusal.limit && line.refusal.key == refusal.key
        };
        if let Some(line) = self.lines.iter_mut().find(is_same) {
            line.count += 1;
            line.refusal.why = refusal.why;
            line.refusal.in_flight = refusal.in_flight;
            line.refusal.cap = refusal.cap;
            line.refusal.queued = refusal.queued;
            line.refusal.queue_max = refusal.queue_max;
        } else if self.lines.len() < LINES_MAX {
            let refusal = refusal.clone();
            self.lines.push(Line { refusal, count: 1 });
        } else {
            self.unnamed += 1;
        }
    }
}

impl fmt::Display for Line {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {} refused", self.refusal, self.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_its_counter() {
        for (at, why) in REASONS.into_iter().enumerate() {
            assert_eq!(why as usize, at, "{why:?}");
        }
    }
}
