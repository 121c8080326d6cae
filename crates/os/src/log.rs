//! Logs: opened for appending, with privileges, where others may have their hands in the path.
//!
//! The idea: the path is walked component by component, each opened as itself, and a symbolic
//! link is followed only if it belongs to root or to the user of this process. Whoever else owns
//! a directory on the way chooses what lies below it, and nothing beyond. Where others may write
//! to the last directory, only a regular file without a second name is taken. All this is judged
//! on descriptors. Which paths may be logs at all is the callers' business.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, Stat, fchown, fstat, openat, readlinkat, statat, unlinkat,
};
use rustix::io::{Errno, retry_on_intr};
use rustix::process::{Uid, geteuid};

/// Links followed for one path, as the kernel has it.
const LINKS_MAX: usize = 40;
/// Components walked for one path, links' texts included.
const STEPS_MAX: usize = 1_024;
/// How often a file that is replaced while it is opened is opened anew.
const SWAPS_MAX: usize = 8;

/// Opens a log, making it with mode 0640 if need be. A path that leads to `/proc/self/fd/1` or
/// `2`, as `/dev/stdout` and `/dev/stderr` do, is the stream this process has there.
///
/// # Errors
/// `PermissionDenied` with the reason in words, where others could have chosen the file; else
/// what the system says. Nothing is waited for: a FIFO without a reader is an error.
pub fn open_log(path: &Path) -> io::Result<OwnedFd> {
    open(path, None)
}

/// As [`open_log`]; what is made is made this user's. What is there already stays whose it is.
///
/// # Errors
/// As [`open_log`], and where the file cannot be given away: then none is left behind.
pub fn open_log_for(path: &Path, user: u32) -> io::Result<OwnedFd> {
    open(path, Some(user))
}

fn open(path: &Path, owner: Option<u32>) -> io::Result<OwnedFd> {
    for _ in 0..SWAPS_MAX {
        let mut walk = Walk::new(path)?;
        walk.owner = owner;
        if let Some(log) = walk.run()? {
            return Ok(log);
        }
    }
    Err(refused("it is replaced again and again".to_owned()))
}

/// Whether others than root and the user of this process can put something else on the way to
/// `path`, or take it away. What is amiss there need not be of the operator's doing.
pub fn is_in_others_hands(path: &Path) -> bool {
    Walk::new(path)
        .and_then(Walk::meets_others)
        .unwrap_or(false)
}

struct Walk {
    at: OwnedFd,
    /// What is left to walk, next one last.
    steps: Vec<Vec<u8>>,
    links: usize,
    /// Whose a file is to be that is made.
    owner: Option<u32>,
}

/// Where a file comes from that was opened.
#[derive(Clone, Copy)]
enum Made {
    /// It was made just now, to be this user's.
    For(u32),
    /// It was made or found, and stays whose it is.
    OrFound,
}

impl Walk {
    fn new(path: &Path) -> io::Result<Self> {
        // Not through the working directory where it is not meant: it may be closed to us.
        let start: &[u8] = if path.is_absolute() { b"/" } else { b"." };
        let mut walk = Self {
            at: directory(start)?,
            steps: Vec::new(),
            links: 0,
            owner: None,
        };
        walk.push_path(path.as_os_str().as_bytes())?;
        Ok(walk)
    }

    /// The log; `None` when it was replaced meanwhile.
    fn run(mut self) -> io::Result<Option<OwnedFd>> {
        for _ in 0..STEPS_MAX {
            let Some(name) = self.steps.pop() else {
                return Err(Errno::ISDIR.into());
            };
            let is_last = self.steps.is_empty() && name != b".." && name != b".";
            if is_last {
                match self.open_last(&name) {
                    Err(Errno::LOOP) => {}
                    opened => return judge(&self.at, &name, self.given(&name, opened?)?),
                }
            }
            let (entry, stat) = self.look_at(&name)?;
            match FileType::from_raw_mode(stat.st_mode) {
                FileType::Symlink => {
                    if let Some(stream) = self.follow(&name, &entry, stat.st_uid)? {
                        return Ok(Some(stream));
                    }
                }
                _ if is_last => return Ok(None),
                FileType::Directory => self.at = entry,
                _ => return Err(Errno::NOTDIR.into()),
            }
        }
        Err(Errno::NAMETOOLONG.into())
    }

    /// Whether one of the directories walked is shared. In a sticky one of those who are trusted
    /// nobody else moves a directory of theirs.
    fn meets_others(mut self) -> io::Result<bool> {
        for _ in 0..STEPS_MAX {
            let Some(name) = self.steps.pop() else {
                break;
            };
            let around = fstat(&self.at)?;
            let is_sticky = around.st_mode & 0o1000 != 0 && is_trusted(around.st_uid);
            let Ok((entry, stat)) = self.look_at(&name) else {
                return Ok(is_shared(&around));
            };
            let kind = FileType::from_raw_mode(stat.st_mode);
            let is_held = is_sticky && kind == FileType::Directory && is_trusted(stat.st_uid);
            if is_shared(&around) && !is_held {
                return Ok(true);
            }
            match kind {
                FileType::Symlink => {
                    if self.follow(&name, &entry, stat.st_uid)?.is_some() {
                        break;
                    }
                }
                FileType::Directory => self.at = entry,
                _ => break,
            }
        }
        Ok(false)
    }

