//! From a path to the `.htaccess` files that hold for it, and to what stands there.
//!
//! Plain system calls beneath the root, run by a worker while nothing has to be waited for and by
//! a helper thread otherwise. A file that was not read lately is read and understood there, too.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use htaccess::{ChainLevel, LEVELS_MAX, Overrides, Program};
use os::file::{self, FileFacts, FileKind, NoFile, Wait};

use super::cache::{KnownChain, Programs, Stamp};
use crate::resolve::search::Root;

/// Largest file.
const FILE_BYTES_MAX: usize = 256 * 1024;
/// Its name.
const NAME: &[u8] = b".htaccess";
/// Why a file that is being written is not obeyed.
const CHANGING: &str = "htaccess_changing";

/// What a path comes to before any file has said anything.
#[derive(Debug)]
pub(crate) struct Landing {
    /// The name below the root up to the file, the directory, or the first part that is missing.
    pub(crate) relative: Vec<u8>,
    /// What of the path follows it.
    pub(crate) path_info: Vec<u8>,
    /// What is there.
    pub(crate) kind: LandingKind,
}

/// What is at the end of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LandingKind {
    /// A file.
    File,
    /// A directory.
    Directory,
    /// Nothing, or nothing that may be looked at.
    Missing,
}

/// What a walk has found.
#[derive(Debug)]
pub(crate) enum Walked {
    /// The files, merged, and what was wrong with those that were read for the first time.
    Known {
        /// Where the path leads.
        landing: Landing,
        /// The files.
        known: Arc<KnownChain>,
        /// Files that were not known before.
        told: Vec<(Vec<u8>, Arc<Program>)>,
    },
    /// A file is there that cannot be obeyed: its name, and why.
    Refused(Vec<u8>, &'static str),
}

/// What a walk needs.
#[derive(Debug, Clone)]
pub(crate) struct Walk {
    /// What is known of files.
    pub(crate) programs: Arc<Programs>,
    /// How many are kept.
    pub(crate) most: usize,
    /// What they may say.
    pub(crate) overrides: Overrides,
    /// The root's full name, a slash at its end.
    pub(crate) root_name: Vec<u8>,
    /// The path below the root, without a slash at its start.
    pub(crate) relative: Vec<u8>,
}

impl Walk {
    /// Looks.
    ///
    /// # Errors
    /// `WouldBlock` or `CrossesDevices` where it must not wait and would have to; else the
    /// machine's trouble.
    pub(crate) fn look(&self, root: &Root, wait: Wait) -> io::Result<Walked> {
        match self.find(root, wait) {
            Ok(walked) => Ok(walked),
            Err(Fault::Refused(name, why)) => Ok(Walked::Refused(name, why)),
            Err(Fault::Io(error)) => Err(error),
        }
    }

    fn find(&self, root: &Root, wait: Wait) -> Result<Walked, Fault> {
        let landing = landing(root, &self.relative, wait)?;
        let mut name = landing.relative.clone();
        if landing.kind == LandingKind::Directory && !name.is_empty() && !name.ends_with(b"/") {
            name.push(b'/');
        }
        let directories = directories(&name);
        if directories.len() > LEVELS_MAX {
            return Err(self.refused(&name, "htaccess_too_large"));
        }
        let innermost = directories.last().copied().unwrap_or_default();
        let innermost = [&*self.root_name, innermost].concat();
        let at = (&*innermost, self.root_name.len());
        let (opened, stamps) = self.open(root, &directories, wait)?;
        let mut told = Vec::new();
        let known = match self.programs.chain(at, &stamps, &self.overrides) {
            Some(known) => known,
            // To read and understand files takes its time.
            None if wait == Wait::Never && !opened.is_empty() => {
                return Err(io::Error::from(io::ErrorKind::WouldBlock).into());
            }
            None => {
                let (levels, is_settled) = self.read(&opened, &stamps, &mut told)?;
                let stamps = (stamps, is_settled);
                let under = (&self.overrides, self.most);
                let kept = self.programs.keep_chain(at, stamps, levels, under);
                kept.map_err(|stop| Fault::Refused(innermost.clone(), stop.reason))?
            }
        };
        Ok(Walked::Known {
            landing,
            known,
            told,
        })
    }

    /// Opens the files of directories, which is all that is done where they have not changed.
    fn open<'d>(
        &self,
        root: &Root,
        directories: &[&'d [u8]],
        wait: Wait,
    ) -> Result<(OpenedFiles<'d>, Vec<Stamp>), Fault> {
        let (mut opened, mut stamps) = (Vec::new(), Vec::new());
        for (level, directory) in directories.iter().enumerate() {
            let name = [directory, NAME].concat();
            match root.descriptor(&name, wait) {
                Ok(descriptor) => {
                    let facts = file::facts(descriptor.as_fd())?;
                    if facts.kind != FileKind::Regular {
                        return Err(self.refused(&name, "htaccess_unreadable"));
                    }
                    stamps.push(Stamp { level, facts });
                    opened.push((*directory, descriptor));
                }
                Err(error) => match absence(error, wait)? {
                    Absence::Nothing => {}
                    Absence::Refused => return Err(self.refused(&name, "htaccess_unreadable")),
                },
            }
        }
        Ok((opened, stamps))
    }

