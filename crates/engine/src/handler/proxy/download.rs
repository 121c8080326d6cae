//! The reply's body on its way to the client: straight through, or set aside where the client is slower.
//!
//! Without a buffer a slow client slows the upstream. With one (`buffer_reply`) the upstream is
//! read on into a [`Spool`] while the client takes its time, so that the connection is free as
//! soon as the reply has been read; what is left then is sent by [`Download::poll_rest`].

use std::task::{Context, Poll, ready};

use wire::{BodyCaps, BodyDecoder, ReplyFraming};

use super::{Forward, cut};
use crate::decoding::Decoding;
use crate::error::Result;
use crate::exchange::Reply;
use crate::spool::{Room, Spool};
use crate::upstream::Link;

/// Largest end of a body that is copied behind the head instead of being sent by itself.
const PUSHED_BYTES_MAX: usize = 16 * 1024;

/// Where a download stands.
pub(super) struct Download {
    decoding: Decoding,
    body_caps: BodyCaps,
    /// What the client has not taken yet; never made where nothing may be set aside.
    aside: Option<Spool>,
    aside_bytes_max: u64,
    read_ms: u64,
}

impl Download {
    /// Gets ready for a reply.
    pub(super) fn new(forward: &Forward<'_>) -> Self {
        let process = &forward.serving.generation.process;
        let body_caps = BodyCaps {
            body_bytes: u64::MAX,
            chunk_extension_bytes: process.caps.chunk_extension_bytes,
            trailer_bytes: process.caps.trailer_bytes,
        };
        Self {
            decoding: Decoding::new(BodyDecoder::for_reply(ReplyFraming::None, &body_caps)),
            body_caps,
            aside: None,
            aside_bytes_max: forward.proxy.buffer_reply_bytes,
            read_ms: process.timeouts.upstream_read_ms,
        }
    }

    /// Begins with a body framed like this.
    pub(super) fn begin(&mut self, framing: ReplyFraming) {
        self.decoding = Decoding::new(BodyDecoder::for_reply(framing, &self.body_caps));
    }

    /// Whether the body was read to its end.
    pub(super) fn is_read(&self) -> bool {
        self.decoding.is_ended()
    }

    /// Moves on as far as it goes; ready when the upstream's last byte was read.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        forward: &Forward<'_>,
        reply: &mut Reply,
        link: &mut Link,
    ) -> Poll<Result<()>> {
        loop {
            self.decoding
                .advance(&mut link.buffer)
                .map_err(|refusal| cut(refusal.reason))?;
            if self.decoding.is_ended() {
                return Poll::Ready(Ok(()));
            }
            let has_data = !self.decoding.data(&link.buffer).is_empty();
            // Pending means that the client takes no more just now.
            let client = self.poll_client(cx, reply, link)?;
            if has_data {
                if client.is_pending() {
                    ready!(self.poll_set_aside(cx, forward, link))?;
                }
                continue;
            }
            match link.poll_read(cx) {
                Poll::Ready(Ok(0)) => {
                    self.decoding.eof().map_err(|refusal| cut(refusal.reason))?;
                }
                Poll::Ready(read) => drop(read?),
                Poll::Pending => {
                    // What there is goes to the client while the upstream takes its time.
                    ready!(reply.poll_flush(cx))?;
                    return link.poll_silence(cx, self.read_ms).map(Err);
                }
            }
        }
    }

    /// Sends the client what was set aside; ready when it has it all.
    pub(super) fn poll_rest(
        &mut self,
        cx: &mut Context<'_>,
        reply: &mut Reply,
    ) -> Poll<Result<()>> {
        let Some(aside) = &mut self.aside else {
            return Poll::Ready(Ok(()));
        };
        while !aside.is_empty() {
            ready!(aside.poll_fill(cx))?;
            let count = ready!(reply.poll_write(cx, aside.data()))?;
            aside.consume(count);
        }
        Poll::Ready(Ok(()))
    }

    /// Hands the client what was set aside, then a run of the body; a short last one just joins
    /// what is buffered.
    fn poll_client(
        &mut self,
        cx: &mut Context<'_>,
        reply: &mut Reply,
        link: &mut Link,
    ) -> Result<Poll<()>> {
        match self.poll_rest(cx, reply) {
            Poll::Ready(rest) => rest?,
            Poll::Pending => return Ok(Poll::Pending),
        }
        let data = self.decoding.data(&link.buffer);
        let count = if data.is_empty() {
            0
        } else if self.decoding.is_last() && data.len() <= PUSHED_BYTES_MAX {
            reply.push(data);
            data.len()
        } else {
            match reply.poll_write(cx, data) {
                Poll::Ready(count) => count?,
                Poll::Pending => return Ok(Poll::Pending),
            }
        };
        self.decoding.consume(count, &mut link.buffer);
        Ok(Poll::Ready(()))
    }

    /// Sets bytes aside; pending while that is full: then the client's pace is the upstream's.
    fn poll_set_aside(
        &mut self,
        cx: &mut Context<'_>,
        forward: &Forward<'_>,
        link: &mut Link,
    ) -> Poll<Result<()>> {
        if self.aside_bytes_max == 0 {
            return Poll::Pending;
        }
        let aside = self.aside.get_or_insert_with(|| forward.spool());
        let allowed = self.aside_bytes_max.saturating_sub(aside.len());
        let room = match ready!(aside.poll_room(cx))? {
            Room::Bytes(room) => room.min(usize::try_from(allowed).unwrap_or(room)),
            Room::None => 0,
        };
        let data = self.decoding.data(&link.buffer);
        let count = room.min(data.len());
        if count == 0 {
            return Poll::Pending;
        }
        aside.push(data.get(..count).unwrap_or_default());
        self.decoding.consume(count, &mut link.buffer);
        Poll::Ready(Ok(()))
    }
}
