//! A connection to a server: what was read from it, what waits to be sent.

use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use wire::ReplyHead;

use crate::buffer::{BufferPool, ReadBuffer};
use crate::deadline::{Deadline, Deadlines};
use crate::error::{Error, Kind, Result};
use crate::io::Io;
use crate::outbox::Outbox;

/// A connection to a server.
#[derive(Debug)]
pub struct Link {
    /// The stream.
    pub io: Io,
    /// Bytes read and not yet used.
    pub buffer: ReadBuffer,
    /// The head of its last reply.
    pub reply: ReplyHead,
    /// Bytes not yet sent.
    pub out: Outbox,
    /// Runs while the server is the one to speak.
    pub deadline: Deadline,
    /// Runs while it takes nothing.
    sending: Deadline,
    /// Whether it carried an exchange before.
    pub reused: bool,
}

impl Link {
    /// Makes a link of a connected stream.
    pub fn new(io: Io, pool: &BufferPool, deadlines: &Rc<Deadlines>) -> Self {
        Self {
            io,
            buffer: ReadBuffer::new(pool),
            reply: ReplyHead::default(),
            out: Outbox::default(),
            deadline: deadlines.register(),
            sending: deadlines.register(),
            reused: false,
        }
    }

    /// Whether the server has closed it or sent something unasked.
    pub fn is_stale(&self, cx: &mut Context<'_>) -> bool {
        self.io.is_stale(cx)
    }

    /// Reads what is there; ready with 0 at the end.
    pub fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Result<usize>> {
        let read = ready!(self.io.poll_fill(cx, &mut self.buffer));
        self.deadline.clear();
        Poll::Ready(read.map_err(|error| broken("upstream_read", &error)))
    }

    /// Sends what waits and as much of `data` as goes. Counts `silence_ms` while nothing goes.
    pub fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        data: &[u8],
        silence_ms: u64,
    ) -> Poll<Result<usize>> {
        match self.out.poll_send(&self.io, cx, data) {
            Poll::Ready(sent) => {
                self.sending.clear();
                Poll::Ready(sent.map_err(|error| broken("upstream_write", &error)))
            }
            Poll::Pending => poll_silence(&self.sending, cx, silence_ms).map(Err),
        }
    }

    /// Ready with an error once the server has said nothing for so long, whatever it took meanwhile.
    pub fn poll_silence(&mut self, cx: &mut Context<'_>, silence_ms: u64) -> Poll<Error> {
        poll_silence(&self.deadline, cx, silence_ms)
    }
}

fn poll_silence(deadline: &Deadline, cx: &mut Context<'_>, silence_ms: u64) -> Poll<Error> {
    deadline.set_if_clear(silence_ms);
    ready!(deadline.poll_expired(cx));
    let reason = "upstream_silent";
    Poll::Ready(Error::new(Kind::UpstreamSlow, reason, String::new()))
}

fn broken(reason: &'static str, error: &io::Error) -> Error {
    Error::io(Kind::UpstreamBroken, reason, error)
}