    /// Reads files and understands them; says as well whether a later change of one will show.
    fn read(
        &self,
        opened: &[(&[u8], OwnedFd)],
        stamps: &[Stamp],
        told: &mut Vec<(Vec<u8>, Arc<Program>)>,
    ) -> Result<(Vec<ChainLevel>, bool), Fault> {
        let mut levels = Vec::with_capacity(opened.len());
        let mut is_settled = true;
        for ((within, descriptor), stamp) in opened.iter().zip(stamps) {
            let is_young = !stamp.is_settled();
            is_settled &= !is_young;
            let name = [within, NAME].concat();
            let bytes = match file::read_whole(descriptor.as_fd(), FILE_BYTES_MAX) {
                Err(error) if error.kind() == io::ErrorKind::FileTooLarge => {
                    return Err(self.refused(&name, "htaccess_too_large"));
                }
                bytes => bytes?,
            };
            let has_changed = file::facts(descriptor.as_fd())? != stamp.facts;
            let (program, is_new) = self.programs.program(&bytes, &self.overrides, self.most);
            // Cut off or still empty it would say less than whoever writes it wants to say.
            let is_begun = is_young && (bytes.is_empty() || !program.is_whole);
            if has_changed || is_begun {
                return Err(self.refused(&name, CHANGING));
            }
            if is_new {
                told.push(([&*self.root_name, &*name].concat(), Arc::clone(&program)));
            }
            levels.push(ChainLevel {
                directory: [&*self.root_name, within].concat().into(),
                program,
            });
        }
        Ok((levels, is_settled))
    }

    fn refused(&self, name: &[u8], why: &'static str) -> Fault {
        Fault::Refused([&*self.root_name, name].concat(), why)
    }
}

/// What a client is answered of a file that cannot be obeyed.
pub(crate) fn status_of(reason: &str) -> u16 {
    match reason {
        CHANGING => 503,
        _ => 403,
    }
}

/// Files that were opened, each with its directory below the root.
type OpenedFiles<'d> = Vec<(&'d [u8], OwnedFd)>;

/// Why a walk comes to nothing.
enum Fault {
    /// The machine's trouble, or that it must not wait.
    Io(io::Error),
    /// A file is there that cannot be obeyed.
    Refused(Vec<u8>, &'static str),
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Why there is no descriptor of a file.
enum Absence {
    /// The file is not there, or its directory is none.
    Nothing,
    /// It is there, and may not be read.
    Refused,
}

/// Tells what is not there from what may not be read.
fn absence(error: io::Error, wait: Wait) -> io::Result<Absence> {
    match NoFile::of(&error) {
        // Only what is surely not there is: a name too long, or a socket, is none of that.
        Some(NoFile::Absent) if error.kind() == io::ErrorKind::NotFound => Ok(Absence::Nothing),
        Some(NoFile::FileInTheWay) => Ok(Absence::Nothing),
        // To another mount, as long as nobody may wait.
        Some(NoFile::Outside) if wait == Wait::Never => Err(error),
        Some(_) => Ok(Absence::Refused),
        None => Err(error),
    }
}

/// What stands at a path.
fn landing(root: &Root, relative: &[u8], wait: Wait) -> io::Result<Landing> {
    let at = |name: &[u8], kind| Landing {
        relative: name.to_vec(),
        path_info: relative.get(name.len()..).unwrap_or_default().to_vec(),
        kind,
    };
    match facts(root, relative, wait)? {
        Some(facts) if facts.kind == FileKind::Directory => {
            return Ok(at(relative, LandingKind::Directory));
        }
        Some(_) => return Ok(at(relative, LandingKind::File)),
        None => {}
    }
    // Something on the way is a file, or missing: the first such part is what is meant.
    let slashes = relative.iter().enumerate();
    let slashes = slashes.filter(|(_, byte)| **byte == b'/').take(LEVELS_MAX);
    for (end, _) in slashes {
        let name = relative.get(..end).unwrap_or_default();
        match facts(root, name, wait)? {
            Some(facts) if facts.kind == FileKind::Directory => {}
            Some(_) => return Ok(at(name, LandingKind::File)),
            None => return Ok(at(name, LandingKind::Missing)),
        }
    }
    Ok(at(relative, LandingKind::Missing))
}

/// What is known of a name below the root; `None` where nothing may be looked at.
pub(crate) fn facts(root: &Root, relative: &[u8], wait: Wait) -> io::Result<Option<FileFacts>> {
    match root.facts(relative, wait) {
        Ok(facts) => Ok(Some(facts)),
        Err(error) => match NoFile::of(&error) {
            Some(NoFile::Outside) if wait == Wait::Never => Err(error),
            Some(_) => Ok(None),
            None => Err(error),
        },
    }
}

/// The directories whose files hold for a name, the root first, each with a slash at its end but
/// the root.
fn directories(relative: &[u8]) -> Vec<&[u8]> {
    let slashes = relative.iter().enumerate();
    let slashes = slashes.filter(|(_, byte)| **byte == b'/');
    let above = slashes.filter_map(|(at, _)| relative.get(..=at));
    let mut directories = vec![&relative[..0]];
    directories.extend(above);
    directories
}
