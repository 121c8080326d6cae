//! Messages with descriptors over a pair of Unix sockets.
//!
//! The idea: a message of any size travels as a run of packets (`SOCK_SEQPACKET` keeps their
//! borders); the first byte of each says whether more follow, and each carries at most the 253
//! descriptors the kernel takes at once. A receiver that would need more room or more
//! descriptors than it allowed gets an error, and the kernel closes what it did not take.
//! One that may open no more descriptors gets the bytes alone, so that it can say what it lacks.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::io::retry_on_intr;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg,
    sendmsg, socketpair, sockopt,
};

use crate::net::wait_readable;

/// Descriptors in one packet: the kernel's `SCM_MAX_FD`.
const PACKET_FDS: usize = 253;
/// Bytes in one packet, well below the default send buffer.
const PACKET_BYTES: usize = 32 * 1024;
/// How long one packet may wait for the other end.
const PATIENCE: Duration = Duration::from_secs(5);

/// Descriptors that travel with one packet of a [`packet_pair`].
pub(crate) const LOOSE_FDS_MAX: usize = 3;
/// Bytes that wait in a link of single packets.
const LOOSE_BUFFER_BYTES: usize = 512 * 1024;

/// With what the last packet of a message begins.
pub const LAST: u8 = 0;
const MORE: u8 = 1;

/// Makes the two ends of a link. Both block, but no longer than 5 s for a packet to leave or for
/// the rest of a message that has begun.
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let kind = SocketType::SEQPACKET;
    let (one, other) = socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?;
    for end in [&one, &other] {
        sockopt::set_socket_timeout(end, sockopt::Timeout::Send, Some(PATIENCE))?;
        sockopt::set_socket_timeout(end, sockopt::Timeout::Recv, Some(PATIENCE))?;
    }
    Ok((one, other))
}

/// Makes the two ends of a link for [`try_send`] and [`try_recv`], neither of which ever waits, and for
/// [`recv_waiting`].
pub fn packet_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let kind = SocketType::SEQPACKET;
    let (one, other) = socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?;
    for end in [&one, &other] {
        // Room for a few of the largest; the kernel gives what it allows.
        sockopt::set_socket_send_buffer_size(end, LOOSE_BUFFER_BYTES)?;
    }
    Ok((one, other))
}

/// Sends one packet whole, or says `WouldBlock`. A packet is never empty: nobody could tell it
/// from the other end's close.
pub fn try_send(link: BorrowedFd<'_>, packet: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    debug_assert!(!packet.is_empty() && fds.len() <= LOOSE_FDS_MAX);
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(LOOSE_FDS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::Error::other("no room for descriptors in a packet"));
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    retry_on_intr(|| sendmsg(link, &[IoSlice::new(packet)], &mut control, flags))?;
    Ok(())
}

/// Descriptors that came with a message; `None` where this process may open no more of them, and
/// so has none of these.
pub type Passed = Option<Vec<OwnedFd>>;

