//! What a script's words mean for its request.
//!
//! A script that says nothing lets the request go on, and so do `OK` and `DECLINED`. Any other
//! status, or output, answers the request here; a redirect inside has it resolved anew.

use config::model::OnError;
use script::{DECLINED, Failure, Phase, Redirect, Scope};
use wire::{FieldId, field_value_ok};

use super::next::Next;
use crate::error::{Error, Kind, Result};
use crate::exchange::Exchange;
use crate::stage::{Arrived, Routed};
use crate::{error_reply, reply_head};

/// The status that closes the connection without a reply, as nginx has it.
pub(super) const CLOSE: i64 = 444;

/// Go on.
const OK: i64 = 0;

/// Why a request was answered by a script with an error.
const SAID: &str = "script_said";

/// What output is when nobody said.
const PLAIN: &[u8] = b"text/plain; charset=utf-8";

impl Exchange {
    /// Why a script before the handler answered with an error; empty if none did.
    pub(crate) fn said(&self) -> &'static str {
        self.scripted.as_ref().map_or("", |scripted| scripted.said)
    }
}

/// Sends the request elsewhere, inside, as a program has said.
///
/// # Errors
/// That is nothing a client could ask for, or once too often.
pub(crate) fn serve_locally(
    routed: Routed<'_>,
    exchange: &mut Exchange,
    target: &[u8],
) -> Result<Next> {
    exchange
        .scripted()
        .enter(routed.worker, routed.serving, Phase::Access);
    send_elsewhere(*routed, exchange, target, "local_location")
}

fn send_elsewhere(
    arrived: Arrived<'_>,
    exchange: &mut Exchange,
    target: &[u8],
    reason: &'static str,
) -> Result<Next> {
    exchange.scripted().elsewhere.go(reason)?;
    let Exchange { request, route, .. } = exchange;
    let site = arrived.site(route);
    let rules = site.map(|site| site.path_rules).unwrap_or_default();
    let rewritten = request.head.rewrite_target(target, rules);
    rewritten.map_err(|refusal| {
        let target = target.escape_ascii();
        let detail = format!("sent elsewhere inside, to {target}: {}", refusal.reason);
        Error::new(Kind::Internal, reason, detail)
    })?;
    route.start_over();
    Ok(Next::Anew)
}

/// A script has failed: the request with it, unless it may go on as if nothing had been said.
///
/// # Errors
/// The request is denied.
pub(super) fn failed(
    arrived: Arrived<'_>,
    exchange: &mut Exchange,
    phase: Phase,
    on_error: OnError,
    failure: &Failure,
) -> Result<()> {
    exchange.scripted().unsay();
    match on_error {
        OnError::Deny => Err(denied(failure)),
        OnError::Allow => {
            let (client, id) = (exchange.request.client, exchange.request.id);
            let (site, reason) = (arrived.site_name(&exchange.route), failure.reason());
            tracing::error!(%client, request_id = %id, site, reason, %phase, detail = %failure, "script failed, the request goes on");
            Ok(())
        }
    }
}

/// The error of a request whose script failed.
pub(super) fn denied(failure: &Failure) -> Error {
    Error::new(Kind::Internal, failure.reason(), failure.to_string())
}

/// What a script has said before the handler.
pub(super) enum Spoken {
    /// Nothing that would keep the request from going on.
    Nothing,
    /// What was written is the answer.
    Output,
    /// The answer has this status.
    Status(i64),
    /// The request or its client is sent elsewhere.
    Redirect(Redirect),
}

/// Takes what the script that ran last has said before the handler; what was written stays.
pub(super) fn spoken(scope: &mut Scope) -> Spoken {
    if let Some(redirect) = scope.redirect.take() {
        return Spoken::Redirect(redirect);
    }
    match (scope.returned.take(), scope.output.is_empty()) {
        (None | Some(OK | DECLINED), true) => Spoken::Nothing,
        (None | Some(OK | DECLINED), false) => Spoken::Output,
        (Some(status), _) => Spoken::Status(status),
    }
}

/// What the script that ran last has said before the handler comes to pass.
///
/// # Errors
/// It said what cannot be.
pub(super) async fn settle(arrived: Arrived<'_>, exchange: &mut Exchange) -> Result<Next> {
    match spoken(&mut exchange.scripted().scope) {
        Spoken::Nothing => Ok(Next::On),
        Spoken::Output => answer_with_output(arrived, exchange).await,
        Spoken::Status(status) => answer(arrived, exchange, status).await,
        Spoken::Redirect(redirect) => redirected(arrived, exchange, redirect).await,
    }
}

