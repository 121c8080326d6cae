//! Sockets of the generator: how one is opened, read and written, with or without TLS.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, socket_with,
    sockopt,
};

use super::plan::{Address, SocketOptions};

/// A connection's bytes.
#[derive(Debug)]
pub(crate) enum Io {
    Plain(OwnedFd),
}

impl Io {
    /// Reads what is there, up to the buffer's length; 0 is the end.
    #[inline]
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Io::Plain(socket) => receive(socket, buffer),
        }
    }

    /// Writes what fits.
    #[inline]
    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Io::Plain(socket) => send(socket, bytes),
        }
    }
}

impl AsFd for Io {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Io::Plain(socket) => socket.as_fd(),
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

/// Begins a connection without waiting for it.
pub(crate) fn connect(address: &Address, options: &SocketOptions) -> io::Result<OwnedFd> {
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
            if let Some(local) = options.local {
                rustix::net::bind(&socket, &SocketAddr::new(local, 0))?;
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
