//! A place in a queue, as its owner sees it.

use std::task::{Context, Poll};

use crate::Time;
use crate::permit::Permit;
use crate::refusal::Refusal;

/// A place in a queue. Dropped, the queue is left at once, or the permit passed on.
#[derive(Debug)]
#[must_use = "who drops a ticket leaves the queue"]
pub struct Ticket {
    until: Time,
}

impl Ticket {
    /// Asks whether the turn has come. The waker is called when it has, or when it never will.
    ///
    /// # Errors
    /// The wait is over without a permit.
    pub fn poll_wait(
        &mut self,
        now: Time,
        context: &mut Context<'_>,
    ) -> Poll<Result<Permit, Box<Refusal>>> {
        let _ = (now, context);
        Poll::Pending
    }

    /// Tells until when it waits. Whoever polls then is answered; so does [`Ledger::tick`](crate::Ledger::tick).
    #[must_use]
    pub fn deadline(&self) -> Time {
        self.until
    }
}
