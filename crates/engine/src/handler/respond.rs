//! A fixed reply from the configuration.

use config::model::Respond;
use wire::FieldId;

use crate::error::Result;
use crate::exchange::Exchange;
use crate::stage::Arrived;
use crate::{reply_head, template};

/// Answers with the configured status and text.
///
/// # Errors
/// A script refused the reply.
pub(super) async fn answer(
    arrived: Arrived<'_>,
    exchange: &mut Exchange,
    respond: &Respond,
) -> Result<()> {
    exchange.outgoing.status = respond.status;
    exchange
        .outgoing
        .fields
        .push_known(FieldId::ContentType, respond.content_type.as_bytes());
    if let [config::model::TemplatePart::Text(text)] = respond.body.parts.as_slice() {
        return reply_head::answer(arrived, exchange, text.as_bytes()).await;
    }
    let mut body = Vec::new();
    let values = exchange.route.values(&exchange.request);
    template::expand_page(&respond.body, values, &mut body);
    reply_head::answer(arrived, exchange, &body).await
}
