//! The files of scripts, which are never served.
//!
//! The idea: a script may lie below a site's root under a name no pattern of sources covers. The
//! configuration lists the files of all scripts; what a path was resolved to is looked up among
//! them by the name it has once links are followed. Copies as compressors and editors leave them
//! are scripts, too.

use std::collections::HashSet;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use config::model::Scripts;

use crate::site::original;

/// Full names of scripts' files, for all sites of a generation.
#[derive(Debug, Clone, Default)]
pub(crate) struct ScriptFiles(Arc<HashSet<Box<[u8]>>>);

impl ScriptFiles {
    /// The files of a model's scripts.
    pub(crate) fn of(scripts: &Scripts) -> Self {
        let files = scripts.files.iter();
        let names = files.map(|path| path.as_os_str().as_bytes().into());
        Self(Arc::new(names.collect()))
    }

    /// Whether a file of this full name is a script, or a copy of one.
    pub(crate) fn holds(&self, name: &[u8]) -> bool {
        let mut copy_of = Some(name).filter(|_| !self.0.is_empty());
        while let Some(name) = copy_of {
            if self.0.contains(name) {
                return true;
            }
            copy_of = original(name);
        }
        false
    }
}
