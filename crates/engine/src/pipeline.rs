//! The life of a request, in order. Read this first.
//!
//! Every protocol hands an [`Exchange`] to [`serve`]; each phase below is one call. A phase that
//! refuses returns an error, [`crate::error_reply`] turns it into an answer, and whatever happens the
//! exchange ends with exactly one access record. What a phase does is in the module it calls.

#[cfg(test)]
pub(crate) mod tests;
mod underway;

use std::cell::Cell;
use std::pin::pin;
use std::rc::Rc;
use std::time::Instant;

use self::underway::{Underway, caught};
use crate::admission;
use crate::client;
use crate::error::{Error, Result};
use crate::exchange::Exchange;
use crate::fields;
use crate::handler;
use crate::intake;
use crate::maps;
use crate::permits;
use crate::resolve;
use crate::rules;
use crate::scripts::{self, Next};
use crate::shedding::{self, Stay};
use crate::worker::Worker;

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
    let sent = underway.finish(outcome).await;
    underway.log();
    sent
}

/// Answers bytes that never became a request.
///
/// # Errors
/// As [`serve`].
pub async fn refuse(worker: &Rc<Worker>, exchange: &mut Exchange, error: Error) -> Result<()> {
    Underway::begin(worker, exchange).refuse(error).await
}

/// Begins a request that a script makes inside of another's, to which it owes client, id and
/// generation.
pub(crate) fn begin_inside(worker: &Rc<Worker>, exchange: &mut Exchange, outer: &Exchange) {
    begin(worker, exchange);
    let (request, of) = (&mut exchange.request, &outer.request);
    (request.id, request.client, request.peer_trusted) = (of.id, of.client, of.peer_trusted);
    (request.connection, request.number) = (of.connection, of.number);
    exchange.route.serving.clone_from(&outer.route.serving);
    exchange.route.skips_optional = outer.route.skips_optional;
}

/// Answers a request inside that has begun. It leaves no record.
///
/// # Errors
/// When the reply was not taken.
pub(crate) async fn serve_inside(worker: &Rc<Worker>, exchange: &mut Exchange) -> Result<()> {
    let mut underway = Underway::inside(worker, exchange);
    let waited = Cell::new(true);
    let outcome = caught(
        worker,
        pin!(answer(worker, underway.exchange, &waited)),
        &waited,
    )
    .await;
    underway.give_back(&outcome, &waited);
    underway.finish(outcome).await
}

/// `waited` says whether it had to wait for something so far.
async fn answer(worker: &Rc<Worker>, exchange: &mut Exchange, waited: &Cell<bool>) -> Result<()> {
    find_site(exchange)?;
    scripts::arm_filters(worker, exchange);
    make_canonical(exchange)?;
    shedding::pass(worker, exchange)?;
    check_announced_length(exchange)?;
    let mut next = scripts::rewrite(worker, exchange).await?;
    while next != Next::Answered {
        next = answer_there(worker, exchange, waited).await?;
    }
    Ok(())
}

/// Answers the request at the path it has now; a script may send it elsewhere, [`Next::Anew`].
async fn answer_there(
    worker: &Rc<Worker>,
    exchange: &mut Exchange,
    waited: &Cell<bool>,
) -> Result<Next> {
    resolve::before_rules(worker, exchange).await?;
    rules::choose(worker, exchange).await;
    admission::check_client(exchange)?;
    maps::ask_for_limits(worker, exchange).await;
    permits::rates(worker, exchange)?;
    admission::check_credentials(worker, exchange).await?;
    let next = scripts::set(worker, exchange).await?;
    if next != Next::On {
        return Ok(next);
    }
    turn_stay(exchange, waited, Stay::pause);
    intake::beforehand(worker, exchange).await?;
    permits::admit(worker, exchange, lately(exchange, waited)).await?;
    turn_stay(exchange, waited, Stay::go_on);
    let next = scripts::access(worker, exchange).await?;
    if next != Next::On {
        return Ok(next);
    }
    maps::ask_for_texts(worker, exchange).await;
    fields::edit_request(exchange);
    #[cfg(test)]
    tests::break_down(exchange).await;
    exchange.record.handler_started = Some(lately(exchange, waited));
    handler::run(worker, exchange).await
}

/// Pauses the time that counts as use of the exchange's tenant, or lets it go on.
fn turn_stay(exchange: &mut Exchange, waited: &Cell<bool>, turn: fn(&mut Stay, Instant)) {
    if let Some(mut stay) = exchange.stay.take() {
        turn(&mut stay, lately(exchange, waited));
        exchange.stay = Some(stay);
    }
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
