//! The writing half: heads, bodies and their framing onto one connection.
//!
//! Bytes wait in `out` until something is flushed, so a short reply is one system call. Long
//! bodies go past it: the kernel gets `out` and the caller's bytes together.

use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use wire::{
    CHUNK_END, FieldId, Fields, LAST_CHUNK, Method, Version, encode_chunk_head, encode_field,
};

use super::super::pace::{Patience, Terms};
use super::Attached;
use crate::clock::Clock;
use crate::deadline::Deadlines;
use crate::error::{Error, Kind, Result};
use crate::exchange::outgoing::{BodySize, Outgoing};
use crate::io::Io;
use crate::status;
use crate::write_buffer::WriteBuffer;

/// So much may wait of a body that is made piece by piece.
const BACKED_UP_BYTES: usize = 16 * 1024;

/// Writes replies.
#[derive(Debug)]
pub struct H1Reply {
    io: Attached,
    clock: Rc<Clock>,
    patience: Patience,
    out: WriteBuffer,
    coding: Coding,
    facts: Facts,
    terms: Terms,
    body_bytes: u64,
    /// Of the whole reply, taken by the kernel.
    sent_bytes: u64,
    probe: Probe,
}

/// A byte sent ahead of what it belongs to, to see whether the client still reads: one that does
/// sees nothing of it, one that has closed answers with a reset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Probe {
    /// None was.
    Unsent,
    /// The first byte of the next head.
    OfHead,
    /// It is no news any more.
    Over,
}

/// A body shorter than this leaves in one segment with its head, or in few. The head of a longer one
/// leaves at once: its reader wakes meanwhile, which costs the server a quarter less than waking it
/// for all of it.
const HEAD_WAITS_BYTES: u64 = 64 * 1024;
/// What every head begins with.
const OF_HEAD: &[u8] = b"H";
/// What the size of a chunk, the last one's too, may begin with.
const OF_CHUNK: &[u8] = b"0";

/// How the body is framed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Coding {
    /// No head was sent yet.
    NoHead,
    /// No body bytes go out (HEAD, 204, 304).
    Nothing,
    /// So many bytes are still owed.
    Length(u64),
    /// Chunks; so many bytes are still owed of the open one.
    Chunked(usize),
    /// Until the connection closes.
    UntilClose,
    /// The reply ended.
    Ended,
}

/// What the reply must know of its request.
#[derive(Debug, Clone, Copy)]
struct Facts {
    method: Method,
    version: Version,
    keep: bool,
    status: u16,
}

impl H1Reply {
    /// Makes the writing half of a connection.
    pub fn new(io: Rc<Io>, timer: &Rc<Deadlines>, clock: &Rc<Clock>) -> Self {
        Self {
            io: Attached(Some(io)),
            clock: Rc::clone(clock),
            patience: Patience::new(timer),
            out: WriteBuffer::default(),
            coding: Coding::NoHead,
            facts: Facts {
                method: Method::Get,
                version: Version::Http11,
                keep: false,
                status: 0,
            },
            terms: Terms::default(),
            body_bytes: 0,
            sent_bytes: 0,
            probe: Probe::Unsent,
        }
    }

    /// Has it go to this connection from here on.
    pub(crate) fn attach(&mut self, io: &Rc<Io>) {
        self.io = Attached(Some(Rc::clone(io)));
    }

    /// Lets go of the connection, which has taken everything.
    pub(in crate::exchange) fn detach(&mut self) {
        self.io = Attached(None);
        self.out.clear();
        self.patience.rest();
    }

    /// Gets ready for the reply to a request. `keep` says whether the connection may live on.
    pub fn begin(&mut self, method: Method, version: Version, keep: bool, terms: Terms) {
        self.facts = Facts {
            method,
            version,
            keep,
            status: 0,
        };
        self.coding = Coding::NoHead;
        self.terms = terms;
        self.patience.begin();
        self.body_bytes = 0;
        self.sent_bytes = 0;
        self.probe = Probe::Unsent;
    }

    /// Sets other terms, once it is known who answers. Too late for the connection once the head has left.
    pub(crate) fn set_terms(&mut self, terms: Terms) {
        self.terms = terms;
    }

    /// How long the next request may be awaited.
    pub fn idle_ms(&self) -> u64 {
        self.terms.idle_ms
    }

