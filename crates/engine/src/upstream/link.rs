//! A connection to a server: what was read from it, what waits to be sent.

use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use wire::ReplyHead;

use crate::buffer::{BufferPool, ReadBuffer};
use crate::deadline::{Deadline, Deadlines};
use crate::error::{Error, Kind, Result};
use crate::io::Io;
use crate::write_buffer::WriteBuffer;

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
    pub out: WriteBuffer,
    /// Runs while the server is the one to speak.
    pub deadline: Deadline,
    /// Runs while it takes nothing.
    sending: Deadline,
    /// What the kernel held for it when that began.
    untaken_bytes: u64,
    /// Whether it carried an exchange before.
    pub reused: bool,
    /// Who we are to the server, as [`Server::who`](super::server::Server::who) had it.
    pub who: u64,
    /// How often the processes behind the server had been replaced when it was begun.
    pub hand_overs: u64,
}

impl Link {
    /// Makes a link of a connected stream.
    pub fn new(io: Io, pool: &BufferPool, deadlines: &Rc<Deadlines>) -> Self {
        Self {
            io,
            buffer: ReadBuffer::new(pool),
            reply: ReplyHead::default(),
            out: WriteBuffer::default(),
            deadline: deadlines.register(),
            sending: deadlines.register(),
            untaken_bytes: 0,
            reused: false,
            who: 0,
            hand_overs: 0,
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
            Poll::Pending => self.poll_stalled(cx, silence_ms).map(Err),
        }
    }

    /// The server takes nothing just now; what it takes of what the kernel holds counts.
    fn poll_stalled(&mut self, cx: &mut Context<'_>, silence_ms: u64) -> Poll<Error> {
        loop {
            if self.sending.set_if_clear(silence_ms) {
                self.untaken_bytes = self.io.untaken_bytes();
            }
            ready!(self.sending.poll_expired(cx));
            if self.io.untaken_bytes() >= self.untaken_bytes {
                return Poll::Ready(silent("took", silence_ms, "upstream_write"));
            }
            self.sending.clear();
        }
    }

    /// Ready with an error once the server has said nothing for so long, whatever it took meanwhile.
    pub fn poll_silence(&mut self, cx: &mut Context<'_>, silence_ms: u64) -> Poll<Error> {
        self.deadline.set_if_clear(silence_ms);
        ready!(self.deadline.poll_expired(cx));
        Poll::Ready(silent("said", silence_ms, "upstream_read"))
    }
}

fn silent(did: &str, silence_ms: u64, key: &str) -> Error {
    let waited = config::duration(silence_ms);
    let detail = format!("the server {did} nothing for {waited} (timeouts.{key})");
    Error::new(Kind::UpstreamSlow, "upstream_silent", detail)
}

fn broken(reason: &'static str, error: &io::Error) -> Error {
    Error::io(Kind::UpstreamBroken, reason, error)
}
