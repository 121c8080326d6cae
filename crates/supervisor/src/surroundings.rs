//! What a configuration finds around it: the users it names, and the sockets it connects to.
//!
//! The idea: said before the first request, by `check`, `doctor` and at start. What may still come
//! (a server that is started later) is a warning; nothing is changed by looking.

use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::Path;

use config::model::{
    Chore, Handler, Isolate, Map, MapProgram, MapSource, Model, Mount, Pool, PoolProgram, Rule,
    ServerAddress, Site,
};
use config::reason;
use os::user::User;

use ipc::manifest::{find_in_path, missing_in_path};

use crate::directory::unaskable;

/// What php-fpm calls itself, and somewhere in its program.
const PHP_FPM: &[u8] = b"fpm-fcgi";
/// Bytes of a program that are looked at, and at once.
const PROGRAM_BYTES_MAX: u64 = 256 << 20;
const PIECE_BYTES: u64 = 1 << 20;
/// Sockets looked at, at most.
const SOCKETS_MAX: usize = 1_000;

/// Whom programs of a site, or of a mount of it, run as, where that is not who this process is. Only root can become
/// somebody else.
///
/// # Errors
/// When another user is named, and this process is not root.
pub fn user(site: &Site, mount: Option<&Mount>) -> Result<Option<String>, String> {
    let own = mount.and_then(|mount| Some((&mount.path, mount.user.as_ref()?)));
    match own {
        Some((path, user)) => becomes(user, true, ("site", &(site.name() + path))),
        None => becomes(&site.user, site.has_own_user, ("site", &site.name())),
    }
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

/// Whom a pool's processes run as, likewise.
///
/// # Errors
/// As [`user`].
pub fn user_of_pool(pool: &Pool) -> Result<Option<String>, String> {
    match &pool.user {
        Some(user) => becomes(user, true, ("pool", &pool.name)),
        None if os::process::is_root() => {
            let name = &pool.name;
            Err(format!(
                "pool {name}: give its sites a `user`, whom it runs as"
            ))
        }
        None => Ok(None),
    }
}

/// Why root cannot shut a pool off from the machine's files; `None` where that can be, as far as a
/// look can tell.
pub fn no_walls() -> Option<&'static str> {
    (os::process::is_root() && !os::confine::may_mount()).then_some(
        "CAP_SYS_ADMIN is missing, by which its walls are built: grant it to the service \
         (CapabilityBoundingSet), or say isolate = \"none\"",
    )
}

/// Why the programs of a site's rows cannot run as they should from here, a line each.
pub(crate) fn no_programs_of_rows(site: &Site) -> impl Iterator<Item = String> {
    let starts = site.has_programs_of_rows();
    let root = (!os::process::is_root()).then_some(
        "its programs run as the users of its rows, and only root can become others: start as root",
    );
    let has_walls = site.has_pools_of_rows() && site.pool.isolate == Isolate::Home;
    let walls = no_walls().filter(|_| has_walls);
    let problems = root.into_iter().chain(walls).filter(move |_| starts);
    problems.map(|why| format!("site {}: {why}", site.name()))
}

/// What runs as the user that the server becomes where there are pools, all of which that user may
/// speak to: a line each.
pub fn servers_own(model: &Model) -> Vec<String> {
    let server = User::look_up(&model.user);
    let Some(server) = server.ok().filter(|_| has_pools_of_others(model)) else {
        return Vec::new();
    };
    let mut known = BTreeMap::new();
    let mut is_servers = |name: &str| {
        *known
            .entry(name.to_owned())
            .or_insert_with(|| User::look_up(name).is_ok_and(|user| user.uid == server.uid))
    };
    let written = model.sites.iter().filter(|site| site.rows.is_none());
    let sites = written.filter(|site| starts_programs(site));
    let sites = sites.flat_map(|site| {
        let mounts = site.mounts.iter().filter_map(|mount| mount.user.as_ref());
        let users = [&site.user].into_iter().chain(mounts);
        users.map(move |user| ("site", site.name(), &**user))
    });
    let maps = model.maps.iter().filter_map(|map| match &map.source {
        MapSource::Program(program) => Some(("map", map.name.clone(), &*program.user)),
        MapSource::File(_) => None,
    });
    let chores = chores(model);
    let chores = chores.map(|(kind, name, chore)| (kind, name.to_owned(), &*chore.user));
    let all = sites.chain(maps).chain(chores);
    let found = all.filter(|(_, _, user)| is_servers(user));
    let told = found.map(|(kind, name, user)| {
        format!(
            "{kind} {name}: it runs programs as {user}, as the server itself, which may speak to \
             every pool: name another by `user`"
        )
    });
    told.collect()
}

