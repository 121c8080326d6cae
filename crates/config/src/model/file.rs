//! Files that keys name: what is in them, and what is never served.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

/// A file that is never served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Guarded {
    /// Its full name.
    pub path: PathBuf,
    /// What it was when the configuration was read; `None` where it was not there.
    pub identity: Option<FileIdentity>,
}

/// What a file is, whatever it is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileIdentity {
    /// The device that holds it.
    pub device: u64,
    /// Its number there, which is given to another file when it is gone.
    pub inode: u64,
    /// When it was made, in nanoseconds since 1970, which tells the two apart; 0 where the file
    /// system does not say.
    pub born_ns: u64,
}

/// A replaced error page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErrorPage {
    /// The body, read when the configuration was loaded (at most 256 KiB). Sites share equal files.
    pub body: Arc<[u8]>,
    /// The file, for messages.
    pub file: PathBuf,
    /// Its media type.
    pub content_type: String,
}

/// Basic authentication.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Auth {
    /// Realm shown to the user.
    pub realm: String,
    /// Users and their hashes, read from the htpasswd file at load. Levels share equal files.
    pub users: Arc<BTreeMap<String, String>>,
    /// The htpasswd file, for messages.
    pub file: PathBuf,
    /// Of which groups a user must be; `None` lets in all whose password is right.
    pub groups: Option<AuthGroups>,
}

/// Groups of users, of one of which a user must be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthGroups {
    /// The file that says who is in which, for messages.
    pub file: PathBuf,
    /// Their names.
    pub required: Vec<String>,
    /// Everybody in them, read from the file at load.
    pub members: Arc<BTreeSet<String>>,
}
