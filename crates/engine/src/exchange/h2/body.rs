//! The receiving half: DATA of one stream. Trailers are dropped, as in HTTP/1.1.

use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use h2::RecvStream;
use wire::Framing;

use super::super::pace::{Pace, Patience};
use super::{H2Shared, OfBody, as_io};
use crate::deadline::Deadlines;
use crate::error::{Error, Result};

/// Reads a request's body.
#[derive(Debug)]
pub struct H2Body {
    receiver: Option<RecvStream>,
    patience: Patience,
    /// Received and not yet consumed.
    data: Bytes,
    has_ended: bool,
    framing: Framing,
    pace: Pace,
    body_bytes_max: u64,
    drain_bytes: u64,
    received: u64,
    consumed: u64,
    shared: Rc<H2Shared>,
}

impl H2Body {
    /// A half without a stream.
    pub(crate) fn new(deadlines: &Rc<Deadlines>) -> Self {
        Self {
            receiver: None,
            patience: Patience::new(deadlines),
            data: Bytes::new(),
            has_ended: true,
            framing: Framing::None,
            pace: Pace::default(),
            body_bytes_max: 0,
            drain_bytes: 0,
            received: 0,
            consumed: 0,
            shared: Rc::default(),
        }
    }

    /// Gets ready for the body of a request that has just been read.
    pub(crate) fn begin(
        &mut self,
        receiver: RecvStream,
        framing: Framing,
        pace: Pace,
        body_bytes_max: u64,
        drain_bytes: u64,
        shared: &Rc<H2Shared>,
    ) {
        self.let_go();
        self.shared = Rc::clone(shared);
        // What follows a request for a tunnel is none of its body.
        self.has_ended = framing == Framing::None || receiver.is_end_stream();
        self.receiver = Some(receiver);
        self.data = Bytes::new();
        self.patience.begin();
        (self.framing, self.pace) = (framing, pace);
        (self.body_bytes_max, self.drain_bytes) = (body_bytes_max, drain_bytes);
        (self.received, self.consumed) = (0, 0);
    }

    /// Lets go of the stream: the client hears that no more of it is wanted.
    pub(in crate::exchange) fn detach(&mut self) {
        self.let_go();
        self.data = Bytes::new();
        self.shared = Rc::default();
        self.patience.rest();
    }

    fn let_go(&mut self) {
        let receiver = self.receiver.take();
        // What has no body is not counted.
        if let Some(receiver) = receiver.filter(|_| self.framing != Framing::None) {
            self.shared
                .tell(OfBody::Over(receiver.stream_id().as_u32()));
        }
    }

    /// The stream and what was read of it, for a tunnel.
    pub(in crate::exchange) fn take(&mut self) -> Option<(RecvStream, Bytes, Rc<H2Shared>)> {
        let receiver = self.receiver.take()?;
        let data = std::mem::take(&mut self.data);
        Some((receiver, data, Rc::clone(&self.shared)))
    }

    pub(crate) fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        while self.data.is_empty() && !self.has_ended {
            self.data = match ready!(self.poll_receive(cx)) {
                Ok(Some(data)) => data,
                Ok(None) => Bytes::new(),
                Err(error) => return Poll::Ready(Err(Error::client_read(&error))),
            };
            self.received += self.data.len() as u64;
            if self.received > self.body_bytes_max {
                return Poll::Ready(Err(Error::refused(413, "body_too_long")));
            }
        }
        Poll::Ready(Ok(()))
    }

    /// The next frame's data; `None` behind the last.
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>> {
        let Some(receiver) = &mut self.receiver else {
            return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
        };
        match receiver.poll_data(cx) {
            Poll::Ready(frame) => {
                self.has_ended = frame.is_none() || receiver.is_end_stream();
                let count = frame.as_ref().and_then(|it| it.as_ref().ok());
                let count = count.map_or(0, Bytes::len);
                if count > 0 {
                    self.shared
                        .tell(OfBody::Read(receiver.stream_id().as_u32()));
                }
                self.patience.note_moved(count, self.pace);
                Poll::Ready(frame.transpose().map_err(as_io))
            }
            // That it may send more may be among what waits for the socket.
            Poll::Pending => {
                let (shared, pace) = (&self.shared, self.pace);
                shared.poll_stalled(cx, &mut self.patience, pace).map(Err)
            }
        }
    }

    pub(crate) fn data(&self) -> &[u8] {
        &self.data
    }

    /// Forgets bytes, and lets the client send as many more.
    pub(crate) fn consume(&mut self, count: usize) {
        let count = count.min(self.data.len());
        self.data.advance(count);
        self.consumed += count as u64;
        if let Some(receiver) = &mut self.receiver {
            // A stream that is over has no window.
            let _ = receiver.flow_control().release_capacity(count);
        }
    }

    pub(crate) fn is_ended(&self) -> bool {
        self.has_ended && self.data.is_empty()
    }

    pub(crate) fn has_begun(&self) -> bool {
        self.received > 0
    }

    pub(crate) fn set_body_bytes(&mut self, body_bytes: u64) {
        self.body_bytes_max = body_bytes;
    }

    pub(crate) fn length(&self) -> Option<u64> {
        match self.framing {
            Framing::None => Some(0),
            Framing::Length(length) => Some(length),
            Framing::Chunked => None,
        }
    }

    pub(crate) fn bytes_read(&self) -> u64 {
        self.consumed
    }

    /// Reads and forgets the rest, at most as much as may be drained.
    ///
    /// # Errors
    /// When there is more, or the client is slow or gone.
    pub(in crate::exchange) async fn drain(&mut self) -> Result<()> {
        self.body_bytes_max = self.received.saturating_add(self.drain_bytes);
        self.patience.begin();
        while !self.is_ended() {
            self.consume(self.data.len());
            std::future::poll_fn(|cx| self.poll_fill(cx)).await?;
        }
        Ok(())
    }
}

impl Drop for H2Body {
    fn drop(&mut self) {
        self.let_go();
    }
}
