//! The life of a request, in order. Read this first.
//!
//! Every protocol hands an [`Exchange`] to [`serve`]; each phase below is one call. A phase that
//! refuses returns an error, [`error_reply`] turns it into an answer, and whatever happens the
//! exchange ends with exactly one access record. What a phase does is in the module it calls.

#[cfg(test)]
pub(crate) mod tests;

use std::any::Any;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
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
use crate::resolve;
use crate::stats::{self, bump};
use crate::worker::Worker;

/// Answers a request whose head has been read.
pub async fn serve(worker: &Rc<Worker>, exchange: &mut Exchange) {
    let underway = Underway::begin(worker, exchange);
    let outcome = caught(worker, answer(worker, underway.exchange)).await;
    underway.finish(outcome);
}

/// Answers bytes that never became a request.
pub fn refuse(worker: &Rc<Worker>, exchange: &mut Exchange, error: Error) {
    Underway::begin(worker, exchange).finish(Err(error));
}

async fn answer(worker: &Rc<Worker>, exchange: &mut Exchange) -> Result<()> {
    find_site(exchange)?;
    make_canonical(exchange)?;
    check_announced_length(exchange)?;
    resolve::before_rules(worker, exchange).await?;
    choose_rules(exchange);
    admission::check(worker, exchange).await?;
    fields::edit_request(exchange);
    #[cfg(test)]
    tests::break_down(exchange);
    exchange.record.handler_started = Some(Instant::now());
    handler::run(worker, exchange).await
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
        // What stands there if the exchange never comes to `finish`: the server is ending.
        exchange.record.reason = "cut_off";
        Self { worker, exchange }
    }

    /// An end for the reply, or an answer for an error.
    fn finish(self, outcome: Result<()>) {
        self.exchange.record.reason = "";
        match outcome {
            Ok(()) => self.exchange.reply.finish(),
            Err(error) => error_reply::answer(self.exchange, &error),
        }
    }
}

impl Drop for Underway<'_> {
    fn drop(&mut self) {
        let ended = Instant::now();
        stats::count(self.worker, self.exchange, ended);
        access_log::record(self.worker, self.exchange, ended);
    }
}

/// Runs `work`; a panic in it is this exchange's failure and nobody else's.
async fn caught(worker: &Worker, work: impl Future<Output = Result<()>>) -> Result<()> {
    let mut work = pin!(work);
    poll_fn(|cx| {
        // What the panic left behind is either dropped with `work` or given up with the connection.
        match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(cx))) {
            Ok(poll) => poll,
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
