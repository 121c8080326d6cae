//! The reading half: heads and bodies off one connection, in order.

use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use wire::{BodyCaps, BodyDecoder, Framing, HeadCaps, RequestHead};

use super::super::pace::{Pace, Patience};
use super::super::stream::Stream;
use super::Attached;
use crate::buffer::{BufferPool, ReadBuffer};
use crate::deadline::Deadlines;
use crate::decoding::Decoding;
use crate::error::{Error, Result};
use crate::io::{HangUp, Io};

/// Reads request heads and bodies.
#[derive(Debug)]
pub struct H1Body {
    io: Attached,
    patience: Patience,
    buffer: ReadBuffer,
    decoding: Decoding,
    framing: Framing,
    pace: Pace,
    drain_bytes: u64,
    /// Bytes from the socket since the head.
    received: u64,
    /// Bytes of the body that were read.
    body_bytes: u64,
    begun: bool,
}

/// What reading a head came to.
#[derive(Debug, PartialEq, Eq)]
pub enum HeadRead {
    /// A head is there.
    Head,
    /// The client closed between requests.
    Closed,
    /// Nothing came; the connection is idle.
    Idle,
}

impl H1Body {
    /// Makes the reading half of a connection.
    pub fn new(io: Rc<Io>, clock: &Rc<Deadlines>, pool: &BufferPool) -> Self {
        let none = BodyCaps {
            body_bytes: 0,
            chunk_extension_bytes: 0,
            trailer_bytes: 0,
        };
        Self {
            io: Attached(Some(io)),
            patience: Patience::new(clock),
            buffer: ReadBuffer::new(pool),
            decoding: Decoding::new(BodyDecoder::new(Framing::None, &none)),
            framing: Framing::None,
            pace: Pace::default(),
            drain_bytes: 0,
            received: 0,
            body_bytes: 0,
            begun: false,
        }
    }

    /// Has it read from this connection from here on.
    pub(crate) fn attach(&mut self, io: &Rc<Io>) {
        self.io = Attached(Some(Rc::clone(io)));
    }

    /// Lets go of the connection, which has nothing more to read just now.
    pub(in crate::exchange) fn detach(&mut self) {
        debug_assert!(self.buffer.is_empty());
        self.io = Attached(None);
        self.patience.rest();
    }

    /// Reads one request head whose first bytes may be there. The last one has `header_ms` to come.
    ///
    /// # Errors
    /// A refusal: answer it, close, parse nothing more. Or the client was too slow or vanished.
    pub async fn read_head(
        &mut self,
        head: &mut RequestHead,
        caps: &HeadCaps,
        header_ms: u64,
    ) -> Result<HeadRead> {
        self.body_bytes = 0;
        self.patience.set(header_ms);
        let read = self.head_bytes(head, caps).await;
        self.patience.begin();
        read
    }

    async fn head_bytes(&mut self, head: &mut RequestHead, caps: &HeadCaps) -> Result<HeadRead> {
        loop {
            let was_empty = self.buffer.is_empty();
            if !was_empty && let Some(used) = head.parse(self.buffer.data(), caps)? {
                self.buffer.consume(used);
                return Ok(HeadRead::Head);
            }
            match poll_fn(|cx| self.poll_more(cx)).await {
                Ok(None) => return Ok(HeadRead::Idle),
                Ok(Some(0)) if was_empty => return Ok(HeadRead::Closed),
                Ok(Some(0)) => return Err(Error::refused(400, "head_cut_short")),
                Ok(Some(_)) => {}
                Err(error) => return Err(Error::client_read(&error)),
            }
        }
    }

    /// Waits for more of a head; `None` where not a byte of one is there.
    fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<usize>>> {
        match self.poll_receive(cx) {
            Poll::Pending if self.buffer.is_empty() => Poll::Ready(Ok(None)),
            more => more.map_ok(Some),
        }
    }

    /// Gets ready for the body of the head just read.
    pub fn begin(&mut self, framing: Framing, caps: &BodyCaps, pace: Pace, drain_bytes: u64) {
        self.decoding = Decoding::new(BodyDecoder::new(framing, caps));
        self.framing = framing;
        self.pace = pace;
        self.drain_bytes = drain_bytes;
        self.received = 0;
        self.patience.begin();
        self.begun = !self.buffer.is_empty();
    }

