//! Taking a request's body before anybody is asked for anything (`buffer_request`).
//!
//! A slow upload then holds no connection and no process of whoever answers. What doesn't fit is
//! refused before they hear of it. Whoever passes a body on reads it from its [`Source`], taken
//! beforehand or not.

use std::future::poll_fn;
use std::task::{Context, Poll};

use crate::error::{Error, Kind, Result};
use crate::exchange::{Body, Exchange};
use crate::spool::{Room, Spool};
use crate::worker::{Serving, Worker};

/// Where a body comes from: the client, as it arrives, or where it was set aside beforehand.
#[derive(Debug)]
pub(super) struct Source {
    spooled: Option<Spool>,
}

impl Source {
    /// Of a body that may have been taken beforehand.
    pub(super) fn new(spooled: Option<Spool>) -> Self {
        Self { spooled }
    }

    /// Gives the body back, where it was taken beforehand. Useful while nothing of it was used.
    pub(super) fn into_spooled(self) -> Option<Spool> {
        self.spooled
    }

    /// Whether every byte was read and consumed.
    pub(super) fn is_read(&self, body: &Body) -> bool {
        match &self.spooled {
            Some(spool) => spool.is_empty(),
            None => body.is_ended(),
        }
    }

    /// Bytes read and not yet consumed.
    pub(super) fn data<'a>(&'a self, body: &'a Body) -> &'a [u8] {
        match &self.spooled {
            Some(spool) => spool.data(),
            None => body.data(),
        }
    }

    /// Ready when there are bytes, or the body has ended.
    pub(super) fn poll_fill(&mut self, cx: &mut Context<'_>, body: &mut Body) -> Poll<Result<()>> {
        match &mut self.spooled {
            Some(spool) => spool.poll_fill(cx),
            None => body.poll_fill(cx),
        }
    }

    /// Forgets the first `count` bytes of [`Self::data`].
    pub(super) fn consume(&mut self, count: usize, body: &mut Body) {
        match &mut self.spooled {
            Some(spool) => spool.consume(count),
            None => body.consume(count),
        }
    }
}

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
