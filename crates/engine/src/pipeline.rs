//! The life of a request, in order. Read this first.
//!
//! Every protocol hands an [`Exchange`] to [`serve`]; each phase below is one call. A phase that
//! refuses returns an error, [`error_reply`] turns it into an answer, and whatever happens the
//! exchange ends with exactly one access record. What a phase does is in the module it calls.

#[cfg(test)]
pub(crate) mod tests;

use std::any::Any;
use std::cell::Cell;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;
use std::time::Instant;

use crate::access_log;
use crate::admission;
use crate::client;
use crate::error::{Error, Kind, Result};
use crate::error_reply;
use crate::exchange::Exchange;
use crate::fields;
use crate::handler;
use crate::intake;
use crate::permits;
use crate::resolve;
use crate::stats::{self, bump};
use crate::worker::Worker;

/// The reason on record of an exchange that never came to its end: the server is ending.
const CUT_OFF: &str = "cut_off";

/// Answers a request whose head has been read, to the reply's last byte.
///
/// # Errors
/// When the client did not take it all.
pub async fn serve(worker: &Rc<Worker>, exchange: &mut Exchange) -> Result<()> {
    let mut underway = Underway::begin(worker, exchange);
    let waited = Cell::new(false);
    // Pinned where it is made: moved, it would be copied whole, with the room of every handler.
    let outcome = caught(
        worker,
        pin!(answer(worker, underway.exchange, &waited)),
        &waited,
    )
    .await;
    underway.give_back(&outcome, &waited);
    underway.finish(outcome).await
}

/// Answers bytes that never became a request.
///
/// # Errors
/// As [`serve`].
pub async fn refuse(worker: &Rc<Worker>, exchange: &mut Exchange, error: Error) -> Result<()> {
    Underway::begin(worker, exchange).finish(Err(error)).await
}

/// `waited` says whether it had to wait for something so far.
async fn answer(worker: &Rc<Worker>, exchange: &mut Exchange, waited: &Cell<bool>) -> Result<()> {
    find_site(exchange)?;
    make_canonical(exchange)?;
    check_announced_length(exchange)?;
    resolve::before_rules(worker, exchange).await?;
    choose_rules(exchange);
    admission::check_client(exchange)?;
    permits::rates(worker, exchange)?;
    admission::check_credentials(worker, exchange).await?;
    intake::beforehand(worker, exchange).await?;
    permits::admit(worker, exchange, lately(exchange, waited)).await?;
    fields::edit_request(exchange);
    #[cfg(test)]
    tests::break_down(exchange).await;
    exchange.record.handler_started = Some(lately(exchange, waited));
    handler::run(worker, exchange).await
}

/// A moment ago at most: while nothing had to be waited for, no clock need be read.
fn lately(exchange: &Exchange, waited: &Cell<bool>) -> Instant {
    match waited.get() {
        true => Instant::now(),
        false => exchange.request.received,
    }
}

/// Fixes the generation, the client and the request's id.
fn begin(worker: &Worker, exchange: &mut Exchange) {
    let serving = worker.serving();
    exchange.request.received = Instant::now();
    client::identify(exchange, &serving.generation, worker.next_request_id());
    exchange.route.log = serving.generation.logs.without_site();
    exchange.route.serving = Some(serving);
}

/// Host to site; an unknown host is misdirected, never another site's.
fn find_site(exchange: &mut Exchange) -> Result<()> {
    let Some(serving) = &exchange.route.serving else {
        return Err(Error::refused(421, "no_generation"));
    };
    let host = exchange.request.head.host();
    let Some(destination) = serving.generation.destination_of(host) else {
        return Err(Error::refused(421, "unknown_host"));
    };
    exchange.route.site_index = Some(destination.site);
    exchange.route.log = destination.log;
    Ok(())
}

/// One spelling of path and field names, for every matcher, program and upstream.
fn make_canonical(exchange: &mut Exchange) -> Result<()> {
    let Exchange { request, route, .. } = exchange;
    if let Some(site) = route.site() {
        request.head.canonicalize(site.path_rules)?;
        request.head.odd_field_names(site.odd_names)?;
    }
    Ok(())
}

/// A body announced as too long is refused before anybody is shown its head.
fn check_announced_length(exchange: &Exchange) -> Result<()> {
    let serving = exchange.route.serving.as_ref();
    let cap = serving.map_or(0, |serving| serving.generation.process.caps.body_bytes);
    match exchange.body.length() {
        Some(length) if length > cap => Err(Error::refused(413, "body_too_long")),
        _ => Ok(()),
    }
}

/// Every rule that matches, up to the first one with a handler.
fn choose_rules(exchange: &mut Exchange) {
    let Exchange { request, route, .. } = exchange;
    let Some(serving) = route.serving.clone() else {
        return;
    };
    let Some(site) = route.site_index.and_then(|index| serving.site(index)) else {
        return;
    };
    for (index, rule) in site.rules.iter().enumerate() {
        if rule.matches(request, route.file.as_deref()) {
            route.add_rule(index);
            if rule.handler.is_some() {
                break;
            }
        }
    }
}

/// An exchange from its head to its record. However it ends, dropping this writes the record.
struct Underway<'a> {
    worker: &'a Rc<Worker>,
    exchange: &'a mut Exchange,
}

impl<'a> Underway<'a> {
    fn begin(worker: &'a Rc<Worker>, exchange: &'a mut Exchange) -> Self {
        begin(worker, exchange);
        bump(&worker.stats.begun, 1);
        exchange.record.reason = CUT_OFF;
        Self { worker, exchange }
    }

    /// Gives back the permits of a handler that has not done so itself, its source having ended.
    fn give_back(&mut self, outcome: &Result<()>, waited: &Cell<bool>) {
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
    async fn finish(self, outcome: Result<()>) -> Result<()> {
        let reason = match outcome {
            Ok(()) => {
                self.exchange.reply.finish();
                ""
            }
            Err(error) => {
                error_reply::answer(self.exchange, &error);
                error.reason
            }
        };
        let sent = poll_fn(|cx| self.exchange.reply.poll_flush(cx)).await;
        self.exchange.record.reason = match &sent {
            Err(error) if reason.is_empty() => error.reason,
            _ => reason,
        };
        sent
    }
}

impl Drop for Underway<'_> {
    fn drop(&mut self) {
        self.exchange.held = None;
        let ended = Instant::now();
        stats::count(self.worker, self.exchange, ended);
        access_log::record(self.worker, self.exchange, ended);
    }
}

/// Runs `work`; a panic in it is this exchange's failure and nobody else's.
async fn caught(
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
