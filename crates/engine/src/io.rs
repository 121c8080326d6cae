//! A byte stream, whatever it is made of: TCP and Unix sockets, with or without TLS.
//!
//! One registration with the worker's epoll a stream, plain system calls on top. Methods take
//! `&self`, so that one task can read a request and write a reply on the same stream. Nothing
//! here buffers, and nothing above `listener/` and `upstream/` knows which kind of socket it has.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::task::{Context, Poll, ready};

use tokio::io::Interest;
use tokio::io::unix::{AsyncFd, AsyncFdReadyGuard};

use crate::buffer::ReadBuffer;
use crate::deadline::Deadline;
use crate::tls::stream::{Follows, TlsStream};

/// How long what a client still sends is read after the last reply, so that it can read that reply.
const FAREWELL_MS: u64 = 2_000;
/// How much of it is read.
const FAREWELL_BYTES: usize = 1 << 20;

/// Most bytes one `sendfile` hands to the kernel, so that one download can't hold a worker: a tenth
/// of a millisecond. In parts of 256 KiB a megabyte costs a twelfth more.
pub(crate) const SENDFILE_MAX: usize = 1024 * 1024;

/// A byte stream.
#[derive(Debug)]
pub enum Io {
    /// A connected stream socket.
    Socket(AsyncFd<OwnedFd>),
    /// One with TLS around every byte.
    Tls(Box<TlsStream>),
}

/// How much of a stream its peer has closed, as far as is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HangUp {
    /// It sends no more. Over TCP that is all one sees of a peer that has closed, too, until it is
    /// sent something.
    Sending,
    /// It reads no more, either.
    Both,
}

impl Io {
    /// Registers a connected (or connecting), non-blocking socket with this worker.
    ///
    /// # Errors
    /// When epoll takes no more descriptors.
    pub fn new(socket: OwnedFd) -> io::Result<Self> {
        register(socket, Interest::READABLE | Interest::WRITABLE).map(Self::Socket)
    }

