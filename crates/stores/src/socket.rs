//! A connection as bytes: TCP, with TLS or without, or Unix, with what was read and not yet understood.

use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::client::TlsStream;

use crate::secure::ServerTls;

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
    Tls(Box<TlsStream<TcpStream>>),
    Unix(UnixStream),
    /// Ended before TLS was agreed upon.
    Broken,
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
            Stream::Tls(stream) => {
                stream.write_all(bytes).await?;
                stream.flush().await
            }
            Stream::Unix(stream) => stream.write_all(bytes).await,
            Stream::Broken => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// Agrees on keys with the server, whose certificate is to name this host.
    ///
    /// # Errors
    /// It is not the one it should be, or not TLS; the connection is of no use any more.
    pub(crate) async fn secure(&mut self, tls: &ServerTls, host: &str) -> io::Result<()> {
        let Stream::Tcp(stream) = std::mem::replace(&mut self.stream, Stream::Broken) else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        // What came before is not secret, and nobody may put it among what is.
        if !self.unread.is_empty() {
            return Err(io::ErrorKind::InvalidData.into());
        }
        self.stream = Stream::Tls(tls.begin(stream, host).await?);
        Ok(())
    }

    /// Writes what the kernel takes at once; the rest is left out.
    pub(crate) fn try_write(&mut self, bytes: &[u8]) {
        // Said to a server that may be gone: then nobody misses it.
        let _ = self.poll_write(&mut Context::from_waker(Waker::noop()), bytes);
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
            Stream::Tls(stream) => {
                // What did not fit before waits for room no longer than an answer does.
                stream.flush().await?;
                stream.read_buf(&mut self.unread).await?
            }
            Stream::Unix(stream) => stream.read_buf(&mut self.unread).await?,
            Stream::Broken => 0,
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
            Stream::Tls(stream) => {
                let written = Pin::new(stream.as_mut()).poll_write(context, bytes);
                // What is left is written before the next read.
                let _ = Pin::new(stream.as_mut()).poll_flush(context);
                written
            }
            Stream::Unix(stream) => Pin::new(stream).poll_write(context, bytes),
            Stream::Broken => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
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
    pub(crate) fn is_quiet(&mut self) -> bool {
        let mut byte = [0];
        let mut heard = ReadBuf::new(&mut byte);
        let context = &mut Context::from_waker(Waker::noop());
        let polled = match &mut self.stream {
            Stream::Tcp(stream) => Pin::new(stream).poll_read(context, &mut heard),
            Stream::Tls(stream) => Pin::new(stream.as_mut()).poll_read(context, &mut heard),
            Stream::Unix(stream) => Pin::new(stream).poll_read(context, &mut heard),
            Stream::Broken => return false,
        };
        polled.is_pending() && self.unread.is_empty()
    }

    /// Gives back the memory a long answer took.
    pub(crate) fn shrink(&mut self) {
        if self.unread.capacity() > KEPT_BYTES {
            self.unread = Vec::new();
        }
    }
}
