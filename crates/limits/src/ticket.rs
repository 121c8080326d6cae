//! A place in a queue, as its owner sees it.

use std::sync::Arc;
use std::task::{Context, Poll};

use crate::Time;
use crate::ledger::Handle;
use crate::permit::Permit;
use crate::refusal::Refusal;

/// A place in a queue. Dropped, the queue is left at once, or the permit passed on.
#[derive(Debug)]
#[must_use = "who drops a ticket leaves the queue"]
pub struct Ticket {
    handle: Arc<Handle>,
    id: u64,
    until: Time,
    /// It was told already what came of the wait.
    over: bool,
}

impl Ticket {
    pub(crate) fn new(handle: Arc<Handle>, id: u64, until: Time) -> Self {
        Self {
            handle,
            id,
            until,
            over: false,
        }
    }

    /// Asks whether the turn has come. The waker is called when it has, or when it never will.
    /// Once it was ready it is pending for ever.
    ///
    /// # Errors
    /// The wait is over without a permit.
    pub fn poll_wait(
        &mut self,
        now: Time,
        context: &mut Context<'_>,
    ) -> Poll<Result<Permit, Box<Refusal>>> {
        if self.over {
            return Poll::Pending;
        }
        match self.handle.poll(now, self.id, context.waker().clone()) {
            Poll::Ready(Some(outcome)) => {
                self.over = true;
                Poll::Ready(outcome)
            }
            Poll::Ready(None) | Poll::Pending => Poll::Pending,
        }
    }

    /// Tells until when it waits. Polled then it is ready; so it is after
    /// [`Ledger::tick`](crate::Ledger::tick).
    #[must_use]
    pub fn deadline(&self) -> Time {
        self.until
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if !self.over {
            self.handle.abandon(self.id);
        }
    }
}
