//! The life of a request, in order. Read this first.
//!
//! Every protocol hands an [`Exchange`] to [`serve`]; each phase below is one call. A phase that
//! refuses returns an error, [`crate::error_reply`] turns it into an answer, and whatever happens the
//! exchange ends with exactly one access record. What a phase does is in the module it calls.

#[cfg(test)]
pub(crate) mod tests;
mod underway;

use std::cell::OnceCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use self::underway::Underway;
use crate::error::{Error, Result};
use crate::exchange::Exchange;
use crate::generation::Destination;
use crate::scripts::{self, Next};
use crate::shedding::tenants::Stay;
use crate::stage::{Arrived, Routed};
use crate::worker::serving::Serving;
use crate::worker::{Answered, Worker};
use crate::{
    admission, bounds, client, directory, fields, handler, htaccess, maps, permits, reply_head,
    resolve, rewrite, rules, shedding, tls,
};

/// Answers a request whose head has been read, to the reply's last byte.
///
/// # Errors
/// When the client did not take it all.
pub(crate) async fn serve(worker: &Rc<Worker>, exchange: &mut Exchange) -> Result<()> {
    let serving = worker.serving();
    let row = OnceCell::new();
    let arrived = Arrived {
        worker,
        serving: &serving,
        row: Some(&row),
    };
    let mut underway = Underway::begin(arrived, exchange);
    let sent = underway.serve().await;
    underway.log();
    exchange.end_behind().await;
    sent
}

/// Answers bytes that never became a request.
///
/// # Errors
/// As [`serve`].
pub(crate) async fn refuse(
    worker: &Rc<Worker>,
    exchange: &mut Exchange,
    error: Error,
) -> Result<()> {
    let serving = worker.serving();
    let arrived = Arrived {
        worker,
        serving: &serving,
        row: None,
    };
    Underway::begin(arrived, exchange).refuse(error).await
}

/// Answers a request that a script makes inside of another's. It leaves no record.
///
/// # Errors
/// When the reply was not taken.
pub(crate) fn serve_inside<'a>(
    worker: &'a Rc<Worker>,
    serving: &'a Rc<Serving>,
    exchange: &'a mut Exchange,
) -> Answered<'a> {
    Box::pin(async move {
        worker.clock.end_turn();
        let row = OnceCell::new();
        let arrived = Arrived {
            worker,
            serving,
            row: Some(&row),
        };
        let sent = Underway::inside(arrived, exchange).serve().await;
        exchange.end_behind().await;
        sent
    })
}

async fn answer(arrived: Arrived<'_>, exchange: &mut Exchange) -> Result<()> {
    exchange.request.gave_up.take();
    let (generation, host) = (&arrived.serving.generation, exchange.request.head.host());
    let destination = match generation.may_be_row(host) {
        true => directory::find::lead(arrived, exchange).await?,
        false => generation.destination_of(host),
    };
    let routed = find_site(arrived, exchange, destination)?;
    scripts::arm_filters(arrived, exchange);
    make_canonical(routed, exchange)?;
    if let Some(proof) = proof_for_authority(routed, exchange) {
        // Boxed, as the next: few requests are answered so, and others need not have room for it.
        return Box::pin(reply_head::answer(arrived, exchange, proof.as_bytes())).await;
    }
    if tls::site::lacks_tls(routed, exchange) {
        return Box::pin(tls::site::redirect(routed, exchange)).await;
    }
    let suspension = &routed.worker.shared.suspension;
    suspension.check(&routed.site.tenant_name)?;
    if let Some(row) = &routed.site.row {
        directory::find::check(row, &routed.site.tenant_name)?;
        if let Some(host) = row.redirect() {
            return Box::pin(directory::find::redirect(routed, exchange, host)).await;
        }
    }
    shedding::pass(routed, exchange)?;
    bounds::check_announced_length(routed, exchange)?;
    let mut next = scripts::rewrite(routed, exchange).await?;
    if next != Next::Answered {
        rewrite::of_site(routed, exchange).await?;
    }
    while next != Next::Answered {
        let outcome = answer_there(routed, exchange).await;
        next = htaccess::documents::answer(routed, exchange, outcome).await?;
    }
    Ok(())
}

