//! A connection as bytes: TCP or Unix, with what was read and not yet understood.

use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};

/// Room made for each read.
const READ_BYTES: usize = 4 * 1024;
/// What an idle connection may keep of its buffer.
const KEPT_BYTES: usize = 16 * 1024;

/// A stream of bytes to a store.
pub(crate) struct Socket {
    stream: Stream,
    unread: Vec<u8>,
}

enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    pub(crate) fn tcp(stream: TcpStream) -> Self {
        Self::new(Stream::Tcp(stream))
    }

    pub(crate) fn unix(stream: UnixStream) -> Self {
        Self::new(Stream::Unix(stream))
    }

    fn new(stream: Stream) -> Self {
        Self {
            stream,
            unread: Vec::new(),
        }
    }

    pub(crate) async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.stream {
            Stream::Tcp(stream) => stream.write_all(bytes).await,
            Stream::Unix(stream) => stream.write_all(bytes).await,
        }
    }

    /// Writes what the kernel takes at once; the rest is left out.
    pub(crate) fn try_write(&self, bytes: &[u8]) {
        // Said to a server that may be gone: then nobody misses it.
        let _ = match &self.stream {
            Stream::Tcp(stream) => stream.try_write(bytes),
            Stream::Unix(stream) => stream.try_write(bytes),
        };
    }

    /// What was read and not yet consumed.
    pub(crate) fn unread(&self) -> &[u8] {
        &self.unread
    }

    /// Forgets what was understood.
    pub(crate) fn consume(&mut self, bytes: usize) {
        self.unread.drain(..bytes.min(self.unread.len()));
    }

    /// Reads some more, with room for as many bytes as are known to come.
    ///
    /// # Errors
    /// [`io::ErrorKind::UnexpectedEof`] when the server closed.
    pub(crate) async fn read_more(&mut self, awaited: usize) -> io::Result<()> {
        self.unread.reserve(awaited.max(READ_BYTES));
        let read = match &mut self.stream {
            Stream::Tcp(stream) => stream.read_buf(&mut self.unread).await?,
            Stream::Unix(stream) => stream.read_buf(&mut self.unread).await?,
        };
        match read {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }

    /// Writes what can be written at once.
    pub(crate) fn poll_write(
        &mut self,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut self.stream {
            Stream::Tcp(stream) => Pin::new(stream).poll_write(context, bytes),
            Stream::Unix(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    /// As [`Socket::read_more`], for one who waits for other things as well.
    pub(crate) fn poll_read_more(
        &mut self,
        context: &mut Context<'_>,
        awaited: usize,
    ) -> Poll<io::Result<()>> {
        pin!(self.read_more(awaited)).poll(context)
    }

    /// Whether the server has neither closed nor said anything unasked, as far as is known here.
    ///
    /// Asked of an idle connection before its next use, when nothing was sent yet.
    pub(crate) fn is_quiet(&self) -> bool {
        let mut byte = [0];
        let heard = match &self.stream {
            Stream::Tcp(stream) => stream.try_read(&mut byte),
            Stream::Unix(stream) => stream.try_read(&mut byte),
        };
        let silent = matches!(heard, Err(error) if error.kind() == io::ErrorKind::WouldBlock);
        silent && self.unread.is_empty()
    }

    /// Gives back the memory a long answer took.
    pub(crate) fn shrink(&mut self) {
        if self.unread.capacity() > KEPT_BYTES {
            self.unread = Vec::new();
        }
    }
}
