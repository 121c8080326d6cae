//! The owner policy: a path walked component by component.
//!
//! The idea: every component is opened as itself (`O_PATH | O_NOFOLLOW`) below the descriptor of
//! its parent, so the kernel never follows a link for us and a rename cannot change what was
//! checked. A link is replaced by its text, followed by a mark that asks, once that text has
//! been walked, whether what was reached belongs to the link's owner. The directories passed
//! form a stack, so `..` is a step back on it and never above its bottom.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{FileType, OFlags, ResolveFlags, Stat, fstat, readlinkat};
use rustix::io::Errno;

use crate::file::{Wait, open_resolved};

/// Links followed for one path, as the kernel has it.
const LINKS_MAX: usize = 40;
/// Components walked for one path, links' texts included.
const STEPS_MAX: usize = 1_024;
/// How often a file swapped between its check and its opening makes the walk start over.
const SWAPS_MAX: usize = 8;

/// Opens `path` beneath `dir` for reading or, with `O_PATH`, for a look; `ELOOP` where a link's owner does not own its target,
/// `EXDEV` where the way leads out of `dir`.
pub(crate) fn open(
    dir: BorrowedFd<'_>,
    path: &[u8],
    flags: OFlags,
    wait: Wait,
) -> Result<OwnedFd, Errno> {
    for _ in 0..SWAPS_MAX {
        match Walk::new(dir, path, wait)?.run(flags)? {
            Outcome::Opened(fd) => return Ok(fd),
            Outcome::Swapped => {}
        }
    }
    Err(Errno::AGAIN)
}

enum Outcome {
    Opened(OwnedFd),
    /// The file opened is not the one that was checked.
    Swapped,
}

enum Step {
    Name(Vec<u8>),
    /// What was reached must belong to this user.
    OwnedBy(u32),
}

struct Walk<'dir> {
    bottom: BorrowedFd<'dir>,
    /// Directories below `bottom` and their names, innermost last.
    passed: Vec<(Vec<u8>, OwnedFd)>,
    /// The last component reached where it is no directory: its parent is the stack's top.
    leaf: Option<(Vec<u8>, Stat)>,
    /// What is left to walk, next one last.
    steps: Vec<Step>,
    links: usize,
    wait: Wait,
}

impl<'dir> Walk<'dir> {
    fn new(bottom: BorrowedFd<'dir>, path: &[u8], wait: Wait) -> Result<Self, Errno> {
        let mut walk = Walk {
            bottom,
            passed: Vec::new(),
            leaf: None,
            steps: Vec::new(),
            links: 0,
            wait,
        };
        walk.push_path(path)?;
        Ok(walk)
    }

    fn run(mut self, flags: OFlags) -> Result<Outcome, Errno> {
        for _ in 0..STEPS_MAX {
            match self.steps.pop() {
                None => return self.open_reached(flags),
                Some(Step::OwnedBy(owner)) if self.reached()?.st_uid == owner => {}
                Some(Step::OwnedBy(_)) => return Err(Errno::LOOP),
                Some(Step::Name(name)) => self.enter(name)?,
            }
        }
        Err(Errno::NAMETOOLONG)
    }

    /// Puts a path's components before what is left to walk.
    fn push_path(&mut self, path: &[u8]) -> Result<(), Errno> {
        if path.starts_with(b"/") {
            return Err(Errno::XDEV);
        }
        // A trailing slash asks for a directory, as a trailing `.` does.
        if path.ends_with(b"/") {
            self.steps.push(Step::Name(b".".to_vec()));
        }
        let names = path
            .split(|byte| *byte == b'/')
            .filter(|name| !name.is_empty());
        self.steps
            .extend(names.rev().map(|name| Step::Name(name.to_vec())));
        if self.steps.len() > STEPS_MAX {
            Err(Errno::NAMETOOLONG)
        } else {
            Ok(())
        }
    }

    fn enter(&mut self, name: Vec<u8>) -> Result<(), Errno> {
        if self.leaf.is_some() {
            return Err(Errno::NOTDIR);
        }
        match name.as_slice() {
            b"." => Ok(()),
            b".." => self.passed.pop().map(drop).ok_or(Errno::XDEV),
            _ => self.enter_entry(name),
        }
    }

    fn enter_entry(&mut self, name: Vec<u8>) -> Result<(), Errno> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW;
        let entry = open_resolved(
            self.top(),
            &name,
            flags,
            ResolveFlags::NO_SYMLINKS,
            self.wait,
        )?;
        let stat = fstat(&entry)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => self.passed.push((name, entry)),
            FileType::Symlink => self.follow(&name, &entry, stat.st_uid)?,
            _ => self.leaf = Some((name, stat)),
        }
        Ok(())
    }

    /// Reads the very link that was opened, so that its owner and its text belong together.
    fn follow(&mut self, name: &[u8], link: &OwnedFd, owner: u32) -> Result<(), Errno> {
        self.links += 1;
        if self.links > LINKS_MAX {
            return Err(Errno::LOOP);
        }
        if self.wait == Wait::Never {
            self.probe(name)?;
        }
        let text = readlinkat(link, c"", Vec::new())?;
        self.steps.push(Step::OwnedBy(owner));
        self.push_path(text.as_bytes())
    }

    /// Reading a link's text may wait for a disk. The kernel follows it here, as far as it leads,
    /// only if everything on the way is in memory. It has the whole path, since a way out of
    /// this directory may still be inside the bottom one; what it finds is not used.
    fn probe(&self, name: &[u8]) -> Result<(), Errno> {
        let mut path = Vec::new();
        for (name, _) in &self.passed {
            path.extend_from_slice(name);
            path.push(b'/');
        }
        path.extend_from_slice(name);
        match open_resolved(
            self.bottom,
            &path,
            OFlags::PATH,
            ResolveFlags::empty(),
            self.wait,
        ) {
            Err(Errno::AGAIN) => Err(Errno::AGAIN),
            _ => Ok(()),
        }
    }

    fn top(&self) -> BorrowedFd<'_> {
        self.passed.last().map_or(self.bottom, |(_, fd)| fd.as_fd())
    }

    fn reached(&self) -> Result<Stat, Errno> {
        match &self.leaf {
            Some((_, stat)) => Ok(*stat),
            None => fstat(self.top()),
        }
    }

    fn open_reached(self, flags: OFlags) -> Result<Outcome, Errno> {
        let Some((name, checked)) = &self.leaf else {
            let flags = flags | OFlags::DIRECTORY;
            let opened = open_resolved(
                self.top(),
                b".",
                flags,
                ResolveFlags::NO_SYMLINKS,
                self.wait,
            )?;
            return Ok(Outcome::Opened(opened));
        };
        let flags = flags | OFlags::NOFOLLOW;
        let opened = match open_resolved(
            self.top(),
            name,
            flags,
            ResolveFlags::NO_SYMLINKS,
            self.wait,
        ) {
            Err(Errno::LOOP) => return Ok(Outcome::Swapped),
            opened => opened?,
        };
        let found = fstat(&opened)?;
        let same = (found.st_dev, found.st_ino) == (checked.st_dev, checked.st_ino);
        // A hard link cannot change hands between the two looks, but its owner can.
        let same = same && found.st_uid == checked.st_uid;
        Ok(if same {
            Outcome::Opened(opened)
        } else {
            Outcome::Swapped
        })
    }
}
