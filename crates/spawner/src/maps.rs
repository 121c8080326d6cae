//! The programs of maps: found where the operator says, started as who the operator says.
//!
//! The idea: such a program is named by the configuration, which its operator alone writes, and
//! not by what a client asks for. So it need not lie in a site's directory nor belong to anybody
//! in particular; whoever may run it may. It never runs as root.

use std::ffi::CString;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use config::reason;
use ipc::manifest::{MapManifest, find_in_path, missing_in_path};
use ipc::order::{Failure, RunMap};
use os::file::{NoFile, open_directory};
use os::spawn::{Birth, Birthplace, Limits};

use super::Refusal;
use super::checks::Runnable;
use super::environment;
use super::lookups::Found;
use super::manifests::{self, Manifests};
use super::programs::{self, Order, Program};

/// Finds a map's program and who it runs as, however long it takes: for a thread of its own.
pub(super) fn find(map: &MapManifest) -> Result<Found, Refusal> {
    let user = manifests::look_up_user_of_map(map)?;
    let name = &map.name;
    if user.uid == 0 && os::process::is_root() {
        let what = format!("map {name}: programs do not run as root: give it a `user`");
        return Err(Refusal::new(Failure::UserIsRoot, what));
    }
    let directory = open_directory(&map.directory).map_err(|error| {
        let (path, reason) = (map.directory.display(), reason(&error));
        let failure = match NoFile::of(&error) {
            Some(NoFile::Absent) => Failure::NotFound,
            _ => Failure::SpawnFailed,
        };
        Refusal::new(failure, format!("map {name}: directory {path}: {reason}"))
    })?;
    let program = locate(map)?;
    let program = CString::new(program.as_os_str().as_bytes()).map_err(|_| {
        Refusal::new(
            Failure::NotFound,
            format!("map {name}: no name of a program"),
        )
    })?;
    let runnable = Runnable {
        directory,
        name: program,
    };
    Ok(Found {
        user,
        runnable,
        local_device: None,
    })
}

/// The program's file.
fn locate(map: &MapManifest) -> Result<PathBuf, Refusal> {
    let name = &map.name;
    let word = map.command.first().map(String::as_str).unwrap_or_default();
    let missing = |what: String| Refusal::new(Failure::NotFound, format!("map {name}: {what}"));
    if !word.contains('/') {
        return find_in_path(word).ok_or_else(|| missing(missing_in_path(word)));
    }
    let path = map.directory.join(word);
    match std::fs::metadata(&path) {
        Err(error) => Err(missing(format!("{}: {}", path.display(), reason(&error)))),
        Ok(facts) if !facts.is_file() => Err(Refusal::new(
            Failure::NotRegular,
            format!("map {name}: {} is no regular file", path.display()),
        )),
        Ok(facts) if facts.permissions().mode() & 0o111 == 0 => {
            let path = path.display();
            let what = format!("map {name}: {path} is not executable: chmod +x {path}");
            Err(Refusal::new(Failure::NotExecutable, what))
        }
        Ok(_) => Ok(path),
    }
}

/// Starts a program that was found.
pub(super) fn start(
    manifests: &Manifests,
    order: Order,
    run: &RunMap,
    found: &Found,
) -> Result<Program, Refusal> {
    let map = manifests.find_map(run)?;
    let shown = format!(
        "{} of map {}",
        found.runnable.name.to_string_lossy(),
        map.name
    );
    let words = map.command.iter().skip(1);
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
        stdio: [run.stdin.as_fd(), run.stdout.as_fd(), run.stderr.as_fd()],
        user: map.user.is_some().then_some(&*found.user),
        limits: &limits,
        birthplace: Birthplace::Own,
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
        is_of_map: true,
        is_killed: false,
    })
}
