//! An exchange carried by a stream of an HTTP/2 connection (RFC 9113), on the crate `h2`.
//!
//! The one idea: a stream is a request like any other. Its halves are a receiver and a sender of frames; windows are
//! their backpressure, and how fast a client opens those is its pace. What is given to the crate has a window already,
//! so that a stream never has more waiting there than the client will take and [`SEND_BYTES_MAX`]. The connection, its
//! socket and when it ends are `listener/h2`'s.

pub(crate) mod body;
pub(crate) mod reply;
pub(crate) mod tunnel;

pub(crate) use body::H2Body;
pub(crate) use reply::H2Reply;
pub(crate) use tunnel::H2Tunnel;

use std::cell::{Cell, RefCell};
use std::task::{Context, Poll, ready};

use super::pace::{Pace, Patience};

/// What the streams of a connection and the connection tell each other.
#[derive(Debug, Default)]
pub(crate) struct H2Shared {
    /// Nothing may follow on the connection.
    pub(crate) is_last: Cell<bool>,
    /// The socket has not taken all that it was offered: who waits, waits for that.
    pub(crate) is_behind: Cell<bool>,
    /// How long the client may take nothing at all: the longest that any of its streams has allowed.
    pub(crate) pace: Cell<Pace>,
    /// Bytes that the socket took while it was behind, and that have excused nobody yet.
    credit_bytes: Cell<u64>,
    /// What has become of bodies since the connection looked last.
    pub(crate) of_bodies: RefCell<Vec<OfBody>>,
}

/// What the connection is told of a stream's body, which it counts by frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OfBody {
    /// One of its frames was read.
    Read(u32),
    /// Nobody wants more of it.
    Over(u32),
}

/// Most that is kept of what the socket took: enough for a hundred streams.
const CREDIT_BYTES_MAX: u64 = 1024 * 1024;

impl H2Shared {
    /// Lets the socket be as slow as a stream may.
    fn allow(&self, pace: Pace) {
        let known = self.pace.get();
        self.pace.set(Pace {
            silence_ms: known.silence_ms.max(pace.silence_ms),
            rate_min: known.rate_min.min(pace.rate_min),
        });
    }

    /// The socket, which is behind, took so many bytes.
    pub(crate) fn note_taken(&self, bytes: usize) {
        let credit_bytes = self.credit_bytes.get().saturating_add(bytes as u64);
        self.credit_bytes.set(credit_bytes.min(CREDIT_BYTES_MAX));
    }

    /// A stream whose client moves nothing: ready when that has gone on for too long. What is behind in the socket may be
    /// the stream's own; so that nobody lives on what another one reads, what excuses it has moved, as the least rate has
    /// it, and excuses it alone.
    fn poll_stalled(
        &self,
        cx: &mut Context<'_>,
        patience: &mut Patience,
        pace: Pace,
    ) -> Poll<std::io::Error> {
        loop {
            let error = ready!(patience.poll_over(cx, pace, || 0));
            let price_bytes = pace.rate_min.saturating_mul(pace.silence_ms) / 1_000;
            let left_bytes = self.credit_bytes.get().checked_sub(price_bytes);
            let (true, Some(left_bytes)) = (self.is_behind.get(), left_bytes) else {
                return Poll::Ready(error);
            };
            self.credit_bytes.set(left_bytes);
            patience.begin();
        }
    }

    fn tell(&self, of_body: OfBody) {
        self.of_bodies.borrow_mut().push(of_body);
    }
}

/// Most bytes of a stream that wait for the socket.
pub(crate) const SEND_BYTES_MAX: usize = 32 * 1024;

/// As an error of the stream's socket: what the client did is said in its reason.
fn as_io(error: h2::Error) -> std::io::Error {
    std::io::Error::new(std::io::ErrorKind::ConnectionReset, error)
}
