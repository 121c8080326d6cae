//! One stream: the reply it waits for or reads.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use h2::RecvStream;
use h2::client::ResponseFuture;

use super::link::LinkName;
use super::wake::{WakeList, WakeTarget, Woken};

/// What came of a poll.
#[derive(Debug)]
pub(crate) enum Came {
    /// Nothing yet.
    Nothing,
    /// The head or a part of the body.
    Part,
    /// The reply's end.
    Whole,
    Broken(h2::Error),
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Stream {
    state: StreamState,
    link: Option<LinkName>,
    target: Arc<WakeTarget>,
    waker: Waker,
    /// How often its request went out again.
    pub(crate) again: usize,
    pub(crate) status: u16,
    pub(crate) body_bytes: u64,
    /// What the reply says of the server's software.
    pub(crate) server: String,
}

#[derive(Debug)]
enum StreamState {
    Idle,
    Head(ResponseFuture),
    Body(RecvStream),
}

impl Stream {
    pub(crate) fn new(index: usize, list: &Arc<WakeList>) -> Stream {
        let (target, waker) = WakeTarget::new(Woken::Stream(index), list);
        Stream {
            state: StreamState::Idle,
            link: None,
            target,
            waker,
            again: 0,
            status: 0,
            body_bytes: 0,
            server: String::new(),
        }
    }

    /// A request has gone out over a link.
    pub(crate) fn expect(&mut self, response: ResponseFuture, link: LinkName) {
        self.state = StreamState::Head(response);
        self.link = Some(link);
        self.status = 0;
        self.body_bytes = 0;
    }

    /// Forgets the exchange; gives the link it was on.
    pub(crate) fn clear(&mut self) -> Option<LinkName> {
        self.state = StreamState::Idle;
        self.link.take()
    }

    pub(crate) fn link(&self) -> Option<LinkName> {
        self.link
    }

    /// Reads on; the server's name where it is asked for.
    pub(crate) fn poll(&mut self, wants_server: bool) -> Came {
        self.target.rearm();
        let mut context = Context::from_waker(&self.waker);
        match &mut self.state {
            StreamState::Idle => Came::Nothing,
            StreamState::Head(response) => match Pin::new(response).poll(&mut context) {
                Poll::Pending => Came::Nothing,
                Poll::Ready(Err(error)) => Came::Broken(error),
                Poll::Ready(Ok(reply)) => {
                    self.status = reply.status().as_u16();
                    if wants_server && let Some(server) = reply.headers().get("server") {
                        self.server = String::from_utf8_lossy(server.as_bytes()).into_owned();
                    }
                    self.state = StreamState::Body(reply.into_body());
                    Came::Part
                }
            },
            StreamState::Body(body) => match body.poll_data(&mut context) {
                Poll::Pending => Came::Nothing,
                Poll::Ready(Some(Err(error))) => Came::Broken(error),
                Poll::Ready(Some(Ok(data))) => {
                    self.body_bytes += data.len() as u64;
                    // It fails only for more than was received.
                    let _ = body.flow_control().release_capacity(data.len());
                    Came::Part
                }
                Poll::Ready(None) => match body.poll_trailers(&mut context) {
                    Poll::Pending => Came::Nothing,
                    Poll::Ready(Ok(_)) => Came::Whole,
                    Poll::Ready(Err(error)) => Came::Broken(error),
                },
            },
        }
    }
}
