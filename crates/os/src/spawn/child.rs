//! What a new process does before it is a program.
//!
//! The idea: it has a copy of everything its maker had, in the middle of whatever its maker's
//! other threads did; so it takes no lock and no memory, and makes plain system calls only.

use std::ffi::CStr;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

use libc::{c_char, c_int, c_long};

use super::walls::Walls;
use super::{LISTEN_PID, Stage, UMASK, VERDICT_BYTES, mounts};
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
/// By which other file systems are mounted, among much else.
const CAP_SYS_ADMIN: libc::c_ulong = 21;
/// Room for the longest of them.
pub(super) const LISTEN_PID_BYTES: usize = 32;

/// Everything made ready before the process is.
pub(super) struct Ready<'a> {
    pub(super) directory: RawFd,
    pub(super) path: *const c_char,
    pub(super) arguments: *const *const c_char,
    pub(super) environment: *const *const c_char,
    /// What it has as its descriptors 0, 1, 2 and so on; each above the last of these.
    pub(super) fds: &'a [RawFd],
    /// Room for the variable with its number, in its environment.
    pub(super) listen_pid: *mut [u8; LISTEN_PID_BYTES],
    pub(super) walls: Option<&'a Walls>,
    pub(super) user: Option<&'a User>,
    pub(super) limits: &'a [(Resource, libc::rlimit)],
    /// Signals that do something else than by default: a bit for each, the first signal's lowest.
    pub(super) signals: u64,
    /// Who it ends with; `None`: it outlives everybody.
    pub(super) parent: Option<u32>,
    pub(super) filter: Option<libc::sock_fprog>,
    pub(super) says: RawFd,
}

/// What could not be done.
#[derive(Debug, Clone, Copy)]
struct Fault {
    stage: Stage,
    /// The error's number.
    number: c_int,
    /// Which step of the stage, where it has several.
    step: u32,
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
    let fault = unsafe { become_program(ready, join, enter) };
    let mut record = [0_u8; VERDICT_BYTES];
    let [stage, n0, n1, n2, n3, step @ ..] = &mut record;
    *stage = fault.stage as u8;
    [*n0, *n1, *n2, *n3] = fault.number.to_ne_bytes();
    *step = fault.step.to_ne_bytes();
    // SAFETY: writes a live array to a descriptor, and ends without running anything else.
    unsafe {
        libc::write(ready.says, record.as_ptr().cast(), record.len());
        libc::_exit(127)
    }
}

