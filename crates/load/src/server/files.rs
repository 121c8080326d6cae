//! Reading files of /proc and /sys: bounded, and nothing is a failure but an absence.

use std::fs::File;
use std::io::{ErrorKind, Read};

/// Bytes read of a file unless a reader says otherwise. /proc/stat is the longest, with a number
/// for each interrupt.
pub(super) const BYTES_MAX: usize = 1024 * 1024;

/// The bytes of a file, at most so many; `None` where it cannot be read.
pub(super) fn bytes(path: &str, bytes_max: usize) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let bound = u64::try_from(bytes_max).unwrap_or(u64::MAX);
    let file = File::open(path).ok()?;
    file.take(bound).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// The text of a file; what is no text is replaced.
pub(super) fn text(path: &str) -> Option<String> {
    bytes(path, BYTES_MAX).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// A file that is one number.
pub(super) fn number(path: &str) -> Option<u64> {
    text(path)?.trim().parse().ok()
}

/// The beginning of a short file, read in one call where one is enough, into a buffer that is used
/// again and again.
pub(super) fn beginning<'b>(path: &str, buffer: &'b mut [u8]) -> Option<&'b [u8]> {
    let mut file = File::open(path).ok()?;
    let mut length = 0;
    while let Some(rest) = buffer.get_mut(length..).filter(|rest| !rest.is_empty()) {
        match file.read(rest) {
            Ok(0) => break,
            Ok(read) => length += read,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            // The process ended between two reads.
            Err(_) => return None,
        }
    }
    buffer.get(..length)
}

/// The names in a directory that are numbers: processes, threads, descriptors.
pub(super) fn numbers_in(directory: &str) -> Vec<u32> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.collect()
}