    /// Reads what is there. `Ok(0)` is the end of the stream.
    pub fn poll_read(&self, cx: &mut Context<'_>, room: &mut [u8]) -> Poll<io::Result<usize>> {
        let socket = match self {
            Self::Socket(socket) => socket,
            Self::Tls(tls) => return tls.poll_opened(cx).map_ok(|_| tls.take(room)),
        };
        loop {
            let ready = ready!(socket.poll_read_ready(cx))?;
            match receive(socket, ready, room) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                other => return Poll::Ready(other),
            }
        }
    }

    /// Reads what is there into a buffer, which takes its block only once there is something to read.
    /// A full buffer is an error: whoever reads on must use what came before.
    pub fn poll_fill(
        &self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuffer,
    ) -> Poll<io::Result<usize>> {
        loop {
            let ready = match self {
                Self::Socket(socket) => Some((socket, ready!(socket.poll_read_ready(cx))?)),
                Self::Tls(tls) => match ready!(tls.poll_opened(cx))? {
                    0 => return Poll::Ready(Ok(0)),
                    _ => None,
                },
            };
            let room = buffer.room();
            if room.is_empty() {
                return Poll::Ready(Err(io::ErrorKind::OutOfMemory.into()));
            }
            let read = match (ready, self) {
                (Some((socket, ready)), _) => receive(socket, ready, room),
                (None, Self::Tls(tls)) => Ok(tls.take(room)),
                (None, Self::Socket(_)) => Ok(0),
            };
            buffer.filled(*read.as_ref().unwrap_or(&0));
            match read {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                other => return Poll::Ready(other),
            }
        }
    }

    /// Looks at what is there and leaves it there. Where that is no more than the `seen` bytes, waits
    /// for further ones; what is no more then is all that comes.
    pub fn poll_peek(
        &self,
        cx: &mut Context<'_>,
        room: &mut [u8],
        seen: usize,
    ) -> Poll<io::Result<usize>> {
        let socket = self.socket();
        loop {
            let mut ready = ready!(socket.poll_read_ready(cx))?;
            match os::stream::peek(socket.as_fd(), room) {
                Ok(count) if count > 0 && count <= seen && !ready.ready().is_read_closed() => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                other => return Poll::Ready(other),
            }
            ready.clear_ready();
        }
    }

    /// Writes as much as is taken: by the socket, or where it does not take all of a record, by TLS. What that keeps
    /// leaves with the next write, or with [`Self::poll_flush`].
    pub fn poll_write(
        &self,
        cx: &mut Context<'_>,
        data: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let socket = match self {
            Self::Socket(socket) => socket,
            Self::Tls(tls) => return tls.poll_write(cx, data, Follows::Nothing),
        };
        poll_out(socket, cx, |socket| match data {
            [one] => os::stream::send(socket, one),
            many => os::stream::send_vectored(socket, many),
        })
    }

    /// Ready when the socket has taken all that was written.
    pub fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Socket(_) => Poll::Ready(Ok(())),
            Self::Tls(tls) => tls.poll_flush(cx),
        }
    }

    /// As [`Self::poll_write`], for a head whose body follows at once by other means.
    pub fn poll_write_more(&self, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        match self {
            Self::Socket(socket) => poll_out(socket, cx, |it| os::stream::send_more(it, data)),
            Self::Tls(tls) => tls.poll_write(cx, &[IoSlice::new(data)], Follows::More),
        }
    }

    /// As [`Self::poll_write`], for the last bytes of the connection.
    pub fn poll_write_last(&self, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        match self {
            Self::Socket(socket) => poll_out(socket, cx, |it| os::stream::send(it, data)),
            Self::Tls(tls) => tls.poll_write_last(cx, data),
        }
    }

    /// Copies from `file` at `offset`, at most [`SENDFILE_MAX`] bytes; `Ok(0)` means the file ended.
    pub fn poll_sendfile(
        &self,
        cx: &mut Context<'_>,
        file: BorrowedFd<'_>,
        offset: u64,
        count: u64,
    ) -> Poll<io::Result<usize>> {
        let count = usize::try_from(count)
            .unwrap_or(SENDFILE_MAX)
            .min(SENDFILE_MAX);
        let socket = match self {
            Self::Socket(socket) => socket,
            Self::Tls(tls) => return tls.poll_send_file(cx, file, offset, count),
        };
        poll_out(socket, cx, |socket| {
            let mut offset = offset;
            os::net::sendfile(socket, file, &mut offset, count)
        })
    }

    /// Ready when the peer has closed its side. Bytes it sent before that stay unread.
    pub fn poll_hang_up(&self, cx: &mut Context<'_>) -> Poll<HangUp> {
        let socket = self.socket();
        match socket.poll_read_ready(cx) {
            Poll::Ready(Ok(ready)) if !ready.ready().is_read_closed() => Poll::Pending,
            Poll::Ready(_) => Poll::Ready(self.hang_up(cx)),
            Poll::Pending => Poll::Pending,
        }
    }

    /// How much a peer has closed that sends no more. The task is woken when that turns out to be
    /// all.
    pub fn hang_up(&self, cx: &mut Context<'_>) -> HangUp {
        let socket = self.socket();
        while let Poll::Ready(ready) = socket.poll_write_ready(cx) {
            match ready {
                // Writers try first and ask then: what is taken from them here they do not miss.
                Ok(mut ready) if !ready.ready().is_write_closed() => ready.clear_ready(),
                _ => return HangUp::Both,
            }
        }
        HangUp::Sending
    }

    /// Waits until bytes (or the end) can be read, or the deadline passes.
    ///
    /// # Errors
    /// `TimedOut`, or what the socket reports.
    pub async fn readable(&self, deadline: &Deadline) -> io::Result<()> {
        poll_fn(|cx| {
            let readable = match self {
                Self::Socket(socket) => socket.poll_read_ready(cx).map_ok(drop),
                Self::Tls(tls) => tls.poll_opened(cx).map_ok(drop),
            };
            if let Poll::Ready(ready) = readable {
                return Poll::Ready(ready);
            }
            expired(deadline, cx)
        })
        .await
    }

    /// Reads what is there, waiting until the deadline for something to come.
    ///
    /// # Errors
    /// `TimedOut`, or what the socket reports.
    pub async fn read(&self, room: &mut [u8], deadline: &Deadline) -> io::Result<usize> {
        poll_fn(|cx| match self.poll_read(cx, room) {
            Poll::Ready(read) => Poll::Ready(read),
            Poll::Pending => expired(deadline, cx).map_ok(|()| 0),
        })
        .await
    }

    /// Waits until the socket can be written: for a connecting one, until that has ended.
    ///
    /// # Errors
    /// `TimedOut`, or why the connection failed.
    pub async fn connected(&self, deadline: &Deadline) -> io::Result<()> {
        let socket = self.socket();
        poll_fn(|cx| {
            if let Poll::Ready(ready) = socket.poll_write_ready(cx) {
                return Poll::Ready(ready.map(drop));
            }
            expired(deadline, cx)
        })
        .await?;
        os::stream::take_error(socket.as_fd())
    }

    /// Bytes the kernel was given for the peer and still holds; 0 where it does not tell.
    ///
    /// It asks for more only once a good part of its buffer is free. A peer that is slow and
    /// steady may take longer for that than for anything one waits for: this shows that it moves.
    pub fn untaken_bytes(&self) -> u64 {
        let unsent = match self {
            Self::Socket(_) => 0,
            Self::Tls(tls) => tls.unsent() as u64,
        };
        os::stream::untaken_bytes(self.as_fd()).unwrap_or(0) + unsent
    }

    /// Whether the peer has closed or sent something nobody asked for: such a pooled connection is no use.
    pub fn is_stale(&self, cx: &mut Context<'_>) -> bool {
        let socket = match self {
            Self::Socket(socket) => socket,
            // Tickets and new keys are no answer to anything.
            Self::Tls(tls) => return tls.poll_opened(cx).is_ready(),
        };
        let mut byte = [0];
        match socket.poll_read_ready(cx) {
            Poll::Pending => false,
            Poll::Ready(Err(_)) => true,
            Poll::Ready(Ok(mut ready)) => match os::stream::receive(socket.as_fd(), &mut byte) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    ready.clear_ready();
                    false
                }
                _ => true,
            },
        }
    }

    /// Ends the sending side, so that the peer reads what was sent and then the end.
    pub fn shutdown_write(&self) {
        if let Self::Tls(tls) = self {
            tls.close();
        }
        // The peer may be gone already; there is nothing left to tell it then.
        let _ = os::stream::shutdown_write(self.as_fd());
    }

    /// Says that nothing more will be sent, and reads for a while what the peer still sends:
    /// closing with unread bytes would reset the connection and could destroy the last reply.
    pub async fn farewell(&self, deadline: &Deadline) {
        self.shutdown_write();
        deadline.set(FAREWELL_MS);
        let mut block = [0; 4096];
        let mut left = FAREWELL_BYTES;
        while left > 0
            && let Ok(count @ 1..) = self.read(&mut block, deadline).await
        {
            left = left.saturating_sub(count);
        }
    }

    /// Has the peer see, when the connection is closed, that it did not get everything: a plain end would be the end of
    /// what it reads.
    pub fn end_in_reset(&self) {
        if let Self::Tls(tls) = self {
            tls.end_unsaid();
        }
        // What is closed already cannot be told anything.
        let _ = os::stream::reset_on_close(self.as_fd());
    }

    /// The descriptor, for options and peer names.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket().as_fd()
    }

    /// The socket beneath.
    fn socket(&self) -> &AsyncFd<OwnedFd> {
        match self {
            Self::Socket(socket) => socket,
            Self::Tls(tls) => tls.socket(),
        }
    }
}

