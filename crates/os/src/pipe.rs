//! Pipes between this process and a program it has started.
//!
//! Our end never blocks, the program's always does: the flag belongs to each end by itself. The
//! program may run as another user and still open `/dev/stdin` or `/dev/stderr` by name, as
//! scripts do: that asks for permission on the pipe itself, so everybody has it. It can be reached
//! by name only through the `/proc` entries of a process that holds it.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags, fchmod, fcntl_setfl};
use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};

/// What a pipe holds that was widened.
const WIDE_BYTES: usize = 256 * 1024;

/// Makes a pipe that a program reads: our end, then the program's.
pub fn to_program() -> io::Result<(OwnedFd, OwnedFd)> {
    let (read, write) = open()?;
    fcntl_setfl(&write, OFlags::NONBLOCK)?;
    Ok((write, read))
}

/// Makes a pipe that a program writes: our end, then the program's.
pub fn from_program() -> io::Result<(OwnedFd, OwnedFd)> {
    let (read, write) = open()?;
    fcntl_setfl(&read, OFlags::NONBLOCK)?;
    Ok((read, write))
}

/// Has a pipe hold four times what one usually does, where the system lets it.
pub fn widen(pipe: BorrowedFd<'_>) {
    let _ = fcntl_setpipe_size(pipe, WIDE_BYTES);
}

fn open() -> io::Result<(OwnedFd, OwnedFd)> {
    let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
    // Both ends are one inode.
    fchmod(&read, Mode::from_raw_mode(0o666))?;
    Ok((read, write))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use rustix::fs::fcntl_getfl;

    use super::*;
    use crate::net::{read, write};

    #[test]
    fn our_end_never_blocks_and_the_programs_does() {
        for (ours, theirs) in [to_program().unwrap(), from_program().unwrap()] {
            assert!(fcntl_getfl(&ours).unwrap().contains(OFlags::NONBLOCK));
            assert!(!fcntl_getfl(&theirs).unwrap().contains(OFlags::NONBLOCK));
            let mode = rustix::fs::fstat(&theirs).unwrap().st_mode;
            assert_eq!(mode & 0o777, 0o666);
        }
        let (ours, theirs) = from_program().unwrap();
        let mut room = [0; 9];
        let empty = read(ours.as_fd(), &mut room).unwrap_err();
        assert_eq!(empty.kind(), io::ErrorKind::WouldBlock);
        assert_eq!(write(theirs.as_fd(), b"abc").unwrap(), 3);
        assert_eq!(read(ours.as_fd(), &mut room).unwrap(), 3);
        drop(theirs);
        assert_eq!(read(ours.as_fd(), &mut room).unwrap(), 0);
    }
}
