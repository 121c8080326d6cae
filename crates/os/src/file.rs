//! Files: opened beneath a directory, asked for facts, read without waiting.
//!
//! The idea: a path is turned into a descriptor by one call that cannot leave its directory,
//! and every later decision looks at the descriptor. Callers that must not wait for a disk say
//! so and get `WouldBlock` where the kernel would have had to.

use serde::{Deserialize, Serialize};
use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{
    Access, AtFlags, FileType, FlockOperation, MemfdFlags, Mode, OFlags, ResolveFlags, SealFlags,
    StatxFlags, openat2,
};
use rustix::io::{Errno, ReadWriteFlags, preadv2, retry_on_intr};

use crate::symlinks;

/// What to do with symbolic links on the way. Those that are followed may be absolute, and lead out
/// of the directory on their way back into it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Symlinks {
    /// Any link is refused (`ELOOP`).
    Deny,
    /// A link is followed where its owner owns its target (`ELOOP` otherwise).
    Owner,
    /// Links are followed.
    Allow,
}

/// Whether a call may wait for a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// `WouldBlock` instead, and `CrossesDevices` where the way leads into another mount, of whose
    /// speed nothing is known: ask again from a thread that may.
    Never,
    /// It may.
    Allowed,
}

/// What a descriptor stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// A regular file.
    Regular,
    /// A directory.
    Directory,
    /// A symbolic link (listed, or opened as itself).
    Symlink,
    /// A device, FIFO or socket.
    Other,
}

/// What is known of an open file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileFacts {
    /// Its kind.
    pub kind: FileKind,
    /// Its size in bytes.
    pub size: u64,
    /// When its content changed last: seconds since 1970, 0 for anything earlier.
    pub modified_s: u64,
    /// The nanoseconds beside these seconds.
    pub modified_ns: u32,
    /// When anything about it changed last (content, owner, permissions, names), in nanoseconds
    /// since 1970. Unlike the time above nobody can set it.
    pub changed_ns: u64,
    /// The device that holds it.
    pub device: u64,
    /// Its number on that device.
    pub inode: u64,
    /// Its owner.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// Its permission bits.
    pub mode: u32,
}

/// An entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its name.
    pub name: Vec<u8>,
    /// Its kind, as the directory tells it; `Other` where the file system does not say.
    pub kind: FileKind,
}

/// How often a rename in the way of a resolution makes it start over.
const RACES_MAX: usize = 16;

/// Opens what is at `path` (relative; empty is the directory itself) for reading, never outside of
/// `dir` (`EXDEV`) and never through a magic link of `/proc`. Any kind of file is opened, without waiting
/// for a FIFO's writer: look at [`facts`] before use.
pub fn open_beneath(
    dir: BorrowedFd<'_>,
    path: &[u8],
    symlinks: Symlinks,
    wait: Wait,
) -> io::Result<OwnedFd> {
    beneath(dir, path, OFlags::RDONLY, symlinks, wait)
}

/// As [`open_beneath`], but only to look at [`facts`] and [`path_of`]: that asks for no permission
/// on the file itself.
pub fn find_beneath(
    dir: BorrowedFd<'_>,
    path: &[u8],
    symlinks: Symlinks,
    wait: Wait,
) -> io::Result<OwnedFd> {
    beneath(dir, path, OFlags::PATH, symlinks, wait)
}

/// What is at `path`, beneath `dir`, where no symbolic link is on the way or there itself; `None`
/// where one is.
///
/// # Errors
/// As [`find_beneath`].
pub fn facts_without_links(
    dir: BorrowedFd<'_>,
    path: &[u8],
    wait: Wait,
) -> io::Result<Option<FileFacts>> {
    let path = if path.is_empty() { b"." } else { path };
    let flags = OFlags::PATH | OFlags::NOFOLLOW;
    match open_resolved(dir, path, flags, ResolveFlags::NO_SYMLINKS, wait) {
        Err(Errno::LOOP) => Ok(None),
        Err(error) => Err(error.into()),
        Ok(found) => {
            let facts = facts(found.as_fd())?;
            Ok(Some(facts).filter(|facts| facts.kind != FileKind::Symlink))
        }
    }
}

