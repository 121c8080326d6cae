//! The phases `header_filter` and `body_filter`: scripts see a reply before the client does.
//!
//! Every head comes through [`filter_head`], whoever answers, and once a request. Where a body
//! filter applies the reply is kept back from there on, until its handler has said its last
//! ([`filter_body`]); a body that is longer than `scripts.body_filter_bytes` leaves as it came. Whoever
//! answers is asked for the whole body as it is, not compressed; what this gateway would have
//! compressed is compressed when the scripts have seen it.
//!
//! Not filtered: replies to HEAD, those without a body (204, 304), tunnels, streams of events, and
//! what comes as a part (206) or compressed all the same.

use script::{Phase, Redirect, Refused};
use wire::{FieldId, Fields};

use super::outcome;
use super::phases::{self, Cursor, has, own_vm};
use super::plan::{Use, VmIndex};
use super::request::arrived;
use super::scripted::{Filtered, Filters};
use super::shadow;
use crate::compression::{forget_bytes, negotiation};
use crate::error::{Error, Kind, Result};
use crate::exchange::Exchange;
use crate::exchange::collecting::Collected;
use crate::exchange::reply::BodySize;
use crate::stage::Arrived;

/// Notes that scripts are to see the reply, where the generation has filters.
pub(crate) fn arm_filters(arrived: Arrived<'_>, exchange: &mut Exchange) {
    let plan = arrived.serving.generation.scripts.as_ref();
    let has_any =
        plan.is_some_and(|plan| plan.has(Phase::HeaderFilter) || plan.has(Phase::BodyFilter));
    if has_any {
        let scripted = exchange.scripted();
        scripted.enter(arrived.worker, arrived.serving, Phase::Rewrite);
        scripted.filters = Filters::Armed;
    }
}

/// Keeps the fields of an upstream's or a program's reply as they came, where scripts can look at
/// them later.
pub(crate) fn keep_upstream(arrived: Arrived<'_>, exchange: &mut Exchange, fields: &Fields) {
    let plan = arrived.serving.generation.scripts.as_ref();
    let later = [Phase::HeaderFilter, Phase::BodyFilter, Phase::Log];
    if plan.is_some_and(|plan| later.iter().any(|phase| plan.has(*phase))) {
        exchange.scripted().keep_upstream(fields);
    }
}

/// Asks whoever answers for a body that is whole and not compressed, where scripts are to see it:
/// a client that asks for parts of it would read past them.
pub(crate) fn ask_for_identity(arrived: Arrived<'_>, exchange: &mut Exchange) {
    let sees_body = exchange.has_filters() && !exchange.reply.is_head_only();
    if !sees_body || !has_body_filter(arrived, exchange) {
        return;
    }
    let is_part = exchange.request.head.fields.contains(FieldId::Range);
    if is_part && has_shadows_only(arrived, exchange) {
        return;
    }
    let fields = &mut exchange.request.head.fields;
    fields.remove(FieldId::Range);
    fields.remove_named(b"If-Range");
    if let Some(accepted) = fields.get(FieldId::AcceptEncoding) {
        let accepted = accepted.to_vec();
        fields.remove(FieldId::AcceptEncoding);
        exchange.scripted().accept_encoding = Some(accepted);
    }
}

/// Whether a body filter stands on a level of this request.
fn has_body_filter(arrived: Arrived<'_>, exchange: &Exchange) -> bool {
    body_filters(arrived, exchange).next().is_some()
}

/// Whether no body filter of this request is in force: then the client is to get what it asked for.
fn has_shadows_only(arrived: Arrived<'_>, exchange: &Exchange) -> bool {
    body_filters(arrived, exchange).all(|used| used.is_in_shadow)
}

/// The body filters on the levels of this request.
fn body_filters(arrived: Arrived<'_>, exchange: &Exchange) -> impl Iterator<Item = Use> {
    let has_any = has(arrived, Phase::BodyFilter);
    let mut place = has_any.then(Cursor::default);
    std::iter::from_fn(move || {
        let place = place.as_mut()?;
        place.next(arrived, &exchange.route, Phase::BodyFilter)
    })
}

