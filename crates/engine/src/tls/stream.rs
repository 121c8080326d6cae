//! A socket with TLS around every byte: what [`crate::io::Io`] does on a plain one, sealed and opened.
//!
//! The idea: what is sealed is taken. The part of it that the socket does not take at once is kept, and sent before
//! anything else is; whoever has said his last flushes. So a write that has to wait has taken nothing, and may be made
//! again with other bytes. Blocks of the worker are borrowed for the length of a call; a connection at rest holds none.

use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::task::{Context, Poll, ready};

use tokio::io::unix::AsyncFd;

use super::session::{SEAL_MAX, Session, sealed_bytes};
use crate::buffer::{BLOCK_BYTES, BufferPool};
use crate::io::receive;

/// Most plaintext that is gathered, or read from a file, at once: the rest of a block is room to seal it into.
const GATHER_MAX: usize = 48 * 1024;
/// Most ciphertext that is received at once.
const RECEIVE_MAX: usize = 64 * 1024;
/// Most bytes that the other end may have us send by itself, unread.
const UNASKED_MAX: usize = 64 * 1024;
/// How often is received in a row, where nothing comes of it that anybody could read.
const VAIN_MAX: usize = 4;

const _: () = assert!(sealed_bytes(SEAL_MAX) <= BLOCK_BYTES);
const _: () = assert!(GATHER_MAX + sealed_bytes(GATHER_MAX) <= BLOCK_BYTES);

/// A socket with TLS.
#[derive(Debug)]
pub struct TlsStream {
    socket: AsyncFd<OwnedFd>,
    inner: RefCell<Inner>,
    pool: BufferPool,
}

#[derive(Debug)]
struct Inner {
    session: Session,
    /// Sealed and not yet taken by the socket.
    unsent: Vec<u8>,
    is_closed: bool,
}

/// Whether more follows at once.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Follows {
    /// It does: what is sent may wait for it.
    More,
    /// It does not.
    Nothing,
}

impl TlsStream {
    /// Puts a session around a socket; `unsent` is what it still has to say of its handshake.
    pub(crate) fn new(
        socket: AsyncFd<OwnedFd>,
        session: Session,
        unsent: Vec<u8>,
        pool: &BufferPool,
    ) -> Self {
        let inner = Inner {
            session,
            unsent,
            is_closed: false,
        };
        Self {
            socket,
            inner: RefCell::new(inner),
            pool: pool.clone(),
        }
    }

    /// The socket.
    pub(crate) fn socket(&self) -> &AsyncFd<OwnedFd> {
        &self.socket
    }

