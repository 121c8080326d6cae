//! Several ranges of a file in one reply, as `multipart/byteranges`.
//!
//! Each part is sent as a single range would be; what stands between them is written before it.

use std::hash::{BuildHasher, RandomState};

use wire::FieldId;
use wire::multipart::Multipart;
use wire::range::Span;

use super::send;
use crate::error::Result;
use crate::exchange::Exchange;
use crate::exchange::reply::BodySize;
use crate::exchange::request::RequestId;
use crate::resolve::kept::Representation;
use crate::stage::Arrived;
use crate::{permits, reply_head};

/// Answers with these parts of a representation, which were judged to be of it.
///
/// # Errors
/// As for a single range.
pub(super) async fn send(
    arrived: Arrived<'_>,
    exchange: &mut Exchange,
    sent: &Representation,
    spans: &[Span],
) -> Result<()> {
    // Of a secret of its own: nobody who has seen one knows another.
    let boundary = RequestId::from_number(RandomState::new().hash_one(exchange.request.number));
    let multipart = Multipart {
        boundary: boundary.as_bytes(),
        content_type: sent.fields.get(FieldId::ContentType),
        size: sent.size,
    };
    exchange.outgoing.status = 206;
    let fields = &mut exchange.outgoing.fields;
    fields.append(&sent.fields);
    fields.set(b"Content-Type", &multipart.media_type());
    let size = BodySize::Length(multipart.bytes(spans));
    reply_head::send(arrived, exchange, size).await?;
    permits::end(arrived.worker, exchange, limits::Outcome::Ignored);
    let mut framing = Vec::new();
    for span in spans {
        framing.clear();
        multipart.push_head(*span, &mut framing);
        // Written, not pushed: what was pushed of the parts before leaves with it.
        exchange.reply.write(&framing).await?;
        let (worker, content) = (arrived.worker, &sent.content);
        send::body(worker, exchange, content, span.first, span.bytes()).await?;
    }
    framing.clear();
    multipart.push_end(&mut framing);
    exchange.reply.push(&framing);
    Ok(())
}
