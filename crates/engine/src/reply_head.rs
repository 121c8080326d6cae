//! The head of a reply on its way to the client: the one step that all who answer go through.
//!
//! The handler has filled the exchange's [`Outgoing`](crate::exchange::Outgoing); here the request's id, the configured
//! edits and what scripts have set beforehand are added, scripts may look at it, coding and
//! conditions are settled where the handler has not done so, and the reply starts. How it is framed
//! is the exchange's business.

use wire::{FieldId, Fields};

use crate::compression::negotiation;
use crate::error::Result;
use crate::exchange::Exchange;
use crate::exchange::reply::BodySize;
use crate::fields;
use crate::htaccess::head;
use crate::scripts::filters::filter_head;
use crate::stage::Arrived;
use crate::tls;

/// Applies the configured field edits, lets scripts see the head, and starts the reply.
///
/// The head is buffered; it leaves with the first bytes of the body or at the end.
///
/// # Errors
/// A script refused it; no head was sent.
pub(crate) async fn send(
    arrived: Arrived<'_>,
    exchange: &mut Exchange,
    size: BodySize,
) -> Result<()> {
    if exchange.route.failed_status != 0 && exchange.outgoing.status == 200 {
        exchange.outgoing.status = exchange.route.failed_status;
    }
    let id = exchange.request.id;
    let fields = &mut exchange.outgoing.fields;
    fields.push_known(FieldId::XRequestId, id.as_bytes());
    if exchange.request.tls.is_some() {
        tls::site::say_strict_transport(arrived, exchange);
    }
    if exchange.route.htaccess.is_some() {
        // Boxed: few sites have such files, and others need not have room for it.
        Box::pin(head::edit(arrived, exchange)).await?;
    }
    fields::edit_reply(arrived, exchange);
    add_scripted_fields(exchange);
    if exchange.has_filters() {
        // Boxed: few replies are filtered, and others need not have room for it.
        return Box::pin(filter_head(arrived, exchange, size)).await;
    }
    let size = negotiation::settle(arrived, exchange, size);
    exchange.start_reply(size);
    Ok(())
}

/// Answers with a short body, all at once.
///
/// # Errors
/// As [`send`].
pub(crate) async fn answer(
    arrived: Arrived<'_>,
    exchange: &mut Exchange,
    body: &[u8],
) -> Result<()> {
    let size = BodySize::Length(body.len() as u64);
    send(arrived, exchange, size).await?;
    // Compressing a long one takes its turns.
    if exchange.reply.is_encoded() {
        return exchange.reply.write(body).await;
    }
    exchange.reply.push(body);
    Ok(())
}

/// Fields that scripts set before there was a reply replace the handler's.
fn add_scripted_fields(exchange: &mut Exchange) {
    let scripted = exchange.scripted.as_mut();
    let fields = scripted.and_then(|scripted| scripted.take_fields());
    for field in fields.iter().flat_map(Fields::iter) {
        exchange.outgoing.fields.remove_named(field.name);
    }
    if let Some(fields) = fields {
        exchange.outgoing.fields.append(&fields);
    }
}
