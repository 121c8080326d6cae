//! Memory that two processes share, of which one writes and the other reads.
//!
//! The idea: a memory file of a fixed size, sealed so that nobody can shrink it below somebody who has
//! mapped it. All access is by atomic words that are copied once, so whatever the other side does to
//! them meanwhile is a number and nothing worse. What the words mean is not known here.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};

const WORD_BYTES: usize = 8;
/// Largest memory that is shared: 64 MiB.
const WORDS_MAX: usize = 8 << 20;
/// What has to be sealed before it is mapped.
const SEALS: SealFlags = SealFlags::SHRINK
    .union(SealFlags::GROW)
    .union(SealFlags::SEAL);

/// Makes memory of so many words, all zero; tells a descriptor to write it by and one to read it by.
///
/// # Errors
/// When there is no memory or descriptor to be had, or it is more than 64 MiB.
pub fn memory(name: &str, words: usize) -> io::Result<(OwnedFd, OwnedFd)> {
    let bytes = length(words)?;
    let fd = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    rustix::fs::ftruncate(&fd, bytes as u64)?;
    // Who is given the other descriptor cannot open this one by its name in /proc, unless he is us.
    rustix::fs::fchmod(&fd, Mode::RUSR | Mode::WUSR)?;
    rustix::fs::fcntl_add_seals(&fd, SEALS)?;
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    let readable = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    Ok((fd, readable))
}

/// Shared memory that this process reads.
#[derive(Debug)]
pub struct SharedReader(Mapping);

/// Shared memory that this process writes, and nobody else.
#[derive(Debug)]
pub struct SharedWriter(Mapping);

impl SharedReader {
    /// Maps memory of so many words.
    ///
    /// # Errors
    /// When it is of another size, not sealed, or cannot be mapped.
    pub fn map(fd: BorrowedFd<'_>, words: usize) -> io::Result<SharedReader> {
        Mapping::new(fd, words, ProtFlags::READ).map(SharedReader)
    }

    /// The word at a place; 0 beyond the end.
    pub fn get(&self, at: usize) -> u64 {
        self.0.word(at).map_or(0, |word| word.load(Relaxed))
    }

    /// As [`SharedReader::get`], and what the other side wrote before that word is seen from now on.
    pub fn get_published(&self, at: usize) -> u64 {
        self.0.word(at).map_or(0, |word| word.load(Acquire))
    }
}

impl SharedWriter {
    /// Maps memory of so many words.
    ///
    /// # Errors
    /// When it is of another size, not sealed, only to be read, or cannot be mapped.
    pub fn map(fd: BorrowedFd<'_>, words: usize) -> io::Result<SharedWriter> {
        Mapping::new(fd, words, ProtFlags::READ | ProtFlags::WRITE).map(SharedWriter)
    }

    /// The word at a place; 0 beyond the end.
    pub fn get(&self, at: usize) -> u64 {
        self.0.word(at).map_or(0, |word| word.load(Relaxed))
    }

    /// Sets the word at a place; nothing beyond the end.
    pub fn set(&self, at: usize, value: u64) {
        if let Some(word) = self.0.word(at) {
            word.store(value, Relaxed);
        }
    }

    /// Sets words one behind the other; nothing where not all of them have room.
    #[inline]
    pub fn set_all<const N: usize>(&self, at: usize, values: [u64; N]) {
        let words = self.0.words().get(at..).unwrap_or_default();
        if let Some(words) = words.first_chunk::<N>() {
            for (word, value) in words.iter().zip(values) {
                word.store(value, Relaxed);
            }
        }
    }

