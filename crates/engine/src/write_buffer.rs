//! Bytes on their way out: small ones gathered, large ones passed by.
//!
//! What is pushed waits until something is sent; then the kernel gets it together with the
//! caller's own bytes in one call.

use std::io::{self, IoSlice};
use std::task::{Context, Poll, ready};

use crate::io::Io;

/// Capacity kept from one message to the next.
const KEPT_BYTES: usize = 16 * 1024;

/// Bytes that wait to be sent.
#[derive(Debug, Default)]
pub struct WriteBuffer {
    bytes: Vec<u8>,
    sent: usize,
}

impl WriteBuffer {
    /// Where to append.
    pub fn bytes(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.sent == self.bytes.len()
    }

    /// Whether something waits and not one byte of it has been sent.
    pub fn is_untouched(&self) -> bool {
        self.sent == 0 && !self.bytes.is_empty()
    }

    /// How many bytes wait.
    pub fn len(&self) -> usize {
        self.bytes.len() - self.sent
    }

    /// Forgets what waits and keeps some memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(KEPT_BYTES);
        self.sent = 0;
    }

    /// Gives the memory back.
    pub fn release(&mut self) {
        debug_assert!(self.is_empty());
        *self = Self::default();
    }

    /// Sends what waits and lets the kernel hold its end back for what follows at once.
    pub fn poll_send_more(&mut self, io: &Io, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        self.poll_send_all(|waiting| io.poll_write_more(cx, waiting))
    }

    /// Sends what waits, the last bytes of the connection.
    pub fn poll_send_last(&mut self, io: &Io, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        self.poll_send_all(|waiting| io.poll_write_last(cx, waiting))
    }

    fn poll_send_all(
        &mut self,
        mut write: impl FnMut(&[u8]) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        let mut written = 0;
        while !self.is_empty() {
            let waiting = self.bytes.get(self.sent..).unwrap_or_default();
            let count = ready!(write(waiting))?;
            self.sent += count;
            written += count;
        }
        self.clear();
        Poll::Ready(Ok(written))
    }

    /// Sends what waits, then as much of `data` as goes; says how much of `data` went.
    /// With no `data`, ready with 0 when nothing waits any more, here or in the stream.
    pub fn poll_send(
        &mut self,
        io: &Io,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            let waiting = self.bytes.get(self.sent..).unwrap_or_default();
            let head = waiting.len();
            let both = [IoSlice::new(waiting), IoSlice::new(data)];
            let slices = match (head, data.is_empty()) {
                (0, true) => return io.poll_flush(cx).map_ok(|()| 0),
                (0, false) => both.get(1..),
                (_, true) => both.get(..1),
                (_, false) => both.get(..),
            };
            let written = ready!(io.poll_write(cx, slices.unwrap_or_default()))?;
            if written < head {
                self.sent += written;
                continue;
            }
            self.clear();
            if written > head {
                return Poll::Ready(Ok(written - head));
            }
        }
    }
}