impl Exchange {
    /// Puts another body in the place of the one that scripts look at.
    pub(super) fn set_body(&mut self, body: &[u8]) -> std::result::Result<(), Refused> {
        let arrived = arrived(self.scripted.as_deref());
        let plan = arrived.and_then(|arrived| arrived.serving.generation.scripts.as_ref());
        let bytes_max = plan.map_or(0, |plan| plan.output_bytes());
        let Some(filtered) = &mut self.scripted().body else {
            return Err(Refused(
                "the reply's body can only be changed in body_filter".to_owned(),
            ));
        };
        if body.len() > bytes_max {
            return Err(Refused(format!(
                "the body would be longer than {bytes_max} bytes: see scripts.output"
            )));
        }
        if *filtered.bytes != *body {
            filtered.bytes = body.to_vec();
            filtered.is_changed = true;
        }
        Ok(())
    }

    /// Has the reply leave as it is: scripts are not to see it.
    pub(crate) fn disarm_filters(&mut self) {
        if let Some(scripted) = &mut self.scripted {
            scripted.filters = Filters::None;
        }
    }

    /// Whether scripts are to see the head of the reply.
    pub(crate) fn has_filters(&self) -> bool {
        let scripted = self.scripted.as_ref();
        scripted.is_some_and(|scripted| scripted.filters == Filters::Armed)
    }
}

/// Lets scripts see the head of a reply, and starts the reply or keeps it back.
///
/// # Errors
/// A script failed, and that denies the request. No head was sent.
pub(crate) async fn filter_head(
    arrived: Arrived<'_>,
    exchange: &mut Exchange,
    size: BodySize,
) -> Result<()> {
    let scripted = exchange.scripted();
    scripted.filters = Filters::None;
    if let Some(accepted) = scripted.accept_encoding.clone() {
        let fields = &mut exchange.request.head.fields;
        fields.push(b"Accept-Encoding", &accepted);
    }
    if exchange.outgoing.status < 200 {
        exchange.start_reply(size);
        return Ok(());
    }
    let had_body = has_body(exchange.outgoing.status);
    run_filters(arrived, exchange, Phase::HeaderFilter).await?;
    let size = match has_body(exchange.outgoing.status) {
        // The status was made one that has a body, and whoever answers sends none: said so, or
        // the client would take the next reply for it.
        true if !had_body && !exchange.reply.is_head_only() => BodySize::Length(0),
        _ => size,
    };
    match filtered_size(arrived, exchange, size) {
        Body::Collected(bytes_max) => exchange.collect_reply(size, bytes_max),
        Body::Passes(size) => {
            let size = negotiation::settle(arrived, exchange, size);
            exchange.start_reply(size);
        }
    }
    Ok(())
}

/// Whether replies of this status have a body.
fn has_body(status: u16) -> bool {
    !matches!(status, ..200 | 204 | 304)
}

async fn run_filters(arrived: Arrived<'_>, exchange: &mut Exchange, phase: Phase) -> Result<()> {
    if !has(arrived, phase) {
        return Ok(());
    }
    let mut place = Cursor::default();
    while let Some(used) = place.next(arrived, &exchange.route, phase) {
        if used.is_in_shadow {
            Box::pin(shadow::run(arrived, exchange, phase, used)).await?;
            continue;
        }
        match phases::run(arrived, exchange, phase, used).await? {
            Ok(_) => settle_head(exchange),
            Err(failure) => outcome::failed(arrived, exchange, phase, used.on_error, &failure)?,
        }
    }
    Ok(())
}

/// A status that was returned is the reply's, and a redirect makes it one.
pub(super) fn settle_head(exchange: &mut Exchange) {
    let scope = &mut exchange.scripted().scope;
    let (returned, redirect) = (scope.returned.take(), scope.redirect.take());
    // The body is its handler's.
    scope.output.clear();
    let returned = returned.and_then(|status| u16::try_from(status).ok());
    if let Some(status @ 200..600) = returned {
        exchange.outgoing.status = status;
    }
    if let Some(Redirect::Outside { status, location }) = redirect
        && wire::field_value_ok(&location)
    {
        exchange.outgoing.status = status;
        exchange.outgoing.fields.set(b"Location", &location);
    }
}

