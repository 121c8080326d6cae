//! Walls: what of the machine's files a program sees.
//!
//! The idea: a root of the program's own, in memory, in which everything that it may see hangs at
//! the place it has outside. Which places these are is found out here, before there is a process:
//! links are followed where they belong to root or to the user of this process, and are made again
//! inside; nobody else's link takes a wall down. The new process (`mounts.rs`) then opens each
//! place component by component and follows no link at all, so that what was put there meanwhile
//! is an error.
//!
//! Left out: the network, other processes' ids and memory of System V. What a user may do there it
//! may do behind walls as well. A process of the same user that stands outside of them is a way out
//! (`/proc/PID/root`).

use std::collections::BTreeMap;
use std::ffi::{CString, OsStr};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{FileType, Mode, OFlags, fstat, openat, readlinkat};
use rustix::io::Errno;

use super::{Failed, Stage};
use crate::log::is_trusted;

/// Links followed for one path, as the kernel has it.
const LINKS_MAX: usize = 40;
/// Components walked for one path, links' texts included.
const STEPS_MAX: usize = 1_024;
/// Least size of a `/tmp`: none would be no limit.
const TMP_BYTES_MIN: u64 = 64 * 1024;
/// Bytes of a `/tmp` for which it may have a file, and files it may have in any case.
const BYTES_A_FILE: u64 = 4_096;
const TMP_FILES_MIN: u64 = 1_024;

/// Devices that programs take for granted.
const DEVICES: [&str; 5] = [
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
];
/// Links that programs take for granted.
const LINKS: [(&str, &str); 6] = [
    ("/dev/fd", "/proc/self/fd"),
    ("/dev/stdin", "/proc/self/fd/0"),
    ("/dev/stdout", "/proc/self/fd/1"),
    ("/dev/stderr", "/proc/self/fd/2"),
    ("/dev/shm", "/tmp"),
    ("/var/tmp", "/tmp"),
];
/// The kernel's own file systems: what a program needs of the first it has anyway.
const KERNELS: [&str; 2] = ["/proc", "/sys"];

/// A directory or file to be seen behind walls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen<'a> {
    /// Where it is, outside and inside; absolute.
    pub path: &'a Path,
    /// Whether it may be written, by whom the file system lets.
    pub is_writable: bool,
    /// Whether it is done without where it is missing.
    pub is_optional: bool,
}

/// What a program sees, made ready.
#[derive(Debug)]
pub struct Walls {
    /// Each after those it lies in.
    pub(super) binds: Vec<Bind>,
    pub(super) links: Vec<Link>,
    /// What its `/tmp` is mounted with.
    pub(super) tmp: CString,
    /// Where it starts.
    pub(super) directory: CString,
    /// What each step of the new process is about: three of its own, then binds, then links.
    pub(super) steps: Arc<[PathBuf]>,
}

/// Steps of the new process before it comes to the first [`Bind`].
pub(super) const ROOT_STEP: u32 = 0;
pub(super) const PROC_STEP: u32 = 1;
pub(super) const TMP_STEP: u32 = 2;
pub(super) const FIRST_BIND_STEP: u32 = 3;
const OWN_STEPS: [&str; 3] = ["/", "/proc", "/tmp"];

/// Something that hangs at the place it has outside.
#[derive(Debug)]
pub(super) struct Bind {
    /// Components of its path, no link among them.
    pub(super) names: Vec<CString>,
    /// Whether its place is to be made; else it lies in another bind.
    pub(super) is_new: bool,
    pub(super) is_writable: bool,
    pub(super) has_devices: bool,
}

/// A link as it is outside.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) names: Vec<CString>,
    pub(super) text: CString,
}

