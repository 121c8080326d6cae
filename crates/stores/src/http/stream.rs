//! A connection as hyper wants to read and write it, plain or in TLS, and a body that is there as a
//! whole.

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::body::{Body, Bytes, Frame, SizeHint};
use hyper::rt::{Read, ReadBufCursor, Write};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

/// Read at once; hyper's own buffer is not initialised, and filling it directly would be `unsafe`.
const CHUNK_BYTES: usize = 8 * 1024;

/// A connection under hyper.
pub(super) enum HttpStream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// What both kinds of it can do.
trait Duplex: AsyncRead + AsyncWrite + Unpin {}

impl Duplex for TcpStream {}
impl Duplex for TlsStream<TcpStream> {}

impl HttpStream {
    fn duplex(&mut self) -> Pin<&mut dyn Duplex> {
        match self {
            Self::Plain(stream) => Pin::new(stream),
            Self::Tls(stream) => Pin::new(stream.as_mut()),
        }
    }
}

impl Read for HttpStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        mut buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let mut chunk = [0; CHUNK_BYTES];
        let room = buffer.remaining().min(CHUNK_BYTES);
        let mut read = ReadBuf::new(chunk.get_mut(..room).unwrap_or_default());
        let polled = self.duplex().poll_read(context, &mut read);
        if let Poll::Ready(Ok(())) = polled {
            buffer.put_slice(read.filled());
        }
        polled
    }
}

impl Write for HttpStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.duplex().poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.duplex().poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.duplex().poll_shutdown(context)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.duplex().poll_write_vectored(context, parts)
    }
}

/// A request's body.
pub(super) struct Whole(pub(super) Option<Bytes>);

impl Body for Whole {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.take().map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        let bytes = self.0.as_ref().map_or(0, Bytes::len);
        SizeHint::with_exact(u64::try_from(bytes).unwrap_or(u64::MAX))
    }
}