/// Whether a symbolic link is at `path`, wherever that leads; one that is not found is none.
///
/// # Errors
/// `WouldBlock` where it must not wait and would have to.
pub fn is_link_beneath(dir: BorrowedFd<'_>, path: &[u8], wait: Wait) -> io::Result<bool> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW;
    match open_resolved(dir, path, flags, ResolveFlags::empty(), wait) {
        Ok(found) => Ok(facts(found.as_fd())?.kind == FileKind::Symlink),
        Err(Errno::AGAIN) if wait == Wait::Never => Err(Errno::AGAIN.into()),
        Err(_) => Ok(false),
    }
}

fn beneath(
    dir: BorrowedFd<'_>,
    path: &[u8],
    flags: OFlags,
    symlinks: Symlinks,
    wait: Wait,
) -> io::Result<OwnedFd> {
    let path = if path.is_empty() {
        b".".as_slice()
    } else {
        path
    };
    let resolve = match symlinks {
        Symlinks::Deny | Symlinks::Owner => ResolveFlags::NO_SYMLINKS,
        Symlinks::Allow => ResolveFlags::empty(),
    };
    match open_resolved(dir, path, flags, resolve, wait) {
        // Most paths have no link in them, or none that leaves `dir` on its way: only those that
        // do pay for the walk.
        Err(Errno::LOOP) if symlinks == Symlinks::Owner => {
            Ok(symlinks::open(dir, path, flags, symlinks, wait)?)
        }
        Err(Errno::XDEV) if symlinks == Symlinks::Allow => {
            Ok(symlinks::open(dir, path, flags, symlinks, wait)?)
        }
        result => Ok(result?),
    }
}

/// Where an open file or directory is now, as the kernel names it: no link is left in this path.
pub fn path_of(fd: BorrowedFd<'_>) -> io::Result<Vec<u8>> {
    let link = format!("/proc/self/fd/{}", fd.as_raw_fd());
    Ok(rustix::fs::readlink(link, Vec::new())?.into_bytes())
}

/// Why a name gave no descriptor, where the name is to blame and not the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoFile {
    /// Nothing is there, or nothing that can be reached: a name too long, a socket.
    Absent,
    /// A link that is refused.
    Link,
    /// It leads out of the directory.
    Outside,
    /// A component on the way is a file.
    FileInTheWay,
    /// Permission is missing.
    Denied,
}

impl NoFile {
    /// Reads the error of an open; `None` for trouble of the machine.
    pub fn of(error: &io::Error) -> Option<Self> {
        match Errno::from_io_error(error)? {
            Errno::NOTDIR => Some(Self::FileInTheWay),
            Errno::ACCESS | Errno::PERM => Some(Self::Denied),
            Errno::LOOP => Some(Self::Link),
            Errno::XDEV => Some(Self::Outside),
            Errno::NOENT | Errno::NAMETOOLONG | Errno::NXIO | Errno::ILSEQ | Errno::INVAL => {
                Some(Self::Absent)
            }
            _ => None,
        }
    }
}

/// One `openat2` beneath `dir`, repeated when a rename got in its way.
pub(crate) fn open_resolved(
    dir: BorrowedFd<'_>,
    path: &[u8],
    flags: OFlags,
    resolve: ResolveFlags,
    wait: Wait,
) -> Result<OwnedFd, Errno> {
    let flags = flags | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    // O_PATH takes no flag about reading.
    let flags = if flags.contains(OFlags::PATH) {
        flags - OFlags::NONBLOCK - OFlags::NOCTTY
    } else {
        flags
    };
    let always = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    let cached = if wait == Wait::Never {
        ResolveFlags::CACHED | ResolveFlags::NO_XDEV
    } else {
        ResolveFlags::empty()
    };
    for _ in 0..RACES_MAX {
        match openat2(dir, path, flags, Mode::empty(), resolve | always | cached) {
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) if wait == Wait::Allowed => {}
            result => return result,
        }
    }
    Err(Errno::AGAIN)
}

