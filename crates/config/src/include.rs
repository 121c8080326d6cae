//! Expands the globs of `include` and others into file names.
//!
//! The idea: a pattern is walked component by component, so `*` stays within one directory
//! name; results are sorted, so the order of sites never depends on the file system. A pattern
//! without wildcards names one file. A directory to be listed must exist, for a misspelt one would
//! silently serve nothing; whoever lets one be still to come has looked before.

use std::fs::DirEntry;
use std::path::{Path, PathBuf};

use crate::glob;
use crate::reason::reason;

/// What becomes of the others if an included file is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Broken {
    /// Nothing is taken.
    Refuse,
    /// They are taken; the file is set aside.
    Keep,
}

/// Files that match `pattern`, as relative or absolute as the pattern is.
///
/// # Errors
/// A pattern that is none, or a directory in it that cannot be listed, in words.
pub fn expand(base: &Path, pattern: &str) -> Result<Vec<PathBuf>, String> {
    glob::check(pattern).map_err(|why| format!("`{pattern}`: {why}"))?;
    let start = if pattern.starts_with('/') { "/" } else { "" };
    let mut found = vec![PathBuf::from(start)];
    let mut listed = false;
    let mut parts = pattern.split('/').filter(|part| !part.is_empty());
    let mut part = parts.next();
    // Whether what was found is a file for certain.
    let mut are_files = false;
    while let Some(this) = part {
        part = parts.next();
        are_files = glob::has_wildcard(this) && part.is_none();
        if !glob::has_wildcard(this) {
            found.iter_mut().for_each(|path| path.push(this));
            continue;
        }
        let mut next = Vec::new();
        for path in &found {
            match names_in(&base.join(path), this, part.is_some()) {
                Ok(names) => next.extend(names.iter().map(|name| path.join(name))),
                // Below a wildcard, not every directory has to be one that may be listed.
                Err(_) if listed => {}
                Err(why) => return Err(format!("`{}`: {why}", path.display())),
            }
        }
        found = next;
        listed = true;
    }
    if listed && !are_files {
        found.retain(|path| base.join(path).is_file());
    }
    Ok(found)
}

/// The names in a directory that match: those of directories, or those of files.
fn names_in(directory: &Path, part: &str, directories: bool) -> Result<Vec<String>, String> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(|error| reason(&error))? {
        let entry = entry.map_err(|error| reason(&error))?;
        let Ok(name) = entry.file_name().into_string() else {
            continue;
        };
        let hidden = name.starts_with('.') && !part.starts_with('.');
        if !hidden && glob::matches(part.as_bytes(), name.as_bytes()) && is(&entry, directories) {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

/// Whether an entry is, or leads to, a directory, or else a file. Most lists say so themselves.
fn is(entry: &DirEntry, directory: bool) -> bool {
    let kind = entry.file_type();
    match kind {
        Ok(kind) if !kind.is_symlink() => match directory {
            true => kind.is_dir(),
            false => kind.is_file(),
        },
        _ if directory => entry.path().is_dir(),
        _ => entry.path().is_file(),
    }
}