    /// Has the processor fetch the cache line of a word that is going to be set, without waiting for it.
    #[inline]
    pub fn prefetch(&self, at: usize) {
        #[cfg(target_arch = "x86_64")]
        if let Some(word) = self.0.word(at) {
            use std::arch::x86_64::{_MM_HINT_ET0, _mm_prefetch};
            // SAFETY: a prefetch is a hint, which reads and writes nothing; the word is mapped.
            unsafe { _mm_prefetch::<_MM_HINT_ET0>(std::ptr::from_ref(word).cast()) };
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = at;
    }

    /// Sets the word at a place, and shows whoever sees it all that was set before.
    pub fn publish(&self, at: usize, value: u64) {
        if let Some(word) = self.0.word(at) {
            word.store(value, Release);
        }
    }
}

/// Words that are mapped until this is dropped.
#[derive(Debug)]
struct Mapping {
    begin: NonNull<AtomicU64>,
    words: usize,
}

// SAFETY: the memory belongs to no thread, is accessed by atomics alone, and unmapped by whoever drops
// the only `Mapping` of it.
unsafe impl Send for Mapping {}
// SAFETY: as above; `&Mapping` gives no other access than `&[AtomicU64]`.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn new(fd: BorrowedFd<'_>, words: usize, protection: ProtFlags) -> io::Result<Mapping> {
        let bytes = length(words)?;
        let wrong = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
        if !rustix::fs::fcntl_get_seals(fd)?.contains(SEALS) {
            return Err(wrong("shared memory that is not sealed"));
        }
        // Sealed, its size stays what it is here.
        if u64::try_from(rustix::fs::fstat(fd)?.st_size) != Ok(bytes as u64) {
            return Err(wrong("shared memory of another size"));
        }
        // SAFETY: a new mapping at an address that the kernel chooses touches none of ours.
        let begin = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                bytes,
                protection,
                MapFlags::SHARED,
                fd.as_fd(),
                0,
            )?
        };
        let begin = NonNull::new(begin.cast()).ok_or_else(|| wrong("a mapping at address 0"))?;
        Ok(Mapping { begin, words })
    }

    fn words(&self) -> &[AtomicU64] {
        // SAFETY: so many words are mapped there, on a page's boundary, until `self` is dropped; the
        // file cannot shrink below them (`SEALS`). Other processes may write them at any time: they
        // are atomics. Where they are mapped to be read only, nobody but `SharedReader` has them, which
        // loads alone.
        unsafe { std::slice::from_raw_parts(self.begin.as_ptr(), self.words) }
    }

    fn word(&self, at: usize) -> Option<&AtomicU64> {
        self.words().get(at)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `Mapping::new` with this length, and nobody borrows it any more.
        let _ = unsafe { rustix::mm::munmap(self.begin.as_ptr().cast(), self.words * WORD_BYTES) };
    }
}

fn length(words: usize) -> io::Result<usize> {
    match words {
        1..=WORDS_MAX => Ok(words * WORD_BYTES),
        _ => Err(io::ErrorKind::InvalidInput.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_side_writes_the_other_reads_and_cannot_write() {
        let (write, read) = memory("test", 1_000).unwrap();
        let writer = SharedWriter::map(write.as_fd(), 1_000).unwrap();
        let reader = SharedReader::map(read.as_fd(), 1_000).unwrap();
        writer.set_all(998, [7, 8]);
        writer.set_all(999, [9, 9]);
        writer.prefetch(999);
        writer.prefetch(1_000);
        writer.publish(0, 5);
        assert_eq!(reader.get_published(0), 5);
        assert_eq!(
            [997, 998, 999, 1_000].map(|at| reader.get(at)),
            [0, 7, 8, 0]
        );
        writer.set(1_000, 1);
        assert_eq!(writer.get(1_000), 0);
        let refused = SharedWriter::map(read.as_fd(), 1_000).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
    }

    #[test]
    fn memory_that_could_shrink_or_is_of_another_size_is_not_mapped() {
        let (write, _) = memory("test", 1_000).unwrap();
        assert!(rustix::fs::ftruncate(&write, 8).is_err());
        assert!(rustix::fs::ftruncate(&write, 1 << 20).is_err());
        for words in [0, 999, 1_001, WORDS_MAX + 1, usize::MAX] {
            assert!(SharedReader::map(write.as_fd(), words).is_err(), "{words}");
        }
        let loose = rustix::fs::memfd_create("loose", MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&loose, 8_000).unwrap();
        assert!(SharedReader::map(loose.as_fd(), 1_000).is_err());
        let (pipe, _) = rustix::pipe::pipe().unwrap();
        assert!(SharedReader::map(pipe.as_fd(), 1_000).is_err());
    }
}
