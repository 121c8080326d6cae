//! An exchange from its head to its record, whatever happens on the way.

use std::any::Any;
use std::cell::Cell;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Instant;

use super::{begin, lately};
use crate::access_log;
use crate::error::{Error, Kind, Result};
use crate::error_reply;
use crate::exchange::Exchange;
use crate::permits;
use crate::refused;
use crate::scripts;
use crate::stats::{self, bump};
use crate::worker::Worker;

/// The reason on record of an exchange that never came to its end: the server is ending.
const CUT_OFF: &str = "cut_off";

/// An exchange from its head to its record. However it ends, dropping this writes the record.
pub(super) struct Underway<'a> {
    pub(super) worker: &'a Rc<Worker>,
    pub(super) exchange: &'a mut Exchange,
    /// Whether it has a head that scripts can look at.
    is_request: bool,
    /// Whether its record is written.
    is_recorded: bool,
}

impl<'a> Underway<'a> {
    pub(super) fn begin(worker: &'a Rc<Worker>, exchange: &'a mut Exchange) -> Self {
        begin(worker, exchange);
        bump(&worker.stats.begun, 1);
        exchange.record.reason = CUT_OFF;
        Self {
            worker,
            exchange,
            is_request: true,
            is_recorded: false,
        }
    }

    /// Takes an exchange that lies inside of another and leaves no record.
    pub(super) fn inside(worker: &'a Rc<Worker>, exchange: &'a mut Exchange) -> Self {
        Self {
            worker,
            exchange,
            is_request: false,
            is_recorded: true,
        }
    }

    /// Gives back the permits of a handler that has not done so itself, its source having ended.
    pub(super) fn give_back(&mut self, outcome: &Result<()>, waited: &Cell<bool>) {
        self.exchange.stay = None;
        if self.exchange.held.is_some() {
            let now = lately(self.exchange, waited);
            let outcome = match outcome {
                // What we answered ourselves says nothing about a back end.
                Ok(()) => limits::Outcome::Ignored,
                Err(error) => permits::outcome_of(error),
            };
            permits::end_at(self.worker, self.exchange, now, outcome);
        }
    }

    /// An end for the reply, or an answer for an error; done when the kernel has its last byte.
    pub(super) async fn finish(&mut self, outcome: Result<()>) -> Result<()> {
        let outcome = match outcome {
            Ok(()) => scripts::filter_body(self.worker, self.exchange).await,
            Err(error) => {
                // What was kept back of another reply is forgotten.
                self.exchange.reply.take_collected();
                Err(error)
            }
        };
        let reason = match outcome {
            Ok(()) => self.exchange.said(),
            Err(error) => {
                self.answer(&error).await;
                error.reason
            }
        };
        self.exchange.reply.finish();
        let sent = poll_fn(|cx| self.exchange.reply.poll_flush(cx)).await;
        self.exchange.record.reason = match &sent {
            Err(error) if reason.is_empty() => error.reason,
            _ => reason,
        };
        sent
    }

    /// Answers an error; scripts may see that answer, too.
    async fn answer(&mut self, error: &Error) {
        // What a script asks for inside is no doing of the client's.
        if self.is_request && matches!(error.kind, Kind::OverLimit { .. } | Kind::Shed(_)) {
            refused::note(self.worker, self.exchange);
        }
        error_reply::answer(self.exchange, error).await;
        if let Err(error) = scripts::filter_body(self.worker, self.exchange).await {
            error_reply::answer(self.exchange, &error).await;
        }
    }

    /// Answers what never became a request: no script hears of it.
    pub(super) async fn refuse(mut self, error: Error) -> Result<()> {
        self.is_request = false;
        self.finish(Err(error)).await
    }

    /// Runs the `log` scripts and writes the record. What waits goes on without the connection.
    pub(super) fn log(mut self) {
        let (worker, ended) = (self.worker, Instant::now());
        self.exchange.held = None;
        self.exchange.stay = None;
        // Whatever happens in them, they run once.
        self.is_request = false;
        let rest = scripts::log(worker, self.exchange, ended);
        self.record(ended);
        if let Some(rest) = rest {
            rest.depart(worker, self.exchange);
        }
        if let Some(scripted) = &mut self.exchange.scripted {
            scripted.end();
        }
    }

    fn record(&mut self, ended: Instant) {
        self.is_recorded = true;
        stats::count(self.worker, self.exchange, ended);
        access_log::record(self.worker, self.exchange, ended);
    }
}

impl Drop for Underway<'_> {
    /// Cut off before its end: what of the `log` scripts does not wait runs all the same.
    fn drop(&mut self) {
        if self.is_recorded {
            return;
        }
        let ended = Instant::now();
        self.exchange.held = None;
        self.exchange.stay = None;
        let (worker, exchange) = (self.worker, &mut *self.exchange);
        // The runtime may be ending: a script that needs it fails.
        if self.is_request {
            let rest = catch_unwind(AssertUnwindSafe(|| scripts::log(worker, exchange, ended)));
            drop(rest);
        }
        self.record(ended);
        if let Some(scripted) = &mut self.exchange.scripted {
            scripted.end();
        }
    }
}

/// Runs `work`; a panic in it is this exchange's failure and nobody else's.
pub(super) async fn caught(
    worker: &Worker,
    mut work: Pin<&mut impl Future<Output = Result<()>>>,
    waited: &Cell<bool>,
) -> Result<()> {
    poll_fn(|cx| {
        // What the panic left behind is either dropped with `work` or given up with the connection.
        match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(cx))) {
            Ok(poll) => {
                if poll.is_pending() {
                    waited.set(true);
                }
                poll
            }
            Err(payload) => {
                bump(&worker.stats.panics, 1);
                Poll::Ready(Err(Error::new(Kind::Internal, "panic", words(&*payload))))
            }
        }
    })
    .await
}

fn words(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("no message").to_owned()
}