    /// How many bytes can be taken; 0 is the end.
    pub(crate) fn poll_opened(&self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let inner = &mut *self.inner.borrow_mut();
        for _ in 0..VAIN_MAX {
            let opened = inner.session.opened().len();
            if opened > 0 || inner.session.is_told_of_end() {
                return Poll::Ready(Ok(opened));
            }
            if inner.session.is_broken() {
                return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
            }
            // What is kept may be what the other end waits for.
            if let Poll::Ready(Err(error)) = self.poll_sent(inner, cx) {
                return Poll::Ready(Err(error));
            }
            let ready = ready!(self.socket.poll_read_ready(cx))?;
            let mut block = self.pool.acquire();
            let room = block.get_mut(..RECEIVE_MAX).unwrap_or_default();
            let received = receive(&self.socket, ready, room);
            let opened = match received {
                Ok(0) => Some(inner.session.end_without_word().map(|()| 0)),
                Ok(count) => {
                    let arrived = block.get(..count).unwrap_or_default();
                    let opened = inner.session.receive(arrived, &mut inner.unsent);
                    self.send_unasked(inner);
                    opened.err().map(|failure| Err(failure.into()))
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
                Err(error) => Some(Err(error)),
            };
            self.pool.give(block);
            if let Some(end) = opened {
                return Poll::Ready(end);
            }
        }
        // Empty records and new keys may come without end: others have their turn.
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Takes bytes that were opened.
    pub(crate) fn take(&self, room: &mut [u8]) -> usize {
        let session = &mut self.inner.borrow_mut().session;
        let opened = session.opened();
        let count = opened.len().min(room.len());
        if let (Some(to), Some(from)) = (room.get_mut(..count), opened.get(..count)) {
            to.copy_from_slice(from);
        }
        session.take(count);
        count
    }

    /// Tries to send what the session says by itself. Who lets too much of it lie has had enough.
    fn send_unasked(&self, inner: &mut Inner) {
        // What is wrong with the socket is found by whoever uses it next.
        let _ = self.try_flush(inner);
        if inner.unsent.len() > UNASKED_MAX + BLOCK_BYTES {
            inner.unsent.clear();
            inner.session.break_off();
        }
    }

    /// Sends what is sealed, until all is taken (`true`) or the socket takes no more.
    fn try_flush(&self, inner: &mut Inner) -> io::Result<bool> {
        while !inner.unsent.is_empty() {
            match os::stream::send(self.socket.as_fd(), &inner.unsent) {
                Ok(count) if count == inner.unsent.len() => inner.unsent = Vec::new(),
                Ok(count) => drop(inner.unsent.drain(..count)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Sends what is kept; ready when the socket has taken all of it.
    pub(crate) fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_sent(&mut self.inner.borrow_mut(), cx)
    }

    fn poll_sent(&self, inner: &mut Inner, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.try_flush(inner)? {
            ready!(self.socket.poll_write_ready(cx))?.clear_ready();
            // Registers for the next change; one that came meanwhile is ready at once.
            drop(ready!(self.socket.poll_write_ready(cx))?);
        }
        Poll::Ready(Ok(()))
    }

    /// Seals as much as fits into a block, and sends of it what the socket takes.
    pub(crate) fn poll_write(
        &self,
        cx: &mut Context<'_>,
        data: &[IoSlice<'_>],
        follows: Follows,
    ) -> Poll<io::Result<usize>> {
        self.poll_out(cx, follows, |session, first, block| match data {
            [one] => {
                let plain = one.get(..SEAL_MAX).unwrap_or(one);
                let sealed = session.seal(plain, first, block)?;
                Ok((plain.len(), 0, sealed))
            }
            many => {
                let (plain, room) = block.split_at_mut(GATHER_MAX);
                let count = gather(many, plain);
                let plain = plain.get(..count).unwrap_or_default();
                Ok((count, GATHER_MAX, session.seal(plain, first, room)?))
            }
        })
    }

    /// Seals and sends a part of a file whose pages are in memory; 0 where it has ended.
    pub(crate) fn poll_send_file(
        &self,
        cx: &mut Context<'_>,
        file: BorrowedFd<'_>,
        offset: u64,
        count: usize,
    ) -> Poll<io::Result<usize>> {
        self.poll_out(cx, Follows::Nothing, |session, first, block| {
            let (plain, room) = block.split_at_mut(GATHER_MAX);
            let plain = plain.get_mut(..count.min(GATHER_MAX)).unwrap_or_default();
            let read = os::file::read_at(file, plain, offset)?;
            if read == 0 {
                return Ok((0, GATHER_MAX, 0));
            }
            let plain = plain.get(..read).unwrap_or_default();
            Ok((read, GATHER_MAX, session.seal(plain, first, room)?))
        })
    }

    /// `seal` says how much plaintext it took, and where in the block what it was sealed into begins, and its length.
    fn poll_out(
        &self,
        cx: &mut Context<'_>,
        follows: Follows,
        seal: impl FnOnce(&mut Session, &mut Vec<u8>, &mut [u8]) -> io::Result<(usize, usize, usize)>,
    ) -> Poll<io::Result<usize>> {
        let inner = &mut *self.inner.borrow_mut();
        ready!(self.poll_sent(inner, cx))?;
        let mut block = self.pool.acquire();
        let sealed = seal(&mut inner.session, &mut inner.unsent, &mut block);
        let taken = sealed.and_then(|(plain, at, count)| {
            let sealed = block.get(at..at + count).unwrap_or_default();
            let sent = match self.try_flush(inner)? {
                true if !sealed.is_empty() => self.try_send(sealed, follows)?,
                _ => 0,
            };
            let kept = sealed.get(sent..).unwrap_or_default();
            inner.unsent.extend_from_slice(kept);
            Ok(plain)
        });
        self.pool.give(block);
        Poll::Ready(taken)
    }

    /// Sends as much as the socket takes.
    fn try_send(&self, sealed: &[u8], follows: Follows) -> io::Result<usize> {
        let socket = self.socket.as_fd();
        let sent = match follows {
            Follows::More => os::stream::send_more(socket, sealed),
            Follows::Nothing => os::stream::send(socket, sealed),
        };
        match sent {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
            sent => sent,
        }
    }

    /// Sealed bytes that the socket has not taken.
    pub(crate) fn unsent(&self) -> usize {
        self.inner.borrow().unsent.len()
    }

    /// Has the connection end without a word, so that its end is not taken for that of what was sent.
    pub(crate) fn end_unsaid(&self) {
        self.inner.borrow_mut().is_closed = true;
    }

    /// Says that nothing more will be sent, if the socket takes it at once.
    pub(crate) fn close(&self) {
        let inner = &mut *self.inner.borrow_mut();
        if !std::mem::replace(&mut inner.is_closed, true) {
            inner.session.close(&mut inner.unsent);
            // The peer may be gone already; there is nothing left to tell it then.
            let _ = self.try_flush(inner);
        }
    }
}

impl Drop for TlsStream {
    fn drop(&mut self) {
        self.close();
    }
}

/// Copies as much as there is room for; says how much.
fn gather(data: &[IoSlice<'_>], room: &mut [u8]) -> usize {
    let mut end = 0;
    for part in data {
        let left = room.get_mut(end..).unwrap_or_default();
        let count = part.len().min(left.len());
        if let (Some(to), Some(from)) = (left.get_mut(..count), part.get(..count)) {
            to.copy_from_slice(from);
        }
        end += count;
    }
    end
}
