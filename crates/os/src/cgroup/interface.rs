//! The files a group is read and told by.

use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{Mode, OFlags, open};
use rustix::io::retry_on_intr;

/// Bytes read of one file; lists of processes are the longest.
const READ_BYTES_MAX: u64 = 1024 * 1024;

/// The text of a file; what is no text is replaced.
pub(super) fn read(path: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    std::fs::File::open(path)?
        .take(READ_BYTES_MAX)
        .read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Writes a value in one call, as the kernel wants it. The file must be there.
pub(super) fn write(path: &Path, value: &str) -> io::Result<()> {
    let file = open_for_writing(path)?;
    let written = retry_on_intr(|| rustix::io::write(&file, value.as_bytes()))?;
    if written == value.len() {
        Ok(())
    } else {
        Err(io::ErrorKind::WriteZero.into())
    }
}

/// Has a group give way to those beside it whenever they want a processor, or no more; tells
/// whether it does. Kernels before 5.15 cannot.
pub(super) fn give_way(group: &Path, gives: bool) -> bool {
    let value = if gives { "1" } else { "0" };
    write(&group.join("cpu.idle"), value).is_ok() && gives
}

/// Opens a file for later writing.
pub(super) fn open_for_writing(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
    Ok(retry_on_intr(|| open(path, flags, Mode::empty()))?)
}

/// A file that is one number.
pub(super) fn number(path: &Path) -> Option<u64> {
    read(path).ok()?.trim().parse().ok()
}

/// The number after `key` in a file of lines `key number`.
pub(super) fn keyed(path: &Path, key: &str) -> Option<u64> {
    value(&read(path).ok()?, key)
}

/// The number after `key` in lines `key number`.
pub(super) fn value(text: &str, key: &str) -> Option<u64> {
    text.lines()
        .find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')?.parse().ok())
}

/// The processes in a group itself.
pub(super) fn processes(directory: &Path) -> io::Result<Vec<i32>> {
    let text = read(&directory.join("cgroup.procs"))?;
    Ok(text.lines().filter_map(|line| line.parse().ok()).collect())
}
