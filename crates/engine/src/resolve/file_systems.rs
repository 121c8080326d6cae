//! What a worker remembers of the file systems roots lie on, whatever generation asks.
//!
//! A root nothing is known of may hang like any other, so it waits where those wait. What is
//! remembered is by path: after a reload the sites of local disks wait for nobody else's mount,
//! and a mount that hangs gets no further threads.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

use crate::helper::{Helpers, Lane};

/// Roots remembered.
const ROOTS_MAX: usize = 16_384;

/// The roots one worker has looked at.
#[derive(Debug, Default)]
pub struct FileSystems {
    roots: RefCell<HashMap<PathBuf, FileSystem>>,
}

#[derive(Debug)]
struct FileSystem {
    lane: Lane,
    helpers: Helpers,
}

impl FileSystems {
    /// Whom a root made wait when it was opened last, and its way to the threads of `helpers`.
    pub(super) fn of(&self, root: &Path, helpers: &Helpers) -> (Lane, Helpers) {
        let mut roots = self.roots.borrow_mut();
        if let Some(known) = roots.get(root) {
            return (known.lane, known.helpers.clone());
        }
        if roots.len() >= ROOTS_MAX {
            roots.retain(|_, known| known.helpers.is_root_busy());
        }
        let (lane, helpers) = (Lane::Remote, helpers.of_one_root());
        let file_system = FileSystem {
            lane,
            helpers: helpers.clone(),
        };
        roots.insert(root.to_owned(), file_system);
        (lane, helpers)
    }

    /// Remembers whom an opened root makes wait.
    pub(super) fn note(&self, root: &Path, lane: Lane) {
        if let Some(known) = self.roots.borrow_mut().get_mut(root) {
            known.lane = lane;
        }
    }
}