    /// Whether the connection may carry another request.
    pub fn keeps_connection(&self) -> bool {
        self.facts.keep && self.coding == Coding::Ended
    }

    /// Says that the connection ends after this reply. Too late once the head has left, then it just closes.
    pub fn close_after(&mut self) {
        self.facts.keep = false;
    }

    pub(crate) fn start(&mut self, outgoing: &Outgoing, size: BodySize, close: bool) {
        debug_assert_eq!(self.coding, Coding::NoHead);
        self.facts.keep &= !close && !self.terms.is_last;
        self.facts.status = outgoing.status;
        let out = self.out.bytes();
        let head = out.len();
        status::encode_line(outgoing.status, out);
        self.probe.cut(head, out);
        outgoing.fields.encode(out, |_| true);
        if !outgoing.fields.contains(FieldId::Date) {
            out.extend_from_slice(&self.clock.date_line());
        }
        self.frame(outgoing.status, size);
        self.connection(outgoing);
        self.out.bytes().extend_from_slice(b"\r\n");
    }

    /// Chooses the framing of the body (RFC 9112 §6).
    fn frame(&mut self, status: u16, size: BodySize) {
        let bodiless = status < 200 || status == 204 || status == 304;
        self.coding = match size {
            _ if bodiless => Coding::Nothing,
            BodySize::None => Coding::Nothing,
            BodySize::Length(length) => {
                encode_field(
                    b"Content-Length",
                    itoa::Buffer::new().format(length).as_bytes(),
                    self.out.bytes(),
                );
                Coding::Length(length)
            }
            BodySize::Unknown if self.facts.version != Version::Http10 => {
                self.out
                    .bytes()
                    .extend_from_slice(b"Transfer-Encoding: chunked\r\n");
                Coding::Chunked(0)
            }
            BodySize::Unknown => {
                self.facts.keep = false;
                Coding::UntilClose
            }
        };
        if self.facts.method == Method::Head {
            self.coding = Coding::Nothing;
        }
    }

    fn connection(&mut self, outgoing: &Outgoing) {
        let line: &[u8] = match (outgoing.status, self.facts.version, self.facts.keep) {
            (101, _, _) => b"Connection: upgrade\r\n",
            (_, _, false) => b"Connection: close\r\n",
            (_, Version::Http10, true) => b"Connection: keep-alive\r\n",
            (_, _, true) => b"",
        };
        self.out.bytes().extend_from_slice(line);
    }

    pub(crate) fn push_interim(&mut self, status: u16, fields: &Fields) {
        if self.coding == Coding::NoHead {
            let out = self.out.bytes();
            let head = out.len();
            status::encode_line(status, out);
            fields.encode(out, |_| true);
            out.extend_from_slice(b"\r\n");
            self.probe.cut(head, out);
        }
    }

    pub(crate) fn push(&mut self, data: &[u8]) {
        match &mut self.coding {
            Coding::Length(owed) => {
                let count = data.len().min(usize::try_from(*owed).unwrap_or(usize::MAX));
                *owed -= count as u64;
                self.body_bytes += count as u64;
                self.out
                    .bytes()
                    .extend_from_slice(data.get(..count).unwrap_or_default());
            }
            Coding::Chunked(owed) => {
                // What an open chunk is owed comes first: a write may have sent but part of it.
                let (open, fresh) = data.split_at(data.len().min(*owed));
                *owed -= open.len();
                self.body_bytes += data.len() as u64;
                let out = self.out.bytes();
                out.extend_from_slice(open);
                if !open.is_empty() && *owed == 0 {
                    out.extend_from_slice(CHUNK_END);
                }
                if !fresh.is_empty() {
                    encode_chunk_head(fresh.len(), out);
                    out.extend_from_slice(fresh);
                    out.extend_from_slice(CHUNK_END);
                }
            }
            Coding::UntilClose => {
                self.out.bytes().extend_from_slice(data);
                self.body_bytes += data.len() as u64;
            }
            _ => {}
        }
    }