/// Receives one packet into `buffer`, and at most [`LOOSE_FDS_MAX`] descriptors with it; says
/// `WouldBlock` where none waits, `UnexpectedEof` at the other end's close.
pub fn try_recv(link: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<(usize, Passed)> {
    recv_loose(link, buffer, RecvFlags::DONTWAIT)
}

/// As [`try_recv`], but waits for a packet: for so long as [`wait_at_most`] allows at this end.
pub fn recv_waiting(link: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<(usize, Passed)> {
    recv_loose(link, buffer, RecvFlags::empty())
}

/// How long [`recv_waiting`] waits at this end from now on before it says `WouldBlock`; at first it is for ever.
pub fn wait_at_most(link: BorrowedFd<'_>, wait: Duration) -> io::Result<()> {
    let wait = Some(wait.max(Duration::from_micros(1)));
    Ok(sockopt::set_socket_timeout(
        link,
        sockopt::Timeout::Recv,
        wait,
    )?)
}

fn recv_loose(
    link: BorrowedFd<'_>,
    buffer: &mut [u8],
    flags: RecvFlags,
) -> io::Result<(usize, Passed)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(LOOSE_FDS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut fds = Some(Vec::new());
    let flags = RecvFlags::CMSG_CLOEXEC | flags;
    let slices = &mut [IoSliceMut::new(buffer)];
    let bytes = receive(link, slices, &mut control, flags, &mut fds, LOOSE_FDS_MAX)?;
    match bytes {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        bytes => Ok((bytes, fds)),
    }
}

/// Sends one message. Not for two threads at once: their packets would mix.
pub fn send(link: BorrowedFd<'_>, message: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut bytes = message.chunks(PACKET_BYTES);
    let mut batches = fds.chunks(PACKET_FDS);
    let packets = bytes.len().max(batches.len()).max(1);
    for left in (0..packets).rev() {
        let more = if left == 0 { LAST } else { MORE };
        send_packet(
            link,
            more,
            bytes.next().unwrap_or_default(),
            batches.next().unwrap_or_default(),
        )?;
    }
    Ok(())
}

/// Waits for one message of at most `bytes_max` bytes and `fds_max` descriptors. Takes memory for
/// what has arrived, none while it waits. The other end's close is `UnexpectedEof`, one that
/// stops midway `WouldBlock`. Descriptors may be taken from those that are set aside
/// ([`crate::process::with_reserve`]).
pub fn recv(
    link: BorrowedFd<'_>,
    bytes_max: usize,
    fds_max: usize,
) -> io::Result<(Vec<u8>, Passed)> {
    let mut message = Vec::new();
    let mut fds = Some(Vec::new());
    while wait_readable(&[link], None)? == [false] {}
    loop {
        let filled = message.len();
        message.resize(bytes_max.min(filled + PACKET_BYTES), 0);
        let (more, bytes) = recv_packet(link, &mut message[filled..], &mut fds)?;
        message.truncate(filled + bytes);
        if fds.as_ref().is_some_and(|fds| fds.len() > fds_max) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "message with too many descriptors",
            ));
        }
        if more == LAST {
            return Ok((message, fds));
        }
    }
}

fn send_packet(
    link: BorrowedFd<'_>,
    more: u8,
    bytes: &[u8],
    fds: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(PACKET_FDS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::Error::other("no room for descriptors in a packet"));
    }
    let head = [more];
    let slices = [IoSlice::new(&head), IoSlice::new(bytes)];
    // Packets are sent whole or not at all.
    retry_on_intr(|| sendmsg(link, &slices, &mut control, SendFlags::NOSIGNAL))?;
    Ok(())
}

/// Receives one packet: its first byte, and how many bytes followed.
fn recv_packet(
    link: BorrowedFd<'_>,
    buffer: &mut [u8],
    fds: &mut Passed,
) -> io::Result<(u8, usize)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(PACKET_FDS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut head = [LAST];
    let mut slices = [IoSliceMut::new(&mut head), IoSliceMut::new(buffer)];
    let flags = RecvFlags::CMSG_CLOEXEC;
    let received = crate::process::with_reserve(|| {
        receive(link, &mut slices, &mut control, flags, fds, PACKET_FDS)
    });
    match received? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        bytes => Ok((head[0], bytes - 1)),
    }
}

