//! `ErrorDocument`: what a failure is answered with instead of a page of ours.

use std::sync::Arc;

use htaccess::settings::ErrorDocument;
use wire::field_value_ok;

use super::applied::Applied;
use super::facts::Carried;
use crate::error::{Error, Kind, Result};
use crate::error_reply;
use crate::exchange::Exchange;
use crate::reply_head;
use crate::scripts::Next;
use crate::stage::Routed;

/// Fields that make a part of a page, or nothing, of what is asked for.
const CONDITIONS: [&[u8]; 6] = [
    b"If-Match",
    b"If-None-Match",
    b"If-Modified-Since",
    b"If-Unmodified-Since",
    b"If-Range",
    b"Range",
];

/// Has a failure answered as the files that hold for the request say.
///
/// # Errors
/// The failure, where they say nothing of it or what they say fails, too.
pub(crate) async fn answer(
    routed: Routed<'_>,
    exchange: &mut Exchange,
    outcome: Result<Next>,
) -> Result<Next> {
    match outcome {
        Err(error) if routed.site.htaccess.is_some() => {
            Box::pin(answer_error(routed, exchange, error)).await
        }
        outcome => outcome,
    }
}

/// The failure whose page could not be had, either: it has the head that it would have without one.
fn first_failure(exchange: &mut Exchange, error: Error) -> Error {
    if let Some(applied) = exchange.route.failed.take() {
        exchange.route.htaccess = Some(applied);
    }
    let kind = Kind::Refused(exchange.route.failed_status);
    Error::new(kind, error.reason, format!("its page: {}", error.detail))
}

async fn answer_error(routed: Routed<'_>, exchange: &mut Exchange, error: Error) -> Result<Next> {
    let status = error_reply::status_of(error.kind).unwrap_or(0);
    if exchange.reply.has_started() || error_reply::closes(exchange, &error) {
        return Err(error);
    }
    let is_page = exchange.route.failed_status != 0;
    let applied = exchange.route.htaccess.as_ref();
    // As in Apache what a rule says of a failure's page is said of the request.
    if is_page && !applied.is_some_and(|it| it.decision.is_by_rule) {
        return Err(first_failure(exchange, error));
    }
    let Some(mut applied) = exchange.route.htaccess.take() else {
        return Err(error);
    };
    applied.is_own_error = true;
    let settings = Arc::clone(&applied.decision.settings);
    let document = settings.error_document(status);
    let carried = match document {
        Some(ErrorDocument::Path(_)) if !is_page => carried(&mut applied, status),
        _ => None,
    };
    exchange.route.htaccess = Some(applied);
    match (document, carried) {
        (Some(ErrorDocument::Text(text)), _) => {
            begin(routed, exchange, &error);
            let html = b"text/html; charset=utf-8";
            exchange.outgoing.fields.push(b"Content-Type", html);
            finish(routed, exchange, status, text).await
        }
        // Of a client that is sent away nobody would ask for a password any more.
        (Some(ErrorDocument::Url(url)), _) if status != 401 && field_value_ok(url) => {
            begin(routed, exchange, &error);
            exchange.outgoing.fields.push(b"Location", url);
            finish(routed, exchange, 302, b"").await
        }
        (Some(ErrorDocument::Path(target)), Some(carried)) => {
            begin(routed, exchange, &error);
            exchange.route.failed_status = status;
            exchange.route.failed = exchange.route.htaccess.take();
            if status == 401 {
                // The page's program would take a name for proven.
                exchange.record.user.clear();
            }
            lead_to_page(routed, exchange, target, carried)
        }
        _ => Err(error),
    }
}

/// What goes with the request to the page of its failure.
fn carried(applied: &mut Applied, status: u16) -> Option<Carried> {
    // That of a directory's page is the directory's.
    let facts = &mut applied.facts;
    if let Some(directory) = &facts.page_of {
        facts.uri.clone_from(directory);
    }
    let carried = Carried::redirected(&applied.decision, facts).ok()?;
    carried.after_failure(status).ok()
}

/// The failure is told, and of the reply that was begun only what explains it stays.
fn begin(routed: Routed<'_>, exchange: &mut Exchange, error: &Error) {
    error_reply::log(*routed, exchange, error);
    error_reply::keep_fields(exchange);
}

async fn finish(
    routed: Routed<'_>,
    exchange: &mut Exchange,
    status: u16,
    body: &[u8],
) -> Result<Next> {
    exchange.outgoing.status = status;
    reply_head::answer(*routed, exchange, body).await?;
    Ok(Next::Answered)
}

/// Sends the request to a page of the site, as one that asks for that.
fn lead_to_page(
    routed: Routed<'_>,
    exchange: &mut Exchange,
    target: &[u8],
    carried: Carried,
) -> Result<Next> {
    let head = &mut exchange.request.head;
    // The page is no answer to these.
    for name in CONDITIONS {
        head.fields.remove_named(name);
    }
    if head.method_bytes() != b"HEAD" {
        head.rewrite_method(b"GET")?;
    }
    let end = target.iter().position(|byte| *byte == b'?');
    let (path, query) = target.split_at(end.unwrap_or(target.len()));
    head.rewrite_path(path, routed.site.path_rules)?;
    head.rewrite_query(query.get(1..))?;
    // Of the page it is not known whether an expression is given up.
    exchange.request.gave_up.take();
    exchange.route.start_over();
    exchange.route.carried = Some(Box::new(carried));
    Ok(Next::Anew)
}
