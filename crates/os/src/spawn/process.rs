//! Programs that run: killed with their process group, and reaped.
//!
//! The idea: a number of a process is nobody else's until the process is reaped, and only this
//! module reaps. So [`Process`] is the proof that the number, and the group of the same number,
//! are still the program's; [`Process::reap`] takes it away.
//!
//! A program that makes itself a session of its own leaves the group, and is not killed with it.
//! Once its parents have ended it is this process's child ([`adopt_orphans`]).

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::process::{Pid, Signal, pidfd_send_signal};

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
