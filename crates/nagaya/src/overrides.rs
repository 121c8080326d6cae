//! The overrides file as commands write it: what is to outlive reloads and restarts.
//!
//! The command writes it, with the rights of whoever types it. The server could not: it has given
//! up its privileges, and what it could write somebody who got into it could, too. The supervisor
//! could, but then a word of the server would change what root reads at the next start. Who may
//! edit the configuration may keep a change; nobody else needs to.
//!
//! So the file lies beside the configuration (or where `limits_overrides` says): the place that
//! outlives a reboot and is backed up. The new text is written to a file beside the old one, and
//! takes its name once the gateway has agreed. One command writes at a time. A reload that had read
//! the file before is followed by another.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use config::overrides::{Edited, Overrides};
use jiff::Timestamp;

use crate::outcome::{Outcome, complain, wrong_config};
use supervisor::load::load_without_overrides;

/// Largest overrides file, as the configuration has it.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Who may read a new one: it holds no secrets, and a gateway that is not root's has to.
const MODE: u32 = 0o644;
/// What is added to its name while it is written.
const NEW: &str = ".new";
/// What is added to its name for the file whose lock says that somebody writes it.
const LOCK: &str = ".lock";
/// Who may open that one.
const LOCK_MODE: u32 = 0o600;

/// The overrides file, while nobody else writes it.
pub(crate) struct Store {
    pub(crate) path: PathBuf,
    pub(crate) overrides: Overrides,
    directory: File,
    /// Mode and owner, where it is there.
    facts: Option<fs::Metadata>,
    _lock: File,
}

/// A new overrides file under its passing name; gone when dropped.
pub(crate) struct New<'a> {
    store: &'a Store,
    path: PathBuf,
}

impl Store {
    /// Finds and reads the overrides file of a configuration. What goes wrong has been told.
    pub(crate) fn open(config: &Path) -> Result<Store, Outcome> {
        let loaded = load_without_overrides(config).map_err(|problems| {
            let outcome = wrong_config(&problems);
            complain("nagaya: nothing was changed: what is kept needs a configuration that is fine\n  without --keep a limit can be set all the same\n");
            outcome
        })?;
        let named = loaded.model.limits_overrides;
        if named.to_string_lossy().contains(char::is_control) {
            return Err(failed("read", &named, "its name has control characters"));
        }
        let path = led_to(named)?;
        let lock = locked(&path)?;
        let parent = path.parent().unwrap_or(Path::new("/"));
        let directory = File::open(parent).map_err(|error| told("open", parent, &error))?;
        let (text, facts) = read(&path).map_err(|error| told("read", &path, &error))?;
        let name = path.display().to_string();
        let overrides = Overrides::read(&name, &text).map_err(|problems| {
            let outcome = wrong_config(&problems);
            complain("nagaya: mend the overrides file first: nothing was changed\n");
            outcome
        })?;
        Ok(Store {
            path,
            overrides,
            directory,
            facts,
            _lock: lock,
        })
    }

    /// Writes the text beside the file, to the disk.
    pub(crate) fn write(&self, edited: &Edited) -> Result<New<'_>, Outcome> {
        let mut name = self.path.clone().into_os_string();
        name.push(NEW);
        let new = New {
            store: self,
            path: PathBuf::from(name),
        };
        new.fill(&edited.text)
            .map_err(|error| told("write", &new.path, &error))?;
        Ok(new)
    }
}

impl New<'_> {
    fn fill(&self, text: &str) -> io::Result<()> {
        // What is there was left behind: nobody else writes now.
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut options = OpenOptions::new();
        let mut file = options
            .write(true)
            .create_new(true)
            .mode(MODE)
            .open(&self.path)?;
        file.write_all(text.as_bytes())?;
        let mode = self.store.facts.as_ref().map_or(MODE, fs::Metadata::mode);
        file.set_permissions(fs::Permissions::from_mode(mode & 0o777))?;
        if let Some(facts) = &self.store.facts {
            // Root may edit another's file without taking it; others cannot, and own it.
            let _ = std::os::unix::fs::fchown(&file, Some(facts.uid()), Some(facts.gid()));
        }
        file.sync_all()
    }

    /// Gives it the file's name.
    pub(crate) fn take_place(self) -> Result<(), Outcome> {
        let path = &self.store.path;
        fs::rename(&self.path, path)
            .and_then(|()| self.store.directory.sync_all())
            .map_err(|error| told("write", path, &error))
    }
}

impl Drop for New<'_> {
    fn drop(&mut self) {
        // After it took its place there is nothing of this name.
        let _ = fs::remove_file(&self.path);
    }
}

/// The time, as the file has it.
pub(crate) fn now() -> String {
    Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Says why it is not changed as was asked for.
pub(crate) fn wrong(error: &config::overrides::Unedited) -> Outcome {
    complain(&format!("nagaya: {error}\n"));
    Outcome::Wrong
}

/// Where a link leads: that is written, not the link.
fn led_to(named: PathBuf) -> Result<PathBuf, Outcome> {
    match fs::canonicalize(&named) {
        Ok(path) => Ok(path),
        Err(_) if fs::symlink_metadata(&named).is_err() => Ok(named),
        Err(error) => Err(told("follow", &named, &error)),
    }
}

/// Locks what is to be written, by a file beside it that nobody else may open: a lock on the
/// directory, or on a file all may read, could be held by any user of the machine.
fn locked(path: &Path) -> Result<File, Outcome> {
    let mut name = path.as_os_str().to_owned();
    name.push(LOCK);
    let name = PathBuf::from(name);
    let mut options = OpenOptions::new();
    let file = options
        .write(true)
        .create(true)
        .truncate(false)
        .mode(LOCK_MODE)
        .open(&name)
        .map_err(|error| told("open", &name, &error))?;
    match os::file::lock(file.as_fd()) {
        Ok(true) => Ok(file),
        Ok(false) => {
            let why = "another command writes it just now: try again";
            Err(failed("change", path, why))
        }
        Err(error) => Err(told("lock", &name, &error)),
    }
}

/// The text of a file and what is known of it; nothing of one that is not there.
fn read(path: &Path) -> io::Result<(String, Option<fs::Metadata>)> {
    let facts = match fs::metadata(path) {
        Ok(facts) => facts,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok((String::new(), None)),
        Err(error) => return Err(error),
    };
    if !facts.is_file() || facts.len() > FILE_BYTES_MAX {
        let why = "it is no regular file, or larger than 1 MiB";
        return Err(io::Error::new(ErrorKind::InvalidData, why));
    }
    Ok((fs::read_to_string(path)?, Some(facts)))
}

fn told(doing: &str, path: &Path, error: &io::Error) -> Outcome {
    failed(doing, path, &config::reason(error))
}

fn failed(doing: &str, path: &Path, why: &str) -> Outcome {
    let path = path.display();
    complain(&format!("nagaya: {doing} {path}: {why}\n"));
    Outcome::Failed
}
