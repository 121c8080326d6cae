//! Building walls in a process that is not a program yet.
//!
//! The idea: as in `child.rs`, system calls only. The new root is mounted over `/tmp`, becomes the
//! root with the old one lying over it, and what is seen is copied from the old one, which is still
//! open, to the same place in the new one; then the old one is let go. A place is walked to by
//! descriptors, and no link is followed on either side. A step that fails ends the process.
//!
//! On a kernel without `mount_setattr` (5.12) what is seen comes without what else is mounted in
//! it, since that could not be kept from being written. One whose `/proc` cannot hide processes in
//! one mount alone (5.8) refuses to mount it.

use std::ffi::{CStr, CString};
use std::os::fd::RawFd;

use libc::{c_int, c_long, c_ulong};

use super::walls::{Bind, FIRST_BIND_STEP, Link, PROC_STEP, ROOT_STEP, TMP_STEP, Walls};

/// From the kernel's `mount.h`; `libc` has none of these.
const OPEN_TREE_CLONE: c_int = 1;
const AT_RECURSIVE: c_int = 0x8000;
const MOVE_MOUNT_F_EMPTY_PATH: c_int = 0x4;
const MOVE_MOUNT_T_EMPTY_PATH: c_int = 0x40;
const MOUNT_ATTR_RDONLY: u32 = 0x1;
const MOUNT_ATTR_NOSUID: u32 = 0x2;
const MOUNT_ATTR_NODEV: u32 = 0x4;

/// What a mount has that is asked for anew keeps as it was: read-only, without programs that change
/// users, without devices, without programs. As `statvfs` tells and as `mount` takes it.
const KEPT: c_ulong = libc::MS_RDONLY | libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;

/// `struct mount_attr`.
#[repr(C)]
struct MountAttributes {
    set: u64,
    clear: u64,
    propagation: u64,
    user_namespace: u64,
}

/// What a call answers, or the number of its error.
type Called<T> = Result<T, c_int>;

/// The root there was, and the one there is, open.
struct Roots {
    outside: RawFd,
    inside: RawFd,
}

/// Builds walls around this process; what fails is told by its step and the error's number.
///
/// # Safety
/// Only in a process just made, whose only thread this is.
pub(super) unsafe fn build(walls: &Walls) -> Result<(), (u32, c_int)> {
    let at = |step: u32| move |number: c_int| (step, number);
    // SAFETY: the caller's promise, for each.
    unsafe {
        let roots = own_root().map_err(at(ROOT_STEP))?;
        own_proc().map_err(at(PROC_STEP))?;
        own_tmp(&walls.tmp).map_err(at(TMP_STEP))?;
        let mut step = FIRST_BIND_STEP;
        for bind in &walls.binds {
            hang(&roots, bind).map_err(at(step))?;
            step += 1;
        }
        for link in &walls.links {
            make_link(&roots, link).map_err(at(step))?;
            step += 1;
        }
        let_go(&roots).map_err(at(ROOT_STEP))
    }
}

/// Makes an empty root, with the old one lying over it.
unsafe fn own_root() -> Called<Roots> {
    let none = std::ptr::null();
    let here = c".".as_ptr();
    // SAFETY: calls on numbers and constant strings.
    unsafe {
        check(libc::unshare(libc::CLONE_NEWNS).into())?;
        // Nothing that is mounted here is seen elsewhere, and the other way round.
        mount(none, c"/", none, libc::MS_REC | libc::MS_PRIVATE, none)?;
        let outside = look(libc::AT_FDCWD, c"/", libc::O_DIRECTORY)?;
        let flags = libc::MS_NOSUID | libc::MS_NODEV;
        let tmpfs = c"tmpfs".as_ptr();
        mount(tmpfs, c"/tmp", tmpfs, flags, c"mode=0755".as_ptr())?;
        let inside = open_path(libc::AT_FDCWD, c"/tmp", libc::O_DIRECTORY)?;
        check(libc::fchdir(inside).into())?;
        check(libc::syscall(libc::SYS_pivot_root, here, here))?;
        Ok(Roots { outside, inside })
    }
}

/// Shows it the processes that it may look into, and nothing of the kernel's settings.
unsafe fn own_proc() -> Called<()> {
    let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
    let options = c"hidepid=ptraceable,subset=pid".as_ptr();
    let proc = c"proc".as_ptr();
    // SAFETY: calls on numbers and constant strings.
    unsafe {
        check(libc::mkdir(c"/proc".as_ptr(), 0o555).into())?;
        mount(proc, c"/proc", proc, flags, options)
    }
}

