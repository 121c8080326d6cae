//! Sockets: listening, accepting, and the plain calls on them.
//!
//! The idea: everything is non-blocking and close-on-exec from birth, so that no caller can
//! forget it. Readiness is the caller's runtime's business; the two polls here are for a look
//! at descriptors outside of it.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::retry_on_intr;
use rustix::net::{
    AddressFamily, SocketAddrAny, SocketAddrUnix, SocketFlags, SocketType, acceptfrom_with,
    connect, getsockname, listen, socket_with, sockopt,
};

/// Bytes of a reply the kernel takes ahead of what the client's window lets it send. Without a
/// limit it takes megabytes for every client that reads slowly, and a few hundred of them use up
/// the memory it has for all connections.
const UNSENT_BYTES_MAX: u32 = 1024 * 1024;

/// Where to listen.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Bind {
    /// A TCP address.
    Tcp(SocketAddr),
    /// A path for a Unix stream socket.
    Unix(PathBuf),
}

/// Who connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peer {
    /// Over TCP, from this address.
    Tcp(SocketAddr),
    /// Over a Unix socket; see [`peer_credentials`].
    Unix,
}

/// Permission bits of a Unix listener that anyone may connect to.
pub(crate) const MODE_ANYONE: u32 = 0o666;
/// Permission bits of a Unix listener for its owner alone.
pub const MODE_OWNER: u32 = 0o600;

/// Listens. TCP sockets share their port with others of the same user (`SO_REUSEPORT`), so that
/// every worker can have its own; IPv6 sockets carry IPv6 only.
pub fn bind(at: &Bind, backlog: u32) -> io::Result<OwnedFd> {
    match at {
        Bind::Tcp(address) => {
            let socket = tcp_socket(address)?;
            sockopt::set_socket_reuseport(&socket, true)?;
            limit_unsent(socket.as_fd(), UNSENT_BYTES_MAX)?;
            rustix::net::bind(&socket, address)?;
            listen(&socket, backlog_for_kernel(backlog))?;
            Ok(socket)
        }
        Bind::Unix(path) => bind_unix(path, backlog, MODE_ANYONE),
    }
}

/// Listens at `path` with exactly these permissions from its first moment. The process's umask
/// is set aside meanwhile: call it where no other thread makes files.
/// A socket left behind by a dead process is replaced; one that still answers is not.
pub fn bind_unix(path: &Path, backlog: u32, mode: u32) -> io::Result<OwnedFd> {
    remove_stale(path)?;
    let socket = unix_socket()?;
    // The kernel copies the mode of an unbound socket to the file that bind makes.
    rustix::fs::fchmod(&socket, Mode::from_raw_mode(mode))?;
    let umask = rustix::process::umask(Mode::empty());
    let bound = rustix::net::bind(&socket, &SocketAddrUnix::new(path)?);
    rustix::process::umask(umask);
    bound?;
    listen(&socket, backlog_for_kernel(backlog))?;
    Ok(socket)
}

/// Fails with `AddrInUse` where somebody else listens at a TCP address. [`bind`] alone would not
/// notice another process of the same user, and share the traffic with it.
pub fn check_free(address: SocketAddr) -> io::Result<()> {
    Ok(rustix::net::bind(&tcp_socket(&address)?, &address)?)
}

/// Changes how many connections the kernel may hold unaccepted.
pub fn set_backlog(listener: BorrowedFd<'_>, backlog: u32) -> io::Result<()> {
    Ok(listen(listener, backlog_for_kernel(backlog))?)
}

/// The address a TCP socket is bound to.
pub fn local_address(socket: BorrowedFd<'_>) -> io::Result<SocketAddr> {
    Ok(SocketAddr::try_from(getsockname(socket)?)?)
}

/// Takes a waiting connection, non-blocking and close-on-exec.
pub fn accept(listener: BorrowedFd<'_>) -> io::Result<(OwnedFd, Peer)> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let (socket, address) = retry_on_intr(|| acceptfrom_with(listener, flags))?;
    Ok((socket, peer(address)))
}

/// Sends small segments at once.
pub fn set_nodelay(socket: BorrowedFd<'_>) -> io::Result<()> {
    Ok(sockopt::set_tcp_nodelay(socket, true)?)
}

