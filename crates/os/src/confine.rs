//! What a process that holds secrets gives up before it hears its first word.
//!
//! The idea: each step is one that cannot be taken back, and the whole is of use only before there
//! is anything to protect. What the kernel still lets such a process ask for is decided elsewhere,
//! by a filter of calls.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::io::Errno;
use rustix::mm::{MlockAllFlags, mlockall};
use rustix::process::{
    DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit,
};
use rustix::thread::{CapabilitySet, CapabilitySets};

/// Allows this process to keep all its memory out of swap, for [`hide_memory`]; call it before
/// privileges go. Who has none keeps the limit it has.
pub fn allow_locked_memory() {
    let all = Rlimit {
        current: None,
        maximum: None,
    };
    let _ = setrlimit(Resource::Memlock, all);
}

/// Takes from this thread what it, or what it could ever run, might get capabilities by: to be
/// called while there is one thread, and before privileges go. Root alone may empty the bounding
/// set; what a service manager lent to others (ambient capabilities) goes in any case.
///
/// # Errors
/// When the kernel does not do as it is asked.
pub fn bar_capabilities() -> io::Result<()> {
    for capability in CapabilitySet::all().iter() {
        // Those that the kernel does not know are not there to be had.
        let _ = rustix::thread::remove_capability_from_bounding_set(capability);
    }
    match rustix::thread::clear_ambient_capability_set() {
        // A kernel without them.
        Err(Errno::INVAL) => Ok(()),
        cleared => Ok(cleared?),
    }
}

/// Empties the sets that count for this thread; after the change of user, which keeps what
/// somebody else than root was lent.
///
/// # Errors
/// When the kernel does not do as it is asked.
pub fn forget_capabilities() -> io::Result<()> {
    let none = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    Ok(rustix::thread::set_capabilities(None, none)?)
}

/// Whether this process, or one that it starts, may make file systems of its own
/// (`CAP_SYS_ADMIN`).
#[must_use]
pub fn may_mount() -> bool {
    let held = rustix::thread::capabilities(None);
    held.is_ok_and(|held| held.permitted.contains(CapabilitySet::SYS_ADMIN))
}

/// Lays `CAP_SYS_ADMIN` aside: this thread does nothing by it any more, what it starts may.
///
/// # Errors
/// When the kernel does not do as it is asked.
pub fn lay_mounting_aside() -> io::Result<()> {
    let mut held = rustix::thread::capabilities(None)?;
    held.effective.remove(CapabilitySet::SYS_ADMIN);
    Ok(rustix::thread::set_capabilities(None, held)?)
}

/// Keeps this process's memory from core dumps, and from every debugger but root's. After the change of
/// user, which undoes it.
///
/// # Errors
/// When the kernel does not do as it is asked.
pub fn keep_from_debuggers() -> io::Result<()> {
    let nothing = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    setrlimit(Resource::Core, nothing)?;
    Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}

/// Keeps this process's memory from core dumps, from every debugger but root's, and from swap as
/// far as it is allowed; tells whether it is out of swap.
///
/// # Errors
/// When the kernel does not do as it is asked.
pub fn hide_memory() -> io::Result<bool> {
    keep_from_debuggers()?;
    // Pages as they come into use: whatever is only reserved costs nothing.
    let flags = MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT;
    // Under a limit, what is only reserved counts: at some later moment there would be no memory.
    Ok(may_lock_memory() && mlockall(flags).is_ok())
}

/// Whether a process like this one may keep all its memory from swap.
#[must_use]
pub fn may_lock_memory() -> bool {
    getrlimit(Resource::Memlock).current.is_none()
}

/// Closes every descriptor beyond the three of every process, but this one: whatever was left open
/// by who started the program. Call it before there are others of ours.
///
/// # Errors
/// When the kernel does not know how.
pub fn close_all_but(kept: &OwnedFd) -> io::Result<()> {
    const FIRST: u32 = 3;
    let kept = kept.as_raw_fd().unsigned_abs();
    let ranges = [
        (FIRST, kept.saturating_sub(1)),
        (kept.max(FIRST - 1) + 1, u32::MAX),
    ];
    for (first, last) in ranges.into_iter().filter(|(first, last)| first <= last) {
        // SAFETY: plain numbers. Nobody in this process owns what it did not open, and what it
        // opened is either kept or one of the first three.
        if unsafe { libc::close_range(first, last, 0) } < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Lets this process never have more descriptors than `count`.
///
/// # Errors
/// When the kernel does not do as it is asked.
pub fn bound_descriptors(count: u64) -> io::Result<()> {
    let count = Rlimit {
        current: Some(count.min(crate::process::nofile_max())),
        maximum: Some(count.min(crate::process::nofile_max())),
    };
    Ok(setrlimit(Resource::Nofile, count)?)
}
