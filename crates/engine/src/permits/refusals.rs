//! What is told of a refusal: the error, a line a second in the log, and the ring behind
//! `nagaya why`. Of what a limit in shadow would have refused the same is told, but no client.
//!
//! A refusal is made to be cheap, because they come when there is too much of everything: the
//! reply's words are fixed, the log hears of each limit once a second with a count ([`super::lines`]), and
//! the ring takes the facts as they are; they are put into words when somebody asks. What falls out of
//! the ring stays if it is the last of its flow, so that one client refused without end makes nobody
//! else's refusals forgotten.

use std::collections::VecDeque;
use std::hash::RandomState;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use limits::{Mode, Refusal};

use super::lines::Lines;
use crate::exchange::request::RequestId;

/// Refusals that are remembered, and as many that would have been.
pub(super) const REMEMBERED_MAX: usize = 4_096;
/// Flows (a limit, a key of it and a network) whose last refusal is remembered beyond that: by
/// their hash in groups of so many, of which the oldest goes first.
const FLOWS_OF_GROUP: usize = 8;
const GROUPS: usize = REMEMBERED_MAX / FLOWS_OF_GROUP;
/// How often the log hears of refusals.
const LINES_EVERY_MS: u64 = 1_000;
/// Refusals of the last time, and what the log has yet to hear.
#[derive(Debug, Default)]
pub struct Refusals {
    /// Held for one refusal, or to copy what is asked for.
    recent: Mutex<Recent>,
    pub(super) hasher: RandomState,
}

#[derive(Debug, Default)]
struct Recent {
    refused: Memory,
    /// Apart, so that a limit that is only tried makes nobody forget what was really refused.
    shadow: Memory,
    lines: Lines,
    said_ms: u64,
}

/// The last refusals of all, and beyond these the last of each flow.
#[derive(Debug, Default)]
struct Memory {
    ring: VecDeque<Remembered>,
    /// Empty until the ring is full; then [`GROUPS`].
    flows: Vec<Vec<Remembered>>,
}

/// One refusal, as it is remembered.
#[derive(Debug, Clone)]
pub struct Remembered {
    /// The request.
    pub id: RequestId,
    /// When, since 1970.
    pub at: Duration,
    /// The site it was for.
    pub site: Arc<str>,
    /// Which of its tenant's classes it is of, where that has some.
    pub class: Option<Arc<str>>,
    /// Everything the ledger says.
    pub refusal: Box<Refusal>,
    /// Further limits in shadow that would have refused it.
    pub others: usize,
    /// The limit, its key and the client's network, hashed.
    pub(super) flow: u64,
}

impl Refusals {
    /// Remembers one; `others` are told to the log alone.
    pub(super) fn add(&self, remembered: Remembered, others: &[Refusal]) {
        let mut recent = self.lock();
        let Recent {
            refused,
            shadow,
            lines,
            ..
        } = &mut *recent;
        lines.note(&remembered.refusal, remembered.id);
        for other in others {
            lines.note(other, remembered.id);
        }
        let memory = match remembered.refusal.mode {
            Mode::Enforce => refused,
            Mode::Shadow => shadow,
        };
        let forgotten = memory.add(remembered);
        drop(recent);
        // Only now: its memory goes back while nobody waits.
        drop(forgotten);
    }

    /// What is remembered of this request: that it was refused, then what would have refused it.
    pub fn find(&self, id: &[u8]) -> Vec<Remembered> {
        let recent = self.lock();
        let all = recent.refused.all().chain(recent.shadow.all());
        all.filter(|it| it.id.as_bytes() == id).cloned().collect()
    }

    /// When the last request was refused that was, since 1970.
    pub(crate) fn last(&self) -> Option<Duration> {
        self.lock().refused.ring.back().map(|it| it.at)
    }

    /// Shows the refusals after this moment, as far as they are remembered; when the last one was.
    pub(crate) fn since(&self, since: Duration, mut look: impl FnMut(&Remembered)) -> Duration {
        let recent = self.lock();
        let ring = recent.refused.ring.iter().rev();
        ring.take_while(|it| it.at > since).for_each(&mut look);
        let last = recent.refused.ring.back().map(|it| it.at);
        last.unwrap_or(since)
    }

    /// Tells the log of the refusals since the last time, once a second.
    pub(super) fn say(&self, now_ms: u64, tell: impl Fn(Option<&str>, &dyn Fn())) {
        let mut recent = self.lock();
        if now_ms.saturating_sub(recent.said_ms) < LINES_EVERY_MS {
            return;
        }
        recent.said_ms = now_ms;
        let lines = std::mem::take(&mut recent.lines);
        drop(recent);
        lines.say(tell);
    }

    /// The lines the log would get now.
    #[cfg(test)]
    pub(super) fn take_lines(&self) -> Vec<String> {
        std::mem::take(&mut self.lock().lines).told()
    }

    fn lock(&self) -> MutexGuard<'_, Recent> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Memory {
    /// Remembers one; gives back what is forgotten for it.
    fn add(&mut self, remembered: Remembered) -> Option<Remembered> {
        let oldest = match self.ring.len() < REMEMBERED_MAX {
            true => None,
            false => self.ring.pop_front(),
        };
        self.ring.push_back(remembered);
        self.keep(oldest?)
    }

    /// Keeps what has left the ring in the place of an earlier one of its flow, or of the oldest.
    fn keep(&mut self, left: Remembered) -> Option<Remembered> {
        self.flows.resize_with(GROUPS, Vec::new);
        let group = self.flows.get_mut(left.flow as usize % GROUPS)?;
        let place = match group.iter_mut().position(|it| it.flow == left.flow) {
            Some(same) => group.get_mut(same),
            None if group.len() < FLOWS_OF_GROUP => None,
            None => group.iter_mut().min_by_key(|it| it.at),
        };
        match place {
            Some(place) => Some(std::mem::replace(place, left)),
            None => {
                group.push(left);
                None
            }
        }
    }

    fn all(&self) -> impl Iterator<Item = &Remembered> {
        self.ring.iter().chain(self.flows.iter().flatten())
    }
}