impl Walls {
    /// Finds out where everything is. It may wait for file systems.
    ///
    /// `tmp_bytes` is the size of its own `/tmp`, which `/var/tmp` and `/dev/shm` are, too.
    /// `directory` is where the program starts, as it is called inside.
    ///
    /// # Errors
    /// With the path that is missing, or that a link of somebody else leads to.
    pub fn new<'a>(
        sees: impl IntoIterator<Item = Seen<'a>>,
        tmp_bytes: u64,
        directory: &Path,
    ) -> Result<Walls, Failed> {
        let mut links = BTreeMap::new();
        let mut found: BTreeMap<PathBuf, bool> = BTreeMap::new();
        let devices = DEVICES.map(|path| Seen {
            path: Path::new(path),
            is_writable: false,
            is_optional: true,
        });
        for seen in sees.into_iter().chain(devices) {
            match trace(seen.path, &mut links) {
                Ok(path) => *found.entry(path).or_default() |= seen.is_writable,
                Err(error) if seen.is_optional && is_missing(&error) => {}
                Err(error) => return Err(failed(seen.path, error)),
            }
        }
        let binds = without_covered(found);
        for (path, text) in LINKS {
            let text = text.as_bytes().to_vec();
            links.entry(PathBuf::from(path)).or_insert(text);
        }
        links.retain(|link, _| !binds.iter().any(|(path, ..)| link.starts_with(path)));
        Walls::of(&binds, &links, tmp_bytes, directory)
    }

    /// `binds` are paths, whether they may be written and whether their place is to be made.
    fn of(
        binds: &[(PathBuf, bool, bool)],
        links: &BTreeMap<PathBuf, Vec<u8>>,
        tmp_bytes: u64,
        directory: &Path,
    ) -> Result<Walls, Failed> {
        let own = OWN_STEPS.iter().map(PathBuf::from);
        let steps = own.chain(binds.iter().map(|(path, ..)| path.clone()));
        let steps: Vec<_> = steps.chain(links.keys().cloned()).collect();
        let binds = binds.iter().map(|(path, is_writable, is_new)| {
            Ok(Bind {
                names: names(path)?,
                is_new: *is_new,
                is_writable: *is_writable,
                has_devices: path.starts_with("/dev"),
            })
        });
        let links = links.iter().map(|(path, text)| {
            Ok(Link {
                names: names(path)?,
                text: text_of(path, text)?,
            })
        });
        let bytes = tmp_bytes.max(TMP_BYTES_MIN);
        let files = (bytes / BYTES_A_FILE).max(TMP_FILES_MIN);
        let tmp = format!("mode=1777,size={bytes},nr_inodes={files}");
        Ok(Walls {
            binds: binds.collect::<Result<_, Failed>>()?,
            links: links.collect::<Result<_, Failed>>()?,
            tmp: text_of(Path::new("/tmp"), tmp.as_bytes())?,
            directory: text_of(directory, directory.as_os_str().as_bytes())?,
            steps: steps.into(),
        })
    }
}

fn failed(path: &Path, error: io::Error) -> Failed {
    Failed {
        stage: Stage::Walls,
        path: Some(path.to_owned()),
        error,
    }
}

fn is_missing(error: &io::Error) -> bool {
    use io::ErrorKind::{NotADirectory, NotFound};
    matches!(error.kind(), NotFound | NotADirectory)
}

fn text_of(path: &Path, text: &[u8]) -> Result<CString, Failed> {
    CString::new(text).map_err(|error| failed(path, error.into()))
}

/// Components of an absolute path without links.
fn names(path: &Path) -> Result<Vec<CString>, Failed> {
    let names = path.as_os_str().as_bytes().split(|byte| *byte == b'/');
    let names = names.filter(|name| !name.is_empty());
    names.map(|name| text_of(path, name)).collect()
}

/// What is not to be had by what it lies in already, and whether that place is to be made. Paths
/// come after those they lie in.
fn without_covered(found: BTreeMap<PathBuf, bool>) -> Vec<(PathBuf, bool, bool)> {
    let mut kept: Vec<(PathBuf, bool, bool)> = Vec::new();
    for (path, is_writable) in found {
        let around = kept
            .iter()
            .rev()
            .find(|(above, ..)| path.starts_with(above));
        match around {
            None => kept.push((path, is_writable, true)),
            Some((_, false, _)) if is_writable => kept.push((path, true, false)),
            Some(_) => {}
        }
    }
    kept
}

/// Where a path leads, and the links that it leads over.
fn trace(path: &Path, links: &mut BTreeMap<PathBuf, Vec<u8>>) -> io::Result<PathBuf> {
    if !path.is_absolute() {
        return Err(refused("it is not absolute".to_owned()));
    }
    let root = as_itself(rustix::fs::CWD, b"/")?;
    let mut passed: Vec<(Vec<u8>, OwnedFd)> = Vec::new();
    let mut steps = Vec::new();
    push(&mut steps, path.as_os_str().as_bytes())?;
    let mut followed = 0;
    while let Some(name) = steps.pop() {
        match name.as_slice() {
            b"." => continue,
            b".." => {
                passed.pop();
                continue;
            }
            _ => {}
        }
        let entry = as_itself(passed.last().map_or(&root, |(_, fd)| fd), &name)?;
        let facts = fstat(&entry)?;
        if FileType::from_raw_mode(facts.st_mode) != FileType::Symlink {
            passed.push((name, entry));
            continue;
        }
        followed += 1;
        if followed > LINKS_MAX {
            return Err(Errno::LOOP.into());
        }
        let link = joined(&passed).join(OsStr::from_bytes(&name));
        if !is_trusted(facts.st_uid) {
            return Err(refused(format!(
                "the link {} on the way belongs to user {}; only links of root and of the user nagaya runs as are followed: name the directory that the link is in",
                link.display(),
                facts.st_uid
            )));
        }
        // Read from the very link that was opened: its owner and its text belong together.
        let text = readlinkat(&entry, c"", Vec::new())?.into_bytes();
        if text.starts_with(b"/") {
            passed.clear();
        }
        push(&mut steps, &text)?;
        links.insert(link, text);
    }
    let path = joined(&passed);
    if path == Path::new("/") {
        return Err(refused("it is everything there is".to_owned()));
    }
    if KERNELS.iter().any(|kernels| path.starts_with(kernels)) {
        return Err(refused("it is the kernel's own".to_owned()));
    }
    Ok(path)
}

