//! The file of last good versions: read at the start, written when a generation has come into force.
//!
//! The idea: it is what the next start believes, so it must be nobody else's to write, is replaced
//! as a whole, and is written by the supervisor alone, out of files that it has read itself.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use config::{LastGood, reason};
use os::file::{FileKind, Wait};

/// Largest file of last good versions.
const BYTES_MAX: usize = 256 << 20;
/// Who may read it.
const MODE: u32 = 0o600;
/// What is added to its name while it is written.
const NEW: &str = ".new";

/// Reads it; nothing is known where there is none.
///
/// # Errors
/// Why what it says is not believed.
pub(crate) fn read(path: &Path) -> Result<LastGood, String> {
    let said = |error: io::Error| reason(&error);
    let file = match os::file::open(path, Wait::Allowed) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(LastGood::default()),
        Err(error) => return Err(said(error)),
    };
    let facts = os::file::facts(file.as_fd()).map_err(said)?;
    if facts.kind != FileKind::Regular {
        return Err("not a regular file".to_owned());
    }
    let own = [0, os::process::user_id()];
    if !own.contains(&facts.uid) || facts.mode & 0o022 != 0 {
        return Err("others than root may write it".to_owned());
    }
    let bytes = os::file::read_whole(file.as_fd(), BYTES_MAX).map_err(said)?;
    let text = String::from_utf8(bytes).map_err(|_| "not UTF-8")?;
    LastGood::parse(&text)
}

/// Replaces it.
pub(crate) fn write(path: &Path, last_good: &LastGood) -> io::Result<()> {
    let text = last_good.to_text();
    if text.len() > BYTES_MAX {
        return Err(ErrorKind::FileTooLarge.into());
    }
    let mut new = path.as_os_str().to_owned();
    new.push(NEW);
    let new = Path::new(&new);
    match fs::remove_file(new) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        // What a crash left behind is gone.
        _ => {}
    }
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create_new(true).mode(MODE).open(new)?;
    let written = file
        .write_all(text.as_bytes())
        .and_then(|()| file.sync_all())
        .and_then(|()| fs::rename(new, path));
    if written.is_err() {
        let _ = fs::remove_file(new);
    }
    written?;
    File::open(path.parent().unwrap_or(Path::new("/")))?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn what_is_written_is_readable_to_its_owner_alone_and_follows_no_link() {
        let directory = testkit::temp::TempDir::new();
        let path = directory.path().join("last-good.toml");
        let precious = directory.write("precious", "x");
        std::os::unix::fs::symlink(&precious, directory.path().join("last-good.toml.new")).unwrap();
        std::os::unix::fs::symlink(&precious, &path).unwrap();
        write(&path, &LastGood::default()).unwrap();
        assert_eq!(fs::read_to_string(precious).unwrap(), "x");
        let facts = fs::symlink_metadata(&path).unwrap();
        assert!(facts.is_file());
        assert_eq!(facts.permissions().mode() & 0o777, 0o600);
        assert_eq!(read(&path), Ok(LastGood::default()));
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2);
    }

    #[test]
    fn what_others_may_write_is_not_believed() {
        let directory = testkit::temp::TempDir::new();
        let path = directory.path().join("last-good.toml");
        assert_eq!(read(&path), Ok(LastGood::default()));
        write(&path, &LastGood::default()).unwrap();
        for mode in [0o620, 0o602] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            assert!(read(&path).unwrap_err().contains("others than root"));
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        if os::process::is_root() {
            std::os::unix::fs::chown(&path, Some(65_534), None).unwrap();
            assert!(read(&path).unwrap_err().contains("others than root"));
        }
        assert_eq!(read(directory.path()), Err("not a regular file".to_owned()));
    }
}
