//! Files that `import` writes: known again by a digest in their heads, so that another import
//! changes and removes those alone that nobody has changed.

use std::fmt::Write as _;
use std::io::{Error, ErrorKind};
use std::path::{Path, PathBuf};

use import::{Imported, ImportedFile};
use sha2::{Digest, Sha256};

use super::problems_of;

/// Begins the first line of such a file.
const HEAD: &str =
    "# Written by `nagaya import`, which changes it again as long as nobody else does: ";
/// Ends the name of what is written beside a file that somebody has changed.
const BESIDE: &str = "imported";
/// The largest file that is looked at to see whose it is.
const FILE_BYTES_MAX: u64 = 64 << 20;
/// Where sites are tried, below the directory they are for.
const TRIAL: &str = ".nagaya-import";

/// A text with its head.
fn with_head(text: &str) -> String {
    format!("{HEAD}{}\n{text}", digest(text))
}

fn digest(text: &str) -> String {
    let digest = Sha256::digest(text.as_bytes());
    digest
        .iter()
        .take(16)
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// Whose a file is.
#[derive(Debug, PartialEq, Eq)]
enum Whose {
    Nobodys,
    /// As it was written, with this text.
    Ours(String),
    /// Written by hand, or changed.
    Theirs,
}

fn whose(path: &Path) -> Result<Whose, Error> {
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Whose::Nobodys),
        Err(error) => return Err(error),
        Ok(facts) if !facts.is_file() || facts.len() > FILE_BYTES_MAX => return Ok(Whose::Theirs),
        Ok(_) => {}
    }
    let Ok(text) = String::from_utf8(std::fs::read(path)?) else {
        return Ok(Whose::Theirs);
    };
    let parts = text
        .strip_prefix(HEAD)
        .and_then(|rest| rest.split_once('\n'));
    Ok(match parts {
        Some((said, rest)) if said == digest(rest) => Whose::Ours(rest.to_owned()),
        _ => Whose::Theirs,
    })
}

/// Replaces a file at once.
fn replace(path: &Path, text: &str) -> Result<(), Error> {
    let fresh = path.with_extension("fresh");
    std::fs::write(&fresh, text)?;
    std::fs::rename(&fresh, path)
}

/// Writes all files, and removes those that were written before and are none any more; says what
/// was done.
pub(super) fn write_all(imported: &Imported, out: &Path) -> Result<String, Error> {
    let (mut written, mut unchanged, mut said) = (0, 0, String::new());
    for file in &imported.files {
        let path = out.join(format!("{}.toml", file.name));
        match whose(&path)? {
            Whose::Ours(text) if text == file.text => unchanged += 1,
            Whose::Ours(_) | Whose::Nobodys => {
                replace(&path, &with_head(&file.text))?;
                written += 1;
            }
            Whose::Theirs => {
                let beside = out.join(format!("{}.{BESIDE}", file.name));
                replace(&beside, &file.text)?;
                // Writing to memory does not fail, here and below.
                let _ = writeln!(
                    said,
                    "{} was changed by hand and is left alone: compare {}",
                    path.display(),
                    beside.display()
                );
            }
        }
    }
    let removed = remove_others(imported, out, &mut said)?;
    let _ = writeln!(
        said,
        "{}: {written} written, {unchanged} as they were, {removed} removed",
        out.display()
    );
    Ok(said)
}

fn remove_others(imported: &Imported, out: &Path, said: &mut String) -> Result<usize, Error> {
    let mut removed = 0;
    let mut entries: Vec<PathBuf> = std::fs::read_dir(out)?
        .flatten()
        .map(|it| it.path())
        .collect();
    entries.sort();
    for path in entries {
        let is_toml = path.extension().is_some_and(|it| it == "toml");
        let stem = path
            .file_stem()
            .and_then(|it| it.to_str())
            .unwrap_or_default();
        let is_wanted = imported.files.iter().any(|file| file.name == stem);
        if !is_toml || is_wanted {
            continue;
        }
        match whose(&path)? {
            Whose::Ours(_) => {
                std::fs::remove_file(&path)?;
                removed += 1;
            }
            Whose::Theirs if begins_as_ours(&path) => {
                let _ = writeln!(
                    said,
                    "{} is of no site that was read, and was changed by hand: it is left alone",
                    path.display()
                );
            }
            Whose::Theirs | Whose::Nobodys => {}
        }
    }
    Ok(removed)
}

fn begins_as_ours(path: &Path) -> bool {
    std::fs::read(path).is_ok_and(|bytes| bytes.starts_with(HEAD.as_bytes()))
}

/// A directory in which sites are tried; it goes when this does.
pub(super) struct Trial {
    directory: PathBuf,
}

impl Trial {
    /// Makes the directory, below that for which the sites are.
    pub(super) fn open(out: &Path) -> Result<Self, Error> {
        let directory = out.join(format!("{TRIAL}-{}", std::process::id()));
        std::fs::create_dir(&directory)?;
        Ok(Self { directory })
    }

    /// What `check` says of these files together; nothing where they are fine.
    pub(super) fn judge(&self, files: &[&ImportedFile]) -> Result<Option<String>, Error> {
        let mut text = String::new();
        if !files.iter().any(|file| file.text.contains("[[listen]]")) {
            text.push_str("listen = [{ address = \"127.0.0.1:1\", tls = true }]\n");
        }
        let names: Vec<String> = files
            .iter()
            .map(|file| format!("{}.toml", file.name))
            .collect();
        for (file, name) in files.iter().zip(&names) {
            std::fs::write(self.directory.join(name), &file.text)?;
        }
        let quoted: Vec<String> = names.iter().map(config::quote).collect();
        let _ = writeln!(text, "include = [{}]", quoted.join(", "));
        let main = self.directory.join("main");
        std::fs::write(&main, text)?;
        Ok(problems_of(&main))
    }
}

impl Drop for Trial {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}
