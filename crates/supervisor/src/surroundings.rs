//! What a configuration finds around it: the users it names, and the sockets it connects to.
//!
//! The idea: said before the first request, by `check`, `doctor` and at start. What may still come
//! (a server that is started later) is a warning; nothing is changed by looking.

use std::io::ErrorKind;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::Path;

use config::model::{Chore, Handler, Map, MapProgram, MapSource, Model, Rule, ServerAddress, Site};
use config::reason;
use os::user::User;

use ipc::manifest::{find_in_path, missing_in_path};

/// Sockets looked at, at most.
const SOCKETS_MAX: usize = 1_000;

/// Whom a site's programs run as, where that is not who this process is. Only root can become
/// somebody else.
///
/// # Errors
/// When the site names another user, and this process is not root.
pub fn user(site: &Site) -> Result<Option<String>, String> {
    becomes(&site.user, site.has_own_user, ("site", &site.name()))
}

/// Whom a map's program runs as, likewise.
///
/// # Errors
/// As [`user`].
pub fn user_of_map(map: &Map, program: &MapProgram) -> Result<Option<String>, String> {
    becomes(&program.user, program.has_own_user, ("map", &map.name))
}

/// Whom a chore runs as, likewise; `whose` is a kind and a name.
///
/// # Errors
/// As [`user`].
pub fn user_of_chore(chore: &Chore, whose: (&str, &str)) -> Result<Option<String>, String> {
    becomes(&chore.user, chore.has_own_user, whose)
}

fn becomes(
    user: &str,
    is_named: bool,
    (kind, name): (&str, &str),
) -> Result<Option<String>, String> {
    if os::process::is_root() {
        return Ok(Some(user.to_owned()));
    }
    // Started by anybody else, the gateway stays who it is, whatever its own `user` says.
    if !is_named {
        return Ok(None);
    }
    let own = os::process::user_id();
    if User::look_up(user).is_ok_and(|user| user.uid == own) {
        return Ok(None);
    }
    Err(format!(
        "{kind} {name}: its programs cannot run as {user}, since only root can become others and \
         this is user {own}: start as root, or take `user` out of the {kind}"
    ))
}

/// The programs that are run for accounts, each with its account's name.
fn chores(model: &Model) -> impl Iterator<Item = (&str, &Chore)> {
    model.acme.iter().flat_map(|acme| {
        let dns = acme.dns.as_ref().map(|dns| &dns.program);
        let run = acme.export.as_ref().and_then(|export| export.run.as_ref());
        let all = dns.into_iter().chain(run);
        all.map(|chore| (acme.name.as_str(), chore))
    })
}

/// The sites, maps and accounts whose programs cannot run as they should from here, a line each.
pub fn unbecomable(model: &Model) -> impl Iterator<Item = String> {
    let starts_programs = |rule: &Rule| matches!(rule.handler, Some(Handler::Cgi(_)));
    let sites = model.sites.iter();
    let sites = sites.filter(move |site| site.rules.iter().any(starts_programs));
    let of_sites = sites.filter_map(|site| user(site).err());
    let of_maps = model.maps.iter().filter_map(|map| match &map.source {
        MapSource::Program(program) => user_of_map(map, program).err(),
        MapSource::File(_) => None,
    });
    of_sites.chain(of_maps).chain(unbecomable_chores(model))
}

/// Those of accounts alone.
pub(crate) fn unbecomable_chores(model: &Model) -> impl Iterator<Item = String> {
    let of_files = model.acme.iter().filter_map(|acme| {
        let export = acme.export.as_ref().filter(|it| it.run.is_none())?;
        becomes(export.owner.as_ref()?, true, ("account", &acme.name)).err()
    });
    let chores = chores(model);
    let chores = chores.filter_map(|(name, chore)| user_of_chore(chore, ("account", name)).err());
    chores.chain(of_files)
}

/// What may be meant otherwise: sockets that are none, programs of maps that are not there, a line
/// each.
pub fn warnings(model: &Model) -> Vec<String> {
    let servers = model.upstreams.iter().flat_map(|upstream| {
        let servers = upstream.servers.iter();
        servers.map(|server| (&upstream.name, &server.address))
    });
    let sockets = servers.filter_map(|(name, address)| match address {
        ServerAddress::Unix(path) => Some((name, path.as_path())),
        ServerAddress::Tcp(_) | ServerAddress::Name { .. } => None,
    });
    let of_sockets = sockets.take(SOCKETS_MAX).filter_map(|(name, path)| {
        let why = lack(path)?;
        let path = path.display().to_string();
        Some(match name.contains(&path) {
            true => format!("socket {path}: {why}"),
            false => format!("upstream {name}: socket {path}: {why}"),
        })
    });
    let of_maps = model.maps.iter().filter_map(lacking_program);
    let of_accounts = chores(model).filter_map(|(name, chore)| lacking_chore(name, chore));
    of_sockets.chain(of_maps).chain(of_accounts).collect()
}

/// What is wrong with a chore, or with whom it runs as where the configuration does not say.
fn lacking_chore(name: &str, chore: &Chore) -> Option<String> {
    let user = &chore.user;
    let is_default = !chore.has_own_user && os::process::is_root();
    if is_default && User::look_up(user).is_err() {
        return Some(format!(
            "account {name}: there is no user {user}, whom its program runs as: make it, or name \
             another by `user`"
        ));
    }
    lacking(&format!("account {name}"), &chore.command, &chore.directory)
}

/// What is wrong with the program of a map, as far as a look can tell.
fn lacking_program(map: &Map) -> Option<String> {
    let MapSource::Program(program) = &map.source else {
        return None;
    };
    lacking(
        &format!("map {}", map.name),
        &program.command,
        &program.directory,
    )
}

fn lacking(whose: &str, command: &[String], directory: &Path) -> Option<String> {
    let word = command.first().filter(|word| !word.is_empty())?;
    if !word.contains('/') {
        let is_there = find_in_path(word).is_some();
        return (!is_there).then(|| format!("{whose}: {}", missing_in_path(word)));
    }
    let path = directory.join(word);
    let why = match std::fs::metadata(&path) {
        Ok(facts) if !facts.is_file() => "no file".to_owned(),
        Ok(facts) if facts.permissions().mode() & 0o111 == 0 => {
            format!("it is not executable: chmod +x {}", path.display())
        }
        Ok(_) => return None,
        // Who runs it may be allowed what this user is not.
        Err(error) if error.kind() == ErrorKind::PermissionDenied => return None,
        Err(error) => reason(&error),
    };
    let path = path.display();
    Some(format!("{whose}: program {path}: {why}"))
}

/// Why nobody can be reached at `path`, as far as a look can tell.
fn lack(path: &Path) -> Option<String> {
    match std::fs::metadata(path) {
        Ok(facts) if facts.file_type().is_socket() => None,
        Ok(_) => Some("no socket".to_owned()),
        // Who serves may be allowed what this user is not.
        Err(error) if error.kind() == ErrorKind::PermissionDenied => None,
        Err(error) => Some(format!(
            "{}: start its server, or correct the path",
            reason(&error)
        )),
    }
}
