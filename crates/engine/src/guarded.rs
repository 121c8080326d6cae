//! The files of scripts, passwords and keys, which are never served.
//!
//! The idea: one may lie below a site's root under a name no pattern of sources covers. The
//! configuration lists them all; what a path was resolved to is looked up among them by the name
//! it has once links are followed, and by what the file is, for which other names (hard links)
//! count for nothing. Copies as compressors and editors leave them are guarded, too. A script
//! that was replaced is known anew from when it is read again. Where certificates are looked for
//! no file in PEM is served: their keys lie there, and others may come; below directories where
//! scripts name some, no file at all.

use std::collections::{HashMap, HashSet};
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};

use config::model;
use os::file::FileFacts;

use crate::backups::original;
use crate::error::{Error, Kind, Result};
use crate::glob::Matcher;

/// How files with a key, or a key among other things, are called.
const PEM: [&[u8]; 3] = [b".pem", b".crt", b".key"];
/// certbot's directory of links, and where they lead to: a file for each renewal.
const CERTBOT: (&str, &str) = ("/live/", "/archive/");

/// The guarded files of a generation, for all its sites and workers.
#[derive(Debug, Clone, Default)]
pub(crate) struct Guarded(Arc<GuardedFiles>);

#[derive(Debug, Default)]
struct GuardedFiles {
    names: HashSet<Box<[u8]>>,
    /// Where certificates and their keys are looked for.
    certificates: Vec<Matcher>,
    /// Directories below which scripts name certificates, each with a slash at its end.
    below: Vec<Box<[u8]>>,
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
    ///
    /// # Errors
    /// A pattern of certificates that would be too large.
    pub(crate) fn of(model: &model::Model) -> Result<Self> {
        let files = &model.guarded;
        let bytes = |path: &Path| Box::from(path.as_os_str().as_bytes());
        let known = files.iter().filter_map(|file| {
            let (identity, name) = (file.identity?, bytes(&file.path));
            let born_ns = identity.born_ns;
            Some(((identity.device, identity.inode), Of { born_ns, name }))
        });
        let below = model.tls.script_files.iter();
        let below = below.map(|path| [path.as_os_str().as_bytes(), b"/"].concat().into());
        Ok(Self(Arc::new(GuardedFiles {
            names: files.iter().map(|file| bytes(&file.path)).collect(),
            certificates: certificates(model)?,
            below: below.collect(),
            files: RwLock::new(known.collect()),
        })))
    }

    /// Whether a file of this full name is guarded, or a copy of one that is.
    pub(crate) fn holds(&self, name: &[u8]) -> bool {
        let guarded = &*self.0;
        if guarded.below.iter().any(|it| name.starts_with(it)) {
            return true;
        }
        let is_any = !(guarded.names.is_empty() && guarded.certificates.is_empty());
        let mut copy_of = Some(name).filter(|_| is_any);
        while let Some(name) = copy_of {
            if guarded.names.contains(name) || guarded.is_certificates(name) {
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

impl GuardedFiles {
    fn is_certificates(&self, name: &[u8]) -> bool {
        let ends = |end: &[u8]| {
            let tail = name
                .len()
                .checked_sub(end.len())
                .and_then(|at| name.get(at..));
            tail.is_some_and(|tail| tail.eq_ignore_ascii_case(end))
        };
        PEM.iter().any(|end| ends(end)) && self.certificates.iter().any(|it| it.matches(name))
    }
}

/// Where a model has certificates looked for, and where links lead from there.
fn certificates(model: &model::Model) -> Result<Vec<Matcher>> {
    let patterns = model.tls.certificates.iter().map(String::as_str);
    let patterns = patterns.flat_map(|pattern| {
        let pattern = pattern.trim_end_matches('/');
        [pattern.to_owned(), format!("{pattern}/*")]
    });
    let keys = model
        .sites
        .iter()
        .filter_map(|site| site.tls.files.as_ref());
    let directories = keys.filter_map(|files| files.key.parent()?.to_str());
    // The key that a site names is guarded by its name; a link of certbot's leads elsewhere.
    let links = directories.filter(|directory| format!("{directory}/").contains(CERTBOT.0));
    let links = links.map(|directory| format!("{directory}/*"));
    let all: HashSet<String> = patterns
        .chain(links)
        .flat_map(|pattern| [pattern.replacen(CERTBOT.0, CERTBOT.1, 1), pattern])
        .collect();
    let wrong = |error: regex::Error| Error::new(Kind::Internal, "guarded", error.to_string());
    let compiled = all
        .iter()
        .map(|pattern| Matcher::new(pattern).map_err(wrong));
    compiled.collect()
}
