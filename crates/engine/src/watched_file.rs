//! A file that counts without a reload.
//!
//! The idea: the whole file is read and understood away from the workers, first when its generation
//! is made, then whenever it has changed; who asks sees what was said before until the next reading
//! is whole. Where it cannot be read any more, or is not what its owner takes, the last one holds.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use config::reason;
use os::file::Wait;
use tokio::time::sleep;

use crate::helper::Lane;
use crate::worker::resources::Resources;

/// Largest file.
const FILE_BYTES_MAX: u64 = 16 << 20;
/// How often it is looked whether it has changed.
const LOOK: Duration = Duration::from_secs(1);
/// A file that changed less than this before it was read may change again and look the same: the
/// clock of file systems is coarse.
const SETTLED: Duration = Duration::from_secs(1);

/// A file, and what it said when it was read last.
#[derive(Debug)]
pub(crate) struct WatchedFile<T> {
    path: PathBuf,
    /// Its worker, were there any number of them.
    number: usize,
    is_started: AtomicBool,
    /// Held to copy or replace it.
    said: Mutex<Arc<T>>,
    /// What was read last, understood or not.
    facts: Mutex<Facts>,
    /// Whether the last look failed.
    is_lost: AtomicBool,
}

/// What a look at a file found.
#[derive(Debug)]
pub(crate) enum Look {
    /// Nothing that is to be told.
    Same,
    /// Something new, which is in force.
    Read,
    /// Something new that is not taken.
    Refused,
    /// It cannot be read any more; told once.
    Lost(io::Error),
}

/// By what a change is seen.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Facts {
    device: u64,
    inode: u64,
    bytes: u64,
    changed_s: i64,
    changed_ns: i64,
    /// Whether it had been left alone for a while when it was looked at.
    is_settled: bool,
}

impl<T: Send + Sync + 'static> WatchedFile<T> {
    /// Reads the file for the first time; `number` tells which worker will watch it.
    ///
    /// # Errors
    /// Why it cannot be read, for the operator.
    pub(crate) fn open(
        path: &Path,
        number: usize,
        understand: impl FnOnce(&[u8]) -> T,
    ) -> Result<Self, String> {
        let (text, facts) = read(path).map_err(|error| {
            let advice = match error.kind() {
                io::ErrorKind::PermissionDenied => "; the server's user must be able to read it",
                _ => "",
            };
            format!("read {}: {}{advice}", path.display(), reason(&error))
        })?;
        Ok(Self {
            path: path.to_owned(),
            number,
            is_started: AtomicBool::new(false),
            said: Mutex::new(Arc::new(understand(&text))),
            facts: Mutex::new(facts),
            is_lost: AtomicBool::new(false),
        })
    }

    /// One that cannot be read yet; this is said until it can.
    pub(crate) fn lost(path: &Path, number: usize, said: T) -> Self {
        Self {
            path: path.to_owned(),
            number,
            is_started: AtomicBool::new(false),
            said: Mutex::new(Arc::new(said)),
            facts: Mutex::default(),
            is_lost: AtomicBool::new(true),
        }
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// What it says.
    pub(crate) fn said(&self) -> Arc<T> {
        Arc::clone(&self.said.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Has `refresh` of its owner called over and over by this worker's helpers, if it hosts the
    /// file and does not yet.
    pub(crate) fn start<O: Send + Sync + 'static>(
        &self,
        owner: &Arc<O>,
        refresh: fn(&O),
        resources: &Resources,
    ) {
        let is_ours = self.number % resources.workers == resources.index;
        if !is_ours || self.is_started.swap(true, Relaxed) {
            return;
        }
        let (helpers, owner) = (resources.helpers.clone(), Arc::downgrade(owner));
        tokio::task::spawn_local(async move {
            loop {
                sleep(LOOK).await;
                let Some(owner) = owner.upgrade() else {
                    return;
                };
                // A file system that hangs is asked again when a helper is free.
                let _ = helpers.run(Lane::Remote, move || refresh(&owner)).await;
            }
        });
    }

    /// Reads the file again if it has changed; what `understand` makes nothing of is not taken.
    /// Waits for its disk.
    pub(crate) fn refresh(&self, understand: impl FnOnce(&[u8]) -> Option<T>) -> Look {
        let mut last = self.facts.lock().unwrap_or_else(PoisonError::into_inner);
        let found = std::fs::metadata(&self.path).map(|metadata| Facts::of(&metadata));
        if found.as_ref().is_ok_and(|facts| *facts == *last) {
            self.is_lost.store(false, Relaxed);
            return Look::Same;
        }
        let (text, facts) = match found.and_then(|_| read(&self.path)) {
            Ok(read) => read,
            Err(error) => {
                return match self.is_lost.swap(true, Relaxed) {
                    true => Look::Same,
                    false => Look::Lost(error),
                };
            }
        };
        self.is_lost.store(false, Relaxed);
        let is_new = !facts.is_same_content(&last);
        *last = facts;
        let Some(said) = understand(&text) else {
            return if is_new { Look::Refused } else { Look::Same };
        };
        *self.said.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(said);
        if is_new { Look::Read } else { Look::Same }
    }
}

impl Facts {
    fn of(metadata: &std::fs::Metadata) -> Self {
        let changed = metadata.modified().ok();
        let age = changed.and_then(|changed| SystemTime::now().duration_since(changed).ok());
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            bytes: metadata.len(),
            changed_s: metadata.mtime(),
            changed_ns: metadata.mtime_nsec(),
            is_settled: age.is_some_and(|age| age >= SETTLED),
        }
    }

    /// Whether the difference, if any, is only that time has passed.
    fn is_same_content(&self, other: &Self) -> bool {
        let is_settled = self.is_settled;
        *self
            == Self {
                is_settled,
                ..*other
            }
    }
}