unsafe fn own_tmp(options: &CStr) -> Called<()> {
    let flags = libc::MS_NOSUID | libc::MS_NODEV;
    let tmpfs = c"tmpfs".as_ptr();
    // SAFETY: calls on numbers, constant strings and the options, which are alive.
    unsafe {
        check(libc::mkdir(c"/tmp".as_ptr(), 0o755).into())?;
        mount(tmpfs, c"/tmp", tmpfs, flags, options.as_ptr())
    }
}

/// Hangs something at its place.
unsafe fn hang(roots: &Roots, bind: &Bind) -> Called<()> {
    let empty = c"".as_ptr();
    let to_empty = MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH;
    // SAFETY: calls on numbers and live strings; the descriptors closed are of this function.
    unsafe {
        let source = walk(roots.outside, &bind.names, None)?;
        let kind = kind(source)?;
        let target = walk(roots.inside, &bind.names, bind.is_new.then_some(kind))?;
        let (tree, is_whole) = copy(source, bind)?;
        check(libc::syscall(
            libc::SYS_move_mount,
            tree,
            empty,
            target,
            empty,
            to_empty,
        ))?;
        if !is_whole {
            bar(tree, bind)?;
        }
        for fd in [source, target, tree] {
            libc::close(fd);
        }
    }
    Ok(())
}

/// A copy of a mount and those in it that may not do what ours may; or, on an older kernel, of the
/// mount alone, which that is still to be taken from.
unsafe fn copy(source: RawFd, bind: &Bind) -> Called<(RawFd, bool)> {
    let attributes = MountAttributes {
        set: attributes(bind).into(),
        clear: 0,
        propagation: 0,
        user_namespace: 0,
    };
    // SAFETY: calls on numbers, a constant string and a live structure of the size told.
    unsafe {
        let tree = open_tree(source, AT_RECURSIVE)?;
        let whole = libc::AT_EMPTY_PATH | AT_RECURSIVE;
        let done = check(libc::syscall(
            libc::SYS_mount_setattr,
            tree,
            c"".as_ptr(),
            whole,
            &raw const attributes,
            size_of::<MountAttributes>(),
        ));
        match done {
            Ok(_) => Ok((tree, true)),
            Err(libc::ENOSYS) => {
                libc::close(tree);
                Ok((open_tree(source, 0)?, false))
            }
            Err(number) => Err(number),
        }
    }
}

fn attributes(bind: &Bind) -> u32 {
    let mut set = MOUNT_ATTR_NOSUID;
    if !bind.is_writable {
        set |= MOUNT_ATTR_RDONLY;
    }
    if !bind.has_devices {
        set |= MOUNT_ATTR_NODEV;
    }
    set
}

/// Takes from a mount in its place what [`copy`] could not.
unsafe fn bar(tree: RawFd, bind: &Bind) -> Called<()> {
    let none = std::ptr::null();
    let mut path = [0_u8; 32];
    // SAFETY: all zero is a valid value of this structure of numbers, which is written to by a
    // call that is given it; the path ends in NUL.
    unsafe {
        let mut facts: libc::statvfs = std::mem::zeroed();
        check(libc::fstatvfs(tree, &raw mut facts).into())?;
        // The bits are those of `mount`, as those of the attributes are.
        let flags = (facts.f_flag | c_ulong::from(attributes(bind))) & KEPT;
        let flags = flags | libc::MS_REMOUNT | libc::MS_BIND;
        let path = by_number(&mut path, tree);
        mount(none, path, none, flags, none)
    }
}

/// Makes a link, where nothing has its place.
unsafe fn make_link(roots: &Roots, link: &Link) -> Called<()> {
    let Some((name, above)) = link.names.split_last() else {
        return Ok(());
    };
    // SAFETY: calls on a descriptor of this function and live strings.
    unsafe {
        let directory = walk(roots.inside, above, Some(libc::S_IFDIR))?;
        let made = check(libc::symlinkat(link.text.as_ptr(), directory, name.as_ptr()).into());
        libc::close(directory);
        match made {
            Err(libc::EEXIST) => Ok(()),
            made => made.map(drop),
        }
    }
}