/// What is known of an open file.
pub fn facts(fd: BorrowedFd<'_>) -> io::Result<FileFacts> {
    let stat = rustix::fs::fstat(fd)?;
    Ok(FileFacts {
        kind: kind(FileType::from_raw_mode(stat.st_mode)),
        size: stat.st_size.try_into().unwrap_or(0),
        modified_s: stat.st_mtime.try_into().unwrap_or(0),
        modified_ns: stat.st_mtime_nsec.try_into().unwrap_or(0),
        changed_ns: nanoseconds(stat.st_ctime, stat.st_ctime_nsec),
        device: stat.st_dev,
        inode: stat.st_ino,
        uid: stat.st_uid,
        gid: stat.st_gid,
        mode: stat.st_mode & 0o7777,
    })
}

/// Opens a directory by its path, following links: for paths the operator wrote.
pub fn open_directory(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

/// As [`open_directory`], but `WouldBlock` where the kernel would have to wait.
pub fn open_directory_at_once(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let (from, cached) = (rustix::fs::CWD, ResolveFlags::CACHED);
    Ok(openat2(from, path, flags, Mode::empty(), cached)?)
}

/// Opens a file by its path for reading, following links: for paths the operator wrote. Any kind
/// of file is opened, without waiting for a FIFO's writer: look at [`facts`] before use.
pub fn open(path: &Path, wait: Wait) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let resolve = match wait {
        Wait::Never => ResolveFlags::CACHED,
        Wait::Allowed => ResolveFlags::empty(),
    };
    Ok(openat2(
        rustix::fs::CWD,
        path,
        flags,
        Mode::empty(),
        resolve,
    )?)
}

/// The device a descriptor's file is on, as far as this machine knows: no server is asked.
pub fn device_at_once(fd: BorrowedFd<'_>) -> io::Result<u64> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let known = rustix::fs::statx(fd, c"", flags, StatxFlags::empty())?;
    Ok(rustix::fs::makedev(
        known.stx_dev_major,
        known.stx_dev_minor,
    ))
}

/// When an open file was made, in nanoseconds since 1970; 0 where the file system does not say.
pub fn born_ns(fd: BorrowedFd<'_>) -> u64 {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    match rustix::fs::statx(fd, c"", flags, StatxFlags::BTIME) {
        Ok(known) if known.stx_mask & StatxFlags::BTIME.bits() != 0 => {
            nanoseconds(known.stx_btime.tv_sec, known.stx_btime.tv_nsec)
        }
        _ => 0,
    }
}

/// What a process wants to do with a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    /// Reach what is in it.
    Enter,
    /// Open it as well, to serve its index or list it.
    Read,
}

/// The first directory on the way to `directory` that this process may not enter, or `directory`
/// itself if the wish is not granted. `None` when permissions are not what is wrong.
pub fn first_closed(directory: &Path, wish: Wish) -> Option<&Path> {
    let is_closed = |path: &Path, access| rustix::fs::access(path, access) == Err(Errno::ACCESS);
    let wanted = match wish {
        Wish::Enter => Access::EXEC_OK,
        Wish::Read => Access::EXEC_OK | Access::READ_OK,
    };
    let way: Vec<_> = directory.ancestors().skip(1).collect();
    let mut way = way.into_iter().rev();
    way.find(|above| is_closed(above, Access::EXEC_OK))
        .or_else(|| is_closed(directory, wanted).then_some(directory))
}

