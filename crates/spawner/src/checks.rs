//! Whether a file may be run as a site's user: what Apache's suexec asks, asked of descriptors.
//!
//! The idea: whoever could change the file, or put another in its place, could run anything as
//! the site's user. So file and directory must be that user's or root's and nobody else's to
//! write. The file is found without leaving the site's directory; the directory that is checked
//! and started in is the one it really is in, whatever links led there. What happens to the name
//! between this look and `execve` only that user and root can do, who could have written it.
//! Directories further up are as safe as the operator keeps them.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use config::reason;
use ipc::manifest::SiteManifest;
use ipc::order::Failure;
use os::file::{FileFacts, FileKind, NoFile, Symlinks, Wait};
use os::user::User;

use super::lookups::{Found, Wanted, WantedScript};
use super::{Refusal, manifests, named, pools};

const SETUID_SETGID: u32 = 0o6000;
const WRITE_OTHERS: u32 = 0o022;

/// A file that may be run.
#[derive(Debug)]
pub(super) struct Runnable {
    /// The directory it is in.
    pub(super) directory: OwnedFd,
    /// Its name there.
    pub(super) name: CString,
}

/// Why a script is not to be run, or not known to be.
#[derive(Debug)]
enum Unfit {
    Refused(Refusal),
    /// It cannot be found without waiting.
    WouldWait,
}

/// Finds a script below a site's root, and checks it, without waiting for a disk or a server;
/// `None` where that cannot be. `is_local` tells devices that are asked without waiting.
pub(super) fn find_at_once(
    site: &SiteManifest,
    script: &[u8],
    user: &User,
    is_local: impl FnOnce(u64) -> bool,
) -> Result<Option<Runnable>, Refusal> {
    let Ok(within) = os::file::open_directory_at_once(&site.within) else {
        return Ok(None);
    };
    if !os::file::device_at_once(within.as_fd()).is_ok_and(is_local) {
        return Ok(None);
    }
    match find_below(within.as_fd(), site, script, user, Wait::Never) {
        Ok(runnable) => Ok(Some(runnable)),
        Err(Unfit::WouldWait) => Ok(None),
        Err(Unfit::Refused(refusal)) => Err(refusal),
    }
}

/// The same, however long it takes: for a thread of its own.
pub(super) fn find(wanted: &Wanted) -> Result<Found, Refusal> {
    match wanted {
        Wanted::Script(wanted) => find_script(wanted),
        Wanted::Named(program) => named::find(program),
        Wanted::Run(wanted) => pools::find_run(wanted),
    }
}

fn find_script(wanted: &WantedScript) -> Result<Found, Refusal> {
    let (site, script) = (&wanted.site, &wanted.script);
    let user = match &wanted.user {
        Some(user) => Arc::clone(user),
        None => manifests::look_up_user(site)?,
    };
    named::check_user_of_row(wanted.users.as_ref(), user.uid)?;
    let within = os::file::open_directory(&site.within)
        .map_err(|error| refused(&error, site.within.display().to_string()))?;
    let is_local = os::file::is_local(within.as_fd()).unwrap_or_default();
    let device = is_local.then(|| os::file::device_at_once(within.as_fd()));
    match find_below(within.as_fd(), site, script, &user, Wait::Allowed) {
        Ok(runnable) => Ok(Found {
            user,
            runnable,
            local_device: device.and_then(Result::ok),
            run: None,
        }),
        Err(Unfit::Refused(refusal)) => Err(refusal),
        Err(Unfit::WouldWait) => {
            let what = "it changes all the time".to_owned();
            Err(Refusal::new(Failure::SpawnFailed, what))
        }
    }
}

fn find_below(
    within: BorrowedFd<'_>,
    site: &SiteManifest,
    script: &[u8],
    user: &User,
    wait: Wait,
) -> Result<Runnable, Unfit> {
    if user.uid == 0 && os::process::is_root() {
        let what = "programs do not run as root";
        return Err(Refusal::new(Failure::UserIsRoot, what.into()).into());
    }
    if !is_plain(script) {
        let script = script.escape_ascii();
        let what = format!("{script} is no plain path below a root");
        return Err(Refusal::new(Failure::OutsideRoot, what).into());
    }
    let shown = |part: &str| format!("{part} {}/{}", site.root.display(), script.escape_ascii());
    let below = site.root.strip_prefix(&site.within).unwrap_or(&site.root);
    let path = join(below.as_os_str().as_bytes(), script);
    let find = |from: BorrowedFd<'_>, path: &[u8], symlinks| {
        let found = os::file::find_beneath(from, path, symlinks, wait);
        found.map_err(|error| unfound(&error, shown("the file"), wait))
    };
    let file = find(within, &path, site.symlinks)?;
    let facts = facts(file.as_fd(), &shown("the file"))?;
    check_file(&facts, (site, user), &real_path(file.as_fd()))?;

    let (real_directory, name) = real_place(within, file.as_fd(), &shown("the file"))?;
    let directory = find(within, &real_directory, Symlinks::Deny)?;
    check_directory(directory.as_fd(), (site, user))?;
    let again = find(directory.as_fd(), &name, Symlinks::Deny)?;
    let now = self::facts(again.as_fd(), &shown("the file"))?;
    if (now.device, now.inode) != (facts.device, facts.inode) {
        let what = format!("{} was replaced while it was looked at", shown("the file"));
        return Err(Refusal::new(Failure::NotFound, what).into());
    }
    let name =
        CString::new(name).map_err(|_| Refusal::new(Failure::OutsideRoot, shown("no name:")))?;
    Ok(Runnable { directory, name })
}

