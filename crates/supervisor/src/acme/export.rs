//! Certificates and keys as files for other daemons, and what is run when they have changed.
//!
//! The idea: the store is the source, and a file that was written bears the time of what it was
//! written of: so whatever is missing or of another time is written, after a renewal as at a start,
//! on every machine that shares the store. That something is still to be run for it is a file, too.
//! Who writes is root, as a rule: so nobody else may be able to change where that leads.

use std::collections::{BTreeMap, VecDeque};
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use config::model::{Acme, AcmeExport};
use config::reason;
use os::user::User;

use super::{Authorities, Purpose};
use crate::certificates::Certificates;
use crate::{Supervisor, chores, surroundings};

/// What others find, in a directory for each certificate: the chain, the key, and both in one file,
/// which changes as a whole.
const CHAIN: &str = "fullchain.pem";
const KEY: &str = "privkey.pem";
const BOTH: &str = "combined.pem";
/// What a file is called while it is written.
const NEW: &str = ".new";
/// Bytes of a file of the store.
const FILE_BYTES_MAX: u64 = 512 * 1024;
/// Certificates that are written in one turn, and looked at.
const WRITTEN_MAX: usize = 8;
const LOOKED_AT_MAX: usize = 500;
/// How long more changes are waited for before something is run.
const GATHERED: Duration = Duration::from_secs(1);
/// How long what is run may take.
const RUN_MAX: Duration = Duration::from_secs(120);
/// When what failed is tried again first, and at the longest.
const FIRST_REST: Duration = Duration::from_secs(60);
const LONGEST_REST: Duration = Duration::from_secs(6 * 3_600);

/// What is to be written, and run.
#[derive(Debug, Default)]
pub(super) struct Exports {
    /// When everything is to be looked at.
    due: Option<Instant>,
    /// Certificates that are to be looked at, by name.
    waiting: VecDeque<String>,
    has_failed: bool,
    /// By account.
    runs: BTreeMap<String, Runs>,
}

#[derive(Debug)]
struct Runs {
    /// When it is to be run; `None` while nothing has changed.
    due: Option<Instant>,
    is_running: bool,
    rest: Duration,
}

impl Exports {
    /// Has everything looked at: a plan or a certificate is another.
    pub(super) fn look(&mut self) {
        self.due = Some(Instant::now());
    }

    /// When there is next something to be done.
    pub(super) fn until(&self) -> Option<Instant> {
        let now = (!self.waiting.is_empty()).then(Instant::now);
        let runs = self.runs.values().filter(|runs| !runs.is_running);
        let runs = runs.filter_map(|runs| runs.due);
        runs.chain(self.due).chain(now).min()
    }

    /// Something is to be run for an account, unless more comes within a moment.
    fn want(&mut self, account: &str, now: Instant) {
        let runs = self.runs.entry(account.to_owned()).or_insert(Runs {
            due: None,
            is_running: false,
            rest: FIRST_REST,
        });
        runs.due = Some(now + GATHERED);
    }
}

impl Authorities {
    /// Does what is due.
    pub(super) fn advance_exports(&mut self, certificates: Option<&Certificates>, now: Instant) {
        if self.exports.due.is_some_and(|due| due <= now) {
            self.begin_exports(now);
        }
        let mut written = 0;
        for _ in 0..LOOKED_AT_MAX {
            if written >= WRITTEN_MAX {
                break;
            }
            let Some(certificate) = self.exports.waiting.pop_front() else {
                break;
            };
            written += usize::from(self.export(&certificate, certificates, now));
        }
        if self.exports.waiting.is_empty() && std::mem::take(&mut self.exports.has_failed) {
            self.exports.due.get_or_insert(now + FIRST_REST);
        }
        self.run_what_is_due(now);
    }

    fn begin_exports(&mut self, now: Instant) {
        self.exports.due = None;
        let accounts = &self.wishes.accounts;
        let exported = self.wishes.certificates.iter().filter(|(certificate, _)| {
            let account = accounts.get(certificate.account);
            account.is_some_and(|acme| acme.export.is_some())
        });
        let exported = exported.map(|(certificate, _)| certificate.name.clone());
        self.exports.waiting = exported.collect();
        // What was changed before somebody died.
        for acme in accounts {
            let left = acme.export.as_ref().map(|export| mark(acme, export));
            if left.is_some_and(|mark| mark.exists()) && !self.exports.runs.contains_key(&acme.name)
            {
                self.exports.want(&acme.name, now);
            }
        }
    }

