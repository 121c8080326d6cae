//! Programs that run: killed with their process group, and reaped.
//!
//! The idea: a number of a process is nobody else's until the process is reaped, and only this
//! module reaps. So [`Process`] is the proof that the number, and the group of the same number,
//! are still the program's; [`Process::reap`] takes it away.
//!
//! A program that makes itself a session of its own leaves the group, and is not killed with it.
//! Once its parents have ended it is this process's child ([`adopt_orphans`]).
//!
//! One that outlived who started it is [`Adopted`]: somebody else reaps it, and its descriptor is
//! the proof.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// Has a signal go to the process group that is named after a process (6.9).
const TO_GROUP: libc::c_uint = 4;

/// A program that was started and is not reaped.
#[derive(Debug)]
pub struct Process {
    pid: Pid,
    pidfd: OwnedFd,
}

/// How a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// By itself, with this status.
    Exit(u8),
    /// By this signal.
    Signal(u8),
}

/// How a program ended and what it took, the children it waited for included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// How.
    pub end: End,
    /// Processor time in microseconds.
    pub cpu_us: u64,
    /// The most memory one process had resident, in bytes; not less than this process had when it
    /// started the program.
    pub peak_rss_bytes: u64,
}

impl Process {
    pub(super) fn new(pid: i64, pidfd: OwnedFd) -> io::Result<Process> {
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| io::Error::other("a process without a number"))?;
        Ok(Process { pid, pidfd })
    }

    /// Its number.
    pub fn pid(&self) -> u32 {
        self.pid.as_raw_nonzero().get().unsigned_abs()
    }

    /// Its descriptor, for who is to have one, too.
    pub fn try_clone_fd(&self) -> io::Result<OwnedFd> {
        self.pidfd.try_clone()
    }

    /// Sends it a signal, and it alone.
    pub fn signal(&self, signal: crate::signal::Signal) -> io::Result<()> {
        Ok(pidfd_send_signal(self.pidfd.as_fd(), signal.into())?)
    }

    /// Kills it and everything in its process group.
    pub fn kill(&self) {
        // It leads no group yet in its first moments, and may have ended: neither is a failure.
        let _ = pidfd_send_signal(self.pidfd.as_fd(), Signal::KILL);
        let _ = rustix::process::kill_process_group(self.pid, Signal::KILL);
    }

    /// Kills what is left of its process group, and tells how it ended. Waits until it has: ask
    /// for one that [`next_ended`] named.
    pub fn reap(self) -> io::Result<Ended> {
        self.kill();
        let mut taken = MaybeUninit::<libc::rusage>::zeroed();
        let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
        // SAFETY: both structures are live and written to by the call; all zero is a valid value
        // of each. The fields read are those of a child's end.
        let (code, status, taken) = unsafe {
            wait(
                libc::P_PIDFD,
                self.pidfd.as_raw_fd().unsigned_abs(),
                &mut info,
                libc::WEXITED,
                taken.as_mut_ptr(),
            )?;
            let info = info.assume_init();
            (info.si_code, info.si_status(), taken.assume_init())
        };
        let status = u8::try_from(status & 0xff).unwrap_or_default();
        Ok(Ended {
            end: match code {
                libc::CLD_EXITED => End::Exit(status),
                _ => End::Signal(status),
            },
            cpu_us: microseconds(taken.ru_utime) + microseconds(taken.ru_stime),
            peak_rss_bytes: u64::try_from(taken.ru_maxrss).unwrap_or_default() * 1024,
        })
    }
}

/// Readable once it has ended.
impl AsFd for Process {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }
}

/// A program that runs and that another process has started and reaps.
#[derive(Debug)]
pub struct Adopted {
    pid: Pid,
    pidfd: OwnedFd,
}

impl Adopted {
    /// The process of this number.
    ///
    /// # Errors
    /// When there is none.
    pub fn open(pid: u32) -> io::Result<Adopted> {
        let pid = number(pid)?;
        let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
        Ok(Adopted { pid, pidfd })
    }

