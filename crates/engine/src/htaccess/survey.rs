//! All `.htaccess` files of a site: what of them is not obeyed, and how many there are.
//!
//! Plain system calls, for commands; no worker looks through a tree.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use config::model::{Site, SiteHtaccess};
use htaccess::tree::FILE_BYTES_MAX;
use htaccess::{Overrides, Problem, compile, compile_section};
use os::file::{self, FileKind, Wait};

use super::answers::trouble_with;
use super::walk::NAME;
use crate::resolve::search::Root;

/// Entries of directories looked at, of one site.
const ENTRIES_MAX: usize = 1_000_000;
/// Directories within each other.
const LEVELS_MAX: usize = 64;
/// Bytes of files read, of one site, and what is wrong with them at [`PROBLEM_BYTES`] each.
const BYTES_MAX: usize = 64 << 20;
/// What a line that is not obeyed counts for.
const PROBLEM_BYTES: usize = 1_024;

/// A file, and what of it is not obeyed.
#[derive(Debug)]
pub struct Surveyed {
    /// The file.
    pub path: PathBuf,
    /// Its lines that are not obeyed, or refuse.
    pub problems: Vec<Problem>,
    /// Whether it has settings of PHP.
    pub sets_php: bool,
    /// Why it cannot be read, where it cannot.
    pub unreadable: Option<String>,
    /// The files of users and groups that it names.
    pub user_files: BTreeSet<Vec<u8>>,
}

impl Surveyed {
    /// Why it cannot be read, and which files that it names cannot be, if that is so for the user of
    /// this thread: whoever looks through trees may read more. May wait.
    pub fn troubles(&self, site: &Site) -> (Option<String>, Vec<String>) {
        let is_file = self.path.as_os_str().as_bytes().ends_with(NAME);
        let opened = self.unreadable.clone().or_else(|| {
            let opened = Some(File::open(&self.path)).filter(|_| is_file)?;
            Some(config::reason(&opened.err()?))
        });
        let files = self.user_files.iter().filter_map(|file| {
            let why = trouble_with(site, file)?;
            Some(format!(
                "{} cannot be read: {why}",
                String::from_utf8_lossy(file)
            ))
        });
        (opened, files.collect())
    }
}

/// The files below the roots of a site, as far as whoever asks may look; those of a site that does not
/// let them count are read as if it let them say all.
pub fn survey(site: &Site) -> Vec<Surveyed> {
    let files = site.htaccess.as_deref().filter(|it| it.obeys_files());
    let mounts = site.mounts.iter().map(|mount| &mount.root);
    let mut survey = Survey {
        files,
        entries_left: ENTRIES_MAX,
        bytes_left: BYTES_MAX,
        found: Vec::new(),
    };
    for named in site.root.iter().chain(mounts) {
        if let Ok(root) = Root::open(named) {
            survey.look((&root, &named.path), b"", LEVELS_MAX);
        }
    }
    survey.found
}

/// The sections of a site's configuration, each under its directory.
pub fn sections(site: &Site) -> Vec<Surveyed> {
    let files = site.htaccess.iter();
    let sections = files.flat_map(|files| &files.directories);
    let surveyed = sections.map(|section| {
        let program = compile_section(section.text.as_bytes(), section.context);
        Surveyed {
            path: PathBuf::from(&section.directory),
            sets_php: program.sets_php(),
            user_files: program.user_files(),
            problems: program.problems,
            unreadable: None,
        }
    });
    surveyed.collect()
}

struct Survey<'s> {
    /// What counts; nothing where none does.
    files: Option<&'s SiteHtaccess>,
    entries_left: usize,
    bytes_left: usize,
    found: Vec<Surveyed>,
}

impl Survey<'_> {
    /// Looks through a directory below a root, out of which nothing leads.
    fn look(&mut self, at: (&Root, &Path), below: &[u8], levels: usize) {
        let (root, path) = at;
        let directory = root.descriptor(below, Wait::Allowed);
        let entries = directory.and_then(|it| file::list(it.as_fd(), self.entries_left));
        let entries = entries.unwrap_or_default();
        self.entries_left -= entries.len();
        for entry in entries {
            let name = [below, &entry.name].concat();
            if entry.name == NAME {
                let found = self.read(root, &name, path.join(OsStr::from_bytes(&name)));
                self.found.extend(found);
            } else if entry.kind == FileKind::Directory && levels > 0 {
                self.look(at, &[&*name, b"/"].concat(), levels - 1);
            }
        }
    }

    /// Reads a file, unless it does not count where others do.
    fn read(&mut self, root: &Root, name: &[u8], path: PathBuf) -> Option<Surveyed> {
        let full = path.as_os_str().as_bytes();
        let directory = full.strip_suffix(NAME).unwrap_or(full);
        let overrides = self
            .files
            .map(|files| files.overrides_in(directory).clone());
        let overrides = overrides.unwrap_or_else(Overrides::all);
        if overrides.is_none() {
            return None;
        }
        let mut found = Surveyed {
            path,
            problems: Vec::new(),
            sets_php: false,
            unreadable: None,
            user_files: BTreeSet::new(),
        };
        if self.bytes_left == 0 {
            return Some(found);
        }
        match bytes(root, name) {
            Ok(bytes) => {
                let program = compile(&bytes, &overrides);
                let used = bytes.len() + PROBLEM_BYTES * program.problems.len();
                self.bytes_left = self.bytes_left.saturating_sub(used);
                found.sets_php = program.sets_php();
                found.user_files = program.user_files();
                found.problems = program.problems;
            }
            Err(error) => found.unreadable = Some(config::reason(&error)),
        }
        Some(found)
    }
}

fn bytes(root: &Root, name: &[u8]) -> io::Result<Vec<u8>> {
    let opened = root.descriptor(name, Wait::Allowed)?;
    match file::facts(opened.as_fd())?.kind {
        FileKind::Regular => file::read_whole(opened.as_fd(), FILE_BYTES_MAX),
        _ => Err(io::Error::other("it is no file")),
    }
}
