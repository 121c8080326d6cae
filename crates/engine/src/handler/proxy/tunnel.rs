//! A connection that switched protocols: bytes both ways until both ends are done.
//!
//! Opened only by a 101 whose `Upgrade` is one the client asked for. Bytes the client sent before
//! that were not read as anything but the next request, so none can be smuggled past.

use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll, ready};

use wire::{FieldId, strip_hop_by_hop};

use crate::buffer::ReadBuffer;
use crate::deadline::Deadline;
use crate::error::{Error, Kind, Result};
use crate::exchange::Exchange;
use crate::exchange::reply::BodySize;
use crate::io::Io;
use crate::reply_head;
use crate::stage::Arrived;
use crate::upstream::link::Link;
use crate::write_buffer::WriteBuffer;

/// How a tunnel ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Over {
    /// Both sides have said their last.
    Both,
    /// One broke, or nothing moved for too long: the far end may not know.
    Broken,
}

/// Answers 101 and passes bytes until both sides have ended or neither moves for `tunnel_ms`.
pub(super) async fn open(
    arrived: Arrived<'_>,
    exchange: &mut Exchange,
    link: &mut Link,
    asked: Option<&[u8]>,
    tunnel_ms: u64,
) -> Result<Over> {
    let granted = link.reply.upgrade().map(<[u8]>::to_vec);
    let Some(protocol) = granted.filter(|granted| is_among(granted, asked.unwrap_or_default()))
    else {
        return Err(Error::new(
            Kind::UpstreamBroken,
            "upstream_upgrade",
            String::new(),
        ));
    };
    strip_hop_by_hop(&mut link.reply.fields);
    exchange.outgoing.status = 101;
    for field in link
        .reply
        .fields
        .iter()
        .filter(|field| field.id != FieldId::ContentLength)
    {
        exchange.outgoing.fields.push(field.name, field.value);
    }
    exchange.outgoing.fields.push(b"Upgrade", &protocol);
    exchange.reply.close_after();
    reply_head::send(arrived, exchange, BodySize::None).await?;
    poll_fn(|cx| exchange.reply.poll_flush(cx)).await?;
    let Some(mut client) = exchange.body.take_stream() else {
        return Ok(Over::Broken);
    };
    let (up, down) = (&mut Lane::default(), &mut Lane::default());
    let over = poll_fn(|cx| {
        let there = up.poll(cx, &client.io, &mut client.buffer, &link.io, &link.deadline);
        let back = down.poll(cx, &link.io, &mut link.buffer, &client.io, &link.deadline);
        // A side that has broken takes the other with it; one that has ended may still be answered.
        match (there, back) {
            (Poll::Ready(Err(_)), _) | (_, Poll::Ready(Err(_))) => {
                return Poll::Ready(Over::Broken);
            }
            (Poll::Ready(Ok(())), Poll::Ready(Ok(()))) => return Poll::Ready(Over::Both),
            _ => {}
        }
        link.deadline.set_if_clear(tunnel_ms);
        link.deadline.poll_expired(cx).map(|()| Over::Broken)
    });
    Ok(over.await)
}

/// Whether a granted protocol is one of those asked for (RFC 9110 §7.8).
fn is_among(granted: &[u8], asked: &[u8]) -> bool {
    asked
        .split(|byte| *byte == b',')
        .any(|protocol| protocol.trim_ascii().eq_ignore_ascii_case(granted))
}

/// One direction.
#[derive(Default)]
struct Lane {
    is_over: bool,
}

impl Lane {
    /// Moves bytes while they move; ready when this direction has ended, with an error when one
    /// of the streams broke.
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        from: &Io,
        buffer: &mut ReadBuffer,
        to: &Io,
        silence: &Deadline,
    ) -> Poll<io::Result<()>> {
        let mut out = WriteBuffer::default();
        while !self.is_over {
            if buffer.is_empty() {
                ready!(to.poll_flush(cx))?;
                if ready!(from.poll_fill(cx, buffer))? == 0 {
                    to.shutdown_write();
                    self.is_over = true;
                    continue;
                }
            }
            let count = ready!(out.poll_send(to, cx, buffer.data()))?;
            buffer.consume(count);
            silence.clear();
        }
        Poll::Ready(Ok(()))
    }
}
