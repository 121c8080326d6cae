//! The life of a request, in order. Read this first.
//!
//! Every protocol hands an [`Exchange`] to [`serve`]; each phase below is one call. A phase that
//! refuses returns an error, [`error_reply`] turns it into an answer, and whatever happens the
//! exchange ends with exactly one access record. What a phase does is in the module it calls.

use std::rc::Rc;
use std::time::Instant;

use crate::access_log;
use crate::admission;
use crate::client;
use crate::error::{Error, Result};
use crate::error_reply;
use crate::exchange::Exchange;
use crate::fields;
use crate::handler;
use crate::resolve;
use crate::worker::Worker;

/// Answers a request whose head has been read.
pub async fn serve(worker: &Rc<Worker>, exchange: &mut Exchange) {
    let outcome = answer(worker, exchange).await;
    finish(worker, exchange, outcome).await;
}

/// Answers bytes that never became a request.
pub async fn refuse(worker: &Rc<Worker>, exchange: &mut Exchange, error: Error) {
    begin(worker, exchange);
    finish(worker, exchange, Err(error)).await;
}

async fn answer(worker: &Rc<Worker>, exchange: &mut Exchange) -> Result<()> {
    begin(worker, exchange);
    find_site(exchange)?;
    make_canonical(exchange)?;
    check_announced_length(exchange)?;
    resolve::before_rules(worker, exchange).await?;
    choose_rules(exchange);
    admission::check(worker, exchange).await?;
    fields::edit_request(exchange);
    exchange.record.handler_started = Some(Instant::now());
    handler::run(worker, exchange).await
}

/// Fixes the generation, the client and the request's id.
fn begin(worker: &Worker, exchange: &mut Exchange) {
    let serving = worker.serving();
    exchange.request.received = Instant::now();
    client::identify(exchange, &serving.generation, worker.next_request_id());
    exchange.route.serving = Some(serving);
}

/// Host to site; an unknown host is misdirected, never another site's.
fn find_site(exchange: &mut Exchange) -> Result<()> {
    let Some(serving) = &exchange.route.serving else {
        return Err(Error::refused(421, "no_generation"));
    };
    let site = serving.generation.site_of(exchange.request.head.host());
    exchange.route.site_index = Some(site.ok_or(Error::refused(421, "unknown_host"))?);
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
        if rule.matches(request, route.file.as_ref()) {
            route.add_rule(index);
            if rule.handler.is_some() {
                break;
            }
        }
    }
}

/// An answer for an error, an end for the reply, and the record.
async fn finish(worker: &Rc<Worker>, exchange: &mut Exchange, outcome: Result<()>) {
    match outcome {
        Ok(()) => exchange.reply.finish(),
        Err(error) => error_reply::answer(worker, exchange, &error).await,
    }
    worker.stats.count(exchange);
    access_log::record(worker, exchange);
}
