//! The reply's body from the upstream's connection to its delivery.
//!
//! With `buffer_reply`, and while the request holds a place in a limit, the upstream is read on
//! while the client takes its time ([`Delivery`]), so that connection and place are free as soon as
//! the reply has been read.

use std::task::{Context, Poll, ready};

use config::model::Proxy;
use wire::{BodyCaps, BodyDecoder, REPLY_BYTES_MAX, ReplyFraming};

use super::super::delivery::{BodyPart, Delivery};
use super::{Forward, cut};
use crate::buffer::ReadBuffer;
use crate::decoding::Decoding;
use crate::error::Result;
use crate::exchange::Exchange;
use crate::exchange::reply::Reply;
use crate::upstream::link::Link;

/// Where a download stands.
pub(super) struct Download {
    incoming: Incoming,
    delivery: Delivery,
    read_ms: u64,
}

/// A reply's body being decoded.
pub(super) struct Incoming {
    decoding: Decoding,
    body_caps: BodyCaps,
}

impl Download {
    /// Gets ready for a reply, whose source may be silent for so long.
    pub(super) fn new(forward: &Forward<'_>, exchange: &Exchange, read_ms: u64) -> Self {
        let aside_bytes_max = match (forward.proxy.buffer_reply, &exchange.held) {
            (Some(bytes), _) => bytes,
            (None, Some(_)) => Proxy::HELD_REPLY_BYTES,
            (None, None) => 0,
        };
        let process = &forward.chosen.serving.generation.process;
        let body_caps = BodyCaps {
            body_bytes: REPLY_BYTES_MAX,
            chunk_extension_bytes: process.caps.chunk_extension_bytes,
            trailer_bytes: process.caps.trailer_bytes,
        };
        Self {
            incoming: Incoming {
                decoding: Decoding::new(BodyDecoder::for_reply(ReplyFraming::None, &body_caps)),
                body_caps,
            },
            delivery: Delivery::new(aside_bytes_max, exchange),
            read_ms,
        }
    }

    /// Begins with a body framed like this.
    pub(super) fn begin(&mut self, framing: ReplyFraming) {
        self.incoming.begin(framing);
    }

    /// Gives up the client, and everything that was set aside for it.
    pub(super) fn into_incoming(self) -> Incoming {
        self.incoming
    }

    /// Whether the body was read to its end.
    pub(super) fn is_read(&self) -> bool {
        self.incoming.decoding.is_ended()
    }

    /// Moves on as far as it goes; ready when the upstream's last byte was read.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        forward: &Forward<'_>,
        reply: &mut Reply,
        link: &mut Link,
    ) -> Poll<Result<()>> {
        let decoding = &mut self.incoming.decoding;
        loop {
            decoding
                .advance(&mut link.buffer)
                .map_err(|refusal| cut(refusal.reason))?;
            if decoding.is_ended() {
                return Poll::Ready(Ok(()));
            }
            let data = decoding.data(&link.buffer);
            let has_data = !data.is_empty();
            let place = match decoding.is_last() {
                true => BodyPart::Last,
                false => BodyPart::Within,
            };
            let taken = self
                .delivery
                .poll_take(cx, *forward.chosen, reply, data, place);
            if has_data {
                let count = ready!(taken)?;
                decoding.consume(count, &mut link.buffer);
                continue;
            }
            if let Poll::Ready(Err(error)) = taken {
                return Poll::Ready(Err(error));
            }
            match link.poll_read(cx) {
                Poll::Ready(Ok(0)) => {
                    decoding.eof().map_err(|refusal| cut(refusal.reason))?;
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

impl Incoming {
    /// Begins with a body framed like this.
    pub(super) fn begin(&mut self, framing: ReplyFraming) {
        self.decoding = Decoding::new(BodyDecoder::for_reply(framing, &self.body_caps));
    }

    /// Throws away what the buffer holds of it; says whether that was its end.
    ///
    /// # Errors
    /// When the framing is wrong.
    pub(super) fn discard(&mut self, buffer: &mut ReadBuffer) -> Result<bool> {
        loop {
            let advanced = self.decoding.advance(buffer);
            advanced.map_err(|refusal| cut(refusal.reason))?;
            let count = self.decoding.data(buffer).len();
            if count == 0 {
                return Ok(self.decoding.is_ended());
            }
            self.decoding.consume(count, buffer);
        }
    }
}
