//! A connection's stream as the crate `h2` wants it, with eyes on the frames that pass.
//!
//! What the crate writes is gathered for as long as a turn of the connection lasts, so that frames of many streams leave
//! in one call: its own flushes come with every frame of data. How long the client may take nothing is said here, too:
//! windows are of streams, and the socket is everybody's.

use std::cell::RefCell;
use std::io;
use std::io::IoSlice;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::frames::Frames;
use crate::deadline::Deadlines;
use crate::exchange::h2::{H2Shared, OfBody};
use crate::exchange::pace::Patience;
use crate::io::Io;
use crate::write_buffer::WriteBuffer;

/// So much is gathered before some of it has to leave.
const GATHERED_MAX: usize = 64 * 1024;

/// A stream, what waits for it, and what has passed.
pub(super) struct FrameIo {
    io: Rc<Io>,
    out: WriteBuffer,
    patience: Patience,
    shared: Rc<H2Shared>,
    deadlines: Rc<Deadlines>,
    pub(super) frames: Frames,
}

/// The crate's handle to it.
pub(super) struct H2Io(pub(super) Rc<RefCell<FrameIo>>);

impl FrameIo {
    pub(super) fn new(io: Rc<Io>, shared: &Rc<H2Shared>, deadlines: &Rc<Deadlines>) -> Self {
        Self {
            io,
            out: WriteBuffer::default(),
            patience: Patience::new(deadlines),
            shared: Rc::clone(shared),
            frames: Frames::new(deadlines.now_ms()),
            deadlines: Rc::clone(deadlines),
        }
    }

    /// Sends what was gathered; ready when the socket has all of it.
    pub(super) fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let before = self.out.len();
        let sent = self.out.poll_send(&self.io, cx, &[]);
        let (taken, pace) = (before - self.out.len(), self.shared.pace.get());
        if taken > 0 || sent.is_ready() {
            self.patience.note_moved(taken, pace);
        }
        if self.shared.is_behind.get() {
            self.shared.note_taken(taken);
        }
        self.shared.is_behind.set(sent.is_pending());
        match sent {
            Poll::Ready(sent) => Poll::Ready(sent.map(drop)),
            Poll::Pending => {
                let io = &self.io;
                let over = self.patience.poll_over(cx, pace, || io.untaken_bytes());
                over.map(Err)
            }
        }
    }

    /// Gives back what it holds where nothing waits.
    pub(super) fn rest(&mut self) {
        if self.out.is_empty() {
            self.out.release();
        }
    }

    fn poll_receive(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.frames.fault().is_some() {
            // Nothing more is read: the end is on its way.
            return Poll::Pending;
        }
        for of_body in self.shared.of_bodies.borrow_mut().drain(..) {
            match of_body {
                OfBody::Read(stream) => self.frames.note_read(stream),
                OfBody::Over(stream) => self.frames.note_body_over(stream),
            }
        }
        let room = buffer.initialize_unfilled();
        let count = ready!(self.io.poll_read(cx, room))?;
        let received = room.get(..count).unwrap_or_default();
        self.frames.note_received(received, self.deadlines.now_ms());
        buffer.advance(count);
        Poll::Ready(Ok(()))
    }

    fn poll_gather(
        &mut self,
        cx: &mut Context<'_>,
        data: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.out.len() >= GATHERED_MAX {
            ready!(self.poll_send(cx))?;
        }
        for part in data {
            self.frames.note_sent(part);
            self.out.bytes().extend_from_slice(part);
        }
        Poll::Ready(Ok(data.iter().map(|part| part.len()).sum()))
    }
}

impl AsyncRead for H2Io {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.0.borrow_mut().poll_receive(cx, buffer)
    }
}

impl AsyncWrite for H2Io {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.0.borrow_mut().poll_gather(cx, &[IoSlice::new(data)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.0.borrow_mut().poll_gather(cx, data)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// The connection does that at the end of its turn.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut this = self.0.borrow_mut();
        ready!(this.poll_send(cx))?;
        this.io.shutdown_write();
        Poll::Ready(Ok(()))
    }
}
