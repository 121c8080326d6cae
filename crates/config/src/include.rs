//! Expands the globs of `include` and others into file names.
//!
//! The idea: a pattern is walked component by component, so `*` stays within one directory
//! name; results are sorted, so the order of sites never depends on the file system. A pattern
//! without wildcards names one file, which must exist; a directory to be listed must exist too,
//! for a misspelt one would silently serve nothing.

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
    for part in pattern.split('/').filter(|part| !part.is_empty()) {
        if !glob::has_wildcard(part) {
            found.iter_mut().for_each(|path| path.push(part));
            continue;
        }
        let mut next = Vec::new();
        for path in &found {
            match names_in(&base.join(path), part) {
                Ok(names) => next.extend(names.iter().map(|name| path.join(name))),
                // Below a wildcard, not every match has to be a directory.
                Err(_) if listed => {}
                Err(why) => return Err(format!("`{}`: {why}", path.display())),
            }
        }
        found = next;
        listed = true;
    }
    if listed {
        found.retain(|path| base.join(path).is_file());
    }
    Ok(found)
}

fn names_in(directory: &Path, part: &str) -> Result<Vec<String>, String> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(|error| reason(&error))? {
        let name = entry.map_err(|error| reason(&error))?.file_name();
        let Ok(name) = name.into_string() else {
            continue;
        };
        let hidden = name.starts_with('.') && !part.starts_with('.');
        if !hidden && glob::matches(part.as_bytes(), name.as_bytes()) {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}
