//! One connection of HTTP/2, from the socket to its end.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use h2::client::{Builder, Connection, SendRequest};

use super::wake::{WakeList, WakeTarget, Woken};
use super::wire::Wire;

/// Bytes of a reply that may be under way, and of all those of a connection: as browsers allow, so
/// that a window is not what is measured.
const STREAM_WINDOW_BYTES: u32 = 1024 * 1024;
const CONNECTION_WINDOW_BYTES: u32 = 16 * 1024 * 1024;

/// A link, told apart from those that had its place before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LinkName {
    pub(crate) at: usize,
    pub(crate) generation: u32,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) name: LinkName,
    /// Of the plan's connections in this thread.
    pub(crate) place: usize,
    pub(crate) wire: Wire,
    spoken: Option<Spoken>,
    target: Arc<WakeTarget>,
    waker: Waker,
    /// Whether epoll tells when the socket takes bytes.
    pub(crate) wants_write: bool,
    /// Streams under way, requests begun, and whole replies.
    pub(crate) live: usize,
    pub(crate) begun: u32,
    pub(crate) served: u32,
    /// When something last came.
    pub(crate) heard_ns: u64,
}

#[derive(Debug)]
struct Spoken {
    sender: SendRequest<Bytes>,
    connection: Connection<Wire, Bytes>,
}

impl Link {
    pub(crate) fn new(name: LinkName, place: usize, wire: Wire, list: &Arc<WakeList>) -> Link {
        let (target, waker) = WakeTarget::new(Woken::Link(name.at), list);
        Link {
            name,
            place,
            wire,
            spoken: None,
            target,
            waker,
            wants_write: true,
            live: 0,
            begun: 0,
            served: 0,
            heard_ns: 0,
        }
    }

    /// Whether requests may be sent.
    pub(crate) fn is_open(&self) -> bool {
        self.spoken.is_some()
    }

    /// Begins to speak HTTP/2. Nothing is asked before the server has said how many streams it
    /// takes: more than that it would refuse.
    pub(crate) fn greet(&mut self) -> Result<(), h2::Error> {
        let mut builder = Builder::new();
        builder
            .initial_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .initial_max_send_streams(0)
            .enable_push(false);
        let greeting = pin!(builder.handshake(self.wire.clone()));
        let mut context = Context::from_waker(&self.waker);
        match greeting.poll(&mut context) {
            Poll::Ready(greeted) => {
                let (sender, connection) = greeted?;
                self.spoken = Some(Spoken { sender, connection });
                Ok(())
            }
            // A few bytes, and the first ones: there is room for them.
            Poll::Pending => Err(h2::Reason::INTERNAL_ERROR.into()),
        }
    }

    /// What sends one request.
    pub(crate) fn sender(&self) -> Option<SendRequest<Bytes>> {
        Some(self.spoken.as_ref()?.sender.clone())
    }

    /// Streams that the server takes; `None` where it sets no limit or has not said one yet.
    pub(crate) fn streams_max(&self) -> Option<usize> {
        let most = self.spoken.as_ref()?.sender.current_max_send_streams();
        (1..usize::MAX).contains(&most).then_some(most)
    }

    /// Reads and writes; ready where the connection has come to its end.
    pub(crate) fn poll(&mut self) -> Poll<Result<(), h2::Error>> {
        self.target.rearm();
        let Some(spoken) = &mut self.spoken else {
            return Poll::Pending;
        };
        let mut context = Context::from_waker(&self.waker);
        Pin::new(&mut spoken.connection).poll(&mut context)
    }
}