    /// What lies at the next step, a link as itself.
    fn look_at(&self, name: &[u8]) -> Result<(OwnedFd, Stat), Errno> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let entry = openat(&self.at, name, flags, Mode::empty())?;
        let stat = fstat(&entry)?;
        Ok((entry, stat))
    }

    /// The log, and whether it was made for its owner just now.
    fn open_last(&self, name: &[u8]) -> Result<(OwnedFd, Made), Errno> {
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::NOFOLLOW;
        let flags = flags | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
        let open =
            |flags| retry_on_intr(|| openat(&self.at, name, flags, Mode::from_raw_mode(0o640)));
        let Some(owner) = self.owner else {
            return Ok((open(flags)?, Made::OrFound));
        };
        match open(flags | OFlags::EXCL) {
            Err(Errno::EXIST) => Ok((open(flags)?, Made::OrFound)),
            made => Ok((made?, Made::For(owner))),
        }
    }

    /// The log, given to its owner where it was made for one. What cannot be given is taken away
    /// again: found by the next one who opens it, it would never be.
    fn given(&self, name: &[u8], (log, made): (OwnedFd, Made)) -> io::Result<OwnedFd> {
        let Made::For(owner) = made else {
            return Ok(log);
        };
        let given = fchown(&log, Some(Uid::from_raw(owner)), None);
        given.map(|()| log).map_err(|error| {
            // Whoever can have put another file there could have removed that, too.
            let _ = unlinkat(&self.at, name, AtFlags::empty());
            let error = io::Error::from(error);
            io::Error::new(
                error.kind(),
                format!("it cannot be given to user {owner}: {error}"),
            )
        })
    }

    /// Puts a path's components before what is left to walk.
    fn push_path(&mut self, path: &[u8]) -> io::Result<()> {
        if path.starts_with(b"/") {
            self.at = directory(b"/")?;
        }
        let names = path.split(|byte| *byte == b'/');
        let names = names.filter(|name| !name.is_empty());
        self.steps.extend(names.rev().map(<[u8]>::to_vec));
        if self.steps.len() > STEPS_MAX {
            return Err(Errno::NAMETOOLONG.into());
        }
        Ok(())
    }

    /// Goes where a link points; at once to a stream of this process.
    fn follow(&mut self, name: &[u8], link: &OwnedFd, owner: u32) -> io::Result<Option<OwnedFd>> {
        self.links += 1;
        if self.links > LINKS_MAX {
            return Err(Errno::LOOP.into());
        }
        if !is_trusted(owner) {
            return Err(refused(format!(
                "the link {} on the way belongs to user {owner}; only links of root and of the user nagaya runs as are followed",
                name.escape_ascii()
            )));
        }
        // Read from the very link that was opened: its owner and its text belong together.
        let text = readlinkat(link, c"", Vec::new())?.into_bytes();
        match (text.as_slice(), self.steps.is_empty()) {
            (b"/proc/self/fd/1", true) => Ok(Some(rustix::io::fcntl_dupfd_cloexec(
                rustix::stdio::stdout(),
                3,
            )?)),
            (b"/proc/self/fd/2", true) => Ok(Some(rustix::io::fcntl_dupfd_cloexec(
                rustix::stdio::stderr(),
                3,
            )?)),
            (text, _) => self.push_path(text).map(|()| None),
        }
    }
}

/// Whether an opened file may be a log; `None` when its name has gone to another file meanwhile.
fn judge(directory: &OwnedFd, name: &[u8], log: OwnedFd) -> io::Result<Option<OwnedFd>> {
    let (around, found) = (fstat(directory)?, fstat(&log)?);
    let shared = is_shared(&around);
    match FileType::from_raw_mode(found.st_mode) {
        FileType::RegularFile | FileType::Fifo | FileType::CharacterDevice if !shared => {
            return Ok(Some(log));
        }
        FileType::RegularFile => {}
        _ if shared => {
            return Err(refused(
                "it is no regular file, and others may write to its directory".to_owned(),
            ));
        }
        _ => return Err(refused("it is no file that could be a log".to_owned())),
    }
    // Looked at by descriptor and by name, so that a name taken away does not hide a second one.
    let named = match statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => return Ok(None),
        named => named?,
    };
    if (named.st_dev, named.st_ino) != (found.st_dev, found.st_ino) {
        return Ok(None);
    }
    if found.st_nlink != 1 || named.st_nlink != 1 {
        return Err(refused(
            "it has more than one name, and others may write to its directory".to_owned(),
        ));
    }
    let owner = found.st_uid;
    if around.st_mode & 0o002 != 0 && !is_trusted(owner) && owner != around.st_uid {
        return Err(refused(format!(
            "it belongs to user {owner}, and anybody may write to its directory"
        )));
    }
    Ok(Some(log))
}

/// Whether others than those trusted may put files into a directory. The bits of the group count
/// whoever it is: where an access control list names somebody, they say what it grants at most.
fn is_shared(directory: &Stat) -> bool {
    !is_trusted(directory.st_uid) || directory.st_mode & 0o022 != 0
}

/// Whether what belongs to a user is the operator's doing.
pub(crate) fn is_trusted(user: u32) -> bool {
    user == 0 || user == geteuid().as_raw()
}

fn directory(path: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty())
}

fn refused(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, why)
}
