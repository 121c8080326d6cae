//! The programs of maps, and chores: found where the operator says, started as who the operator says.
//!
//! The idea: such a program is named by the configuration, which its operator alone writes, and
//! not by what a client asks for. So it need not lie in a site's directory nor belong to anybody
//! in particular; whoever may run it may. It runs as root where that is said of it, and where nobody but
//! root can write its file.

use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use config::reason;
use ipc::manifest::{NamedProgram, find_in_path, missing_in_path};
use ipc::order::Failure;
use ipc::rows::RowUsers;
use os::file::{NoFile, open_directory};
use os::spawn::{Birth, Birthplace, Limits};

use super::Refusal;
use super::checks::Runnable;
use super::environment;
use super::lookups::Found;
use super::manifests;
use super::programs::{self, Asker, Order, Program};

/// Finds such a program and who it runs as, however long it takes: for a thread of its own.
pub(super) fn find(program: &NamedProgram) -> Result<Found, Refusal> {
    let user = manifests::look_up_user_of(program)?;
    let whose = &program.whose;
    let is_root = user.uid == 0 && os::process::is_root();
    if is_root && !program.may_be_root {
        let what = format!("{whose}: programs do not run as root: give it a `user`");
        return Err(Refusal::new(Failure::UserIsRoot, what));
    }
    let directory = open_directory(&program.directory).map_err(|error| {
        let (path, reason) = (program.directory.display(), reason(&error));
        let failure = match NoFile::of(&error) {
            Some(NoFile::Absent) => Failure::NotFound,
            _ => Failure::SpawnFailed,
        };
        Refusal::new(failure, format!("{whose}: directory {path}: {reason}"))
    })?;
    let path = locate(program)?;
    if is_root && !is_roots(&path) {
        let path = path.display();
        let what = format!("{whose}: {path} is to run as root, and others may write it");
        return Err(Refusal::new(Failure::WritableByOthers, what));
    }
    let name = CString::new(path.as_os_str().as_bytes())
        .map_err(|_| Refusal::new(Failure::NotFound, format!("{whose}: no name of a program")))?;
    let runnable = Runnable { directory, name };
    Ok(Found {
        user,
        runnable,
        local_device: None,
        run: None,
    })
}

/// Refuses a user that a row may not name, where one has named it.
pub(super) fn check_user_of_row(users: Option<&RowUsers>, uid: u32) -> Result<(), Refusal> {
    if users.is_none_or(|users| users.may_be(uid)) {
        return Ok(());
    }
    let what = format!("no programs of rows run as uid {uid}");
    Err(Refusal::new(Failure::UserUnknown, what))
}

/// Whether a file belongs to root and nobody else may write it.
fn is_roots(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|facts| facts.uid() == 0 && facts.mode() & 0o022 == 0)
}

/// The program's file.
fn locate(program: &NamedProgram) -> Result<PathBuf, Refusal> {
    let whose = &program.whose;
    let word = program
        .command
        .first()
        .map(String::as_str)
        .unwrap_or_default();
    let missing = |what: String| Refusal::new(Failure::NotFound, format!("{whose}: {what}"));
    if !word.contains('/') {
        return find_in_path(word).ok_or_else(|| missing(missing_in_path(word)));
    }
    let path = program.directory.join(word);
    match std::fs::metadata(&path) {
        Err(error) => Err(missing(format!("{}: {}", path.display(), reason(&error)))),
        Ok(facts) if !facts.is_file() => Err(Refusal::new(
            Failure::NotRegular,
            format!("{whose}: {} is no regular file", path.display()),
        )),
        Ok(facts) if facts.permissions().mode() & 0o111 == 0 => {
            let path = path.display();
            let what = format!("{whose}: {path} is not executable: chmod +x {path}");
            Err(Refusal::new(Failure::NotExecutable, what))
        }
        Ok(_) => Ok(path),
    }
}

/// Starts one that was found; `stdio` is its standard input, output and error.
pub(super) fn start(
    order: Order,
    (program, asker): (&NamedProgram, Asker),
    stdio: [BorrowedFd<'_>; 3],
    found: &Found,
) -> Result<Program, Refusal> {
    let name = found.runnable.name.to_string_lossy();
    let shown = format!("{name} of {}", program.whose);
    let words = program.command.iter().skip(1);
    let arguments: Result<Vec<CString>, _> =
        words.map(|word| CString::new(word.as_str())).collect();
    let arguments = arguments.map_err(|_| {
        let what = format!("start {shown}: an argument with a NUL");
        Refusal::new(Failure::SpawnFailed, what)
    })?;
    let environment = environment::check(&[], &[])?;
    let limits = Limits::default();
    let started = os::spawn::spawn(&Birth {
        directory: found.runnable.directory.as_fd(),
        name: &found.runnable.name,
        arguments: &arguments,
        environment: &environment,
        stdio,
        user: program.user.is_some().then_some(&*found.user),
        limits: &limits,
        birthplace: Birthplace::Own,
        listeners: &[],
        walls: None,
        filter: None,
        outlives: false,
    });
    let (process, verdict) = started.map_err(|failed| programs::refusal(&failed, &shown))?;
    Ok(Program {
        order,
        says_start: false,
        process,
        verdict,
        failed: None,
        script: shown,
        limits,
        group: None,
        asker,
        tenant: String::new(),
        is_killed: false,
    })
}
