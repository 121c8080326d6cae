//! Directories that are made, some of them for others to live in.
//!
//! The idea: the last part of a path is never a link that is followed, and what lies in a
//! directory is made and opened by its name below an open descriptor: whoever owns it may put
//! anything there, and it leads nowhere else.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, mkdirat, statat, unlinkat};
use rustix::io::Errno;

/// Files and directories that are looked at below one that is pruned, bytes of all their paths, and
/// levels of them: as many as a path may have that a program can name.
const ENTRIES_MAX: usize = 200_000;
const PATH_BYTES_MAX: usize = 16 << 20;
const LEVELS_MAX: usize = 2_048;
/// How long pruning one may take: half of it for a look.
const PRUNE_MAX: Duration = Duration::from_secs(10);
/// Bytes of a block as files count them.
const BLOCK_BYTES: u64 = 512;

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

/// Removes files below a directory until the others take no more of the disk than `bytes_max`: those
/// changed longest ago first, all where there are more than can be looked at. For 0 directories
/// go, too, but those right below it. Links are removed and never followed, whoever makes some
/// meanwhile. What cannot be read is left, and so is what lies 2,048 levels below. Tells how many
/// files were removed.
///
/// # Errors
/// The directory cannot be read, or the first of what could not be removed; `TimedOut` where ten
/// seconds were too few, and some was neither looked at nor removed.
pub fn prune(directory: &Path, bytes_max: u64) -> io::Result<usize> {
    prune_within(directory, bytes_max, PATH_BYTES_MAX, PRUNE_MAX)
}

fn prune_within(
    directory: &Path,
    bytes_max: u64,
    path_bytes_max: usize,
    time_max: Duration,
) -> io::Result<usize> {
    let begun = Instant::now();
    let top = open(directory)?;
    let mut below = Below {
        files: Vec::new(),
        directories: Vec::new(),
        path_bytes_left: path_bytes_max,
        until: begun + time_max / 2,
        cut: None,
    };
    below.look(top.as_fd(), Path::new(""), 1)?;
    // No directory is held open while those in it are looked at, however deep they are.
    let mut next = 0;
    while let Some((level, path)) = below.directories.get(next).cloned() {
        next += 1;
        if level < LEVELS_MAX && below.cut.is_none() {
            if bytes_max == 0 {
                // Its owner may have shut itself out of it.
                let _ = rustix::fs::chmodat(&top, &path, Mode::RWXU, AtFlags::empty());
            }
            // One that cannot be read keeps nobody from the others.
            let opened = open_at(top.as_fd(), &path);
            let _ = opened.and_then(|it| below.look(it.as_fd(), &path, level + 1));
        }
    }
    below.files.sort_unstable();
    let is_full = matches!(below.cut, Some(Cut::Full));
    let bytes_max = if is_full { 0 } else { bytes_max };
    let mut bytes: u64 = below.files.iter().map(|(_, bytes, _)| bytes).sum();
    let mut is_late = matches!(below.cut, Some(Cut::Late));
    let (mut removed, mut outcome) = (0, Ok(()));
    for (_, of_file, path) in below.files {
        if bytes <= bytes_max && bytes_max > 0 {
            break;
        }
        if begun.elapsed() >= time_max {
            is_late = true;
            break;
        }
        match remove(top.as_fd(), &path, AtFlags::empty()) {
            Ok(()) => removed += 1,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                outcome = outcome.and(Err(error));
                continue;
            }
        }
        bytes = bytes.saturating_sub(of_file);
    }
    if bytes_max == 0 {
        let below_those = below.directories.iter().filter(|(level, _)| *level > 1);
        for (_, path) in below_those.rev() {
            if begun.elapsed() >= time_max {
                is_late = true;
                break;
            }
            // One that has been filled meanwhile is left.
            let _ = remove(top.as_fd(), path, AtFlags::REMOVEDIR);
        }
    }
    if is_late {
        let what = "there is more than there was time for";
        outcome = outcome.and(Err(io::Error::new(io::ErrorKind::TimedOut, what)));
    }
    outcome.map(|()| removed)
}

/// Why not all that there is was looked at.
enum Cut {
    /// It is too much to be held.
    Full,
    Late,
}

/// What there is below a directory.
struct Below {
    /// When it was changed, what it takes, and where it is.
    files: Vec<(i64, u64, PathBuf)>,
    /// Directories, each after the one it is in, and how many levels below each is.
    directories: Vec<(usize, PathBuf)>,
    path_bytes_left: usize,
    until: Instant,
    cut: Option<Cut>,
}