    pub(crate) fn poll_write(&mut self, cx: &mut Context<'_>, data: &[u8]) -> Poll<Result<usize>> {
        let count = match &mut self.coding {
            Coding::Length(owed) => data.len().min(usize::try_from(*owed).unwrap_or(usize::MAX)),
            Coding::Chunked(owed) => {
                if *owed == 0 && !data.is_empty() {
                    encode_chunk_head(data.len(), self.out.bytes());
                    *owed = data.len();
                }
                data.len().min(*owed)
            }
            Coding::UntilClose => data.len(),
            // Bytes of a body nobody wants are taken and forgotten.
            Coding::NoHead | Coding::Nothing | Coding::Ended => return Poll::Ready(Ok(data.len())),
        };
        let Some(data) = data.get(..count).filter(|data| !data.is_empty()) else {
            return Poll::Ready(Err(Error::new(
                Kind::Internal,
                "reply_too_long",
                String::new(),
            )));
        };
        let written = ready!(self.poll_send(cx, data))?;
        self.note_body(written);
        Poll::Ready(Ok(written))
    }

    /// Whether so much waits that it is to be sent before more is added.
    pub(crate) fn is_backed_up(&self) -> bool {
        self.out.len() >= BACKED_UP_BYTES
    }

    pub(crate) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        if self.coding == Coding::Ended && !self.facts.keep && !self.out.is_empty() {
            let waiting = self.out.len();
            let last = self.out.poll_send_last(&self.io, cx).map_ok(|_| 0);
            ready!(self.note_written(cx, waiting, last))?;
        }
        self.poll_send(cx, &[]).map_ok(drop)
    }

    /// Sends a byte ahead where that can be done, once for each reply. Ready when the client has gone.
    pub(crate) fn poll_probe(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let (byte, probe) = match self.coding {
            _ if self.probe != Probe::Unsent || !self.out.is_empty() => return Poll::Pending,
            Coding::NoHead => (OF_HEAD, Probe::OfHead),
            Coding::Chunked(0) => (OF_CHUNK, Probe::Over),
            _ => return Poll::Pending,
        };
        if ready!(self.io.poll_write(cx, &[IoSlice::new(byte)])).is_err() {
            return Poll::Ready(());
        }
        self.probe = probe;
        self.sent_bytes += 1;
        Poll::Pending
    }

    pub(crate) fn poll_sendfile(
        &mut self,
        cx: &mut Context<'_>,
        file: BorrowedFd<'_>,
        offset: u64,
        count: u64,
    ) -> Poll<Result<usize>> {
        if self.coding == Coding::Nothing {
            return Poll::Ready(Ok(usize::try_from(count).unwrap_or(usize::MAX)));
        }
        let Coding::Length(owed) = self.coding else {
            let reason = "sendfile_without_length";
            return Poll::Ready(Err(Error::new(Kind::Internal, reason, String::new())));
        };
        // Nothing sent is no sign of life: the client's time goes on.
        if !self.out.is_empty() {
            let waiting = self.out.len();
            let head = match owed {
                ..HEAD_WAITS_BYTES => self.out.poll_send_more(&self.io, cx).map_ok(|_| 0),
                _ => self.out.poll_send(&self.io, cx, &[]),
            };
            ready!(self.note_written(cx, waiting, head))?;
        }
        let written = self.io.poll_sendfile(cx, file, offset, count.min(owed));
        let written = ready!(self.note_written(cx, 0, written))?;
        self.note_body(written);
        Poll::Ready(Ok(written))
    }

    fn poll_send(&mut self, cx: &mut Context<'_>, data: &[u8]) -> Poll<Result<usize>> {
        let waiting = self.out.len();
        let written = self.out.poll_send(&self.io, cx, data);
        self.note_written(cx, waiting, written)
    }

    /// Counts what the client took, of the bytes that were `waiting` before and of others; while
    /// it takes nothing, its time runs.
    fn note_written(
        &mut self,
        cx: &mut Context<'_>,
        waiting: usize,
        written: Poll<io::Result<usize>>,
    ) -> Poll<Result<usize>> {
        let of_waiting = waiting.saturating_sub(self.out.len());
        self.sent_bytes += of_waiting as u64;
        let written = match written {
            Poll::Ready(written) => written,
            Poll::Pending => {
                if of_waiting > 0 {
                    self.note_taken(of_waiting);
                }
                let (io, pace) = (&self.io, self.terms.pace);
                let over = self.patience.poll_over(cx, pace, || io.untaken_bytes());
                Err(ready!(over))
            }
        };
        let written = written.map_err(|error| Error::client_write(&error))?;
        self.sent_bytes += written as u64;
        self.note_taken(of_waiting + written);
        Poll::Ready(Ok(written))
    }

    fn note_taken(&mut self, count: usize) {
        self.patience.note_moved(count, self.terms.pace);
    }

    fn note_body(&mut self, count: usize) {
        self.body_bytes += count as u64;
        match &mut self.coding {
            Coding::Length(owed) => *owed -= count as u64,
            Coding::Chunked(owed) => {
                *owed -= count;
                if *owed == 0 {
                    self.out.bytes().extend_from_slice(CHUNK_END);
                }
            }
            _ => {}
        }
    }

    pub(crate) fn finish(&mut self) {
        match self.coding {
            Coding::Chunked(0) => self.out.bytes().extend_from_slice(LAST_CHUNK),
            // Less came than was promised: only a closed connection can tell the client.
            Coding::Chunked(_) | Coding::NoHead | Coding::Length(1..) => return self.abort(),
            Coding::Length(0) | Coding::Nothing | Coding::UntilClose | Coding::Ended => {}
        }
        self.coding = Coding::Ended;
    }

    pub(crate) fn abort(&mut self) {
        self.facts.keep = false;
        if self.coding == Coding::UntilClose {
            self.io.end_in_reset();
        }
        self.coding = Coding::Ended;
    }

    pub(crate) fn has_started(&self) -> bool {
        self.coding != Coding::NoHead
    }

    pub(crate) fn is_head_only(&self) -> bool {
        self.facts.method == Method::Head
    }

    pub(crate) fn body_bytes(&self) -> u64 {
        // What waits ends with the latest of the body; its framing among it is counted as lost.
        self.body_bytes.saturating_sub(self.out.len() as u64)
    }

    pub(crate) fn sent_bytes(&self) -> u64 {
        self.sent_bytes
    }

    pub(crate) fn status(&self) -> u16 {
        self.facts.status
    }
}

