//! The way back to the client: a head, then bytes, then an end.

use std::future::poll_fn;
use std::os::fd::BorrowedFd;
use std::task::{Context, Poll};

use wire::Fields;

use super::h1::H1Reply;
use super::memory::MemoryReply;
use crate::error::Result;
use crate::outbox::Outbox;

/// Status and fields of a reply, without framing.
#[derive(Debug, Default)]
pub struct Outgoing {
    /// Status code; 0 until a handler has chosen one.
    pub status: u16,
    /// Fields in the order they will be sent.
    pub fields: Fields,
}

impl Outgoing {
    /// Empties it for the next reply.
    pub fn clear(&mut self) {
        self.status = 0;
        self.fields.clear();
    }
}

/// How long a reply's body is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodySize {
    /// There is none and no length is said (204, 304, tunnels).
    None,
    /// So many bytes.
    Length(u64),
    /// Not known yet.
    Unknown,
}

/// Where a reply goes.
#[derive(Debug)]
pub enum Reply {
    /// To an HTTP/1.1 connection.
    H1(H1Reply),
    /// To memory.
    Memory(MemoryReply),
}

impl Reply {
    pub(super) fn into_outbox(self) -> Outbox {
        match self {
            Self::H1(reply) => reply.into_outbox(),
            Self::Memory(_) => Outbox::default(),
        }
    }

    pub(super) fn start(&mut self, outgoing: &Outgoing, size: BodySize, close: bool) {
        match self {
            Self::H1(reply) => reply.start(outgoing, size, close),
            Self::Memory(reply) => reply.start(outgoing, size),
        }
    }

    pub(super) async fn send_interim(&mut self, bytes: &[u8]) -> Result<()> {
        match self {
            Self::H1(reply) => reply.send_interim(bytes).await,
            Self::Memory(_) => Ok(()),
        }
    }

    /// Whether a head was sent (or buffered): it is too late for another one.
    pub fn has_started(&self) -> bool {
        match self {
            Self::H1(reply) => reply.has_started(),
            Self::Memory(reply) => reply.has_started(),
        }
    }

    /// Whether the body is not to be sent: the request was HEAD.
    pub fn is_head_only(&self) -> bool {
        match self {
            Self::H1(reply) => reply.is_head_only(),
            Self::Memory(reply) => reply.is_head_only(),
        }
    }

    /// Adds bytes that leave with the next flush. Meant for short bodies: they are copied.
    pub fn push(&mut self, data: &[u8]) {
        match self {
            Self::H1(reply) => reply.push(data),
            Self::Memory(reply) => reply.push(data),
        }
    }

    /// Sends some of `data`, after whatever is buffered. Says how much of it was taken.
    pub fn poll_write(&mut self, cx: &mut Context<'_>, data: &[u8]) -> Poll<Result<usize>> {
        match self {
            Self::H1(reply) => reply.poll_write(cx, data),
            Self::Memory(reply) => {
                reply.push(data);
                Poll::Ready(Ok(data.len()))
            }
        }
    }

    /// Sends all of `data`.
    ///
    /// # Errors
    /// When the client has gone or takes nothing for too long.
    pub async fn write(&mut self, mut data: &[u8]) -> Result<()> {
        while !data.is_empty() {
            let count = poll_fn(|cx| self.poll_write(cx, data)).await?;
            data = data.get(count..).unwrap_or_default();
        }
        Ok(())
    }

    /// Sends what is buffered.
    pub fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        match self {
            Self::H1(reply) => reply.poll_flush(cx),
            Self::Memory(_) => Poll::Ready(Ok(())),
        }
    }

    /// Sends some of a file's bytes straight from the page cache; `Ok(0)` means the file ended early.
    ///
    /// Reads may block on a cold page: look whether it is cached first.
    ///
    /// # Errors
    /// When the client has gone or takes nothing for too long, or the file can't be read.
    pub async fn send_file(
        &mut self,
        file: BorrowedFd<'_>,
        offset: u64,
        count: u64,
    ) -> Result<usize> {
        match self {
            Self::H1(reply) => poll_fn(|cx| reply.poll_sendfile(cx, file, offset, count)).await,
            Self::Memory(reply) => reply.send_file(file, offset, count),
        }
    }

    /// Ends the body. What is buffered leaves with the next flush.
    pub fn finish(&mut self) {
        match self {
            Self::H1(reply) => reply.finish(),
            Self::Memory(reply) => reply.finish(),
        }
    }

    /// Says that nothing may follow this reply on its connection.
    pub fn close_after(&mut self) {
        match self {
            Self::H1(reply) => reply.close_after(),
            Self::Memory(_) => {}
        }
    }

    /// Gives up: the client must be able to see that the reply is cut short.
    pub fn abort(&mut self) {
        match self {
            Self::H1(reply) => reply.abort(),
            Self::Memory(reply) => reply.abort(),
        }
    }

    /// Body bytes the kernel has taken so far, without head and framing.
    pub fn body_bytes(&self) -> u64 {
        match self {
            Self::H1(reply) => reply.body_bytes(),
            Self::Memory(reply) => reply.body_bytes(),
        }
    }

    /// Status sent; 0 before a head was.
    pub fn status(&self) -> u16 {
        match self {
            Self::H1(reply) => reply.status(),
            Self::Memory(reply) => reply.status(),
        }
    }
}