/// What becomes of a body.
enum Body {
    /// It is kept back, up to so many bytes.
    Collected(usize),
    /// It leaves as it comes, announced like this.
    Passes(BodySize),
}

fn filtered_size(arrived: Arrived<'_>, exchange: &Exchange, size: BodySize) -> Body {
    let passes = Body::Passes(size);
    if !has_body_filter(arrived, exchange) || !is_filtered(exchange) || size == BodySize::None {
        return passes;
    }
    if exchange.reply.is_head_only() && has_shadows_only(arrived, exchange) {
        return passes;
    }
    if exchange.reply.is_head_only() {
        // How long it would be when scripts have seen it, nobody knows.
        return Body::Passes(BodySize::None);
    }
    let plan = arrived.serving.generation.scripts.as_ref();
    let bytes_max = plan.map_or(0, |plan| plan.body_filter_bytes);
    match size {
        BodySize::Length(length) if length > bytes_max as u64 => {
            tell_too_long(arrived, exchange);
            passes
        }
        _ => Body::Collected(bytes_max),
    }
}

/// Whether scripts may see the body of a reply with this head.
fn is_filtered(exchange: &Exchange) -> bool {
    let outgoing = &exchange.outgoing;
    let coding = outgoing.fields.get(FieldId::ContentEncoding);
    let content_type = outgoing.fields.get(FieldId::ContentType);
    let is_stream = content_type.is_some_and(|it| it.starts_with(b"text/event-stream"));
    let is_plain = coding.is_none_or(|coding| coding.eq_ignore_ascii_case(b"identity"));
    is_plain && !is_stream && has_body(outgoing.status) && outgoing.status != 206
}

/// Says of every body filter of the request, once, that a body was too long for it.
fn tell_too_long(arrived: Arrived<'_>, exchange: &Exchange) {
    let Some(vms) = &arrived.serving.scripts else {
        return;
    };
    let vm = own_vm(arrived, &exchange.route).unwrap_or(VmIndex::SHARED);
    for used in body_filters(arrived, exchange) {
        if let Some(script) = vms.tell_once(vm, used) {
            let script = &*script;
            let (id, site) = (exchange.request.id, arrived.site_name(&exchange.route));
            let worker = arrived.worker.index;
            tracing::warn!(request_id = %id, site, script, worker, "a reply's body is longer than scripts.body_filter_bytes and passes unfiltered; said once a script and worker");
        }
    }
}

/// Lets scripts see a body that was kept back, and sends the reply.
///
/// # Errors
/// A script failed, and that denies the request; no head was sent then. Or the client did not take
/// the reply.
pub(crate) async fn filter_body(arrived: Arrived<'_>, exchange: &mut Exchange) -> Result<()> {
    if exchange.reply.take_overflow() {
        tell_too_long(arrived, exchange);
    }
    match exchange.reply.take_collected() {
        Some(collected) => Box::pin(filter(arrived, exchange, collected)).await,
        None => Ok(()),
    }
}

async fn filter(arrived: Arrived<'_>, exchange: &mut Exchange, collected: Collected) -> Result<()> {
    if !collected.is_whole {
        let detail = "less or more came than was announced";
        return Err(Error::new(Kind::UpstreamBroken, "reply_cut", detail));
    }
    let close = collected.close;
    exchange.scripted().body = Some(Filtered {
        bytes: collected.bytes,
        is_changed: false,
    });
    run_filters(arrived, exchange, Phase::BodyFilter).await?;
    let filtered = exchange.scripted().body.take().unwrap_or_default();
    if filtered.is_changed {
        let fields = &mut exchange.outgoing.fields;
        forget_bytes(fields);
        fields.remove(FieldId::LastModified);
    }
    // Whoever answered was not told what the client accepts.
    if exchange.scripted().accept_encoding.take().is_some() {
        exchange.outgoing.is_settled = false;
    }
    let bytes = filtered.bytes;
    let size = BodySize::Length(bytes.len() as u64);
    let size = negotiation::settle(arrived, exchange, size);
    exchange.start_collected(size, close);
    exchange.reply.write(&bytes).await
}
