//! Directories of Ruby that scripts may `require`: which files lie there.
//!
//! The idea: all of them are known when the configuration is read, so that a script that asks for one
//! touches no disk, and no name that it makes up leads anywhere. A link that leads out is refused,
//! and links to directories are not followed.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::reason::reason;

/// Files of one directory.
pub(crate) const FILES_MAX: usize = 1_000;
/// What they hold together, and those of all directories.
pub(crate) const BYTES_MAX: u64 = 8 << 20;
/// Names looked at for them.
const NAMES_MAX: usize = 20_000;
/// Directories inside of each other.
const DEPTH_MAX: usize = 16;

/// The `*.rb` below a directory, in order; names that begin with a dot are passed over.
///
/// # Errors
/// Why they cannot be told.
pub(crate) fn files_below(directory: &Path) -> Result<BTreeSet<PathBuf>, String> {
    let root = std::fs::canonicalize(directory).map_err(|error| reason(&error))?;
    let mut found = BTreeSet::new();
    let (mut names, mut bytes) = (0, 0);
    let mut waiting = vec![(directory.to_owned(), 0)];
    while let Some((next, depth)) = waiting.pop() {
        let shown = |why: String| format!("`{}`: {why}", next.display());
        let entries = std::fs::read_dir(&next).map_err(|error| shown(reason(&error)))?;
        for entry in entries {
            let entry = entry.map_err(|error| shown(reason(&error)))?;
            names += 1;
            if names > NAMES_MAX {
                return Err(format!("more than {NAMES_MAX} names lie below it"));
            }
            let (name, path) = (entry.file_name(), entry.path());
            let kind = entry.file_type().map_err(|error| shown(reason(&error)))?;
            let is_hidden = name.as_encoded_bytes().starts_with(b".");
            if kind.is_dir() && !is_hidden {
                if depth >= DEPTH_MAX {
                    return Err(format!("`{}` lies too deep in it", path.display()));
                }
                waiting.push((path, depth + 1));
            } else if path.extension().is_some_and(|suffix| suffix == "rb") && !is_hidden {
                bytes += judge(&path, &root)?;
                found.insert(path);
            }
        }
        if found.len() > FILES_MAX || bytes > BYTES_MAX {
            let most = BYTES_MAX >> 20;
            return Err(format!(
                "more than {FILES_MAX} files or {most} MiB of Ruby lie below it"
            ));
        }
    }
    Ok(found)
}

/// How long a file is that lies below `root` itself, whatever links lead to it.
fn judge(path: &Path, root: &Path) -> Result<u64, String> {
    let shown = |why: &str| format!("`{}` {why}", path.display());
    let there = std::fs::canonicalize(path);
    let there = there.map_err(|error| shown(&format!("cannot be read: {}", reason(&error))))?;
    if !there.starts_with(root) {
        return Err(shown("is a link that leads out of it"));
    }
    let facts = std::fs::metadata(&there).map_err(|error| shown(&reason(&error)))?;
    match facts.is_file() {
        true => Ok(facts.len()),
        false => Err(shown("is not a regular file")),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn what_lies_below_is_found_and_what_leads_out_is_refused() {
        let at = std::env::temp_dir().join(format!("nagaya-library-{}", std::process::id()));
        fs::create_dir_all(at.join("lib/a/b")).expect("directories");
        fs::create_dir_all(at.join("lib/.git")).expect("a directory");
        for name in [
            "lib/x.rb",
            "lib/a/b/y.rb",
            "lib/a/z.txt",
            "lib/.git/h.rb",
            "lib/.x.rb",
            "out.rb",
        ] {
            fs::write(at.join(name), "1").expect("a file");
        }
        let lib = at.join("lib");
        let expected: BTreeSet<_> = ["a/b/y.rb", "x.rb"].map(|name| lib.join(name)).into();
        assert_eq!(files_below(&lib), Ok(expected.clone()));
        // A link to a directory is not followed, be it the one it lies in.
        symlink(&lib, lib.join("a/again")).expect("a link");
        assert_eq!(files_below(&lib), Ok(expected));
        symlink(lib.join("x.rb"), lib.join("same.rb")).expect("a link");
        assert_eq!(files_below(&lib).map(|files| files.len()), Ok(3));
        symlink(at.join("out.rb"), lib.join("out.rb")).expect("a link");
        let why = files_below(&lib).expect_err("a link leads out");
        assert!(
            why.contains("out.rb` is a link that leads out of it"),
            "{why}"
        );
        assert!(files_below(&at.join("none")).is_err());
        fs::remove_dir_all(&at).expect("the directory");
    }
}
