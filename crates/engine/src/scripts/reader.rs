//! How scripts' files are read: here if the kernel has them in memory, else on a helper thread.

use std::fs::metadata;
use std::future::ready;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::time::{Duration, SystemTime};

use os::file::{FileKind, Wait};
use script::{Read, Reader, Waiting};

use crate::guarded::Guarded;
use crate::helper::{Helpers, Lane};

/// Reads files without making the worker wait for a disk.
#[derive(Debug)]
pub(super) struct HelperReader {
    helpers: Helpers,
    guarded: Guarded,
}

impl HelperReader {
    pub(super) fn new(helpers: &Helpers, guarded: &Guarded) -> Self {
        Self {
            helpers: helpers.clone(),
            guarded: guarded.clone(),
        }
    }

    /// Runs `work` on a helper thread. Nothing is known of the file systems files lie on.
    fn ask<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> Waiting<io::Result<T>> {
        let helpers = self.helpers.clone();
        Box::pin(async move {
            let done = helpers.run(Lane::Remote, work).await;
            let done = done.map_err(|error| io::Error::other(error.to_string()))?;
            done.map_err(|error| worded(&error))
        })
    }
}

impl Reader for HelperReader {
    fn read(&self, path: &Path, bytes_max: usize) -> Waiting<io::Result<Read>> {
        match read_at_once(path, bytes_max, &self.guarded) {
            Err(error) if is_to_be_waited_for(&error) => {
                let (path, guarded) = (path.to_owned(), self.guarded.clone());
                self.ask(move || read(&path, bytes_max, &guarded))
            }
            known => Box::pin(ready(known.map_err(|error| worded(&error)))),
        }
    }

    fn changed(&self, path: &Path) -> Waiting<io::Result<SystemTime>> {
        let path = path.to_owned();
        self.ask(move || metadata(path)?.modified())
    }
}

/// The same error in words for people.
fn worded(error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), config::reason(error))
}

fn is_to_be_waited_for(error: &io::Error) -> bool {
    use io::ErrorKind::{CrossesDevices, Unsupported, WouldBlock};
    matches!(error.kind(), WouldBlock | CrossesDevices | Unsupported)
}

/// What the kernel has in memory, of a file on this machine's own disks; `WouldBlock` otherwise.
fn read_at_once(path: &Path, bytes_max: usize, guarded: &Guarded) -> io::Result<Read> {
    let file = os::file::open(path, Wait::Never)?;
    if !os::file::is_local(file.as_fd())? {
        return Err(io::ErrorKind::WouldBlock.into());
    }
    let (changed, size) = judge(path, file.as_fd(), bytes_max, guarded)?;
    let mut bytes = vec![0; size];
    let mut known = 0;
    while let Some(room) = bytes.get_mut(known..).filter(|room| !room.is_empty()) {
        match os::file::read_at_nowait(file.as_fd(), room, known as u64)? {
            0 => break,
            count => known += count,
        }
    }
    bytes.truncate(known);
    Ok(Read { changed, bytes })
}

fn read(path: &Path, bytes_max: usize, guarded: &Guarded) -> io::Result<Read> {
    let file = os::file::open(path, Wait::Allowed)?;
    let (changed, _) = judge(path, file.as_fd(), bytes_max, guarded)?;
    let bytes = os::file::read_whole(file.as_fd(), bytes_max)?;
    Ok(Read { changed, bytes })
}

/// When a regular file was changed last, and its size. From now on it is not served.
fn judge(
    path: &Path,
    file: BorrowedFd<'_>,
    bytes_max: usize,
    guarded: &Guarded,
) -> io::Result<(SystemTime, usize)> {
    let facts = os::file::facts(file)?;
    guarded.note(path, file, &facts);
    if facts.kind != FileKind::Regular {
        return Err(io::Error::other("not a regular file"));
    }
    let size = usize::try_from(facts.size).unwrap_or(usize::MAX);
    if size > bytes_max {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    let since = Duration::new(facts.modified_s, facts.modified_ns);
    Ok((SystemTime::UNIX_EPOCH + since, size))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::block_on;

    #[test]
    fn a_file_is_read_whole_or_refused() {
        let directory = std::env::temp_dir().join(format!("nagaya-read-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory");
        let path = directory.join("a.rb");
        std::fs::write(&path, "12345").expect("a file");
        let reader = HelperReader::new(&Helpers::default(), &Guarded::default());
        block_on(async {
            let read = reader.read(&path, 5).await.expect("it fits");
            assert_eq!(read.bytes, b"12345");
            let changed = reader.changed(&path).await.expect("it is there");
            assert_eq!(read.changed, changed);
            let larger = reader.read(&path, 4).await.expect_err("it is larger");
            assert_eq!(larger.kind(), io::ErrorKind::FileTooLarge);
            let missing = reader.read(&directory.join("b.rb"), 5).await;
            let missing = missing.expect_err("not there");
            assert_eq!(missing.kind(), io::ErrorKind::NotFound);
            assert_eq!(missing.to_string(), "no such file or directory");
            assert!(reader.read(&directory, 5).await.is_err());
        });
        std::fs::remove_dir_all(&directory).expect("the directory");
    }
}
