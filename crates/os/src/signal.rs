//! Signals as something to read, for the one thread that cares.
//!
//! The idea: the wanted signals are blocked, so they wait in the kernel, and a descriptor tells
//! which have come. No handler runs, nothing is interrupted. Children inherit the blocked set:
//! a terminal's interrupt goes to the whole process group, and only the one that reads it acts.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};

/// The signals the program acts on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// End in order.
    Terminate,
    /// End in order, from a terminal.
    Interrupt,
    /// Read the configuration again.
    Hangup,
    /// Open the logs again.
    User1,
    /// End in order, and never at once.
    Quit,
    /// Let a new program take this one's place.
    User2,
}

impl std::fmt::Display for Signal {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(match self {
            Signal::Terminate => "TERM",
            Signal::Interrupt => "INT",
            Signal::Hangup => "HUP",
            Signal::User1 => "USR1",
            Signal::Quit => "QUIT",
            Signal::User2 => "USR2",
        })
    }
}

impl From<Signal> for rustix::process::Signal {
    fn from(signal: Signal) -> Self {
        match signal {
            Signal::Terminate => Self::TERM,
            Signal::Interrupt => Self::INT,
            Signal::Hangup => Self::HUP,
            Signal::User1 => Self::USR1,
            Signal::Quit => Self::QUIT,
            Signal::User2 => Self::USR2,
        }
    }
}

const NUMBERS: [(Signal, libc::c_int); 6] = [
    (Signal::Terminate, libc::SIGTERM),
    (Signal::Interrupt, libc::SIGINT),
    (Signal::Hangup, libc::SIGHUP),
    (Signal::User1, libc::SIGUSR1),
    (Signal::Quit, libc::SIGQUIT),
    (Signal::User2, libc::SIGUSR2),
];

/// Every [`Signal`] of this process from now on, readable when one has come.
#[derive(Debug)]
pub struct Signals(OwnedFd);

impl Signals {
    /// Blocks the signals for the calling thread and those it will start, and listens for them.
    /// Call it before any other thread exists.
    pub fn listen() -> io::Result<Signals> {
        Ok(Signals(listen(&NUMBERS.map(|(_, number)| number))?))
    }

    /// The next signal that has come, if any.
    pub fn next(&self) -> io::Result<Option<Signal>> {
        let mut record = [0_u8; size_of::<libc::signalfd_siginfo>()];
        match crate::net::read(self.0.as_fd(), &mut record) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            result => result?,
        };
        // The record begins with the signal's number.
        let number = i32::from_ne_bytes([record[0], record[1], record[2], record[3]]);
        Ok(NUMBERS
            .iter()
            .find(|(_, known)| *known == number)
            .map(|(signal, _)| *signal))
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Readable when a child has ended since it was last asked.
#[derive(Debug)]
pub struct ChildEnds(OwnedFd);

impl ChildEnds {
    /// Listens for ends of children, for the calling thread and those it will start. Call it
    /// before any other thread exists.
    pub fn listen() -> io::Result<ChildEnds> {
        Ok(ChildEnds(listen(&[libc::SIGCHLD])?))
    }

    /// Forgets what has come: ask which children have ended afterwards, not before.
    pub fn clear(&self) -> io::Result<()> {
        let mut record = [0_u8; size_of::<libc::signalfd_siginfo>()];
        // Signals of one number wait as one.
        match crate::net::read(self.0.as_fd(), &mut record) {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
            _ => Ok(()),
        }
    }
}

impl AsFd for ChildEnds {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Blocks signals, and opens what they can be read from.
fn listen(numbers: &[libc::c_int]) -> io::Result<OwnedFd> {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigemptyset initialises the set it is given; sigaddset gets valid numbers and
    // that set; pthread_sigmask and signalfd only read it. signalfd returns a descriptor
    // nobody else owns, or -1, which is not wrapped.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for number in numbers {
            libc::sigaddset(set.as_mut_ptr(), *number);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut());
        let fd = libc::signalfd(-1, set.as_ptr(), libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(OwnedFd::from_raw_fd(fd))
    }
}