/// Answers the request at the path it has now; a script may send it elsewhere, [`Next::Anew`].
async fn answer_there(routed: Routed<'_>, exchange: &mut Exchange) -> Result<Next> {
    if htaccess::obey(routed, exchange).await? == Next::Answered {
        return Ok(Next::Answered);
    }
    resolve::before_rules(routed, exchange).await?;
    let Some(chosen) = rules::choose(routed, exchange).await? else {
        return Ok(Next::Answered);
    };
    bounds::settle(chosen, exchange)?;
    permits::leave_program(chosen, exchange);
    admission::check_client(chosen, exchange)?;
    maps::ask_for_limits(chosen, exchange).await;
    permits::rates(chosen, exchange).await?;
    admission::check_credentials(chosen, exchange).await?;
    let next = scripts::set(chosen, exchange).await?;
    if next != Next::On {
        return Ok(next);
    }
    turn_stay(chosen.worker, exchange, Stay::pause);
    handler::take_body(chosen, exchange).await?;
    permits::admit(chosen, exchange).await?;
    turn_stay(chosen.worker, exchange, Stay::go_on);
    // Limits have counted it, of whom they could not tell.
    rules::check_given_up(&exchange.request)?;
    // It may have been suspended while a body came, or a turn was waited for.
    let suspension = &chosen.worker.shared.suspension;
    suspension.check(&chosen.site.tenant_name)?;
    let next = scripts::access(chosen, exchange).await?;
    if next != Next::On {
        return Ok(next);
    }
    if exchange.route.htaccess.is_some() {
        // Boxed: few sites have such files, and the others need not have room for it.
        Box::pin(htaccess::head::edit_request(*chosen, exchange)).await?;
    }
    maps::ask_for_texts(chosen, exchange).await;
    fields::edit_request(chosen, exchange);
    #[cfg(test)]
    tests::break_down(chosen, exchange).await;
    scripts::leave_vm(chosen, exchange);
    exchange.record.handler_started = Some(chosen.worker.clock.moment());
    handler::run(chosen, exchange).await
}

/// Pauses the time that counts as use of the exchange's tenant, or lets it go on.
fn turn_stay(worker: &Worker, exchange: &mut Exchange, turn: fn(&mut Stay, Instant)) {
    if let Some(stay) = &mut exchange.stay {
        turn(stay, worker.clock.moment());
    }
}

/// Fixes the client and the request's id.
fn begin(arrived: Arrived<'_>, exchange: &mut Exchange) {
    let generation = &arrived.serving.generation;
    exchange.request.received = arrived.worker.clock.begin_turn();
    exchange.request.row = None;
    client::identify(exchange, generation, arrived.worker.next_request_id());
    exchange.route.log = generation.logs.without_site();
}

/// Has a request go to a site; an unknown host is misdirected, never another site's.
fn find_site<'a>(
    arrived: Arrived<'a>,
    exchange: &mut Exchange,
    destination: Option<Destination>,
) -> Result<Routed<'a>> {
    if let Some(destination) = destination {
        exchange.route.site_index = Some(destination.site);
        exchange.route.log = destination.log;
    }
    let routed = arrived.routed(&exchange.route);
    let routed = routed.ok_or_else(|| Error::refused(421, "unknown_host"))?;
    tls::site::check_policy(routed, exchange)?;
    bounds::begin(routed, exchange);
    Ok(routed)
}

/// The answer to an authority that looks whether the host is ours; whoever asks for anything else
/// gets what the site has.
fn proof_for_authority(routed: Routed<'_>, exchange: &mut Exchange) -> Option<Arc<str>> {
    let head = &exchange.request.head;
    let proof = routed
        .worker
        .shared
        .challenges
        .reply(head.host(), head.path())?;
    exchange.outgoing.status = 200;
    Some(proof)
}

/// One spelling of path and field names, for every matcher, program and upstream.
fn make_canonical(routed: Routed<'_>, exchange: &mut Exchange) -> Result<()> {
    let head = &mut exchange.request.head;
    head.canonicalize(routed.site.path_rules)?;
    Ok(head.odd_field_names(routed.site.odd_names)?)
}