impl Below {
    /// Takes in what is in a directory, at a level.
    fn look(&mut self, directory: BorrowedFd<'_>, at: &Path, level: usize) -> io::Result<()> {
        for entry in rustix::fs::Dir::read_from(directory)? {
            if Instant::now() >= self.until {
                self.cut.get_or_insert(Cut::Late);
            }
            if self.cut.is_some() {
                break;
            }
            let Ok(entry) = entry else {
                continue;
            };
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name == "." || name == ".." {
                continue;
            }
            let Ok(stat) = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) else {
                continue;
            };
            let path = at.join(name);
            let path_bytes = path.as_os_str().len();
            let is_held = self.files.len() + self.directories.len() < ENTRIES_MAX;
            let Some(left) = self
                .path_bytes_left
                .checked_sub(path_bytes)
                .filter(|_| is_held)
            else {
                self.cut = Some(Cut::Full);
                break;
            };
            self.path_bytes_left = left;
            if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
                let blocks = u64::try_from(stat.st_blocks).unwrap_or(0);
                let bytes = blocks.saturating_mul(BLOCK_BYTES);
                self.files.push((stat.st_mtime, bytes, path));
                continue;
            }
            self.directories.push((level, path));
        }
        Ok(())
    }
}

/// Removes what is at a path below a directory, through directories alone.
fn remove(top: BorrowedFd<'_>, path: &Path, flags: AtFlags) -> io::Result<()> {
    let Some(name) = path.file_name() else {
        return Ok(());
    };
    let above = path.parent().unwrap_or(Path::new(""));
    Ok(unlinkat(open_at(top, above)?, name, flags)?)
}

/// Opens what is at a path below a directory, likewise.
fn open_at(top: BorrowedFd<'_>, path: &Path) -> io::Result<OwnedFd> {
    let mut directory = top.try_clone_to_owned()?;
    for part in path.components() {
        directory = open_in(directory.as_fd(), Path::new(part.as_os_str()))?;
    }
    Ok(directory)
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

    #[test]
    fn files_changed_longest_ago_go_first_and_links_lead_nowhere() {
        let here = testkit::temp::TempDir::new();
        let path = |name: &str| here.path().join(name);
        let kept = path("kept");
        fs::write(&kept, "kept").unwrap();
        fs::create_dir_all(path("cache/one/a/b")).unwrap();
        fs::create_dir(path("cache/two")).unwrap();
        let begun = std::time::SystemTime::UNIX_EPOCH;
        let names = ["one/a/b/1", "two/2", "one/3", "4"];
        for (name, day) in names.iter().zip(1..) {
            let file = path("cache").join(name);
            fs::write(&file, vec![b'x'; 64 << 10]).unwrap();
            let day = begun + std::time::Duration::from_secs(day * 86_400);
            fs::File::options()
                .write(true)
                .open(&file)
                .and_then(|file| file.set_modified(day))
                .unwrap();
        }
        symlink(&kept, path("cache/one/link")).unwrap();
        symlink(here.path(), path("cache/one/a/above")).unwrap();
        let left = || {
            let there = names.iter().filter(|it| path("cache").join(it).exists());
            there.copied().collect::<Vec<_>>()
        };
        assert_eq!(prune(&path("cache"), 1 << 20).unwrap(), 0);
        assert_eq!(left(), names);
        prune(&path("cache"), 150 << 10).unwrap();
        assert_eq!(left(), ["one/3", "4"]);
        prune(&path("cache"), 0).unwrap();
        assert!(left().is_empty() && kept.exists());
        assert!(path("cache/one").is_dir() && path("cache/two").is_dir());
        assert!(!path("cache/one/a").exists());
        symlink(here.path(), path("led")).unwrap();
        assert!(prune(&path("led"), 0).is_err());
        assert!(kept.exists());
    }

    #[test]
    fn of_more_than_can_be_held_all_goes_and_time_runs_out() {
        let here = testkit::temp::TempDir::new();
        let count = || fs::read_dir(here.path()).unwrap().count();
        for at in 0..8 {
            fs::write(here.path().join(format!("{at:010}")), "x").unwrap();
        }
        let prune = |path_bytes, time| prune_within(here.path(), 1 << 20, path_bytes, time);
        let late = prune(PATH_BYTES_MAX, Duration::ZERO).unwrap_err();
        assert_eq!((late.kind(), count()), (io::ErrorKind::TimedOut, 8));
        let time = Duration::from_secs(600);
        assert_eq!(prune(80, time).unwrap(), 0);
        assert_eq!((prune(35, time).unwrap(), count()), (3, 5));
    }

    #[test]
    fn a_deep_tree_is_pruned_to_its_last_level() {
        let here = testkit::temp::TempDir::new();
        let at = |level: usize| here.path().join("d/".repeat(level - 1)).join("file");
        let deepest = 300;
        fs::create_dir_all(here.path().join("d/".repeat(deepest))).unwrap();
        for level in [1, 25, deepest] {
            fs::write(at(level), "x").unwrap();
        }
        assert_eq!(prune(here.path(), 0).unwrap(), 3);
        assert!([1, 25, deepest].iter().all(|level| !at(*level).exists()));
        assert!(here.path().join("d").is_dir() && !here.path().join("d/d").exists());
    }
}