/// The directory that something would have to be made in for `directory` to be there, or itself; and
/// why this process may not write there, if it may not.
pub fn writable(directory: &Path) -> (&Path, io::Result<()>) {
    /// procfs, sysfs, cgroup and cgroup2: root may write there, and make no file.
    const KERNELS: [u32; 4] = [0x9fa0, 0x6265_6572, 0x0027_e0eb, 0x6367_7270];
    let mut way = directory.ancestors();
    let there = way.find(|path| path.is_dir()).unwrap_or(directory);
    let may_write = || {
        rustix::fs::access(there, Access::WRITE_OK | Access::EXEC_OK)?;
        let kind = rustix::fs::statfs(there)?.f_type;
        match KERNELS.iter().any(|it| i64::from(*it) == kind) {
            true => Err(io::Error::other(
                "the kernel's own: no file can be made there",
            )),
            false => Ok(()),
        }
    };
    (there, may_write())
}

/// Whether a descriptor's file system is one whose calls on names and pages in memory never wait
/// for another machine or process, as those of network file systems and FUSE may.
pub fn is_local(fd: BorrowedFd<'_>) -> io::Result<bool> {
    /// ext2 to ext4, xfs, btrfs, f2fs, bcachefs, tmpfs, ramfs, overlayfs, squashfs, erofs, ZFS.
    const LOCAL: [u32; 11] = [
        0xef53,
        0x5846_5342,
        0x9123_683e,
        0xf2f5_2010,
        0xca45_1a4e,
        0x0102_1994,
        0x8584_58f6,
        0x794c_7630,
        0x7371_7368,
        0xe0f5_e1e2,
        0x2fc1_2fc1,
    ];
    let kind = rustix::fs::fstatfs(fd)?.f_type;
    Ok(LOCAL.iter().any(|local| i64::from(*local) == kind))
}

/// The entries of a directory but `.` and `..`, unsorted, at most `entries_max` of them.
pub fn list(dir: BorrowedFd<'_>, entries_max: usize) -> io::Result<Vec<Entry>> {
    let mut entries = Vec::new();
    for entry in rustix::fs::Dir::read_from(dir)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if entries.len() == entries_max {
            break;
        }
        if name != b"." && name != b".." {
            entries.push(Entry {
                name: name.to_vec(),
                kind: kind(entry.file_type()),
            });
        }
    }
    Ok(entries)
}

/// Reads at an offset, up to the buffer's length; 0 is the end.
pub fn read_at(fd: BorrowedFd<'_>, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    Ok(retry_on_intr(|| {
        rustix::io::pread(fd, &mut *buffer, offset)
    })?)
}

/// As [`read_at`], but `WouldBlock` where a disk would be waited for.
pub fn read_at_nowait(fd: BorrowedFd<'_>, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut buffers = [IoSliceMut::new(buffer)];
    match retry_on_intr(|| preadv2(fd, &mut buffers, offset, ReadWriteFlags::NOWAIT)) {
        Err(Errno::OPNOTSUPP) => Err(io::ErrorKind::WouldBlock.into()),
        result => Ok(result?),
    }
}

/// Writes all of `bytes` at an offset.
pub fn write_at(fd: BorrowedFd<'_>, mut bytes: &[u8], mut offset: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        match retry_on_intr(|| rustix::io::pwrite(fd, bytes, offset))? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            written => {
                bytes = bytes.get(written..).unwrap_or_default();
                offset += written as u64;
            }
        }
    }
    Ok(())
}