    /// The process that a descriptor stands for.
    ///
    /// # Errors
    /// `NotFound` where it has ended and is reaped; `InvalidData` where it is not the one of this
    /// number, or the descriptor is none of a process.
    pub fn of(pid: u32, pidfd: OwnedFd) -> io::Result<Adopted> {
        let facts = format!("/proc/self/fdinfo/{}", pidfd.as_raw_fd());
        let facts = std::fs::read_to_string(facts)?;
        let found = facts.lines().find_map(|line| line.strip_prefix("Pid:"));
        match found.map(|found| found.trim().parse::<i64>()) {
            Some(Ok(-1)) => Err(io::ErrorKind::NotFound.into()),
            Some(Ok(found)) if found == i64::from(pid) => Ok(Adopted {
                pid: number(pid)?,
                pidfd,
            }),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// Its number.
    pub fn pid(&self) -> u32 {
        self.pid.as_raw_nonzero().get().unsigned_abs()
    }

    /// Its descriptor, for who is to have one, too.
    pub fn try_clone_fd(&self) -> io::Result<OwnedFd> {
        self.pidfd.try_clone()
    }

    /// Whether it has ended.
    pub fn has_ended(&self) -> bool {
        let ended = crate::net::wait_readable(&[self.pidfd.as_fd()], Some(Duration::ZERO));
        ended.is_ok_and(|ended| ended == [true])
    }

    /// Sends it a signal, and it alone.
    pub fn signal(&self, signal: crate::signal::Signal) -> io::Result<()> {
        Ok(pidfd_send_signal(self.pidfd.as_fd(), signal.into())?)
    }

    /// Kills it and everything in its process group. On a kernel that knows a group by its number
    /// alone, what it left there when it ended is not killed: the number may be somebody else's.
    pub fn kill(&self) {
        if !self.kill_group() && !self.has_ended() {
            let _ = rustix::process::kill_process_group(self.pid, Signal::KILL);
        }
        let _ = pidfd_send_signal(self.pidfd.as_fd(), Signal::KILL);
    }

    /// Whether the kernel knows how.
    fn kill_group(&self) -> bool {
        let none = std::ptr::null::<libc::siginfo_t>();
        let fd = self.pidfd.as_raw_fd();
        // SAFETY: a call on numbers, and on a descriptor that is ours.
        let done = unsafe {
            libc::syscall(
                libc::SYS_pidfd_send_signal,
                fd,
                libc::SIGKILL,
                none,
                TO_GROUP,
            )
        };
        done == 0 || io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH)
    }
}

/// Readable once it has ended.
impl AsFd for Adopted {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }
}

fn number(pid: u32) -> io::Result<Pid> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    pid.ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

/// The number of a child that has ended and is not reaped, if there is one.
pub fn next_ended() -> io::Result<Option<u32>> {
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: the structure is live and written to by the call; all zero, which it stays where
    // no child has ended, is a valid value. The field read is that of a child's end.
    let pid = unsafe {
        match wait(libc::P_ALL, 0, &mut info, options, std::ptr::null_mut()) {
            Err(error) if error.raw_os_error() == Some(libc::ECHILD) => return Ok(None),
            result => result?,
        }
        info.assume_init().si_pid()
    };
    Ok(u32::try_from(pid).ok().filter(|pid| *pid != 0))
}

/// Reaps a child that [`next_ended`] named and nobody has a [`Process`] of.
pub fn reap_orphan(pid: u32) -> io::Result<()> {
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    let options = libc::WEXITED | libc::WNOHANG;
    // SAFETY: the structure is live and written to by the call.
    unsafe { wait(libc::P_PID, pid, &mut info, options, std::ptr::null_mut()) }
}

/// Makes this process the parent of what programs leave behind, so that it can end and reap it.
pub fn adopt_orphans() -> io::Result<()> {
    let own = rustix::process::getpid();
    Ok(rustix::process::set_child_subreaper(Some(own))?)
}

/// The call itself: that of the C library does not tell what was taken.
unsafe fn wait(
    kind: libc::idtype_t,
    id: u32,
    info: &mut MaybeUninit<libc::siginfo_t>,
    options: libc::c_int,
    taken: *mut libc::rusage,
) -> io::Result<()> {
    loop {
        // SAFETY: `info` is live; the caller vouches for `taken`, which may be null.
        let done = unsafe {
            libc::syscall(
                libc::SYS_waitid,
                kind,
                id,
                info.as_mut_ptr(),
                options,
                taken,
            )
        };
        match io::Error::last_os_error() {
            _ if done >= 0 => return Ok(()),
            error if error.kind() == io::ErrorKind::Interrupted => {}
            error => return Err(error),
        }
    }
}

fn microseconds(time: libc::timeval) -> u64 {
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    seconds * 1_000_000 + u64::try_from(time.tv_usec).unwrap_or_default()
}