/// Reads what is there, up to the buffer's length; 0 is the end.
pub fn read(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<usize> {
    Ok(retry_on_intr(|| rustix::io::read(fd, &mut *buffer))?)
}

/// Has the kernel tell who says what arrives at a Unix socket from now on: [`read_with_sender`].
pub fn tell_senders(socket: BorrowedFd<'_>) -> io::Result<()> {
    Ok(sockopt::set_socket_passcred(socket, true)?)
}

/// As [`read`], and which process has said it, as far as the kernel tells. Descriptors that come
/// with it are left.
pub fn read_with_sender(
    socket: BorrowedFd<'_>,
    buffer: &mut [u8],
) -> io::Result<(usize, Option<u32>)> {
    let mut part = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: buffer.len(),
    };
    // As much as the sender takes, and no more: 16 bytes of a header, and three numbers.
    let mut control = [0_u64; 4];
    // SAFETY: all zero is a valid value of it: no name, no parts, no control bytes.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control) as _;
    // SAFETY: the message is live, as are the buffers it points to, with their lengths.
    let read = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, 0) };
    let read = usize::try_from(read).map_err(|_| io::Error::last_os_error())?;
    // SAFETY: the kernel has set the length of what it wrote to the control bytes; a header that
    // is found lies within these, and what it says to be its data is looked at whole only where
    // its length says that it is there.
    let sender = unsafe {
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        let is_sender = !header.is_null()
            && (*header).cmsg_level == libc::SOL_SOCKET
            && (*header).cmsg_type == libc::SCM_CREDENTIALS
            && (*header).cmsg_len as usize
                >= libc::CMSG_LEN(size_of::<libc::ucred>() as u32) as usize;
        is_sender.then(|| {
            libc::CMSG_DATA(header)
                .cast::<libc::ucred>()
                .read_unaligned()
        })
    };
    let sender = sender.and_then(|sender| u32::try_from(sender.pid).ok());
    Ok((read, sender.filter(|pid| *pid > 0)))
}

/// Writes what fits.
pub fn write(fd: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
    Ok(retry_on_intr(|| rustix::io::write(fd, bytes))?)
}

/// Moves up to `count` bytes of a file to a socket without copying them through this process.
/// `offset` advances by what was moved; 0 moved means the file ended.
pub fn sendfile(
    out: BorrowedFd<'_>,
    file: BorrowedFd<'_>,
    offset: &mut u64,
    count: usize,
) -> io::Result<usize> {
    Ok(retry_on_intr(|| {
        rustix::fs::sendfile(out, file, Some(offset), count)
    })?)
}

/// Waits until a descriptor has something to read (or an end, or an error), or the time is up.
/// `None` waits for ever; a signal handler's return ends the wait early with nothing readable.
pub fn wait_readable(fds: &[BorrowedFd<'_>], wait: Option<Duration>) -> io::Result<Vec<bool>> {
    let fds: Vec<_> = fds.iter().map(|fd| (*fd, Want::Read)).collect();
    wait_ready(&fds, wait)
}

/// What is waited for at a descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Want {
    /// Something to read.
    Read,
    /// Room for something to be written.
    Write,
}