/// Opens something to look at, a link as itself.
fn as_itself(directory: impl std::os::fd::AsFd, name: &[u8]) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(directory, name, flags, Mode::empty())?)
}

/// Puts a path's components before what is left to walk.
fn push(steps: &mut Vec<Vec<u8>>, path: &[u8]) -> io::Result<()> {
    let names = path.split(|byte| *byte == b'/');
    let names = names.filter(|name| !name.is_empty());
    steps.extend(names.rev().map(<[u8]>::to_vec));
    match steps.len() > STEPS_MAX {
        true => Err(Errno::NAMETOOLONG.into()),
        false => Ok(()),
    }
}

fn joined(passed: &[(Vec<u8>, OwnedFd)]) -> PathBuf {
    let names = passed.iter().map(|(name, _)| OsStr::from_bytes(name));
    std::iter::once(OsStr::new("/")).chain(names).collect()
}

fn refused(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, why)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{lchown, symlink};

    use testkit::TempDir;

    use super::*;

    fn shown(walls: &Walls) -> Vec<(String, bool, bool)> {
        let text = |names: &[CString]| {
            let names = names.iter().map(|name| name.to_str().unwrap());
            names.fold(String::new(), |path, name| path + "/" + name)
        };
        let binds = walls.binds.iter().filter(|bind| !bind.has_devices);
        let binds = binds.map(|bind| (text(&bind.names), bind.is_writable, bind.is_new));
        binds.collect()
    }

    fn seen(path: &Path, is_writable: bool) -> Seen<'_> {
        Seen {
            path,
            is_writable,
            is_optional: false,
        }
    }

    fn walls(sees: &[Seen<'_>]) -> Result<Walls, Failed> {
        Walls::new(sees.iter().copied(), 1 << 20, Path::new("/"))
    }

    #[test]
    fn what_lies_in_what_is_seen_hangs_there_only_to_be_written() {
        let place = TempDir::new();
        let top = fs::canonicalize(place.path()).unwrap();
        for path in ["a/b/c", "ab", "d/e"] {
            fs::create_dir_all(top.join(path)).unwrap();
        }
        let [a, b, c, ab, d, e] =
            ["a", "a/b", "a/b/c", "ab", "d", "d/e"].map(|path| top.join(path));
        let sees = [
            seen(&c, true),
            seen(&b, false),
            seen(&a, false),
            seen(&ab, false),
            seen(&d, true),
            seen(&e, false),
        ];
        let text = |path: &Path| path.to_str().unwrap().to_owned();
        let expected = [
            (text(&a), false, true),
            (text(&c), true, false),
            (text(&ab), false, true),
            (text(&d), true, true),
        ];
        assert_eq!(shown(&walls(&sees).unwrap()), expected);
        // Of the same path twice it counts whether one of them may be written.
        let twice = [seen(&a, true), seen(&a, false)];
        assert_eq!(shown(&walls(&twice).unwrap()), [(text(&a), true, true)]);
    }

    #[test]
    fn links_of_root_are_made_again_and_those_of_others_refused() {
        let place = TempDir::new();
        let top = fs::canonicalize(place.path()).unwrap();
        fs::create_dir_all(top.join("real/kept")).unwrap();
        symlink("real", top.join("one")).unwrap();
        symlink(top.join("one/kept"), top.join("two")).unwrap();
        symlink("loop", top.join("loop")).unwrap();
        let two = top.join("two/../kept/.");
        let made = walls(&[seen(&two, true)]).unwrap();
        let home = top.join("real/kept");
        assert_eq!(
            shown(&made),
            [(home.to_str().unwrap().to_owned(), true, true)]
        );
        let texts: Vec<_> = made.links.iter().map(|link| link.text.as_c_str()).collect();
        assert!(texts.contains(&c"real"), "{texts:?}");
        let looped = walls(&[seen(&top.join("loop"), true)]).unwrap_err();
        assert_eq!(looped.error.raw_os_error(), Some(libc::ELOOP));
        for (path, expected) in [
            ("/", "everything"),
            ("/proc/self", "kernel's own"),
            ("/sys", "kernel's own"),
            ("relative", "not absolute"),
            ("/nonexistent", "No such file"),
        ] {
            let failed = walls(&[seen(Path::new(path), false)]).unwrap_err();
            let said = failed.error.to_string();
            assert!(said.contains(expected), "{path}: {said}");
            assert_eq!(failed.path.as_deref(), Some(Path::new(path)));
        }
        let optional = Seen {
            is_optional: true,
            ..seen(Path::new("/nonexistent/path"), false)
        };
        assert!(shown(&walls(&[optional]).unwrap()).is_empty());
        if testkit::lacks_root("to give a link to somebody") {
            return;
        }
        lchown(top.join("one"), Some(1_000), None).unwrap();
        let failed = walls(&[seen(&two, true)]).unwrap_err();
        let said = failed.error.to_string();
        assert!(said.contains("belongs to user 1000"), "{said}");
    }
}
