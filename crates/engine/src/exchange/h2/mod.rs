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

use std::cell::Cell;

use super::pace::Pace;

/// What the streams of a connection and the connection tell each other.
#[derive(Debug, Default)]
pub(crate) struct H2Shared {
    /// Nothing may follow on the connection.
    pub(crate) is_last: Cell<bool>,
    /// The socket has not taken all that it was offered: who waits, waits for that.
    pub(crate) is_behind: Cell<bool>,
    /// How long the client may take nothing at all: the longest that any of its streams allows.
    pub(crate) pace: Cell<Pace>,
}

impl H2Shared {
    /// Lets the socket be as slow as a stream may.
    fn allow(&self, pace: Pace) {
        let known = self.pace.get();
        self.pace.set(Pace {
            silence_ms: known.silence_ms.max(pace.silence_ms),
            rate_min: known.rate_min.min(pace.rate_min),
        });
    }
}

/// Most bytes of a stream that wait for the socket.
pub(crate) const SEND_BYTES_MAX: usize = 32 * 1024;

/// As an error of the stream's socket: what the client did is said in its reason.
fn as_io(error: h2::Error) -> std::io::Error {
    std::io::Error::new(std::io::ErrorKind::ConnectionReset, error)
}
