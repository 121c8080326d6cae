//! A directory that goes away with its owner.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A fresh directory that anybody may enter, removed with everything in it on drop.
#[derive(Debug)]
pub struct TempDir {
    path: PathBuf,
}

impl TempDir {
    /// Creates one below the system's temporary directory. Servers and programs, which may run as
    /// other users, may enter it under whatever mask the tests run.
    ///
    /// # Panics
    /// When it cannot be created.
    #[must_use]
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let id = std::process::id();
        for _ in 0..1_000 {
            let turn = NEXT.fetch_add(1, Ordering::Relaxed);
            let path = std::env::temp_dir().join(format!("nagaya-test-{id}-{turn}"));
            match std::fs::create_dir(&path) {
                Ok(()) => {
                    std::fs::set_permissions(&path, everybody()).expect("it is ours");
                    return Self { path };
                }
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => panic!("create {}: {error}", path.display()),
            }
        }
        panic!("a thousand stale test directories in the way");
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a file below it, creating directories on the way; gives its path.
    ///
    /// # Panics
    /// When it cannot be written.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path.join(name);
        let parent = path.parent().expect("joined below a directory");
        std::fs::create_dir_all(parent).expect("create test directory");
        std::fs::write(&path, content).expect("write test file");
        path
    }

    /// Writes a program below it, which anybody may find and run; gives its path.
    ///
    /// # Panics
    /// When it cannot be written.
    pub fn write_program(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.write(name, text);
        let parent = path.parent().expect("joined below a directory");
        for opened in [parent, &path] {
            std::fs::set_permissions(opened, everybody()).expect("it is ours");
        }
        path
    }
}

/// What everybody may enter, or run.
fn everybody() -> Permissions {
    Permissions::from_mode(0o755)
}

/// Copies a directory with everything in it.
///
/// # Panics
/// When something cannot be read or written.
pub fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("create test directory");
    let entries = std::fs::read_dir(from).expect("a directory of this project");
    for entry in entries.flatten() {
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).expect("a file is copied");
        }
    }
}

impl Default for TempDir {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        // A leftover directory harms no test; the next one gets another name.
        let _ = std::fs::remove_dir_all(&self.path);
    }
}