/// Reads all of a file from its start; more than `bytes_max` bytes is an error.
pub fn read_whole(fd: BorrowedFd<'_>, bytes_max: usize) -> io::Result<Vec<u8>> {
    let size = facts(fd)?.size;
    if size > bytes_max as u64 {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    let mut bytes = vec![0; size as usize];
    let mut filled = 0;
    while filled < bytes.len() {
        match read_at(fd, &mut bytes[filled..], filled as u64)? {
            0 => break,
            read => filled += read,
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}

/// Whether these bytes of a file are in memory, so that sending them waits for no disk.
/// The kernel answers exactly about files the caller owns or may write; of others, every 16th
/// page and the last are tried. A file system that cannot tell counts as not in memory.
pub fn pages_cached(fd: BorrowedFd<'_>, offset: u64, length: u64) -> io::Result<bool> {
    if length == 0 {
        return Ok(true);
    }
    match cached_pages(fd, offset, length) {
        Ok(pages) => {
            let last = offset.saturating_add(length - 1) / PAGE;
            Ok(pages > last - offset / PAGE)
        }
        Err(_) => sampled(fd, offset, length),
    }
}

const PAGE: u64 = 4096;
const SAMPLE_EVERY: u64 = 16 * PAGE;

fn sampled(fd: BorrowedFd<'_>, offset: u64, length: u64) -> io::Result<bool> {
    let last = offset.saturating_add(length - 1);
    let mut at = offset;
    loop {
        match read_at_nowait(fd, &mut [0], at) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error),
            Ok(0) => return Ok(true),
            Ok(_) if at == last => return Ok(true),
            Ok(_) => at = at.saturating_add(SAMPLE_EVERY).min(last),
        }
    }
}

/// `cachestat(2)`: how many pages of a range are in memory.
fn cached_pages(fd: BorrowedFd<'_>, offset: u64, length: u64) -> io::Result<u64> {
    const CACHESTAT: libc::c_long = 451;
    let range = [offset, length];
    let mut found = [0_u64; 5];
    // SAFETY: the kernel reads two 64-bit numbers (struct cachestat_range) and writes five
    // (struct cachestat); both arrays are that long and outlive the call.
    let result = unsafe {
        libc::syscall(
            CACHESTAT,
            fd.as_raw_fd(),
            range.as_ptr(),
            found.as_mut_ptr(),
            0_u32,
        )
    };
    if result == 0 {
        Ok(found[0])
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Takes the lock of an open file or directory, until that is closed: `false` where another process
/// has it (`flock(2)`).
pub fn lock(fd: BorrowedFd<'_>) -> io::Result<bool> {
    match rustix::fs::flock(fd, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// A file in memory with this content, sealed: nobody can change it any more.
pub fn memfd(name: &str, bytes: &[u8]) -> io::Result<OwnedFd> {
    let fd = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    let mut rest = bytes;
    while !rest.is_empty() {
        let written = retry_on_intr(|| rustix::io::write(&fd, rest))?;
        rest = rest.get(written..).unwrap_or_default();
    }
    let seals = SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE;
    rustix::fs::fcntl_add_seals(&fd, seals)?;
    Ok(fd)
}

/// A file without a name in `dir`, readable and writable; it vanishes when closed.
pub fn temporary(dir: &Path) -> io::Result<OwnedFd> {
    let mode = Mode::from_raw_mode(0o600);
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    match rustix::fs::open(dir, flags | OFlags::TMPFILE, mode) {
        Err(Errno::OPNOTSUPP | Errno::ISDIR) => {}
        result => return Ok(result?),
    }
    // The file system has no such thing: make a named one and unlink it at once.
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let number = COUNTER.fetch_add(1, Ordering::Relaxed);
    let path = dir.join(format!(".nagaya-{}-{number}", std::process::id()));
    let file = rustix::fs::open(&path, flags | OFlags::CREATE | OFlags::EXCL, mode)?;
    rustix::fs::unlink(&path)?;
    Ok(file)
}

/// One number of the two the kernel gives; 0 for times before 1970.
fn nanoseconds(seconds: impl TryInto<u64>, fraction: impl TryInto<u64>) -> u64 {
    let seconds: u64 = seconds.try_into().unwrap_or(0);
    let fraction: u64 = fraction.try_into().unwrap_or(0);
    seconds
        .saturating_mul(1_000_000_000)
        .saturating_add(fraction)
}

fn kind(kind: FileType) -> FileKind {
    match kind {
        FileType::RegularFile => FileKind::Regular,
        FileType::Directory => FileKind::Directory,
        FileType::Symlink => FileKind::Symlink,
        _ => FileKind::Other,
    }
}
