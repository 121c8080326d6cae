//! What this kernel can do, found out by trying.
//!
//! The idea: each question is a call that changes nothing and whose error tells an unknown call
//! from a known one. A filter (seccomp) that forbids a call is as good as a kernel without it.
//! Where trying would change something, the kernel's version answers.

use std::io;
use std::path::Path;

use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
use rustix::io::{Errno, ReadWriteFlags};
use rustix::process::{PidfdFlags, getpid, pidfd_open};

/// Whether files can be opened beneath a directory, and without waiting for a disk
/// (`openat2` with `RESOLVE_CACHED`, 5.12).
pub fn opens_cached() -> bool {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::CACHED;
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let opened = openat2(rustix::fs::CWD, ".", flags, Mode::empty(), resolve);
    matches!(opened, Ok(_) | Err(Errno::AGAIN))
}

/// Whether a read can be told not to wait for a disk (`preadv2` with `RWF_NOWAIT`, 4.14).
pub fn reads_without_waiting() -> bool {
    let Ok(file) = std::fs::File::open("/proc/self/exe") else {
        return false;
    };
    let mut byte = [0];
    let mut buffers = [io::IoSliceMut::new(&mut byte)];
    let read = rustix::io::preadv2(&file, &mut buffers, 0, ReadWriteFlags::NOWAIT);
    matches!(read, Ok(_) | Err(Errno::AGAIN))
}

/// Whether processes can be held by descriptors (`pidfd_open`, 5.3).
pub fn holds_processes() -> bool {
    pidfd_open(getpid(), PidfdFlags::empty()).is_ok()
}

/// Whether a process can be born in a control group (`clone3` with `CLONE_INTO_CGROUP`, 5.7).
pub fn bears_into_groups() -> bool {
    /// No process has so many descriptors: the call fails before there is a child.
    const NO_DESCRIPTOR: u64 = i32::MAX as u64;
    /// The C library's constant has the wrong width.
    const INTO_CGROUP: u64 = 1 << 33;
    // SAFETY: all zero is a valid value of this structure of integers.
    let mut order: libc::clone_args = unsafe { std::mem::zeroed() };
    order.flags = INTO_CGROUP;
    order.exit_signal = libc::SIGCHLD as u64;
    order.cgroup = NO_DESCRIPTOR;
    // SAFETY: the structure lives through the call and its size is told. The group's descriptor
    // is not open, so that no process is made: the call returns here and only here.
    let made = unsafe { libc::syscall(libc::SYS_clone3, &raw const order, size_of_val(&order)) };
    made == -1 && io::Error::last_os_error().raw_os_error() == Some(libc::EBADF)
}

/// What `uname` tells of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Name {
    /// `Linux`.
    pub system: String,
    /// The machine's own name in its network.
    pub node: String,
    /// The kernel's version.
    pub release: String,
    /// How the kernel was built.
    pub version: String,
    /// `x86_64` and the like.
    pub machine: String,
}

/// Asks the kernel for its name.
pub fn name() -> Name {
    let name = rustix::system::uname();
    let text = |part: &std::ffi::CStr| part.to_string_lossy().into_owned();
    Name {
        system: text(name.sysname()),
        node: text(name.nodename()),
        release: text(name.release()),
        version: text(name.version()),
        machine: text(name.machine()),
    }
}

/// Major and minor version; `None` where the kernel does not tell.
pub fn version() -> Option<(u32, u32)> {
    let release = std::fs::read_to_string(Path::new("/proc/sys/kernel/osrelease")).ok()?;
    parse(&release)
}

fn parse(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.trim().split(|digit: char| !digit.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_releases() {
        for (release, expected) in [
            ("6.18.44-fc-v509\n", Some((6, 18))),
            ("5.4.0-150-generic", Some((5, 4))),
            ("6.1-rc3", Some((6, 1))),
            ("linux", None),
            ("", None),
        ] {
            assert_eq!(parse(release), expected, "{release}");
        }
    }

    #[test]
    fn asking_makes_no_process() {
        let answers = [
            opens_cached(),
            reads_without_waiting(),
            holds_processes(),
            bears_into_groups(),
        ];
        eprintln!("{answers:?} on {:?}", version());
        assert!(crate::process::children().is_empty());
    }
}