/// Relative, and made of names alone.
fn is_plain(path: &[u8]) -> bool {
    let is_name = |name: &[u8]| !matches!(name, b"" | b"." | b"..") && !name.contains(&0);
    path.split(|byte| *byte == b'/').all(is_name)
}

fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    match directory {
        b"" => name.to_vec(),
        _ => [directory, b"/", name].concat(),
    }
}

/// The directory an open file is in, below `within`, and its name there.
fn real_place(
    within: BorrowedFd<'_>,
    file: BorrowedFd<'_>,
    shown: &str,
) -> Result<(Vec<u8>, Vec<u8>), Refusal> {
    let path_of = |fd| os::file::path_of(fd).map_err(|error| refused(&error, shown.into()));
    let (top, path) = (path_of(within)?, path_of(file)?);
    let top = top.strip_suffix(b"/").unwrap_or(&top);
    let below = path
        .strip_prefix(top)
        .and_then(|path| path.strip_prefix(b"/"));
    let Some(below) = below else {
        let what = format!("{shown} has gone from there");
        return Err(Refusal::new(Failure::NotFound, what));
    };
    let slash = below.iter().rposition(|byte| *byte == b'/');
    Ok(match slash {
        Some(at) => {
            let (directory, name) = below.split_at(at);
            (
                directory.to_vec(),
                name.get(1..).unwrap_or_default().to_vec(),
            )
        }
        None => (Vec::new(), below.to_vec()),
    })
}

fn facts(fd: BorrowedFd<'_>, shown: &str) -> Result<FileFacts, Refusal> {
    os::file::facts(fd).map_err(|error| refused(&error, shown.into()))
}

fn check_file(
    facts: &FileFacts,
    (site, user): (&SiteManifest, &User),
    path: &str,
) -> Result<(), Refusal> {
    if facts.kind != FileKind::Regular {
        let what = format!("{path} is no regular file");
        return Err(Refusal::new(Failure::NotRegular, what));
    }
    let mode = facts.mode;
    if mode & SETUID_SETGID != 0 {
        let what = format!("{path} is setuid or setgid (mode {mode:04o}): chmod u-s,g-s {path}");
        return Err(Refusal::new(Failure::SetuidFile, what));
    }
    check_owner(facts, (site, user), path)?;
    let (bit, remedy) = if facts.uid == user.uid {
        (0o100, "u+x")
    } else if user.groups.contains(&facts.gid) {
        (0o010, "g+x")
    } else {
        (0o001, "o+x")
    };
    if mode & bit == 0 {
        let (name, uid) = (name_of(site, user), user.uid);
        let what = format!(
            "{path} is not executable by user {name} ({uid}; mode {mode:04o}): chmod {remedy} {path}"
        );
        return Err(Refusal::new(Failure::NotExecutable, what));
    }
    Ok(())
}

fn check_directory(
    directory: BorrowedFd<'_>,
    whose: (&SiteManifest, &User),
) -> Result<(), Refusal> {
    let path = real_path(directory);
    check_owner(&facts(directory, &path)?, whose, &path)
}

fn check_owner(
    facts: &FileFacts,
    (site, user): (&SiteManifest, &User),
    path: &str,
) -> Result<(), Refusal> {
    if facts.uid != user.uid && facts.uid != 0 {
        let (owner, name, uid) = (facts.uid, name_of(site, user), user.uid);
        let what = format!(
            "{path} belongs to user {owner}, neither to {name} ({uid}) nor to root: chown {name} {path}"
        );
        return Err(Refusal::new(Failure::OwnerMismatch, what));
    }
    if facts.mode & WRITE_OTHERS != 0 {
        let mode = facts.mode;
        let what = format!(
            "{path} can be written by its group or by others (mode {mode:04o}): chmod go-w {path}"
        );
        return Err(Refusal::new(Failure::WritableByOthers, what));
    }
    Ok(())
}

/// Who a site's programs run as, as a command takes it.
fn name_of(site: &SiteManifest, user: &User) -> String {
    site.user.clone().unwrap_or_else(|| user.uid.to_string())
}

/// Where an open file really is, for messages.
fn real_path(fd: BorrowedFd<'_>) -> String {
    let path = os::file::path_of(fd).unwrap_or_default();
    path.escape_ascii().to_string()
}

fn unfound(error: &io::Error, shown: String, wait: Wait) -> Unfit {
    let would_wait = matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::CrossesDevices
    );
    if would_wait && wait == Wait::Never {
        Unfit::WouldWait
    } else {
        Unfit::Refused(refused(error, shown))
    }
}

fn refused(error: &io::Error, shown: String) -> Refusal {
    let failure = match NoFile::of(error) {
        Some(NoFile::Absent | NoFile::FileInTheWay) => Failure::NotFound,
        Some(NoFile::Link) => Failure::SymlinkRefused,
        Some(NoFile::Outside) => Failure::OutsideRoot,
        Some(NoFile::Denied) => Failure::NotExecutable,
        None => Failure::SpawnFailed,
    };
    Refusal::new(failure, format!("{shown}: {}", reason(error)))
}

impl From<Refusal> for Unfit {
    fn from(refusal: Refusal) -> Unfit {
        Unfit::Refused(refusal)
    }
}
