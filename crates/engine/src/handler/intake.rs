//! Taking a request's body before anybody is asked for anything (`buffer_request`).
//!
//! A slow upload then holds no connection and no process of whoever answers. What doesn't fit is
//! refused before they hear of it.

use std::future::poll_fn;

use crate::error::{Error, Kind, Result};
use crate::exchange::Exchange;
use crate::spool::{Room, Spool};
use crate::worker::{Serving, Worker};

/// Takes the whole body; `None` where there is none.
///
/// # Errors
/// Whatever ends an upload, and 413 or 503 where it can't be kept.
pub(super) async fn take(
    worker: &Worker,
    serving: &Serving,
    exchange: &mut Exchange,
) -> Result<Option<Spool>> {
    if exchange.body.is_ended() {
        return Ok(None);
    }
    let caps = &serving.generation.process.caps;
    let kept_bytes_max = caps.spool_disk_bytes + caps.spool_memory_bytes as u64;
    if exchange
        .body
        .length()
        .is_some_and(|length| length > kept_bytes_max)
    {
        return Err(too_long());
    }
    exchange.invite_body().await?;
    let mut spool = worker.spool(serving);
    loop {
        exchange.body.fill().await?;
        if exchange.body.is_ended() {
            return Ok(Some(spool));
        }
        let Room::Bytes(room) = poll_fn(|cx| spool.poll_room(cx)).await? else {
            return Err(no_room(&spool, caps.spool_disk_bytes));
        };
        let data = exchange.body.data();
        let count = data.len().min(room);
        spool.push(data.get(..count).unwrap_or_default());
        exchange.body.consume(count);
    }
}

fn no_room(spool: &Spool, disk_bytes: u64) -> Error {
    if spool.len() > disk_bytes {
        return too_long();
    }
    let detail = "caps.spool_disk_bytes is used up, or the temporary directory can't be written";
    Error::new(Kind::Full, "spool_full", detail)
}

fn too_long() -> Error {
    Error::refused(413, "body_too_long_to_spool")
}
