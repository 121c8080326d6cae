//! A connection that switched protocols, or the stream of an extended CONNECT: bytes both ways until both ends are done.
//!
//! Opened only by a 101 whose `Upgrade` is one the client asked for. Bytes the client sent before
//! that were not read as anything but the next request, so none can be smuggled past.

use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll, ready};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha1::{Digest, Sha1};
use wire::{FieldId, Fields, Version, strip_hop_by_hop};

use crate::buffer::ReadBuffer;
use crate::deadline::Deadline;
use crate::error::{Error, Kind, Result};
use crate::exchange::h2::H2Tunnel;
use crate::exchange::reply::BodySize;
use crate::exchange::{Exchange, Stream};
use crate::io::Io;
use crate::reply_head;
use crate::stage::Arrived;
use crate::upstream::link::Link;
use crate::write_buffer::WriteBuffer;

/// The field by which a server shows that it has read the key.
const ACCEPT: &[u8] = b"sec-websocket-accept";
/// What a key is hashed with (RFC 6455, 1.3).
const WEBSOCKET_GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

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
        return Err(not_granted());
    };
    let is_h2 = exchange.request.head.version == Version::Http2;
    if is_h2 && !accepts_key(exchange, &link.reply.fields) {
        return Err(not_granted());
    }
    strip_hop_by_hop(&mut link.reply.fields);
    exchange.outgoing.status = 101;
    for field in link
        .reply
        .fields
        .iter()
        .filter(|field| field.id != FieldId::ContentLength)
        .filter(|field| !(is_h2 && field.name.eq_ignore_ascii_case(ACCEPT)))
    {
        exchange.outgoing.fields.push(field.name, field.value);
    }
    exchange.outgoing.fields.push(b"Upgrade", &protocol);
    if let Some(reply) = exchange.reply.h1() {
        reply.close_after();
    }
    reply_head::send(arrived, exchange, BodySize::None).await?;
    poll_fn(|cx| exchange.reply.poll_flush(cx)).await?;
    let Some(mut stream) = exchange.take_stream() else {
        return Ok(Over::Broken);
    };
    let mut client = match &mut stream {
        Stream::H1(io, buffer) => TunnelEnd::Io(io, buffer),
        Stream::H2(tunnel) => TunnelEnd::H2(tunnel),
    };
    let server = &mut TunnelEnd::Io(&link.io, &mut link.buffer);
    let (up, down) = (&mut Lane::default(), &mut Lane::default());
    let over = poll_fn(|cx| {
        let there = up.poll(cx, &mut client, server, &link.deadline);
        let back = down.poll(cx, server, &mut client, &link.deadline);
        // A side that has broken takes the other with it; one that has ended may still be answered.
        match (there, back) {
            (Poll::Ready(Err(_)), _) | (_, Poll::Ready(Err(_))) => {
                return Poll::Ready(Over::Broken);
            }
            (Poll::Ready(Ok(())), Poll::Ready(Ok(()))) => return Poll::Ready(Over::Both),
            // It has said its last, and may yet be gone.
            (Poll::Ready(Ok(())), Poll::Pending) if client.poll_gone(cx).is_ready() => {
                return Poll::Ready(Over::Broken);
            }
            _ => {}
        }
        link.deadline.set_if_clear(tunnel_ms);
        link.deadline.poll_expired(cx).map(|()| Over::Broken)
    });
    Ok(over.await)
}

fn not_granted() -> Error {
    Error::new(Kind::UpstreamBroken, "upstream_upgrade", String::new())
}

/// Whether the server has read the key that was made for it: a stream's client has neither sent one nor sees the answer
/// (RFC 6455, 4.2.2; RFC 8441, 5).
fn accepts_key(exchange: &Exchange, granted: &Fields) -> bool {
    let key = exchange.request.head.fields.get_named(b"sec-websocket-key");
    let digest = Sha1::digest([key.unwrap_or_default(), WEBSOCKET_GUID].concat());
    granted.get_named(ACCEPT) == Some(STANDARD.encode(digest).as_bytes())
}

/// Whether a granted protocol is one of those asked for (RFC 9110 §7.8).
fn is_among(granted: &[u8], asked: &[u8]) -> bool {
    asked
        .split(|byte| *byte == b',')
        .any(|protocol| protocol.trim_ascii().eq_ignore_ascii_case(granted))
}

/// One end of a tunnel.
enum TunnelEnd<'a> {
    Io(&'a Io, &'a mut ReadBuffer),
    H2(&'a mut H2Tunnel),
}

impl TunnelEnd<'_> {
    /// Receives where nothing is left to consume; 0 is the end.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        match self {
            Self::Io(io, buffer) => io.poll_fill(cx, buffer),
            Self::H2(tunnel) => tunnel.poll_fill(cx),
        }
    }

    /// Ready when a stream was reset after its end; a connection says nothing of that until it is written to.
    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match self {
            Self::Io(..) => Poll::Pending,
            Self::H2(tunnel) => tunnel.poll_reset(cx),
        }
    }

    fn data(&self) -> &[u8] {
        match self {
            Self::Io(_, buffer) => buffer.data(),
            Self::H2(tunnel) => tunnel.data(),
        }
    }

    fn consume(&mut self, count: usize) {
        match self {
            Self::Io(_, buffer) => buffer.consume(count),
            Self::H2(tunnel) => tunnel.consume(count),
        }
    }

    fn poll_send(&mut self, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        match self {
            Self::Io(io, _) => WriteBuffer::default().poll_send(io, cx, data),
            Self::H2(tunnel) => tunnel.poll_send(cx, data),
        }
    }

    /// Ready when all that was sent is on its way.
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Io(io, _) => io.poll_flush(cx),
            Self::H2(_) => Poll::Ready(Ok(())),
        }
    }

    fn shutdown_write(&mut self) {
        match self {
            Self::Io(io, _) => io.shutdown_write(),
            Self::H2(tunnel) => tunnel.shutdown_write(),
        }
    }
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
        from: &mut TunnelEnd<'_>,
        to: &mut TunnelEnd<'_>,
        silence: &Deadline,
    ) -> Poll<io::Result<()>> {
        while !self.is_over {
            if from.data().is_empty() {
                ready!(to.poll_flush(cx))?;
                if ready!(from.poll_fill(cx))? == 0 {
                    to.shutdown_write();
                    self.is_over = true;
                    continue;
                }
            }
            let count = ready!(to.poll_send(cx, from.data()))?;
            from.consume(count);
            silence.clear();
        }
        Poll::Ready(Ok(()))
    }
}
