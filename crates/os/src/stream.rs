//! Connected stream sockets: making the connection, and ending it in the way that says the right thing.

use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use rustix::io::{Errno, retry_on_intr};
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendFlags, SocketAddrUnix, SocketFlags,
    SocketType, socket_with, sockopt,
};

/// Where to connect to.
#[derive(Debug, Clone, Copy)]
pub enum Target<'a> {
    /// A TCP address.
    Tcp(SocketAddr),
    /// A Unix stream socket.
    Unix(&'a Path),
}

/// Begins a connection without waiting for it: when the socket becomes writable,
/// [`take_error`] tells how it went. Small segments are sent at once.
pub fn connect(target: Target<'_>) -> io::Result<OwnedFd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let (socket, begun) = match target {
        Target::Tcp(address) => {
            let family = if address.is_ipv4() {
                AddressFamily::INET
            } else {
                AddressFamily::INET6
            };
            let socket = socket_with(family, SocketType::STREAM, flags, None)?;
            sockopt::set_tcp_nodelay(&socket, true)?;
            let begun = rustix::net::connect(&socket, &address);
            (socket, begun)
        }
        Target::Unix(path) => {
            let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
            let begun = rustix::net::connect(&socket, &SocketAddrUnix::new(path)?);
            (socket, begun)
        }
    };
    match begun {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
        Err(error) => Err(error.into()),
    }
}

/// The address this machine would speak from to reach `address`: the same, where that is its own.
/// Nothing is sent.
pub fn speaks_from(address: SocketAddr) -> io::Result<IpAddr> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let socket = socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    rustix::net::connect(&socket, &address)?;
    let own = SocketAddr::try_from(rustix::net::getsockname(&socket)?)?;
    Ok(own.ip().to_canonical())
}

/// The error a connection attempt ended with, if any.
pub fn take_error(socket: BorrowedFd<'_>) -> io::Result<()> {
    sockopt::socket_error(socket)?.map_err(io::Error::from)
}

/// Ends the sending side; the peer reads what was sent, then the end.
pub fn shutdown_write(socket: BorrowedFd<'_>) -> io::Result<()> {
    Ok(rustix::net::shutdown(socket, rustix::net::Shutdown::Write)?)
}

/// Makes closing the socket reset the connection, so that the peer can't take a cut for an end.
pub fn reset_on_close(socket: BorrowedFd<'_>) -> io::Result<()> {
    Ok(sockopt::set_socket_linger(socket, Some(Duration::ZERO))?)
}

/// Bytes that were sent and that the peer's end has not taken: they wait in the kernel (tcp(7),
/// unix(7): `SIOCOUTQ`).
pub fn untaken_bytes(socket: BorrowedFd<'_>) -> io::Result<u64> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the kernel writes one number, which outlives the call.
    match unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) } {
        0 => Ok(u64::try_from(bytes).unwrap_or_default()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Receives what is there, up to the buffer's length; 0 is the end. Cheaper than `read(2)`.
pub fn receive(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<usize> {
    let (count, _) = retry_on_intr(|| rustix::net::recv(socket, &mut *buffer, RecvFlags::empty()))?;
    Ok(count)
}

/// As [`receive`], and leaves it there for the next call.
pub fn peek(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<usize> {
    let (count, _) = retry_on_intr(|| rustix::net::recv(socket, &mut *buffer, RecvFlags::PEEK))?;
    Ok(count)
}

/// Sends what fits. Cheaper than `write(2)`.
pub fn send(socket: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
    Ok(retry_on_intr(|| {
        rustix::net::send(socket, bytes, SendFlags::NOSIGNAL)
    })?)
}

/// As [`send`], for bytes that more follow at once: a short head gets no packet of its own.
pub fn send_more(socket: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
    let flags = SendFlags::MORE | SendFlags::NOSIGNAL;
    Ok(retry_on_intr(|| rustix::net::send(socket, bytes, flags))?)
}

/// Sends what fits of several slices, in order.
pub fn send_vectored(socket: BorrowedFd<'_>, slices: &[IoSlice<'_>]) -> io::Result<usize> {
    let sent = retry_on_intr(|| {
        let mut nothing = SendAncillaryBuffer::default();
        rustix::net::sendmsg(socket, slices, &mut nothing, SendFlags::NOSIGNAL)
    })?;
    Ok(sent)
}
