//! Sockets of the generator: how one is opened, read and written, with or without TLS.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, socket_with,
    sockopt,
};

use super::outcome::{Handshakes, TlsFacts};
use super::plan::{Address, SocketOptions};
use super::tls::TlsStream;

/// A connection's bytes.
#[derive(Debug)]
pub(crate) enum Io {
    Plain(OwnedFd),
    Tls(Box<TlsStream>),
}

impl Io {
    /// Reads what is there, up to the buffer's length; 0 is the end.
    #[inline]
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Io::Plain(socket) => receive(socket, buffer),
            Io::Tls(stream) => stream.read(buffer),
        }
    }

    /// Writes what fits.
    #[inline]
    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Io::Plain(socket) => send(socket, bytes),
            Io::Tls(stream) => stream.write(bytes),
        }
    }

    /// Whether some of what was taken still waits for room in the socket.
    #[inline]
    pub(crate) fn has_unsent(&self) -> bool {
        match self {
            Io::Plain(_) => false,
            Io::Tls(stream) => stream.has_unsent(),
        }
    }

    /// Writes what waits; false where the socket takes no more of it just now.
    pub(crate) fn flush(&mut self) -> io::Result<bool> {
        match self {
            Io::Plain(_) => Ok(true),
            Io::Tls(stream) => stream.flush(),
        }
    }

    /// Whether HTTP/2 may be spoken: without TLS the server is known to.
    pub(crate) fn may_speak_http2(&self) -> bool {
        match self {
            Io::Plain(_) => true,
            Io::Tls(stream) => stream.chose_http2(),
        }
    }

    /// Whether a read that did not fill the buffer may have left something: TLS hands out records
    /// one at a time.
    #[inline]
    pub(crate) fn may_hold_more(&self) -> bool {
        matches!(self, Io::Tls(_))
    }

    /// Goes on agreeing on keys; true once bytes may be sent.
    pub(crate) fn agree(&mut self) -> io::Result<bool> {
        match self {
            Io::Plain(_) => Ok(true),
            Io::Tls(stream) => stream.agree(),
        }
    }

    /// The handshake that it began with, once that is over.
    pub(crate) fn handshake(&self) -> Handshakes {
        match self {
            Io::Plain(_) => Handshakes::default(),
            Io::Tls(stream) if stream.is_resumed() => Handshakes {
                full: 0,
                resumed: 1,
            },
            Io::Tls(_) => Handshakes {
                full: 1,
                resumed: 0,
            },
        }
    }

    pub(crate) fn tls_facts(&self) -> Option<TlsFacts> {
        match self {
            Io::Plain(_) => None,
            Io::Tls(stream) => Some(stream.facts()),
        }
    }
}

impl AsFd for Io {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Io::Plain(socket) => socket.as_fd(),
            Io::Tls(stream) => stream.socket().as_fd(),
        }
    }
}

/// `recv(2)`, repeated where a signal came between.
pub(crate) fn receive(socket: &OwnedFd, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match rustix::net::recv(socket, &mut *buffer, RecvFlags::empty()) {
            Ok((count, _)) => return Ok(count),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// `send(2)`, repeated where a signal came between.
pub(crate) fn send(socket: &OwnedFd, bytes: &[u8]) -> io::Result<usize> {
    loop {
        match rustix::net::send(socket, bytes, SendFlags::NOSIGNAL) {
            Err(Errno::INTR) => {}
            result => return Ok(result?),
        }
    }
}

/// Begins a connection, the `nth` of its load, without waiting for it.
pub(crate) fn connect(
    address: &Address,
    options: &SocketOptions,
    nth: usize,
) -> io::Result<OwnedFd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let family = match address {
        Address::Tcp(SocketAddr::V4(_)) => AddressFamily::INET,
        Address::Tcp(SocketAddr::V6(_)) => AddressFamily::INET6,
        Address::Unix(_) => AddressFamily::UNIX,
    };
    let socket = socket_with(family, SocketType::STREAM, flags, None)?;
    if let Some(bytes) = options.buffer_bytes {
        sockopt::set_socket_send_buffer_size(&socket, bytes)?;
        sockopt::set_socket_recv_buffer_size(&socket, bytes)?;
    }
    let begun = match address {
        Address::Tcp(address) => {
            sockopt::set_tcp_nodelay(&socket, true)?;
            if let Some(local) = options.local.get(nth % options.local.len().max(1)) {
                rustix::net::bind(&socket, &SocketAddr::new(*local, 0))?;
            }
            rustix::net::connect(&socket, address)
        }
        Address::Unix(path) => rustix::net::connect(&socket, &SocketAddrUnix::new(path)?),
    };
    match begun {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
        Err(error) => Err(error.into()),
    }
}

/// How a connection attempt ended.
pub(crate) fn connected(socket: BorrowedFd<'_>) -> io::Result<()> {
    sockopt::socket_error(socket)?.map_err(io::Error::from)
}
