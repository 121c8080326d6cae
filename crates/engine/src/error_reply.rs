//! Errors become answers: the one place where failures turn into status codes.
//!
//! A client learns the status, a short text and the request id; the reason and the detail go to
//! the log. Pages may be replaced per site and status.

use std::rc::Rc;

use wire::FieldId;

use crate::error::{Error, Kind};
use crate::exchange::Exchange;
use crate::status;
use crate::worker::Worker;

/// The status a client sees for an error; `None` when nobody is left to see one.
pub fn status_of(kind: Kind) -> Option<u16> {
    match kind {
        Kind::Refused(status) => Some(status),
        Kind::ClientGone => None,
        Kind::ClientSlow => Some(408),
        Kind::UpstreamDown | Kind::UpstreamBroken => Some(502),
        Kind::UpstreamSlow => Some(504),
        Kind::Full => Some(503),
        Kind::Internal => Some(500),
    }
}

/// Answers an error, or cuts the reply short when one has begun.
pub async fn answer(_worker: &Rc<Worker>, exchange: &mut Exchange, error: &Error) {
    log(exchange, error);
    exchange.record.reason = error.reason;
    match status_of(error.kind) {
        Some(status) if !exchange.reply.has_started() => {
            if closes(exchange, error) {
                exchange.reply.close_after();
            }
            page(exchange, status);
            exchange.reply.finish();
        }
        _ => exchange.reply.abort(),
    }
}

/// Answers with a status and its page: the site's own, or a short text.
pub fn page(exchange: &mut Exchange, status: u16) {
    exchange.outgoing.status = status;
    let serving = exchange.route.serving.clone();
    let site = exchange
        .route
        .site_index
        .and_then(|index| serving.as_ref()?.site(index));
    if let Some(page) = site.and_then(|site| site.error_pages.get(&status)) {
        exchange
            .outgoing
            .fields
            .push(b"Content-Type", page.content_type.as_bytes());
        return exchange.answer(&page.body);
    }
    let phrase = status::phrase(status);
    let id = exchange.request.id;
    let (content_type, body) = if wire::accept::prefers_json(
        exchange.request.head.fields.get(FieldId::Accept),
    ) {
        let body =
            format!("{{\"status\":{status},\"error\":\"{phrase}\",\"request_id\":\"{id}\"}}\n");
        ("application/json", body)
    } else {
        let body = format!(
            "<!doctype html><meta charset=utf-8><title>{status} {phrase}</title>\n<h1>{status} {phrase}</h1>\n<p><small>request {id}</small>\n"
        );
        ("text/html; charset=utf-8", body)
    };
    exchange
        .outgoing
        .fields
        .push(b"Content-Type", content_type.as_bytes());
    exchange.answer(body.as_bytes());
}

/// A head or body that was not understood leaves the connection in an unknown state.
fn closes(exchange: &Exchange, error: &Error) -> bool {
    let unparsed = exchange.route.site_index.is_none() && error.reason != "unknown_host";
    unparsed || matches!(error.kind, Kind::ClientSlow | Kind::Refused(400 | 413))
}

fn log(exchange: &Exchange, error: &Error) {
    let (client, id) = (exchange.request.client, exchange.request.id);
    let host = exchange.request.head.host();
    match error.kind {
        Kind::Refused(_) | Kind::ClientGone | Kind::ClientSlow => {
            tracing::debug!(%client, request_id = %id, host, reason = error.reason, detail = %error.detail, "request refused");
        }
        Kind::Internal => {
            tracing::error!(%client, request_id = %id, host, reason = error.reason, detail = %error.detail, "request failed");
        }
        _ => {
            tracing::warn!(%client, request_id = %id, host, reason = error.reason, detail = %error.detail, "request failed");
        }
    }
}
