//! What a new process does before it is a program.
//!
//! The idea: it has a copy of everything its maker had, in the middle of whatever its maker's
//! other threads did; so it takes no lock and no memory, and makes plain system calls only.

use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

use libc::{c_char, c_int, c_long};

use super::{Stage, UMASK, VERDICT_BYTES};
use crate::user::User;

/// The number of a limit: what the C library calls it differs.
#[cfg(target_env = "gnu")]
pub(super) type Resource = libc::__rlimit_resource_t;
/// The number of a limit: what the C library calls it differs.
#[cfg(not(target_env = "gnu"))]
pub(super) type Resource = c_int;

/// Signals there are.
const SIGNALS: c_int = 64;
/// Bytes of the kernel's set of signals.
const SET_BYTES: usize = 8;
/// The last descriptor closed where the kernel cannot close them all at once.
const CLOSED_MAX: c_int = 65_536;

/// How often a file that is being written is tried.
const BUSY_TRIES_MAX: u32 = 50;
/// The pause between two tries.
const BUSY_PAUSE_NS: c_long = 10_000_000;

/// Everything made ready before the process is.
pub(super) struct Ready<'a> {
    pub(super) directory: RawFd,
    pub(super) path: *const c_char,
    pub(super) arguments: *const *const c_char,
    pub(super) environment: *const *const c_char,
    pub(super) stdio: [RawFd; 3],
    pub(super) user: Option<&'a User>,
    pub(super) limits: &'a [(Resource, libc::rlimit)],
    /// Signals that do something else than by default: a bit for each, the first signal's lowest.
    pub(super) signals: u64,
    pub(super) parent: u32,
    pub(super) says: RawFd,
}