    /// Writes a certificate's files, if others are there; tells whether it has.
    fn export(&mut self, name: &str, certificates: Option<&Certificates>, now: Instant) -> bool {
        let known = self.wishes.certificate(name);
        let Some((certificate, sources)) = known else {
            return false;
        };
        let Some(acme) = self.wishes.accounts.get(certificate.account) else {
            return false;
        };
        let Some(export) = &acme.export else {
            return false;
        };
        // Where the keeper knows of none it is not there yet, or not sound.
        let is_sound = |source| certificates.is_some_and(|it| it.judged(source).is_some());
        if !sources.first().is_some_and(is_sound) {
            return false;
        }
        let from = acme.store.join("certificates").join(format!("{name}.pem"));
        let mark = export.run.as_ref().map(|_| mark(acme, export));
        match write(&from, export, name, mark.as_deref()) {
            Ok(false) => false,
            Ok(true) => {
                let into = export.directory.join(name);
                tracing::info!(certificate = name, "written into {}", into.display());
                let account = acme.name.clone();
                if mark.is_some() {
                    self.exports.want(&account, now);
                }
                true
            }
            Err(error) => {
                let into = export.directory.join(name);
                let (into, error) = (into.display(), reason(&error));
                tracing::error!(certificate = name, "cannot be written into {into}: {error}");
                self.exports.has_failed = true;
                true
            }
        }
    }

    fn run_what_is_due(&mut self, now: Instant) {
        let accounts = &self.wishes.accounts;
        self.exports.runs.retain(|account, runs| {
            let acme = accounts.iter().find(|acme| acme.name == *account);
            let run = acme.and_then(|acme| acme.export.as_ref()?.run.as_ref());
            let Some(run) = run else {
                return runs.is_running;
            };
            if !runs.is_running && runs.due.is_some_and(|due| due <= now) {
                (runs.due, runs.is_running) = (None, true);
                let user = surroundings::user_of_chore(run, ("account", account));
                let whose = format!("account {account}");
                let mut program = chores::program(run, whose, user.ok().flatten(), &[]);
                program.may_be_root = true;
                self.chores
                    .add(Purpose::Export(account.clone()), program, RUN_MAX);
            }
            true
        });
    }
}

impl Supervisor {
    /// Goes on once what was to be run has ended.
    pub(super) fn on_exported(&mut self, account: &str, outcome: &chores::ChoreEnd) {
        let Authorities {
            exports, wishes, ..
        } = &mut self.authorities;
        let Some(runs) = exports.runs.get_mut(account) else {
            return;
        };
        runs.is_running = false;
        if let Err(why) = outcome {
            tracing::error!(account, "`run` of `export`: {why}");
            runs.due.get_or_insert(Instant::now() + runs.rest);
            runs.rest = (runs.rest * 2).min(LONGEST_REST);
            return;
        }
        tracing::info!(account, "`run` of `export` has ended well");
        runs.rest = FIRST_REST;
        let acme = wishes.accounts.iter().find(|acme| acme.name == account);
        let export = acme.and_then(|acme| Some((acme, acme.export.as_ref()?)));
        // What has changed since is still to be told.
        if let (None, Some((acme, export))) = (runs.due, export) {
            let _ = fs::remove_file(mark(acme, export));
        }
    }
}

/// The file that says that something is to be run.
fn mark(acme: &Acme, export: &AcmeExport) -> PathBuf {
    export.directory.join(format!(".{}.changed", acme.name))
}

/// Writes what is in a file of the store, unless it is there already; `mark` is made before
/// anything is changed. Tells whether something was.
fn write(from: &Path, export: &AcmeExport, name: &str, mark: Option<&Path>) -> io::Result<bool> {
    let file = File::open(from)?;
    let changed = file.metadata()?.modified()?;
    let place = export.directory.join(name);
    // Not every file system keeps fractions of seconds.
    let second = |time: SystemTime| time.duration_since(UNIX_EPOCH).map(|it| it.as_secs()).ok();
    let is_there = |file: &&str| {
        let facts = fs::metadata(place.join(file));
        let of = facts.and_then(|facts| facts.modified());
        of.is_ok_and(|of| second(of) == second(changed))
    };
    if [CHAIN, KEY, BOTH].iter().all(is_there) {
        return Ok(false);
    }
    let mut pem = String::new();
    file.take(FILE_BYTES_MAX).read_to_string(&mut pem)?;
    let (chain, key) = parts(&pem).ok_or_else(|| io::Error::other("no chain with a key"))?;
    for directory in [&export.directory, &place] {
        make_directory(directory)?;
        belongs_to_us(directory)?;
    }
    if let Some(mark) = mark {
        File::create(mark)?.sync_all()?;
    }
    let owner = match &export.owner {
        Some(owner) if os::process::is_root() => Some(User::look_up(owner)?),
        _ => None,
    };
    // Both in one before each in its own: who reads these two is told when all is there.
    for (file, text) in [(BOTH, format!("{key}{chain}")), (KEY, key), (CHAIN, chain)] {
        let new = place.join(NEW);
        match fs::remove_file(&new) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            // What a crash left behind is gone.
            _ => {}
        }
        let mut options = OpenOptions::new();
        let options = options.write(true).create_new(true).mode(0o600);
        let mut written = options.open(&new)?;
        written.write_all(text.as_bytes())?;
        if let Some(owner) = &owner {
            fchown(&written, Some(owner.uid), Some(owner.gid))?;
        }
        written.set_permissions(Permissions::from_mode(export.mode))?;
        written.set_modified(changed)?;
        written.sync_all()?;
        fs::rename(&new, place.join(file))?;
    }
    File::open(&place)?.sync_all()?;
    Ok(true)
}

