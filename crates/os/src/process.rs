//! This process: identity, limits, life and death. How it starts others: `exec.rs`.
//!
//! The idea: a child's link to its parent is its standard input; nothing else is inherited but
//! standard output and error. Privileges are given up once and for all, and checked to be gone.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, setrlimit};

/// The children of this process, whoever started them; none where the kernel does not tell. Call
/// it from the main thread, which has started them or been given them.
pub fn children() -> Vec<u32> {
    let path = format!("/proc/self/task/{}/children", std::process::id());
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let numbers = text.split_ascii_whitespace();
    numbers.filter_map(|number| number.parse().ok()).collect()
}

/// Whether a process can never gain privileges by what it runs: it, or one it descends from, was
/// made so.
pub fn has_no_new_privileges(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"));
    let status = status.unwrap_or_default();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("NoNewPrivs:"));
    line.is_some_and(|value| value.trim() == "1")
}

/// Kills a child that was not reaped.
pub fn kill_child(child: u32) {
    let pid = i32::try_from(child).ok().and_then(Pid::from_raw);
    if let Some(pid) = pid {
        // It may have ended; its number is nobody else's until it is reaped.
        let _ = rustix::process::kill_process(pid, Signal::KILL);
    }
}

/// Sends a process a signal.
pub fn send_signal(pid: u32, signal: crate::signal::Signal) -> io::Result<()> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or(io::ErrorKind::InvalidInput)?;
    Ok(rustix::process::kill_process(pid, signal.into())?)
}

/// Whether there is a process of this number.
pub fn is_there(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let tested = pid.map(rustix::process::test_kill_process);
    !matches!(tested, None | Some(Err(Errno::SRCH)))
}

/// Names the calling thread, and so, from its main thread, the process in `ps`; at most 15 bytes
/// of the name are kept.
pub fn set_name(name: &str) {
    if let Ok(name) = CString::new(name) {
        let _ = rustix::thread::set_name(&name);
    }
}

/// The calling thread's number.
pub fn thread_id() -> u32 {
    rustix::thread::gettid()
        .as_raw_nonzero()
        .get()
        .unsigned_abs()
}

/// Has the calling thread give way to others that want the processor: by so much of `nice`, 0 to 19, or by
/// what it does already, where that is more. No right is needed for it, and there is no way back.
pub fn give_way(nice: i32) -> io::Result<()> {
    // To Linux, a process by its number is a thread.
    let thread = Some(rustix::thread::gettid());
    let now = rustix::process::getpriority_process(thread)?;
    let nice = nice.clamp(0, 19).max(now);
    Ok(rustix::process::setpriority_process(thread, nice)?)
}

/// Takes standard input, and leaves an empty one in its place.
pub fn take_stdin() -> io::Result<OwnedFd> {
    let taken = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
    let null = rustix::fs::open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::stdio::dup2_stdin(null)?;
    Ok(taken)
}

/// Asks the kernel to kill this process when its parent ends. `link` is the socket the parent
/// made: the parent may have ended already, and then this process is somebody else's child.
/// Changing the user undoes this: call it afterwards.
pub fn die_with_parent(link: &OwnedFd) -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    let (maker, _, _) = crate::net::peer_credentials(link.as_fd())?;
    let parent = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get().unsigned_abs());
    if parent == Some(maker) {
        Ok(())
    } else {
        Err(io::Error::other("the parent process has ended"))
    }
}

/// Whether this process is root.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The user this process acts as.
pub fn user_id() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// The group this process acts as.
pub fn group_id() -> u32 {
    rustix::process::getegid().as_raw()
}

