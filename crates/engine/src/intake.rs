//! Taking a request's body before anybody is asked for anything (`buffer_request`).
//!
//! A slow upload then holds no permit of a limit, no connection and no process of whoever answers.
//! What doesn't fit is refused before they hear of it. The body waits in the exchange. Which
//! handlers want that is theirs to say.

use std::future::poll_fn;

use crate::error::{Error, Kind, Result};
use crate::exchange::Exchange;
use crate::shares::{self, Owner};
use crate::spool::{Room, Spool};
use crate::stage::Arrived;
use crate::worker::serving::Serving;

/// Takes the whole body now, where there is one that was not taken yet: somebody is to see it
/// before the handler does.
///
/// # Errors
/// Whatever ends an upload, and 413 or 503 where it can't be kept.
pub(crate) async fn whole(arrived: Arrived<'_>, exchange: &mut Exchange) -> Result<()> {
    if exchange.spooled.is_none() && !exchange.body.is_ended() {
        exchange.spooled = Some(receive(arrived, exchange).await?);
    }
    Ok(())
}

/// Takes the whole body.
///
/// # Errors
/// As [`whole`].
pub(crate) async fn receive(arrived: Arrived<'_>, exchange: &mut Exchange) -> Result<Spool> {
    let serving = arrived.serving;
    let caps = &serving.generation.process.caps;
    let kept_bytes_max = shares::most_of(caps.spool_disk_bytes) + caps.spool_memory_bytes as u64;
    if exchange
        .body
        .length()
        .is_some_and(|length| length > kept_bytes_max)
    {
        return Err(too_long());
    }
    exchange.invite_body().await?;
    let site = arrived.site(&exchange.route);
    let owner = Owner::new(site.map(|site| &site.tenant_name), exchange.request.client);
    let mut spool = arrived.worker.spool(serving, owner);
    loop {
        exchange.body.fill().await?;
        if exchange.body.is_ended() {
            return Ok(spool);
        }
        let Room::Bytes(room) = poll_fn(|cx| spool.poll_room(cx)).await? else {
            return Err(no_room(&spool, serving));
        };
        let data = exchange.body.data();
        let count = data.len().min(room);
        spool.push(data.get(..count).unwrap_or_default());
        exchange.body.consume(count);
    }
}

/// A spool takes no more.
pub(crate) fn no_room(spool: &Spool, serving: &Serving) -> Error {
    let disk_bytes = serving.generation.process.caps.spool_disk_bytes;
    if spool.len() >= shares::most_of(disk_bytes) {
        return too_long();
    }
    let detail = "this client or its tenant has its share of caps.spool_disk_bytes, or the temporary directory can't be written";
    Error::new(Kind::Full, "spool_full", detail)
}

fn too_long() -> Error {
    Error::refused(413, "body_too_long_to_spool")
}
