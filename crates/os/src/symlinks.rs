//! Links the kernel does not follow for us: a path walked component by component.
//!
//! The idea: every component is opened as itself (`O_PATH | O_NOFOLLOW`) below the descriptor of
//! its parent, so the kernel never follows a link for us and a rename cannot change what was
//! checked. A link is replaced by its text, followed by a mark that asks, where owners count and
//! once that text has been walked, whether what was reached belongs to the link's owner. The
//! directories passed form a stack, so `..` is a step back on it. An absolute text, and a `..`
//! above the boundary, go on from the real root, where the walk is outside until it comes upon
//! the boundary itself, which it knows by device and inode; what it ends at must be inside.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, Stat, fstat, fstatfs, readlinkat};
use rustix::io::Errno;

use crate::file::{NoFile, Symlinks, Wait, open_resolved, path_of};

/// Links followed for one path, as the kernel has it.
const LINKS_MAX: usize = 40;
/// Components walked for one path, links' texts included.
const STEPS_MAX: usize = 1_024;
/// How often a file swapped between its check and its opening makes the walk start over.
const SWAPS_MAX: usize = 8;
/// The file system of processes, whose links lead elsewhere than their texts say.
const PROC: i64 = 0x9fa0;

/// Opens `path` beneath `dir` for reading or, with `O_PATH`, for a look; `ELOOP` where a link's
/// owner does not own its target and the policy asks for that, `EXDEV` where the way ends outside
/// of `dir`, whatever it is that stands there.
pub(crate) fn open(
    dir: BorrowedFd<'_>,
    path: &[u8],
    flags: OFlags,
    symlinks: Symlinks,
    wait: Wait,
) -> Result<OwnedFd, Errno> {
    for _ in 0..SWAPS_MAX {
        match Walk::new(dir, path, symlinks, wait)?.run(flags)? {
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

enum LinkStep {
    Name(Vec<u8>),
    /// What was reached must belong to this user.
    OwnedBy(u32),
}

struct Walk<'dir> {
    /// The boundary.
    within: BorrowedFd<'dir>,
    /// Its device and inode, known from when the walk leaves it.
    boundary: (u64, u64),
    /// The real root, once a link has led there: the stack begins on it, else on the boundary.
    root: Option<Passed>,
    /// Directories passed below that, innermost last.
    passed: Vec<Passed>,
    /// The last component reached where it is no directory: its parent is the stack's top.
    leaf: Option<(Vec<u8>, Stat)>,
    /// What is left to walk, next one last.
    steps: Vec<LinkStep>,
    links: usize,
    symlinks: Symlinks,
    wait: Wait,
}

/// A directory passed.
struct Passed {
    name: Vec<u8>,
    fd: OwnedFd,
    /// Whether it is the boundary, or below it.
    is_inside: bool,
}

impl<'dir> Walk<'dir> {
    fn new(
        within: BorrowedFd<'dir>,
        path: &[u8],
        symlinks: Symlinks,
        wait: Wait,
    ) -> Result<Self, Errno> {
        let mut walk = Walk {
            within,
            boundary: (0, 0),
            root: None,
            passed: Vec::new(),
            leaf: None,
            steps: Vec::new(),
            links: 0,
            symlinks,
            wait,
        };
        walk.push_path(path)?;
        Ok(walk)
    }

    fn run(mut self, flags: OFlags) -> Result<Outcome, Errno> {
        for _ in 0..STEPS_MAX {
            let Some(step) = self.steps.pop() else {
                return match self.is_inside() {
                    true => self.open_reached(flags),
                    false => Err(Errno::XDEV),
                };
            };
            match self.take(step) {
                // What is there, and what is not, is told of nothing outside.
                Err(error) if !self.is_inside() && NoFile::of(&error.into()).is_some() => {
                    return Err(Errno::XDEV);
                }
                taken => taken?,
            }
        }
        Err(Errno::NAMETOOLONG)
    }

    fn take(&mut self, step: LinkStep) -> Result<(), Errno> {
        match step {
            LinkStep::OwnedBy(owner) if self.reached()?.st_uid == owner => Ok(()),
            LinkStep::OwnedBy(_) => Err(Errno::LOOP),
            LinkStep::Name(name) => self.enter(name),
        }
    }

    fn is_inside(&self) -> bool {
        let top = self.passed.last().or(self.root.as_ref());
        top.is_none_or(|top| top.is_inside)
    }

    /// Goes on from the real root.
    fn start_over(&mut self) -> Result<(), Errno> {
        self.passed.clear();
        if self.root.is_none() {
            let within = fstat(self.within)?;
            self.boundary = (within.st_dev, within.st_ino);
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let fd = rustix::fs::open(c"/", flags, Mode::empty())?;
            self.root = Some(Passed {
                name: Vec::new(),
                is_inside: self.is_boundary(&fstat(&fd)?),
                fd,
            });
        }
        Ok(())
    }

    fn is_boundary(&self, stat: &Stat) -> bool {
        self.boundary == (stat.st_dev, stat.st_ino)
    }

    /// Puts a path's components before what is left to walk.
    fn push_path(&mut self, path: &[u8]) -> Result<(), Errno> {
        if path.starts_with(b"/") {
            self.start_over()?;
        }
        // A trailing slash asks for a directory, as a trailing `.` does.
        if path.ends_with(b"/") {
            self.steps.push(LinkStep::Name(b".".to_vec()));
        }
        let names = path
            .split(|byte| *byte == b'/')
            .filter(|name| !name.is_empty());
        self.steps
            .extend(names.rev().map(|name| LinkStep::Name(name.to_vec())));
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
            b".." if self.passed.pop().is_some() || self.root.is_some() => Ok(()),
            // Out of the boundary, perhaps to come back: on from where that is.
            b".." => {
                let place = path_of(self.within).map_err(|_| Errno::XDEV)?;
                self.push_path(&[&place, &b"/.."[..]].concat())
            }
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
            FileType::Directory => {
                let is_inside = self.is_inside() || self.is_boundary(&stat);
                self.passed.push(Passed {
                    name,
                    fd: entry,
                    is_inside,
                });
            }
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
        if text.as_bytes().starts_with(b"/") && fstatfs(link)?.f_type == PROC {
            return Err(Errno::LOOP);
        }
        if self.symlinks == Symlinks::Owner {
            self.steps.push(LinkStep::OwnedBy(owner));
        }
        self.push_path(text.as_bytes())
    }

    /// Reading a link's text may wait for a disk. The kernel follows it here, as far as it leads,
    /// only if everything on the way is in memory. It has the whole path, since a way out of
    /// this directory may still be below the one the walk began in; what it finds is not used.
    fn probe(&self, name: &[u8]) -> Result<(), Errno> {
        let mut path = Vec::new();
        for passed in &self.passed {
            path.extend_from_slice(&passed.name);
            path.push(b'/');
        }
        path.extend_from_slice(name);
        match open_resolved(
            self.bottom(),
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
        self.passed
            .last()
            .map_or(self.bottom(), |passed| passed.fd.as_fd())
    }

    fn bottom(&self) -> BorrowedFd<'_> {
        self.root
            .as_ref()
            .map_or(self.within, |root| root.fd.as_fd())
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