impl Probe {
    /// Takes the byte that was sent ahead off the head that begins here.
    fn cut(&mut self, head: usize, out: &mut Vec<u8>) {
        if *self == Self::OfHead {
            *self = Self::Over;
            out.drain(head..head + OF_HEAD.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;
    use crate::fixture::block_on;

    /// A reply, and the other end of its connection.
    fn reply() -> (H1Reply, std::os::unix::net::UnixStream) {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().expect("a pair");
        ours.set_nonblocking(true).expect("a socket");
        let io = Rc::new(Io::new(ours.into()).expect("registered"));
        let (timer, clock) = (Deadlines::new(), Rc::new(Clock::new()));
        (H1Reply::new(io, &timer, &clock), theirs)
    }

    #[test]
    fn a_byte_sent_ahead_is_the_first_of_whatever_head_comes_next() {
        block_on(async {
            let (mut reply, mut theirs) = reply();
            let mut said = [0; 26];
            for _ in 0..2 {
                // Once is enough.
                let gone = poll_fn(|cx| Poll::Ready(reply.poll_probe(cx))).await;
                assert!(gone.is_pending());
            }
            let interim = b"HTTP/1.1 100 Continue\r\n\r\n";
            reply.push_interim(100, &Fields::default());
            let flushed = poll_fn(|cx| reply.poll_flush(cx)).await;
            flushed.expect("it is taken");
            let count = std::io::Read::read(&mut theirs, &mut said).expect("bytes");
            assert_eq!(&said[..count], interim);
            let outgoing = Outgoing {
                status: 200,
                ..Outgoing::default()
            };
            reply.start(&outgoing, BodySize::Length(0), false);
            assert!(reply.out.bytes().starts_with(b"HTTP/1.1 200 OK\r\n"));
        });
    }

    #[test]
    fn the_end_of_a_body_joins_the_chunk_that_is_still_open() {
        block_on(async {
            let (mut reply, _theirs) = reply();
            for (owed, pushed, expected) in [
                (0, &b"abc"[..], &b"3\r\nabc\r\n"[..]),
                (3, b"abc", b"abc\r\n"),
                (5, b"abc", b"abc"),
                (1, b"abc", b"a\r\n2\r\nbc\r\n"),
            ] {
                reply.coding = Coding::Chunked(owed);
                reply.out.clear();
                reply.push(pushed);
                assert_eq!(reply.out.bytes(), expected, "{owed} owed");
            }
        });
    }
}