fn read(path: &Path) -> io::Result<(Vec<u8>, Facts)> {
    // Opened without waiting: it may be a pipe, or have become one since it was looked at.
    let file = File::from(os::file::open(path, Wait::Allowed)?);
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        let found = match metadata.is_dir() {
            true => "it is a directory, not a file",
            false => "it is no regular file",
        };
        return Err(io::Error::other(found));
    }
    let facts = Facts::of(&metadata);
    let mut text = Vec::new();
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut text)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        let error = format!("it is larger than {} MiB", FILE_BYTES_MAX >> 20);
        return Err(io::Error::other(error));
    }
    Ok((text, facts))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_file_is_told_at_once() {
        let problem = |path: &str| WatchedFile::open(Path::new(path), 0, |_| ()).err();
        for (path, expected) in [
            ("/dev/zero", "read /dev/zero: it is no regular file"),
            ("/tmp", "read /tmp: it is a directory, not a file"),
        ] {
            assert_eq!(problem(path).as_deref(), Some(expected), "{path}");
        }
        assert!(problem("/nowhere/map.txt").is_some());
    }

    #[test]
    fn what_is_refused_or_lost_is_told_once_and_changes_nothing() {
        let directory = testkit::TempDir::new();
        let path = directory.write("list", "1");
        let understand = |text: &[u8]| String::from_utf8_lossy(text).parse::<u32>().ok();
        let file = WatchedFile::open(&path, 0, |text| understand(text).unwrap_or_default());
        let file = file.expect("a file");
        let look = |text: Option<&str>| {
            match text {
                Some(text) => drop(directory.write("list", text)),
                None => std::fs::remove_file(&path).expect("a file"),
            }
            let looks = [file.refresh(understand), file.refresh(understand)];
            assert!(matches!(looks[1], Look::Same), "{looks:?}");
            let [first, _] = looks;
            (first, *file.said())
        };
        assert!(matches!(look(Some("22")), (Look::Read, 22)));
        assert!(matches!(look(Some("three")), (Look::Refused, 22)));
        assert!(matches!(look(None), (Look::Lost(_), 22)));
        assert!(matches!(look(Some("4444")), (Look::Read, 4444)));
    }
}