/// Goes through every stage; comes back with the one that failed.
unsafe fn become_program(
    ready: &Ready<'_>,
    join: &[BorrowedFd<'_>],
    enter: Option<BorrowedFd<'_>>,
) -> Fault {
    // SAFETY: the caller's promise, for each.
    let result = unsafe {
        enter_groups(join, enter)
            .and_then(|()| own_session(ready))
            .and_then(|()| build_walls(ready))
            .and_then(|()| limit(ready))
            .and_then(|()| become_user(ready))
            .and_then(|()| filter(ready))
            .and_then(|()| exec(ready))
    };
    result.err().unwrap_or(Fault {
        stage: Stage::Exec,
        number: libc::EINVAL,
        step: 0,
    })
}

type ChildResult = Result<(), Fault>;

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

/// A session of its own, no descriptor but those it is to have, no signal blocked or ignored.
unsafe fn own_session(ready: &Ready<'_>) -> ChildResult {
    // SAFETY: calls on numbers; the set is live and all zero, which is the empty set. Nobody else
    // has the room for the number, if there is one.
    unsafe {
        check(Stage::Session, libc::setsid().into())?;
        for (at, fd) in (0..).zip(ready.fds) {
            check(Stage::Session, libc::dup2(*fd, at).into())?;
        }
        if let Some(room) = ready.listen_pid.as_mut() {
            write_text(room, LISTEN_PID, libc::getpid().unsigned_abs());
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

/// Writes a text and a number after it where there is room for both.
pub(super) fn write_text<'a>(room: &'a mut [u8; 32], text: &[u8], number: u32) -> &'a CStr {
    let mut digits = [0_u8; 10];
    let mut rest = number;
    let mut first = digits.len();
    for (at, digit) in digits.iter_mut().enumerate().rev() {
        *digit = b'0' + u8::try_from(rest % 10).unwrap_or_default();
        rest /= 10;
        first = at;
        if rest == 0 {
            break;
        }
    }
    let digits = digits.iter().skip(first);
    *room = [0; 32];
    let last = room.len() - 1;
    for (to, from) in room.iter_mut().take(last).zip(text.iter().chain(digits)) {
        *to = *from;
    }
    CStr::from_bytes_until_nul(room).unwrap_or_default()
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

/// Closes every descriptor but those it is to have, the directory, and the pipe for the verdict;
/// these two close by themselves at `execve`.
unsafe fn close_the_rest(ready: &Ready<'_>) {
    let (one, other) = (ready.says, ready.directory);
    let (low, high) = if one < other {
        (one, other)
    } else {
        (other, one)
    };
    let floor = c_int::try_from(ready.fds.len()).unwrap_or(c_int::MAX);
    for (first, last) in [
        (floor, low - 1),
        (low + 1, high - 1),
        (high + 1, c_int::MAX),
    ] {
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

unsafe fn build_walls(ready: &Ready<'_>) -> ChildResult {
    let Some(walls) = ready.walls else {
        return Ok(());
    };
    // SAFETY: the caller's promise.
    let built = unsafe { mounts::build(walls) };
    built.map_err(|(step, number)| Fault {
        stage: Stage::Walls,
        number,
        step,
    })
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
        // Nobody mounts but who makes the walls. It fails where there is nothing to take.
        libc::prctl(libc::PR_CAPBSET_DROP, CAP_SYS_ADMIN, 0, 0, 0);
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
        check(
            Stage::User,
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0).into(),
        )?;
        let Some(parent) = ready.parent else {
            return Ok(());
        };
        // Becoming somebody else undoes this: not before.
        let kill = libc::SIGKILL;
        check(
            Stage::User,
            libc::prctl(libc::PR_SET_PDEATHSIG, kill, 0, 0, 0).into(),
        )?;
        // It may have ended before it was agreed that this process ends with it.
        if u32::try_from(libc::getppid()) != Ok(parent) {
            libc::_exit(127);
        }
    }
    Ok(())
}

/// The last but one: what comes after is what every program does.
unsafe fn filter(ready: &Ready<'_>) -> ChildResult {
    let Some(filter) = &ready.filter else {
        return Ok(());
    };
    // SAFETY: reads a live structure, and the steps that it tells the number of.
    check(Stage::Filter, unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            0,
            std::ptr::from_ref(filter),
        )
    })
}

unsafe fn exec(ready: &Ready<'_>) -> ChildResult {
    let pause = libc::timespec {
        tv_sec: 0,
        tv_nsec: BUSY_PAUSE_NS,
    };
    // SAFETY: the path and both lists end as `execve` wants them, and are alive; so is `pause`.
    unsafe {
        let entered = match ready.walls {
            // What was opened before is on the other side of them.
            Some(walls) => libc::chdir(walls.directory.as_ptr()),
            None => libc::fchdir(ready.directory),
        };
        check(Stage::Directory, entered.into())?;
        let mut tries = 1;
        loop {
            let done = libc::execve(ready.path, ready.arguments, ready.environment);
            match check(Stage::Exec, done.into()) {
                // Somebody writes it, or has just started another program while doing so.
                Err(Fault {
                    number: libc::ETXTBSY,
                    ..
                }) if tries < BUSY_TRIES_MAX => tries += 1,
                result => return result,
            }
            libc::nanosleep(&pause, std::ptr::null_mut());
        }
    }
}

fn check(stage: Stage, result: c_long) -> ChildResult {
    if result < 0 {
        // SAFETY: the number of this thread's last error.
        let number = unsafe { *libc::__errno_location() };
        Err(Fault {
            stage,
            number,
            step: 0,
        })
    } else {
        Ok(())
    }
}
