//! The reply's body from the upstream's connection to its delivery.
//!
//! With `buffer_reply` the upstream is read on while the client takes its time ([`Delivery`]), so
//! that the connection is free as soon as the reply has been read.

use std::task::{Context, Poll, ready};

use wire::{BodyCaps, BodyDecoder, ReplyFraming};

use super::super::delivery::{Delivery, Place};
use super::{Forward, cut};
use crate::decoding::Decoding;
use crate::error::Result;
use crate::exchange::Reply;
use crate::upstream::Link;

/// Where a download stands.
pub(super) struct Download {
    decoding: Decoding,
    body_caps: BodyCaps,
    delivery: Delivery,
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
            delivery: Delivery::new(forward.proxy.buffer_reply_bytes),
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
            let data = self.decoding.data(&link.buffer);
            let has_data = !data.is_empty();
            let place = match self.decoding.is_last() {
                true => Place::Last,
                false => Place::Within,
            };
            let behind = (forward.worker, forward.serving);
            let taken = self.delivery.poll_take(cx, behind, reply, data, place);
            if has_data {
                let count = ready!(taken)?;
                self.decoding.consume(count, &mut link.buffer);
                continue;
            }
            if let Poll::Ready(Err(error)) = taken {
                return Poll::Ready(Err(error));
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
        self.delivery.poll_rest(cx, reply)
    }
}