/// Only root's gateway has pools of others than itself.
fn has_pools_of_others(model: &Model) -> bool {
    let of_rows = model.sites.iter().any(Site::has_pools_of_rows);
    (of_rows || !model.pools.is_empty()) && os::process::is_root()
}

/// The pools that cannot be had from here, a line each.
fn impossible_pools(model: &Model) -> impl Iterator<Item = String> {
    let walls = model.pools.iter().filter_map(|pool| {
        let why = no_walls().filter(|_| pool.isolate == Isolate::Home)?;
        Some(format!("pool {}: {why}", pool.name))
    });
    walls.chain(servers_own(model))
}

fn starts_programs(site: &Site) -> bool {
    let starts = |rule: &Rule| rule.handler.as_ref().is_some_and(Handler::starts_programs);
    site.rules.iter().any(starts)
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

/// The programs that are run for accounts and alerts, each with what that is and its name.
fn chores(model: &Model) -> impl Iterator<Item = (&'static str, &str, &Chore)> {
    let of_accounts = model.acme.iter().flat_map(|acme| {
        let dns = acme.dns.as_ref().map(|dns| &dns.program);
        let run = acme.export.as_ref().and_then(|export| export.run.as_ref());
        let all = dns.into_iter().chain(run);
        all.map(|chore| ("account", acme.name.as_str(), chore))
    });
    let of_alerts = model.alerts.iter().filter_map(|alert| {
        let run = alert.run.as_ref()?;
        Some(("alert", alert.name.as_str(), run))
    });
    of_accounts.chain(of_alerts)
}

/// The sites, maps, accounts and pools whose programs cannot run as they should from here, a line
/// each.
pub fn unbecomable(model: &Model) -> impl Iterator<Item = String> {
    let sites = model.sites.iter().filter(|site| starts_programs(site));
    let of_sites = sites.flat_map(|site| {
        let mounts = site.mounts.iter().filter(|mount| mount.user.is_some());
        let all = [None].into_iter().chain(mounts.map(Some));
        all.filter_map(move |mount| user(site, mount).err())
    });
    let of_maps = model.maps.iter().filter_map(|map| match &map.source {
        MapSource::Program(program) => user_of_map(map, program).err(),
        MapSource::File(_) => None,
    });
    let of_rows = model.sites.iter().flat_map(no_programs_of_rows);
    let of_programs = of_sites.chain(of_rows).chain(of_maps);
    let of_programs = of_programs.chain(unbecomable_chores(model));
    of_programs.chain(impossible_pools(model))
}

/// Those of accounts and alerts alone.
pub(crate) fn unbecomable_chores(model: &Model) -> impl Iterator<Item = String> {
    let of_files = model.acme.iter().filter_map(|acme| {
        let export = acme.export.as_ref().filter(|it| it.run.is_none())?;
        becomes(export.owner.as_ref()?, true, ("account", &acme.name)).err()
    });
    let chores = chores(model);
    let chores = chores.filter_map(|(kind, name, chore)| user_of_chore(chore, (kind, name)).err());
    chores.chain(of_files)
}

/// What may be meant otherwise: sockets that are none, programs of maps that are not there, a line
/// each.
pub fn warnings(model: &Model) -> Vec<String> {
    // The supervisor makes those of pools itself.
    let of_pools: HashSet<usize> = model.pools.iter().map(|pool| pool.upstream).collect();
    let upstreams = model.upstreams.iter().enumerate();
    let upstreams = upstreams.filter(|(at, _)| !of_pools.contains(at));
    let servers = upstreams.flat_map(|(_, upstream)| {
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
    let of_chores =
        chores(model).filter_map(|(kind, name, chore)| lacking_chore((kind, name), chore));
    let of_php = model.php.iter().filter_map(|php| {
        let (name, program) = (format!("php {}", php.version), &php.program);
        let command = [program.to_string_lossy().into_owned()];
        let is_other = is_other_than_php_fpm(program);
        let other = is_other.then(|| format!("{name}: {} is no php-fpm", program.display()));
        lacking(&name, &command, Path::new("/")).or(other)
    });
    let of_apps = model.pools.iter().filter_map(|pool| match &pool.program {
        PoolProgram::App(app) => lacking(&pool.name, &app.command, &app.directory),
        PoolProgram::Php(_) => None,
    });
    let of_pools = of_php.chain(of_apps).chain(lacking_walls(model));
    let all = of_sockets.chain(of_maps).chain(of_chores);
    all.chain(of_pools).chain(unaskable(model)).collect()
}

/// Whether a program is certainly no php-fpm: neither by its name, nor by the one that it has for
/// itself. What runs another, as a script does, may be one.
#[must_use]
pub fn is_other_than_php_fpm(program: &Path) -> bool {
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    let is_file = || program.metadata().is_ok_and(|it| it.is_file());
    // Whoever opens a pipe waits for its other end.
    !name.contains("fpm")
        && is_file()
        && File::open(program).is_ok_and(|file| is_binary_without(PHP_FPM, file))
}

/// Whether this is a program in the machine's language in which a word is nowhere.
fn is_binary_without(word: &[u8], program: impl Read) -> bool {
    let (mut program, mut bytes) = (program.take(PROGRAM_BYTES_MAX), Vec::new());
    let mut is_binary = false;
    loop {
        // What may be the word's beginning stays.
        let passed = bytes.len().saturating_sub(word.len());
        bytes.drain(..passed);
        match program.by_ref().take(PIECE_BYTES).read_to_end(&mut bytes) {
            Ok(1..) => {}
            Ok(0) => return is_binary,
            Err(_) => return false,
        }
        is_binary |= bytes.starts_with(b"\x7fELF");
        if !is_binary || bytes.windows(word.len()).any(|it| it == word) {
            return false;
        }
    }
}

/// That pools are to be shut in, where nobody can do that.
fn lacking_walls(model: &Model) -> Option<String> {
    let mut pools = model.pools.iter();
    let pool = pools.find(|pool| pool.isolate == Isolate::Home)?;
    (!os::process::is_root()).then(|| {
        format!(
            "pool {}: only root can build walls, and this is user {}: pools see all that this user \
             sees, as with `isolate = \"none\"`",
            pool.name,
            os::process::user_id()
        )
    })
}

/// What is wrong with a chore, or with whom it runs as where the configuration does not say.
fn lacking_chore((kind, name): (&str, &str), chore: &Chore) -> Option<String> {
    let user = &chore.user;
    let is_default = !chore.has_own_user && os::process::is_root();
    if is_default && User::look_up(user).is_err() {
        return Some(format!(
            "{kind} {name}: there is no user {user}, whom its program runs as: make it, or name \
             another by `user`"
        ));
    }
    lacking(&format!("{kind} {name}"), &chore.command, &chore.directory)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_binary_that_never_names_php_fpm_is_none() {
        let piece = usize::try_from(PIECE_BYTES).unwrap();
        let program = |start: &[u8], at: usize, word: &[u8]| {
            let mut bytes = [start, &vec![0; at], word].concat();
            bytes.resize(3 * piece, 0);
            is_binary_without(PHP_FPM, &*bytes)
        };
        assert!(program(b"\x7fELF", 0, b""));
        assert!(program(b"\x7fELF", 0, b"fpm-fcg"));
        for at in [0, 100, piece - 12, piece - 8, piece - 4, piece, 2 * piece] {
            assert!(!program(b"\x7fELF", at, PHP_FPM), "{at}");
        }
        assert!(!program(b"#!/bin/sh", 0, b""), "it may run one");
        assert!(is_other_than_php_fpm(Path::new("/bin/false")));
        assert!(!is_other_than_php_fpm(Path::new("/nonexistent")));
    }
}
