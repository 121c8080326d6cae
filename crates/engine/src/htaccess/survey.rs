//! All `.htaccess` files of a site: what of them is not obeyed, and how many there are.
//!
//! Plain system calls, for commands; no worker looks through a tree.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use config::model::Site;
use htaccess::{Overrides, Problem, compile, compile_section};

/// Entries of directories looked at, of one site.
const ENTRIES_MAX: usize = 1_000_000;
/// Directories within each other.
const LEVELS_MAX: usize = 64;
/// Largest file.
const FILE_BYTES_MAX: u64 = 256 * 1024;

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
}

/// The files below the roots of a site, as far as whoever asks may look; those of a site that does not
/// let them count are read as if it let them say all.
pub fn survey(site: &Site) -> Vec<Surveyed> {
    let overrides = site.htaccess.as_ref().map(|files| files.overrides.clone());
    let overrides = overrides.filter(|it| !it.is_none());
    let overrides = overrides.unwrap_or_else(Overrides::all);
    let mounts = site.mounts.iter().map(|mount| &mount.root);
    let mut found = Vec::new();
    let mut left = ENTRIES_MAX;
    for root in site.root.iter().chain(mounts) {
        look(&root.path, &overrides, LEVELS_MAX, &mut left, &mut found);
    }
    found
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
            problems: program.problems,
            unreadable: None,
        }
    });
    surveyed.collect()
}

fn look(
    directory: &Path,
    overrides: &Overrides,
    levels: usize,
    left: &mut usize,
    found: &mut Vec<Surveyed>,
) {
    let Ok(entries) = fs::read_dir(directory) else {
        return;
    };
    for entry in entries.filter_map(Result::ok) {
        let Some(less) = left.checked_sub(1) else {
            return;
        };
        *left = less;
        let Ok(kind) = entry.file_type() else {
            continue;
        };
        if entry.file_name().as_bytes() == b".htaccess" {
            found.push(read(entry.path(), overrides));
        } else if kind.is_dir() && levels > 0 {
            look(&entry.path(), overrides, levels - 1, left, found);
        }
    }
}

fn read(path: PathBuf, overrides: &Overrides) -> Surveyed {
    let is_small = |facts: fs::Metadata| match facts.is_file() && facts.len() <= FILE_BYTES_MAX {
        true => Ok(()),
        false => Err(std::io::Error::other("it is no file, or too large")),
    };
    let text = fs::metadata(&path).and_then(is_small);
    match text.and_then(|()| fs::read(&path)) {
        Ok(bytes) => {
            let program = compile(&bytes, overrides);
            Surveyed {
                path,
                sets_php: program.sets_php(),
                problems: program.problems,
                unreadable: None,
            }
        }
        Err(error) => Surveyed {
            path,
            problems: Vec::new(),
            sets_php: false,
            unreadable: Some(config::reason(&error)),
        },
    }
}
