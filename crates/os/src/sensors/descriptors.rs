//! How many descriptors this process has open, and how many it may have.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags, RawDir, SeekFrom, fstat, open, seek};
use rustix::process::{Resource, getrlimit};

/// Bytes of its list that are read at a time.
const LIST_BYTES: usize = 8 * 1024;

/// The directory that lists this process's descriptors, kept open.
#[derive(Debug)]
pub struct OpenDescriptors {
    directory: OwnedFd,
}

impl OpenDescriptors {
    /// Opens it.
    pub fn look() -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = open("/proc/self/fd", flags, Mode::empty())?;
        Ok(Self { directory })
    }

    /// How many are open, where the kernel keeps count (Linux 6.2); `None` where it does not.
    pub fn told(&self) -> Option<u64> {
        let size = u64::try_from(fstat(&self.directory).ok()?.st_size).ok()?;
        // This one is open at least.
        (size > 0).then_some(size)
    }

    /// How many are open, counted one by one: takes longer the more there are. It takes none for
    /// itself, so it counts them when there are no more to be had, too. By one thread at a time.
    pub fn counted(&self) -> io::Result<u64> {
        seek(&self.directory, SeekFrom::Start(0))?;
        let mut room = [MaybeUninit::uninit(); LIST_BYTES];
        let mut entries = RawDir::new(&self.directory, &mut room);
        let mut count = 0;
        while let Some(entry) = entries.next() {
            count += u64::from(entry?.file_name().to_bytes().first() != Some(&b'.'));
        }
        Ok(count)
    }

    /// How many there may be; `None` is any number.
    pub fn most() -> Option<u64> {
        getrlimit(Resource::Nofile).current
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_descriptors_are_more() {
        let descriptors = OpenDescriptors::look().expect("/proc");
        let before = descriptors.counted().expect("a list");
        let more: Vec<_> = (0..500)
            .map(|_| std::fs::File::open("/dev/null").expect("a descriptor"))
            .collect();
        // Other tests open and close some of their own meanwhile.
        let after = descriptors.counted().expect("a list");
        assert!(
            after >= before + 400 && after < before + 600,
            "{before} {after}"
        );
        if let Some(told) = descriptors.told() {
            assert!(
                told >= before + 400 && told < before + 600,
                "{before} {told}"
            );
        }
        drop(more);
        assert!(OpenDescriptors::most().is_none_or(|most| most > before));
    }
}
