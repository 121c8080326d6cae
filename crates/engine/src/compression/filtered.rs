//! Compressing what scripts have seen: a file that a body filter has looked at is compressed after
//! it, as it would have been without.

use wire::FieldId;

use super::{Coding, Made, choose, held, is_sized, weaken_tag};
use crate::error::Result;
use crate::exchange::Exchange;
use crate::media_types;
use crate::stage::Arrived;

/// Compresses the body of a file that a script has looked at, where the site has files compressed
/// and the client accepts it; `accepted` is what the client said of that.
///
/// # Errors
/// When the library fails.
pub(crate) async fn compress_filtered(
    arrived: Arrived<'_>,
    exchange: &mut Exchange,
    accepted: &[u8],
    bytes: Vec<u8>,
) -> Result<Vec<u8>> {
    let Some(coding) = coding(arrived, exchange, accepted, bytes.len()) else {
        return Ok(bytes);
    };
    let made = held(&arrived.worker.helpers, &bytes, coding).await?;
    let Made::Smaller(compressed) = made else {
        return Ok(bytes);
    };
    let fields = &mut exchange.outgoing.fields;
    fields.set(b"Content-Encoding", coding.name().as_bytes());
    fields.remove_named(b"Accept-Ranges");
    if !fields.contains(FieldId::Vary) {
        fields.push(b"Vary", b"Accept-Encoding");
    }
    weaken_tag(fields);
    Ok(compressed.into())
}

fn coding(
    arrived: Arrived<'_>,
    exchange: &Exchange,
    accepted: &[u8],
    length: usize,
) -> Option<Coding> {
    let outgoing = &exchange.outgoing;
    let files = &arrived.site(&exchange.route)?.files;
    let content_type = outgoing.fields.get(FieldId::ContentType)?;
    let content_type = std::str::from_utf8(content_type).ok()?;
    let is_compressed = exchange.record.handler == "static"
        && outgoing.status == 200
        && is_sized(files, length)
        && media_types::is_compressible(content_type)
        && !outgoing.fields.contains(FieldId::ContentEncoding);
    let chosen = is_compressed.then(|| choose(accepted, Coding::is_made_here));
    chosen.flatten()
}