/// Becomes the program, or says why not and ends.
///
/// # Safety
/// Only in a process just made, whose only thread this is; pointers and descriptors of `ready`
/// must be alive in it.
pub(super) unsafe fn live(
    ready: &Ready<'_>,
    join: &[BorrowedFd<'_>],
    enter: Option<BorrowedFd<'_>>,
) -> ! {
    // SAFETY: the caller's promise; each step says what else it needs.
    let (stage, number) = unsafe { become_program(ready, join, enter) };
    let mut record = [0_u8; VERDICT_BYTES];
    let [first, rest @ ..] = &mut record;
    *first = stage as u8;
    *rest = number.to_ne_bytes();
    // SAFETY: writes a live array to a descriptor, and ends without running anything else.
    unsafe {
        libc::write(ready.says, record.as_ptr().cast(), record.len());
        libc::_exit(127)
    }
}

/// Goes through every stage; comes back with the one that failed, and the error's number.
unsafe fn become_program(
    ready: &Ready<'_>,
    join: &[BorrowedFd<'_>],
    enter: Option<BorrowedFd<'_>>,
) -> (Stage, c_int) {
    // SAFETY: the caller's promise, for each.
    let result = unsafe {
        enter_groups(join, enter)
            .and_then(|()| own_session(ready))
            .and_then(|()| limit(ready))
            .and_then(|()| become_user(ready))
            .and_then(|()| exec(ready))
    };
    result.err().unwrap_or((Stage::Exec, libc::EINVAL))
}

type ChildResult = Result<(), (Stage, c_int)>;

/// First of all, and while it is still privileged.
unsafe fn enter_groups(join: &[BorrowedFd<'_>], enter: Option<BorrowedFd<'_>>) -> ChildResult {
    for group in join {
        // SAFETY: writes one byte of a constant.
        unsafe { enter_by(group.as_raw_fd())? };
    }
    let Some(directory) = enter else {
        return Ok(());
    };
    let flags = libc::O_WRONLY | libc::O_CLOEXEC;
    // SAFETY: a constant string and a directory's descriptor.
    unsafe {
        let procs = libc::openat(directory.as_raw_fd(), c"cgroup.procs".as_ptr(), flags);
        check(Stage::Group, procs.into())?;
        enter_by(procs)
    }
}

/// `0` is whoever writes it.
unsafe fn enter_by(procs: RawFd) -> ChildResult {
    // SAFETY: writes one byte of a constant.
    check(Stage::Group, unsafe {
        libc::write(procs, c"0".as_ptr().cast(), 1) as c_long
    })
}

/// A session of its own, no descriptor but its three, no signal blocked or ignored.
unsafe fn own_session(ready: &Ready<'_>) -> ChildResult {
    // SAFETY: calls on numbers; the set is live and all zero, which is the empty set.
    unsafe {
        check(Stage::Session, libc::setsid().into())?;
        for (at, fd) in (0..).zip(ready.stdio) {
            check(Stage::Session, libc::dup2(fd, at).into())?;
        }
        close_the_rest(ready);
        reset(ready.signals);
        let none: libc::sigset_t = std::mem::zeroed();
        let done = libc::sigprocmask(libc::SIG_SETMASK, &none, std::ptr::null_mut());
        check(Stage::Session, done.into())?;
        libc::umask(UMASK);
    }
    Ok(())
}

/// Has these signals do what they do by default.
unsafe fn reset(signals: u64) {
    // The call itself: the C library keeps two signals to itself. The kernel's structure is no
    // larger than this, and all zero it is the default.
    let default = [0_u64; 8];
    for signal in (1..=SIGNALS).filter(|signal| signals & bit(*signal) != 0) {
        let none = std::ptr::null_mut::<u64>();
        // SAFETY: reads a live array. Some signals cannot be changed: nothing happens then.
        unsafe {
            libc::syscall(
                libc::SYS_rt_sigaction,
                signal,
                default.as_ptr(),
                none,
                SET_BYTES,
            );
        }
    }
}

const fn bit(signal: c_int) -> u64 {
    1 << (signal - 1)
}

/// The signals that this process ignores.
pub(super) fn ignored() -> u64 {
    let mut ignored = 0;
    for signal in 1..=SIGNALS {
        let mut action = [0_u64; 8];
        let none = std::ptr::null::<u64>();
        // SAFETY: writes to a live array, which the kernel's structure fits in.
        let asked = unsafe {
            libc::syscall(
                libc::SYS_rt_sigaction,
                signal,
                none,
                action.as_mut_ptr(),
                SET_BYTES,
            )
        };
        // The structure begins with the handler.
        let [handler, ..] = action;
        if asked == 0 && usize::try_from(handler) == Ok(libc::SIG_IGN) {
            ignored |= bit(signal);
        }
    }
    ignored
}

/// Closes every descriptor but the three, the directory, and the pipe for the verdict; these two
/// close by themselves at `execve`.
unsafe fn close_the_rest(ready: &Ready<'_>) {
    let (one, other) = (ready.says, ready.directory);
    let (low, high) = if one < other {
        (one, other)
    } else {
        (other, one)
    };
    for (first, last) in [(3, low - 1), (low + 1, high - 1), (high + 1, c_int::MAX)] {
        if first > last {
            continue;
        }
        // SAFETY: calls on numbers.
        unsafe {
            if libc::syscall(libc::SYS_close_range, first, last, 0) < 0 {
                for fd in first..=last.min(CLOSED_MAX) {
                    libc::close(fd);
                }
            }
        }
    }
}

unsafe fn limit(ready: &Ready<'_>) -> ChildResult {
    for (resource, limit) in ready.limits {
        // SAFETY: reads a live structure.
        let done = unsafe { libc::setrlimit(*resource, limit) };
        check(Stage::Limits, done.into())?;
    }
    Ok(())
}

/// The calls themselves: those of the C library would tell threads that are not here.
unsafe fn become_user(ready: &Ready<'_>) -> ChildResult {
    // SAFETY: calls on numbers, and on a list of groups as long as told.
    unsafe {
        if let Some(user) = ready.user {
            let groups = user.groups.as_ptr();
            check(
                Stage::User,
                libc::syscall(libc::SYS_setgroups, user.groups.len(), groups),
            )?;
            let (uid, gid) = (user.uid, user.gid);
            check(
                Stage::User,
                libc::syscall(libc::SYS_setresgid, gid, gid, gid),
            )?;
            check(
                Stage::User,
                libc::syscall(libc::SYS_setresuid, uid, uid, uid),
            )?;
        }
        // Becoming somebody else undoes the first of these: not before.
        let kill = libc::SIGKILL;
        check(
            Stage::User,
            libc::prctl(libc::PR_SET_PDEATHSIG, kill, 0, 0, 0).into(),
        )?;
        check(
            Stage::User,
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0).into(),
        )?;
        // It may have ended before it was agreed that this process ends with it.
        if u32::try_from(libc::getppid()) != Ok(ready.parent) {
            libc::_exit(127);
        }
    }
    Ok(())
}

unsafe fn exec(ready: &Ready<'_>) -> ChildResult {
    let pause = libc::timespec {
        tv_sec: 0,
        tv_nsec: BUSY_PAUSE_NS,
    };
    // SAFETY: the path and both lists end as `execve` wants them, and are alive; so is `pause`.
    unsafe {
        check(Stage::Directory, libc::fchdir(ready.directory).into())?;
        let mut tries = 1;
        loop {
            let done = libc::execve(ready.path, ready.arguments, ready.environment);
            match check(Stage::Exec, done.into()) {
                // Somebody writes it, or has just started another program while doing so.
                Err((_, libc::ETXTBSY)) if tries < BUSY_TRIES_MAX => tries += 1,
                result => return result,
            }
            libc::nanosleep(&pause, std::ptr::null_mut());
        }
    }
}

fn check(stage: Stage, result: c_long) -> ChildResult {
    if result < 0 {
        // SAFETY: the number of this thread's last error.
        Err((stage, unsafe { *libc::__errno_location() }))
    } else {
        Ok(())
    }
}