/// Waits until a descriptor has what is wanted of it (or an end, or an error), or the time is up.
/// `None` waits for ever; a signal handler's return ends the wait early with nothing ready.
pub fn wait_ready(fds: &[(BorrowedFd<'_>, Want)], wait: Option<Duration>) -> io::Result<Vec<bool>> {
    let flags = |want: &Want| match want {
        Want::Read => PollFlags::IN,
        Want::Write => PollFlags::OUT,
    };
    let mut polled: Vec<_> = fds
        .iter()
        .map(|(fd, want)| PollFd::from_borrowed_fd(*fd, flags(want)))
        .collect();
    let wait = wait.map(|wait| Timespec {
        tv_sec: wait.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: wait.subsec_nanos().into(),
    });
    match poll(&mut polled, wait.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(polled.iter().map(|fd| !fd.revents().is_empty()).collect())
}

/// Waits until a descriptor takes bytes (or has an error), or the time is up. A pipe that takes
/// bytes takes 4,096 of them without waiting.
pub fn wait_writable(fd: BorrowedFd<'_>, wait: Duration) -> io::Result<bool> {
    Ok(wait_ready(&[(fd, Want::Write)], Some(wait))? == [true])
}

/// Has whoever accepts from a listener wait for a connection, in every process that has it.
pub fn set_waiting(listener: BorrowedFd<'_>) -> io::Result<()> {
    let flags = fcntl_getfl(listener)?;
    Ok(fcntl_setfl(listener, flags - OFlags::NONBLOCK)?)
}

/// Connects to a Unix socket: at once, or not (`WouldBlock`) where too many wait there already.
pub fn connect_unix(path: &Path) -> io::Result<OwnedFd> {
    let socket = unix_socket()?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

/// Whether a listener has been shut down: whoever has a copy of it can do so, and it refuses
/// connections for good.
pub fn is_shut(listener: BorrowedFd<'_>) -> bool {
    let flags = PollFlags::RDHUP | PollFlags::HUP;
    let mut polled = [PollFd::from_borrowed_fd(listener, flags)];
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let _ = poll(&mut polled, Some(&now));
    polled.iter().any(|fd| fd.revents().intersects(flags))
}

/// Gives a socket that user `owner` has bound at `own` the name `name`, and with it the owner and
/// the permissions of what is there; whether there is such a socket that has not been given one.
/// Nobody but this user may write the directory of `name`; in that of `own` links are not followed.
pub fn take_in(own: &Path, owner: u32, name: &Path) -> io::Result<bool> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let socket = match rustix::fs::open(own, flags, Mode::empty()) {
        Err(rustix::io::Errno::NOENT) => return Ok(false),
        opened => opened?,
    };
    let facts = rustix::fs::fstat(&socket)?;
    let before = std::fs::symlink_metadata(name)?;
    let is_new = (facts.st_dev, facts.st_ino) != (before.dev(), before.ino());
    if FileType::from_raw_mode(facts.st_mode) != FileType::Socket || !is_new {
        return Ok(false);
    }
    if facts.st_uid != owner {
        return Err(io::Error::other("the socket belongs to somebody else"));
    }
    let mut beside = name.as_os_str().to_owned();
    beside.push(".new");
    let beside = Path::new(&beside);
    let _ = std::fs::remove_file(beside);
    let here = format!("/proc/self/fd/{}", socket.as_raw_fd());
    rustix::fs::linkat(CWD, here, CWD, beside, AtFlags::SYMLINK_FOLLOW)?;
    std::os::unix::fs::lchown(beside, Some(before.uid()), Some(before.gid()))?;
    let mode = Mode::from_raw_mode(MODE_OWNER);
    rustix::fs::chmod(beside, mode)?;
    std::fs::rename(beside, name)?;
    Ok(true)
}

/// Process, user and group of the other end of a Unix socket, as they were when it connected.
pub fn peer_credentials(socket: BorrowedFd<'_>) -> io::Result<(u32, u32, u32)> {
    let credentials = sockopt::socket_peercred(socket)?;
    let pid = credentials.pid.as_raw_nonzero().get().unsigned_abs();
    Ok((pid, credentials.uid.as_raw(), credentials.gid.as_raw()))
}

/// Lets the kernel hold at most this much that the network has not asked for yet; what a listener
/// is told holds for the connections it accepts.
fn limit_unsent(socket: BorrowedFd<'_>, bytes: u32) -> io::Result<()> {
    let length = libc::socklen_t::try_from(size_of::<u32>()).unwrap_or_default();
    // SAFETY: the kernel reads one 32-bit number, which outlives the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_NOTSENT_LOWAT,
            std::ptr::from_ref(&bytes).cast(),
            length,
        )
    };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn tcp_socket(address: &SocketAddr) -> io::Result<OwnedFd> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(family, SocketType::STREAM, flags, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, true)?;
    }
    Ok(socket)
}

fn unix_socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    Ok(socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        flags,
        None,
    )?)
}

/// Removes a socket file nobody listens on. Anything else that stands there is left, and `bind`
/// says that the address is taken.
fn remove_stale(path: &Path) -> io::Result<()> {
    let is_socket =
        std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
    if !is_socket {
        return Ok(());
    }
    let probe = unix_socket()?;
    match connect(&probe, &SocketAddrUnix::new(path)?) {
        Err(rustix::io::Errno::CONNREFUSED) => std::fs::remove_file(path),
        _ => Ok(()),
    }
}

fn peer(address: Option<SocketAddrAny>) -> Peer {
    match address.map(SocketAddr::try_from) {
        Some(Ok(address)) => Peer::Tcp(address),
        _ => Peer::Unix,
    }
}

/// `listen(2)` takes a signed number and clamps it to `net.core.somaxconn` by itself.
fn backlog_for_kernel(backlog: u32) -> i32 {
    backlog.try_into().unwrap_or(i32::MAX)
}