/// Receives one packet whole, and adds its descriptors to `fds`, of which there is room for
/// `fds_max` in `control`.
fn receive(
    link: BorrowedFd<'_>,
    slices: &mut [IoSliceMut<'_>],
    control: &mut RecvAncillaryBuffer<'_>,
    flags: RecvFlags,
    fds: &mut Passed,
    fds_max: usize,
) -> io::Result<usize> {
    let received = retry_on_intr(|| recvmsg(link, slices, control, flags))?;
    let mut taken = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(passed) = message {
            taken.extend(passed);
        }
    }
    let is_cut = |by: ReturnFlags| received.flags.contains(by);
    // With room left for more of them, it was this process that may open no more.
    let lacks = is_cut(ReturnFlags::CTRUNC) && taken.len() < fds_max;
    if is_cut(ReturnFlags::TRUNC) || (is_cut(ReturnFlags::CTRUNC) && !lacks) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "message larger than allowed",
        ));
    }
    match fds {
        Some(fds) if !lacks => fds.append(&mut taken),
        _ => *fds = None,
    }
    Ok(received.bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file;
    use std::os::fd::AsFd;

    #[test]
    fn messages_arrive_whole_and_in_order() {
        let (here, there) = pair().unwrap();
        let big: Vec<u8> = (0..70_000_u32).map(|at| (at % 251) as u8).collect();
        for message in [b"".as_slice(), b"one", &big, b"last"] {
            send(here.as_fd(), message, &[]).unwrap();
            let (received, fds) = recv(there.as_fd(), 100_000, 0).unwrap();
            assert_eq!(received, message);
            assert!(fds.unwrap().is_empty());
        }
    }

    #[test]
    fn six_hundred_descriptors_keep_their_order() {
        crate::process::raise_nofile().unwrap();
        let (here, there) = pair().unwrap();
        let files: Vec<_> = (0..600_u32)
            .map(|at| file::memfd("test", &at.to_le_bytes()).unwrap())
            .collect();
        let borrowed: Vec<_> = files.iter().map(AsFd::as_fd).collect();
        send(here.as_fd(), b"many", &borrowed).unwrap();
        let (message, fds) = recv(there.as_fd(), 16, 600).unwrap();
        let fds = fds.unwrap();
        assert_eq!((&*message, fds.len()), (b"many".as_slice(), 600));
        for (at, fd) in fds.iter().enumerate() {
            assert_eq!(
                file::read_whole(fd.as_fd(), 4).unwrap(),
                (at as u32).to_le_bytes()
            );
            assert!(
                rustix::io::fcntl_getfd(fd)
                    .unwrap()
                    .contains(rustix::io::FdFlags::CLOEXEC)
            );
        }
    }

    #[test]
    fn more_bytes_or_descriptors_than_allowed_is_an_error() {
        let (here, there) = pair().unwrap();
        for too_long in [100, PACKET_BYTES + 1] {
            let (here, there) = pair().unwrap();
            send(here.as_fd(), &vec![1; too_long], &[]).unwrap();
            let error = recv(there.as_fd(), too_long - 1, 0).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        }
        send(here.as_fd(), b"x", &[here.as_fd(), there.as_fd()]).unwrap();
        let error = recv(there.as_fd(), 9, 1).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn a_closed_end_is_told_from_an_empty_message() {
        let (here, there) = pair().unwrap();
        send(here.as_fd(), b"", &[]).unwrap();
        drop(here);
        assert_eq!(recv(there.as_fd(), 9, 0).unwrap().0, b"");
        let error = recv(there.as_fd(), 9, 0).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn packets_come_whole_and_nobody_waits() {
        let (here, there) = packet_pair().unwrap();
        let mut buffer = vec![0; 128 * 1024];
        let mut recv = || {
            let (bytes, fds) = try_recv(there.as_fd(), &mut buffer)?;
            Ok::<_, io::Error>((buffer[..bytes].to_vec(), fds.unwrap().len()))
        };
        assert_eq!(recv().unwrap_err().kind(), io::ErrorKind::WouldBlock);
        let big = vec![7; 128 * 1024];
        try_send(here.as_fd(), &big, &[here.as_fd(); 3]).unwrap();
        try_send(here.as_fd(), b"x", &[]).unwrap();
        assert_eq!(recv().unwrap(), (big.clone(), 3));
        assert_eq!(recv().unwrap(), (b"x".to_vec(), 0));
        let full = loop {
            if let Err(error) = try_send(here.as_fd(), &big, &[]) {
                break error;
            }
        };
        assert_eq!(full.kind(), io::ErrorKind::WouldBlock);
        drop(here);
        while recv().is_ok() {}
        assert_eq!(recv().unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn a_packet_too_long_or_with_too_many_descriptors_is_an_error() {
        let (here, there) = packet_pair().unwrap();
        let mut buffer = [0; 10];
        try_send(here.as_fd(), &[1; 11], &[]).unwrap();
        let error = try_recv(there.as_fd(), &mut buffer).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        let file = file::memfd("test", b"x").unwrap();
        send_packet(here.as_fd(), LAST, b"x", &[file.as_fd(); 60]).unwrap();
        let error = try_recv(there.as_fd(), &mut buffer).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }
}
