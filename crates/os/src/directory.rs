//! Directories that are made, some of them for others to live in.
//!
//! The idea: the last part of a path is never a link that is followed, and what lies in a
//! directory is made and opened by its name below an open descriptor: whoever owns it may put
//! anything there, and it leads nowhere else.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags, mkdirat};
use rustix::io::Errno;

/// Makes a directory with exactly these permissions; those above it that are missing anybody may
/// go through and list. One that is there is left as it is.
pub fn make(path: &Path, mode: u32) -> io::Result<()> {
    if let Some(above) = path.parent().filter(|above| !above.as_os_str().is_empty()) {
        std::fs::create_dir_all(above)?;
    }
    make_in(rustix::fs::CWD, path, mode)
}

/// Makes a directory in another one, likewise.
pub fn make_in(directory: BorrowedFd<'_>, name: &Path, mode: u32) -> io::Result<()> {
    let mode = Mode::from_raw_mode(mode);
    match mkdirat(directory, name, mode) {
        // The umask has taken away from it what it takes from everything.
        Ok(()) => {
            let made = open_in(directory, name)?;
            Ok(rustix::fs::fchmod(made, mode)?)
        }
        Err(Errno::EXIST) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Opens a directory, and no link to one.
pub fn open(path: &Path) -> io::Result<OwnedFd> {
    open_in(rustix::fs::CWD, path)
}

/// Opens a directory in another one, likewise.
pub fn open_in(directory: BorrowedFd<'_>, name: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(directory, name, flags, Mode::empty())?)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::fd::AsFd;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn a_directory_is_made_once_and_a_link_in_its_place_is_none() {
        let here = testkit::temp::TempDir::new();
        let path = here.path().join("a/b/pools");
        make(&path, 0o711).unwrap();
        let mode = |path: &Path| fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777;
        assert_eq!(mode(&path), 0o711);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
        make(&path, 0o711).unwrap();
        assert_eq!(mode(&path), 0o700, "what is there is left");
        let pools = open(&path).unwrap();
        make_in(pools.as_fd(), Path::new("one"), 0o700).unwrap();
        assert_eq!(mode(&path.join("one")), 0o700);
        symlink("/tmp", path.join("two")).unwrap();
        make_in(pools.as_fd(), Path::new("two"), 0o700).unwrap();
        assert!(open_in(pools.as_fd(), Path::new("two")).is_err());
        symlink(&path, here.path().join("link")).unwrap();
        assert!(open(&here.path().join("link")).is_err());
    }
}