/// The chain and the key in a file of both.
fn parts(pem: &str) -> Option<(String, String)> {
    let (mut chain, mut key, mut is_key) = (String::new(), String::new(), false);
    for line in pem.lines().filter(|line| !line.is_empty()) {
        if line.starts_with("-----BEGIN ") {
            is_key = line.ends_with("PRIVATE KEY-----");
        }
        let part = if is_key { &mut key } else { &mut chain };
        part.push_str(line);
        part.push('\n');
    }
    (!chain.is_empty() && !key.is_empty()).then_some((chain, key))
}

/// Makes a directory that others may enter, unless it is there.
fn make_directory(path: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o755).create(path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

/// Whether nobody but root and this user can change where a path leads; no link is on it.
fn belongs_to_us(path: &Path) -> io::Result<()> {
    const OTHERS_WRITE: u32 = 0o022;
    const STICKY: u32 = 0o1000;
    for place in path.ancestors() {
        let facts = fs::symlink_metadata(place)?;
        let is_ours = [0, os::process::user_id()].contains(&facts.uid());
        // Where that bit is set nobody moves what is another's.
        let is_sticky = facts.mode() & STICKY != 0 && place != path;
        let is_safe = facts.mode() & OTHERS_WRITE == 0 || is_sticky;
        if !facts.is_dir() || !is_ours || !is_safe {
            let place = place.display();
            let why = format!("{place} is no directory, or others than root may change it");
            return Err(io::Error::new(ErrorKind::PermissionDenied, why));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use testkit::TempDir;

    use super::*;

    const PEM: &str = "-----BEGIN CERTIFICATE-----\nleaf\n-----END CERTIFICATE-----\n\n\
        -----BEGIN CERTIFICATE-----\nother\n-----END CERTIFICATE-----\n\n\
        -----BEGIN PRIVATE KEY-----\nsecret\n-----END PRIVATE KEY-----\n";

    fn export(directory: &Path) -> AcmeExport {
        AcmeExport {
            directory: directory.to_owned(),
            owner: None,
            mode: 0o640,
            run: None,
        }
    }

    #[test]
    fn files_are_written_where_they_are_missing_or_of_another_time() {
        let directory = TempDir::new();
        let from = directory.write("a.pem", PEM);
        let out = directory.path().join("out");
        let mark = out.join(".le.changed");
        assert!(write(&from, &export(&out), "a", Some(&mark)).unwrap());
        assert!(mark.exists());
        let read = |file: &str| fs::read_to_string(out.join("a").join(file)).unwrap();
        assert!(read(CHAIN).contains("leaf") && read(CHAIN).contains("other"));
        assert!(!read(CHAIN).contains("secret"));
        assert!(read(KEY).starts_with("-----BEGIN PRIVATE KEY") && !read(KEY).contains("leaf"));
        assert_eq!(read(BOTH), read(KEY) + &read(CHAIN));
        let mode = fs::metadata(out.join("a").join(KEY)).unwrap().mode();
        assert_eq!(mode & 0o777, 0o640);
        assert!(!write(&from, &export(&out), "a", None).unwrap());
        fs::remove_file(out.join("a").join(KEY)).unwrap();
        assert!(write(&from, &export(&out), "a", None).unwrap());
        let later = SystemTime::now() + Duration::from_secs(100);
        let file = File::options().write(true).open(&from).unwrap();
        file.set_modified(later).unwrap();
        assert!(write(&from, &export(&out), "a", None).unwrap());
        assert!(!write(&from, &export(&out), "a", None).unwrap());
    }

    #[test]
    fn nothing_is_written_where_others_may_change_where_that_leads() {
        let directory = TempDir::new();
        let from = directory.write("a.pem", PEM);
        let out = directory.path().join("out");
        for place in [out.clone(), out.join("a")] {
            fs::create_dir_all(out.join("a")).unwrap();
            fs::set_permissions(&place, Permissions::from_mode(0o777)).unwrap();
            let error = write(&from, &export(&out), "a", None).unwrap_err();
            assert!(error.to_string().contains("others than root"), "{error}");
            fs::set_permissions(&place, Permissions::from_mode(0o755)).unwrap();
        }
        fs::remove_dir(out.join("a")).unwrap();
        let other = directory.path().join("other");
        fs::create_dir(&other).unwrap();
        std::os::unix::fs::symlink(&other, out.join("a")).unwrap();
        assert!(write(&from, &export(&out), "a", None).is_err());
        assert_eq!(fs::read_dir(other).unwrap().count(), 0);
        let half = directory.write("half.pem", PEM.split_once("\n\n").unwrap().0);
        assert!(write(&half, &export(&out), "b", None).is_err());
    }
}
