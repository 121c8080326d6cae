//! A worker's way into the ledger. Permits and tickets keep it: each worker counts references of
//! its own, so that two workers do not take turns at one counter.

use std::fmt;
use std::sync::Arc;
use std::task::{Poll, Waker};

use super::Books;
use super::attempt::Held;
use super::holds::Holds;
use super::route::Bits;
use super::wait_queue::Charged;
use super::waiting::Outcome as Waited;
use crate::Time;
use crate::adaptive::Outcome;
use crate::permit::{Permit, Used};
use crate::refusal::Refusal;

/// A worker's way into the ledger.
#[repr(align(128))]
pub(crate) struct Handle {
    pub(super) worker: usize,
    pub(super) books: Arc<Books>,
}

/// How a permit came back.
#[derive(Debug, Clone, Copy)]
pub(crate) struct End {
    /// Unknown where it was only dropped.
    pub(crate) now: Option<Time>,
    pub(crate) used: Option<Used>,
    pub(crate) outcome: Outcome,
}

impl Handle {
    pub(super) fn new(worker: usize, books: Arc<Books>) -> Self {
        Self { worker, books }
    }

    /// Gives permits back and hands on what somebody waits for.
    #[inline]
    pub(crate) fn give_back(
        &self,
        holds: &Holds,
        since: Time,
        charged: Option<&Charged>,
        end: &End,
    ) {
        let how = Held {
            now: end.now.unwrap_or(since),
            held_ns: end.now.map(|now| now.since_ns(since)),
            outcome: end.outcome,
        };
        let freed = self.books.give_back(self.worker, holds, &how);
        if !freed.is_empty() || charged.is_some() {
            self.hand_on(holds, freed, charged, end, how.held_ns);
        }
    }

    /// Hands on what somebody waits for, and settles what a wait was charged.
    #[inline(never)]
    fn hand_on(
        &self,
        holds: &Holds,
        freed: Bits,
        charged: Option<&Charged>,
        end: &End,
        held_ns: Option<u64>,
    ) {
        self.books
            .with_wait_queue(end.now, |wait_queue, now, wakers| {
                if let Some(charged) = charged {
                    wait_queue.settle(now, charged, end.used);
                }
                let all = holds.iter().enumerate();
                for (_, hold) in all.filter(|(at, _)| freed.has(*at)) {
                    wait_queue.note_service(hold.place(), held_ns);
                    self.books.serve(wait_queue, now, hold.place(), wakers);
                }
            });
    }

    /// Asks what came of a wait; `None` if that was told before.
    pub(crate) fn poll(
        self: &Arc<Self>,
        now: Time,
        id: u64,
        waker: Waker,
    ) -> Poll<Option<Result<Permit, Box<Refusal>>>> {
        self.books.poll(now, id, waker).map(|outcome| {
            outcome.map(|outcome| match outcome {
                Waited::Refused(refusal) => Err(refusal),
                Waited::Granted(since, holds, wait) => {
                    Ok(Permit::after_a_wait(self.clone(), holds, since, wait))
                }
            })
        })
    }

    /// Leaves the queue, or passes on what was granted.
    pub(crate) fn abandon(&self, id: u64) {
        self.books.abandon(id);
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Handle")
            .field("worker", &self.worker)
            .finish_non_exhaustive()
    }
}
