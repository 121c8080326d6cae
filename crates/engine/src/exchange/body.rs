//! The request's body: filled, looked at, consumed, like a reader's buffer.

use std::future::poll_fn;
use std::task::{Context, Poll};

use super::h1::H1Body;
use super::h2::H2Body;
use super::memory::MemoryBody;
use crate::error::Result;
use crate::io::HangUp;

/// A request's body, decoded.
#[derive(Debug)]
#[allow(
    clippy::large_enum_variant,
    reason = "every exchange on the wire is the large one; memory carries tests"
)]
pub enum Body {
    /// From an HTTP/1.1 connection.
    H1(H1Body),
    /// From a stream of an HTTP/2 connection.
    H2(H2Body),
    /// From memory.
    Memory(MemoryBody),
}

impl Body {
    /// Ready when [`Self::data`] holds bytes or the body has ended.
    pub fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        match self {
            Self::H1(body) => body.poll_fill(cx),
            Self::H2(body) => body.poll_fill(cx),
            Self::Memory(body) => body.poll_fill(cx),
        }
    }

    /// As [`Self::poll_fill`], for those who have nothing else to do.
    ///
    /// # Errors
    /// Bad framing, a body over its cap, a slow or vanished client.
    pub async fn fill(&mut self) -> Result<()> {
        poll_fn(|cx| self.poll_fill(cx)).await
    }

    /// Bytes read and not yet consumed.
    pub fn data(&self) -> &[u8] {
        match self {
            Self::H1(body) => body.data(),
            Self::H2(body) => body.data(),
            Self::Memory(body) => body.data(),
        }
    }

    /// Forgets the first `count` bytes of [`Self::data`].
    pub fn consume(&mut self, count: usize) {
        match self {
            Self::H1(body) => body.consume(count),
            Self::H2(body) => body.consume(count),
            Self::Memory(body) => body.consume(count),
        }
    }

    /// Whether every byte was read and consumed.
    pub fn is_ended(&self) -> bool {
        match self {
            Self::H1(body) => body.is_ended(),
            Self::H2(body) => body.is_ended(),
            Self::Memory(body) => body.is_ended(),
        }
    }

    /// Whether any of it has arrived.
    pub fn has_begun(&self) -> bool {
        match self {
            Self::H1(body) => body.has_begun(),
            Self::H2(body) => body.has_begun(),
            Self::Memory(_) => true,
        }
    }

    /// Sets another cap for it, once it is known who is to have it.
    pub fn set_body_bytes(&mut self, body_bytes: u64) {
        match self {
            Self::H1(body) => body.set_body_bytes(body_bytes),
            Self::H2(body) => body.set_body_bytes(body_bytes),
            // It is all there.
            Self::Memory(_) => {}
        }
    }

    /// Its announced length; `None` when it comes in chunks.
    pub fn length(&self) -> Option<u64> {
        match self {
            Self::H1(body) => body.length(),
            Self::H2(body) => body.length(),
            Self::Memory(body) => Some(body.length()),
        }
    }

    /// Bytes of it that have been consumed, without framing.
    pub fn bytes_read(&self) -> u64 {
        match self {
            Self::H1(body) => body.bytes_read(),
            Self::H2(body) => body.bytes_read(),
            Self::Memory(body) => body.length(),
        }
    }

    /// Whether what is unread is more than would be drained to keep the connection.
    pub fn is_too_long_to_drain(&self) -> bool {
        match self {
            Self::H1(body) => body.is_too_long_to_drain(),
            Self::H2(_) | Self::Memory(_) => false,
        }
    }

    /// Ready when the client has ended its side of the connection, or all of it.
    pub(super) fn poll_hang_up(&mut self, cx: &mut Context<'_>) -> Poll<HangUp> {
        match self {
            Self::H1(body) => body.poll_hang_up(cx),
            // Its reply's half hears of that.
            Self::H2(_) | Self::Memory(_) => Poll::Pending,
        }
    }

    /// Reads and forgets the rest of it, at most as much as may be drained.
    ///
    /// # Errors
    /// When there is more, or the client is slow, or its framing is bad.
    pub async fn drain(&mut self) -> Result<()> {
        match self {
            Self::H1(body) => body.drain().await,
            Self::H2(body) => body.drain().await,
            Self::Memory(body) => {
                body.consume(body.data().len());
                Ok(())
            }
        }
    }

    /// Lets go of the connection, or of what was in memory.
    pub(super) fn detach(&mut self) {
        match self {
            Self::H1(body) => body.detach(),
            Self::H2(body) => body.detach(),
            Self::Memory(body) => *body = MemoryBody::default(),
        }
    }
}
