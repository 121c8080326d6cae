//! A socket as `h2` wants it: polled, and counted as it passes.

use std::cell::{RefCell, RefMut};
use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::client::io::Io;

/// Shared by a link and the connection of `h2` on it, in one thread.
#[derive(Debug, Clone)]
pub(crate) struct Wire(Rc<RefCell<Counted>>);

#[derive(Debug)]
pub(crate) struct Counted {
    pub(crate) io: Io,
    /// Not yet told to the recorder.
    pub(crate) received: u64,
    pub(crate) sent: u64,
    /// Whether something waits for room in the socket.
    pub(crate) wants_write: bool,
    /// Whether the last read took all there was: another would cost a call to hear that.
    pub(crate) is_drained: bool,
}

impl Wire {
    pub(crate) fn new(io: Io) -> Wire {
        Wire(Rc::new(RefCell::new(Counted {
            io,
            received: 0,
            sent: 0,
            wants_write: true,
            is_drained: false,
        })))
    }

    /// Nobody holds it over a call.
    pub(crate) fn get(&self) -> RefMut<'_, Counted> {
        self.0.borrow_mut()
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut wire = self.get();
        if wire.is_drained {
            return Poll::Pending;
        }
        let free = buffer.initialize_unfilled();
        let room = free.len();
        match wire.io.read(free) {
            Ok(count) => {
                wire.is_drained = (1..room).contains(&count) && !wire.io.may_hold_more();
                wire.received += count as u64;
                buffer.advance(count);
                Poll::Ready(Ok(()))
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Poll::Pending,
            Err(error) => Poll::Ready(Err(error)),
        }
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let mut wire = self.get();
        match wire.io.write(bytes) {
            Ok(count) => {
                wire.sent += count as u64;
                Poll::Ready(Ok(count))
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                wire.wants_write = true;
                Poll::Pending
            }
            Err(error) => Poll::Ready(Err(error)),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut wire = self.get();
        match wire.io.flush() {
            Ok(true) => Poll::Ready(Ok(())),
            Ok(false) => {
                wire.wants_write = true;
                Poll::Pending
            }
            Err(error) => Poll::Ready(Err(error)),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
