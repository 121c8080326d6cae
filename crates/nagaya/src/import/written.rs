//! Files that `import` writes: known again by a digest in their heads, so that another import
//! changes and removes those alone that nobody has changed.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{Error, ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use import::{Imported, ImportedFile, SHARED};
use sha2::{Digest, Sha256};

use super::problems_of;

/// Begins the first line of such a file; a digest and what it was read from follow.
const HEAD: &str =
    "# Written by `nagaya import`, which changes it again as long as nobody else does: ";
/// Ends the name of what is written beside a file that is not ours to change.
const BESIDE: &str = "imported";
/// The largest file that is looked at to see whose it is.
const FILE_BYTES_MAX: u64 = 64 << 20;
/// Where sites are tried, below the directory they are for.
const TRIAL: &str = ".nagaya-import";

/// What sites were read from. Only what came from there is changed and removed.
pub(super) struct ImportSource {
    /// A line that is the same in every run.
    pub(super) name: String,
    /// Whether all that is read by this name is one configuration.
    pub(super) is_one: bool,
}

impl ImportSource {
    /// A text with its head.
    fn with_head(&self, text: &str) -> String {
        let name = &self.name;
        format!("{HEAD}{} of {name}\n{text}", digest(name, text))
    }
}

fn digest(name: &str, text: &str) -> String {
    let digest = Sha256::digest([name, "\n", text].concat());
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
    /// As it was written: what it was read from, and this text.
    Ours(String, String),
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
        .and_then(|rest| rest.split_once('\n'))
        .and_then(|(head, rest)| Some((head.split_once(" of ")?, rest)));
    Ok(match parts {
        Some(((said, name), rest)) if said == digest(name, rest) => {
            Whose::Ours(name.to_owned(), rest.to_owned())
        }
        _ => Whose::Theirs,
    })
}

/// Replaces a file at once, and for good.
fn replace(path: &Path, text: &str) -> Result<(), Error> {
    let directory = path.parent().unwrap_or(Path::new("."));
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let fresh = directory.join(format!(".{name}.{}", std::process::id()));
    let mut file = File::create_new(&fresh)?;
    let written = file
        .write_all(text.as_bytes())
        .and_then(|()| file.sync_all())
        .and_then(|()| std::fs::rename(&fresh, path));
    if written.is_err() {
        let _ = std::fs::remove_file(&fresh);
    }
    written.and_then(|()| File::open(directory)?.sync_all())
}

/// Writes all files, and removes those that were written from the same source before and are none
/// any more, but for sites that are left out today (`left_out`); says what was done.
pub(super) fn write_all(
    imported: &Imported,
    left_out: &[String],
    source: &ImportSource,
    out: &Path,
) -> Result<String, Error> {
    let (mut written, mut unchanged, mut said) = (0, 0, String::new());
    for file in &imported.files {
        let path = out.join(format!("{}.toml", file.name));
        match whose(&path)? {
            Whose::Ours(_, text) if text == file.text => unchanged += 1,
            Whose::Ours(name, _) if name != source.name => {
                let why = format!("is of {name}");
                write_beside(&path, file, &why, source, &mut said)?;
            }
            Whose::Ours(..) | Whose::Nobodys => {
                replace(&path, &source.with_head(&file.text))?;
                written += 1;
            }
            Whose::Theirs => {
                write_beside(&path, file, "was changed by hand", source, &mut said)?;
            }
        }
    }
    let names = imported.files.iter().map(|file| &file.name);
    let wanted: BTreeSet<&str> = names.chain(left_out).map(String::as_str).collect();
    let removed = remove_others(&wanted, source, out, &mut said)?;
    // Writing to memory does not fail, here and below.
    let _ = writeln!(
        said,
        "{}: {written} written, {unchanged} as they were, {removed} removed",
        out.display()
    );
    Ok(said)
}

/// Writes beside a file that is left alone what would stand in it.
fn write_beside(
    path: &Path,
    file: &ImportedFile,
    why: &str,
    source: &ImportSource,
    said: &mut String,
) -> Result<(), Error> {
    let beside = path.with_file_name(format!("{}.{BESIDE}", file.name));
    let (path, shown) = (path.display(), beside.display());
    let _ = match whose(&beside)? {
        Whose::Theirs => writeln!(
            said,
            "{path} {why} and is left alone; so is {shown}: remove it to have what was read now"
        ),
        Whose::Ours(..) | Whose::Nobodys => {
            replace(&beside, &source.with_head(&file.text))?;
            writeln!(said, "{path} {why} and is left alone: compare {shown}")
        }
    };
    Ok(())
}

fn remove_others(
    wanted: &BTreeSet<&str>,
    source: &ImportSource,
    out: &Path,
    said: &mut String,
) -> Result<usize, Error> {
    let mut removed = 0;
    let has_sites = wanted.iter().any(|name| *name != SHARED);
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
        if !is_toml || wanted.contains(stem) {
            continue;
        }
        let why = match whose(&path)? {
            Whose::Ours(name, _) if name != source.name => continue,
            Whose::Ours(..) if !has_sites => "no site was",
            Whose::Ours(..) if source.is_one => {
                std::fs::remove_file(&path)?;
                removed += 1;
                continue;
            }
            Whose::Ours(..) => "may be of another machine",
            Whose::Theirs if begins_as_ours(&path) => "was changed by hand",
            Whose::Theirs | Whose::Nobodys => continue,
        };
        let _ = writeln!(
            said,
            "{} is of no site that was read, and {why}: it is left alone",
            path.display()
        );
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