/// Becomes `user`, with that user's groups, for good. Call it while there is one thread.
/// Does nothing when not root, where there is nothing to give up.
pub fn drop_privileges(user: &str) -> io::Result<()> {
    if !is_root() {
        return Ok(());
    }
    let name = CString::new(user)?;
    let (uid, gid) = unprivileged(&name)?;
    // SAFETY: plain calls on numbers and on a string that ends in NUL and outlives them. glibc
    // applies them to every thread.
    unsafe {
        check(libc::initgroups(name.as_ptr(), gid))?;
        check(libc::setresgid(gid, gid, gid))?;
        check(libc::setresuid(uid, uid, uid))?;
        check(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))?;
        if libc::setuid(0) == 0 {
            return Err(io::Error::other("privileges could be taken back"));
        }
    }
    Ok(())
}

/// Whether there is such a user other than root; the error says what is wrong with it.
pub fn check_user(user: &str) -> io::Result<()> {
    unprivileged(&CString::new(user)?).map(drop)
}

/// Raises the number of descriptors this process may hold to what it is allowed, and tells it.
pub fn raise_nofile() -> io::Result<u64> {
    set_nofile(getrlimit(Resource::Nofile).maximum)
}

/// How many descriptors this process is allowed at most.
pub fn nofile_max() -> u64 {
    getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX)
}

/// Held while the reserve is open or its size changes: whoever comes second would find it closed
/// again, or of the size it had before.
static RESERVE: Mutex<()> = Mutex::new(());

/// Sets so many of the descriptors this process is allowed aside for [`with_reserve`]; tells how
/// many are left for everything else.
pub fn reserve_descriptors(count: u64) -> io::Result<u64> {
    let _closed = RESERVE.lock().unwrap_or_else(PoisonError::into_inner);
    let allowed = getrlimit(Resource::Nofile).maximum;
    set_nofile(allowed.map(|allowed| allowed.saturating_sub(count)))
}

/// Does what takes descriptors and may not fail for lack of them: those set aside can be had
/// meanwhile. To be brief: whatever else is opened at that moment can take them, too.
pub fn with_reserve<T>(take: impl FnOnce() -> T) -> T {
    let _open = RESERVE.lock().unwrap_or_else(PoisonError::into_inner);
    let limit = getrlimit(Resource::Nofile);
    // Where it cannot be opened, what is to be taken may still be had.
    let opened = limit.current != limit.maximum && set_nofile(limit.maximum).is_ok();
    let taken = take();
    if opened {
        let _ = set_nofile(limit.current);
    }
    taken
}

/// The number of the descriptor that would be opened next: as many are open at least. An error
/// when there is none to be had.
pub fn next_descriptor() -> io::Result<u64> {
    let next = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 0)?;
    Ok(u64::from(next.as_raw_fd().unsigned_abs()))
}

fn set_nofile(current: Option<u64>) -> io::Result<u64> {
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current, maximum })?;
    Ok(current.unwrap_or(u64::MAX))
}

/// Gives free memory back to the kernel: after work that took much of it for a moment, such as
/// reading a large configuration.
pub fn release_memory() {
    // SAFETY: takes a number and touches only what the allocator holds free.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Has what threads have freed go back to the kernel once it is this much. By itself the allocator keeps as much
/// as a process has needed at once, which is for those that soon need it again.
pub fn release_memory_beyond(bytes: i32) {
    // SAFETY: sets a number of the allocator's.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::mallopt(libc::M_TRIM_THRESHOLD, bytes);
    }
}

/// The numbers of a user, who is not root, and of its first group.
fn unprivileged(name: &CString) -> io::Result<(u32, u32)> {
    match crate::user::numbers(name)? {
        (0, _) => Err(io::Error::other("it is root")),
        numbers => Ok(numbers),
    }
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}
/// Where this program is, or was before another took its place: the kernel says ` (deleted)`
/// behind a path whose file has gone (proc_pid_exe(5)).
///
/// # Errors
/// When `/proc` does not say.
pub fn program_path() -> io::Result<std::path::PathBuf> {
    let path = std::env::current_exe()?;
    let replaced = path
        .to_str()
        .and_then(|path| path.strip_suffix(" (deleted)"));
    Ok(replaced.map(Into::into).unwrap_or(path))
}
