//! The files of scripts and passwords, which are never served.
//!
//! The idea: one may lie below a site's root under a name no pattern of sources covers. The
//! configuration lists them all; what a path was resolved to is looked up among them by the name
//! it has once links are followed, and by what the file is, for which other names (hard links)
//! count for nothing. Copies as compressors and editors leave them are guarded, too. A script
//! that was replaced is known anew from when it is read again.

use std::collections::{HashMap, HashSet};
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};

use config::model;
use os::file::FileFacts;

use crate::backups::original;

/// The guarded files of a generation, for all its sites and workers.
#[derive(Debug, Clone, Default)]
pub(crate) struct Guarded(Arc<GuardedFiles>);

#[derive(Debug, Default)]
struct GuardedFiles {
    names: HashSet<Box<[u8]>>,
    /// Device and inode of each: held for one look or one change.
    files: RwLock<HashMap<(u64, u64), Of>>,
}

/// Which file it was that had an inode.
#[derive(Debug, PartialEq, Eq)]
struct Of {
    born_ns: u64,
    name: Box<[u8]>,
}

impl Guarded {
    /// What a model guards.
    pub(crate) fn of(files: &[model::Guarded]) -> Self {
        let bytes = |path: &Path| Box::from(path.as_os_str().as_bytes());
        let known = files.iter().filter_map(|file| {
            let (identity, name) = (file.identity?, bytes(&file.path));
            let born_ns = identity.born_ns;
            Some(((identity.device, identity.inode), Of { born_ns, name }))
        });
        Self(Arc::new(GuardedFiles {
            names: files.iter().map(|file| bytes(&file.path)).collect(),
            files: RwLock::new(known.collect()),
        }))
    }

    /// Whether a file of this full name is guarded, or a copy of one that is.
    pub(crate) fn holds(&self, name: &[u8]) -> bool {
        let mut copy_of = Some(name).filter(|_| !self.0.names.is_empty());
        while let Some(name) = copy_of {
            if self.0.names.contains(name) {
                return true;
            }
            copy_of = original(name);
        }
        false
    }

    /// Whether an open file is guarded, whatever it was called when it was opened.
    pub(crate) fn holds_file(&self, file: BorrowedFd<'_>, facts: &FileFacts) -> bool {
        if self.0.names.is_empty() {
            return false;
        }
        let files = self.0.files.read().unwrap_or_else(PoisonError::into_inner);
        let known = files.get(&(facts.device, facts.inode));
        // One that took over the number of a file that is gone was made at another time.
        known.is_some_and(|known| known.born_ns == os::file::born_ns(file))
    }

    /// Takes note of what a file of this name is now that it has been read again.
    pub(super) fn note(&self, path: &Path, file: BorrowedFd<'_>, facts: &FileFacts) {
        let (key, name) = ((facts.device, facts.inode), path.as_os_str().as_bytes());
        if !self.0.names.contains(name) {
            return;
        }
        let now = Of {
            born_ns: os::file::born_ns(file),
            name: name.into(),
        };
        let known = self.0.files.read().unwrap_or_else(PoisonError::into_inner);
        if known.get(&key) == Some(&now) {
            return;
        }
        drop(known);
        let mut files = self.0.files.write().unwrap_or_else(PoisonError::into_inner);
        files.retain(|_, of| *of.name != *name);
        files.insert(key, now);
    }
}