    /// Sets another cap for the body that has begun.
    pub(crate) fn set_body_bytes(&mut self, body_bytes: u64) {
        self.decoding.set_body_bytes(body_bytes);
    }

    /// Whether bytes of a further request are here already.
    pub fn has_buffered(&self) -> bool {
        !self.buffer.is_empty()
    }

    /// Reads and forgets the rest of the body, at most as much as may be drained.
    ///
    /// # Errors
    /// When there is more, or the client is slow, or its framing is bad: close the connection.
    pub async fn drain(&mut self) -> Result<()> {
        let mut drained: u64 = 0;
        // Nobody keeps what is drained: how much that may be is said below.
        self.decoding.set_body_bytes(u64::MAX);
        // Nobody has waited for the body since its reader gave up.
        self.patience.begin();
        while !self.is_ended() {
            let count = self.data().len();
            self.consume(count);
            drained += count as u64;
            if drained > self.drain_bytes {
                return Err(Error::refused(413, "body_unread"));
            }
            poll_fn(|cx| self.poll_fill(cx)).await?;
        }
        Ok(())
    }

    pub(crate) fn take_stream(&mut self) -> Option<Stream> {
        Some(Stream::H1(self.io.0.clone()?, self.buffer.take()))
    }

    pub(crate) fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        loop {
            self.decoding.advance(&mut self.buffer)?;
            if !self.data().is_empty() || self.decoding.is_ended() {
                return Poll::Ready(Ok(()));
            }
            if let Err(error) = ready!(self.poll_paced(cx)) {
                return Poll::Ready(Err(error));
            }
        }
    }

    fn poll_paced(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        match self.poll_receive(cx) {
            Poll::Ready(Ok(0)) => Poll::Ready(Err(Error::client_read(
                &io::ErrorKind::UnexpectedEof.into(),
            ))),
            Poll::Ready(Ok(count)) => {
                self.patience.note_moved(count, self.pace);
                self.begun = true;
                self.received += count as u64;
                Poll::Ready(Ok(()))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(Error::client_read(&error))),
            Poll::Pending => Poll::Pending,
        }
    }

    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(read) = self.io.poll_fill(cx, &mut self.buffer) {
            return Poll::Ready(read);
        }
        self.patience.poll_over(cx, self.pace, || 0).map(Err)
    }

    pub(crate) fn data(&self) -> &[u8] {
        self.decoding.data(&self.buffer)
    }

    pub(crate) fn consume(&mut self, count: usize) {
        self.body_bytes += count as u64;
        self.decoding.consume(count, &mut self.buffer);
    }

    pub(crate) fn is_ended(&self) -> bool {
        self.decoding.is_ended()
    }

    pub(crate) fn has_begun(&self) -> bool {
        self.begun
    }

    pub(crate) fn bytes_read(&self) -> u64 {
        self.body_bytes
    }

    pub(crate) fn length(&self) -> Option<u64> {
        match self.framing {
            Framing::None => Some(0),
            Framing::Length(length) => Some(length),
            Framing::Chunked => None,
        }
    }

    pub(crate) fn is_too_long_to_drain(&self) -> bool {
        match self.framing {
            Framing::None => false,
            Framing::Length(length) => length.saturating_sub(self.received) > self.drain_bytes,
            Framing::Chunked => false,
        }
    }

    /// What follows the request is read as far as there is room: the end behind it is not seen
    /// otherwise.
    pub(crate) fn poll_hang_up(&mut self, cx: &mut Context<'_>) -> Poll<HangUp> {
        while self.is_ended() {
            match ready!(self.io.poll_fill(cx, &mut self.buffer)) {
                Ok(1..) => {}
                Ok(0) => return Poll::Ready(self.io.hang_up(cx)),
                Err(error) if error.kind() == io::ErrorKind::OutOfMemory => break,
                Err(_) => return Poll::Ready(HangUp::Both),
            }
        }
        self.io.poll_hang_up(cx)
    }
}
