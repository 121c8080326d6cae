//! A stream that carries no more exchanges: the WebSocket of an extended CONNECT (RFC 8441).

use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use h2::{Reason, RecvStream, SendStream};

use super::reply::poll_room;
use super::{H2Shared, OfBody, SEND_BYTES_MAX, as_io};

/// Both halves of a stream, for bytes that nobody here reads.
#[derive(Debug)]
pub(crate) struct H2Tunnel {
    receiver: RecvStream,
    data: Bytes,
    sender: SendStream<Bytes>,
    has_said_end: bool,
    shared: Rc<H2Shared>,
}

impl H2Tunnel {
    pub(in crate::exchange) fn new(
        receiver: RecvStream,
        data: Bytes,
        sender: SendStream<Bytes>,
        shared: Rc<H2Shared>,
    ) -> Self {
        Self {
            receiver,
            data,
            sender,
            has_said_end: false,
            shared,
        }
    }

    /// Receives where nothing is left to consume; 0 is the end.
    pub(crate) fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        while self.data.is_empty() {
            match ready!(self.receiver.poll_data(cx)) {
                Some(data) => {
                    self.data = data.map_err(as_io)?;
                    let stream = self.receiver.stream_id().as_u32();
                    self.shared.tell(OfBody::Read(stream));
                }
                None => return Poll::Ready(Ok(0)),
            }
        }
        Poll::Ready(Ok(self.data.len()))
    }

    /// Received and not yet consumed.
    pub(crate) fn data(&self) -> &[u8] {
        &self.data
    }

    pub(crate) fn consume(&mut self, count: usize) {
        self.data.advance(count.min(self.data.len()));
        // A stream that is over has no window.
        let _ = self.receiver.flow_control().release_capacity(count);
    }

    /// Sends some of `data`; says how much.
    pub(crate) fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        let room = ready!(poll_room(
            &mut self.sender,
            cx,
            data.len().min(SEND_BYTES_MAX)
        ))?;
        let data = data.get(..room.min(data.len())).unwrap_or(data);
        let sent = self.sender.send_data(Bytes::copy_from_slice(data), false);
        Poll::Ready(sent.map(|()| data.len()).map_err(as_io))
    }

    /// Ready when the client has reset the stream, or its connection is over.
    pub(crate) fn poll_reset(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match self.has_said_end {
            true => Poll::Pending,
            false => self.sender.poll_reset(cx).map(drop),
        }
    }

    /// Says that nothing more will be sent.
    pub(crate) fn shutdown_write(&mut self) {
        if !std::mem::replace(&mut self.has_said_end, true) {
            // The client may be gone already; there is nothing left to tell it then.
            let _ = self.sender.send_data(Bytes::new(), true);
        }
    }
}

impl Drop for H2Tunnel {
    fn drop(&mut self) {
        if !self.has_said_end {
            self.sender.send_reset(Reason::CONNECT_ERROR);
        }
        let stream = self.receiver.stream_id().as_u32();
        self.shared.tell(OfBody::Over(stream));
    }
}