pub(crate) fn poll_out(
    socket: &AsyncFd<OwnedFd>,
    cx: &mut Context<'_>,
    mut call: impl FnMut(BorrowedFd<'_>) -> io::Result<usize>,
) -> Poll<io::Result<usize>> {
    loop {
        // Most sockets take what they are given: asking whether this one does costs more than trying.
        match call(socket.as_fd()) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            other => return Poll::Ready(other),
        }
        ready!(socket.poll_write_ready(cx))?.clear_ready();
        // Registers for the next change; one that came meanwhile is ready at once.
        drop(ready!(socket.poll_write_ready(cx))?);
    }
}

/// Reads once. A short read emptied the socket: the next one waits for epoll instead of asking in vain.
pub(crate) fn receive(
    socket: &AsyncFd<OwnedFd>,
    mut ready: AsyncFdReadyGuard<'_, OwnedFd>,
    room: &mut [u8],
) -> io::Result<usize> {
    let read = os::stream::receive(socket.as_fd(), room);
    let emptied = match &read {
        Ok(count) => *count != 0 && *count < room.len(),
        Err(error) => error.kind() == io::ErrorKind::WouldBlock,
    };
    if emptied {
        ready.clear_ready();
    }
    read
}

/// Registers a descriptor with this worker's epoll.
///
/// # Errors
/// When epoll takes no more descriptors.
#[allow(
    deprecated,
    reason = "unsound only for types whose descriptor may change; an OwnedFd's can't"
)]
pub(crate) fn register(descriptor: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(descriptor, interest)
}

fn expired(deadline: &Deadline, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
    deadline
        .poll_expired(cx)
        .map(|()| Err(io::Error::from(io::ErrorKind::TimedOut)))
}