/// What a `content` script has said; `On` leaves the answer to the site's files.
///
/// # Errors
/// As [`settle`].
pub(super) async fn settle_content(arrived: Arrived<'_>, exchange: &mut Exchange) -> Result<Next> {
    let scope = &mut exchange.scripted().scope;
    if let Some(redirect) = scope.redirect.take() {
        return redirected(arrived, exchange, redirect).await;
    }
    match (scope.returned.take(), scope.output.is_empty()) {
        (Some(DECLINED), true) => Ok(Next::On),
        (None | Some(OK | DECLINED), _) => answer_with_output(arrived, exchange).await,
        (Some(status), _) => answer(arrived, exchange, status).await,
    }
}

/// Answers with what was written; 200 unless the script set another status.
async fn answer_with_output(arrived: Arrived<'_>, exchange: &mut Exchange) -> Result<Next> {
    let status = match exchange.outgoing.status {
        0 => 200,
        status => i64::from(status),
    };
    answer(arrived, exchange, status).await
}

async fn answer(arrived: Arrived<'_>, exchange: &mut Exchange, status: i64) -> Result<Next> {
    let output = std::mem::take(&mut exchange.scripted().scope.output);
    if status == CLOSE {
        exchange.record.handler = "script";
        exchange.record.unsent_status = 444;
        exchange.reply.abort();
        return Ok(Next::Answered);
    }
    let Some(status) = reply_status(status) else {
        let detail = format!(
            "a script returned {status}: a reply's status is from 200 to 599, and OK or DECLINED lets the request go on"
        );
        return Err(Error::new(Kind::Internal, "script_status", detail));
    };
    if exchange.record.handler.is_empty() {
        exchange.record.handler = "script";
        if status >= 400 {
            exchange.scripted().said = SAID;
        }
    }
    show_fields(exchange);
    let fields = &mut exchange.outgoing.fields;
    if output.is_empty() && status >= 400 {
        fields.remove(FieldId::ContentType);
        error_reply::page(arrived, exchange, status).await?;
        return Ok(Next::Answered);
    }
    if !output.is_empty() && !fields.contains(FieldId::ContentType) {
        fields.push_known(FieldId::ContentType, PLAIN);
    }
    exchange.outgoing.status = status;
    reply_head::answer(arrived, exchange, &output).await?;
    Ok(Next::Answered)
}

/// A status that a reply can have.
pub(super) fn reply_status(status: i64) -> Option<u16> {
    let status = u16::try_from(status).ok();
    status.filter(|it| (200..600).contains(it))
}

/// Whether a redirect to there, with this status, can be.
pub(super) fn is_redirect(status: u16, location: &[u8]) -> bool {
    field_value_ok(location) && (300..400).contains(&status)
}

/// Moves fields that were set before there was a reply into the one that is being made.
pub(super) fn show_fields(exchange: &mut Exchange) {
    if let Some(fields) = exchange.scripted().take_fields() {
        exchange.outgoing.fields.append(&fields);
    }
}

/// Keeps what a script has set for whatever reply there will be, but for what tells of the body that
/// was to be.
pub(super) fn keep_fields(exchange: &mut Exchange) {
    let mut fields = std::mem::take(&mut exchange.outgoing.fields);
    fields.retain(|field| !field.name.to_ascii_lowercase().starts_with(b"content-"));
    exchange.scripted().fields_out.append(&fields);
}

async fn redirected(
    arrived: Arrived<'_>,
    exchange: &mut Exchange,
    redirect: Redirect,
) -> Result<Next> {
    exchange.scripted().unsay();
    match redirect {
        Redirect::Outside { status, location } => {
            if !is_redirect(status, &location) {
                let detail = "a script redirects to what no Location may hold, or with no status of a redirect";
                return Err(Error::new(Kind::Internal, "script_redirects", detail));
            }
            exchange.scripted().fields_out.set(b"Location", &location);
            answer(arrived, exchange, i64::from(status)).await
        }
        Redirect::Inside { target } => {
            exchange.scripted().scope.redirects += 1;
            send_elsewhere(arrived, exchange, &target, "script_redirects")
        }
    }
}
