//! What a path came to: the name of a file, and what stands there.

use std::rc::Rc;
use std::sync::Arc;

use super::file::{File, Handle};

/// What a path came to.
#[derive(Debug)]
pub struct Resolved {
    /// Number of the tree it was looked for in.
    pub(crate) tree: u32,
    pub(super) name: Box<[u8]>,
    /// How much of the name is the tree's root, its slash included.
    pub(super) root_bytes: usize,
    pub(super) path_info: Box<[u8]>,
    pub(super) is_source: bool,
    /// Whether a link led to it.
    pub(super) is_linked: bool,
    /// Whether a directory stands at the path, whatever was found for it.
    pub(super) is_directory: bool,
    pub(super) found: Found,
    /// When it was looked for, or a little before.
    pub(crate) looked_ns: u128,
}

/// What stands at a path.
#[derive(Debug)]
pub enum Found {
    /// A regular file.
    File(Rc<File>),
    /// A directory that may be listed.
    Directory(Arc<Handle>),
    /// A directory, asked for without its slash.
    Unslashed,
    /// Nothing that is served; the word says why.
    Missing(&'static str),
    /// A regular file that the server may not read; a program it is may still be run by others.
    Unreadable,
    /// Something the server may not look at: for its own permissions, which are its owner's
    /// business, or for those of the site's root, which are the operator's to change as advised.
    Denied(Option<Arc<str>>),
    /// The configuration answers with this status.
    Status(u16),
}

/// The path below the root: without the slashes at its start.
pub(crate) fn relative_of(path: &[u8]) -> &[u8] {
    let slashes = path.iter().take_while(|byte| **byte == b'/').count();
    path.get(slashes..).unwrap_or_default()
}

impl Resolved {
    /// Whether there is such a file or directory.
    pub fn exists(&self) -> bool {
        matches!(
            self.found,
            Found::File(_) | Found::Unreadable | Found::Directory(_) | Found::Unslashed
        )
    }

    /// Whether a file, and whether a directory stands at the path below the tree that came to this,
    /// whatever else `try` has found for it. Where it cannot be told, both do.
    pub fn stands_at(&self, path: &[u8]) -> [bool; 2] {
        let asked = relative_of(path).strip_suffix(&*self.path_info);
        match &self.found {
            Found::Unslashed | Found::Directory(_) => [false, true],
            Found::Missing(_) | Found::Status(_) => [false, self.is_directory],
            Found::Denied(_) => [true, true],
            Found::File(_) | Found::Unreadable => {
                [asked == Some(self.relative()), self.is_directory]
            }
        }
    }

    /// Its full name: the root and what is below it.
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// Its name below the root.
    pub fn relative(&self) -> &[u8] {
        self.name.get(self.root_bytes..).unwrap_or_default()
    }

    /// Its name below the root, with a slash at its begin.
    pub fn path(&self) -> &[u8] {
        let begin = self.root_bytes.saturating_sub(1);
        self.name.get(begin..).unwrap_or_default()
    }

    /// What followed the file in the path.
    pub fn path_info(&self) -> &[u8] {
        &self.path_info
    }

    /// The file that stands at this very path below the tree, where no link led to it.
    pub(crate) fn plain_file(&self, path: &[u8]) -> Option<&File> {
        match &self.found {
            Found::File(file) if !self.is_linked && self.relative() == relative_of(path) => {
                Some(file)
            }
            _ => None,
        }
    }

    /// Whether its text is a program, never to be shown.
    pub fn is_source(&self) -> bool {
        self.is_source
    }

    /// Whether a descriptor is kept open for it.
    pub(super) fn holds_handle(&self) -> bool {
        match &self.found {
            Found::File(file) => file.handle().is_some(),
            Found::Directory(_) => true,
            _ => false,
        }
    }

    /// What stands there.
    pub fn found(&self) -> &Found {
        &self.found
    }
}