/// Lets go of the old root, and lets nobody change the new one.
unsafe fn let_go(roots: &Roots) -> Called<()> {
    let none = std::ptr::null();
    let flags = libc::MS_REMOUNT | libc::MS_BIND | libc::MS_RDONLY;
    let flags = flags | libc::MS_NOSUID | libc::MS_NODEV;
    // SAFETY: calls on numbers, constant strings and descriptors that nobody else has.
    unsafe {
        check(libc::fchdir(roots.outside).into())?;
        check(libc::umount2(c".".as_ptr(), libc::MNT_DETACH).into())?;
        check(libc::chdir(c"/".as_ptr()).into())?;
        mount(none, c"/", none, flags, none)?;
        libc::close(roots.outside);
        libc::close(roots.inside);
    }
    Ok(())
}

/// Opens what is at the end of a way without links. With `made`, directories on it that are missing
/// are made, and at its end one or, where `made` is no directory, an empty file.
unsafe fn walk(from: RawFd, names: &[CString], made: Option<libc::mode_t>) -> Called<RawFd> {
    // SAFETY: calls on live strings and descriptors of this function.
    unsafe {
        let mut at = look(from, c".", libc::O_DIRECTORY)?;
        for (left, name) in (0..names.len()).rev().zip(names) {
            match made {
                Some(kind) if left == 0 && kind != libc::S_IFDIR => make_file(at, name)?,
                Some(_) => make_directory(at, name)?,
                None => {}
            }
            let is_directory = if left > 0 { libc::O_DIRECTORY } else { 0 };
            let next = look(at, name, is_directory)?;
            libc::close(at);
            at = next;
        }
        match kind(at)? {
            libc::S_IFLNK => Err(libc::ELOOP),
            _ => Ok(at),
        }
    }
}

unsafe fn make_directory(at: RawFd, name: &CStr) -> Called<()> {
    // SAFETY: a call on a live string.
    match check(unsafe { libc::mkdirat(at, name.as_ptr(), 0o755) }.into()) {
        Err(libc::EEXIST) => Ok(()),
        made => made.map(drop),
    }
}

unsafe fn make_file(at: RawFd, name: &CStr) -> Called<()> {
    // SAFETY: a call on a live string.
    match check(unsafe { libc::mknodat(at, name.as_ptr(), libc::S_IFREG | 0o444, 0) }.into()) {
        Err(libc::EEXIST) => Ok(()),
        made => made.map(drop),
    }
}

/// Opens something without following it, to name it by.
unsafe fn look(at: RawFd, name: &CStr, flags: c_int) -> Called<RawFd> {
    // SAFETY: the caller's promise: the string is alive.
    unsafe { open_path(at, name, flags | libc::O_NOFOLLOW) }
}

unsafe fn open_path(at: RawFd, name: &CStr, flags: c_int) -> Called<RawFd> {
    let flags = flags | libc::O_PATH | libc::O_CLOEXEC;
    // SAFETY: a call on a live string.
    let opened = check(unsafe { libc::openat(at, name.as_ptr(), flags) }.into())?;
    RawFd::try_from(opened).map_err(|_| libc::EBADF)
}

unsafe fn open_tree(source: RawFd, flags: c_int) -> Called<RawFd> {
    let flags = flags | OPEN_TREE_CLONE | libc::O_CLOEXEC | libc::AT_EMPTY_PATH;
    // SAFETY: a call on numbers and a constant string.
    let opened = check(unsafe { libc::syscall(libc::SYS_open_tree, source, c"".as_ptr(), flags) })?;
    RawFd::try_from(opened).map_err(|_| libc::EBADF)
}

unsafe fn kind(fd: RawFd) -> Called<libc::mode_t> {
    // SAFETY: all zero is a valid value of this structure of numbers, which the call writes to.
    unsafe {
        let mut facts: libc::stat = std::mem::zeroed();
        check(libc::fstat(fd, &raw mut facts).into())?;
        Ok(facts.st_mode & libc::S_IFMT)
    }
}

unsafe fn mount(
    source: *const libc::c_char,
    target: &CStr,
    kind: *const libc::c_char,
    flags: c_ulong,
    options: *const libc::c_char,
) -> Called<()> {
    // SAFETY: the caller's strings are alive, or null where none is needed.
    let done = unsafe { libc::mount(source, target.as_ptr(), kind, flags, options.cast()) };
    check(done.into()).map(drop)
}

/// `/proc/self/fd/NUMBER`, written where there is room for it.
fn by_number(room: &mut [u8; 32], fd: RawFd) -> &CStr {
    const BEFORE: &[u8] = b"/proc/self/fd/";
    super::child::write_text(room, BEFORE, fd.unsigned_abs())
}

fn check(result: c_long) -> Called<c_long> {
    if result < 0 {
        // SAFETY: the number of this thread's last error.
        Err(unsafe { *libc::__errno_location() })
    } else {
        Ok(result)
    }
}
