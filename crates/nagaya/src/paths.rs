//! What is doubtful about files and directories that a configuration names, told by `check`.
//!
//! The idea: whoever types the command looks, as the user of the server where that counts, and each
//! doubt is told where the path is named. What this user may not look at is no doubt.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use config::model::{Model, PoolProgram, Root, Site};
use config::{Naming, Problem, reason};
use os::user::User;

/// Roots looked at, and other paths, at most.
const PATHS_MAX: usize = 10_000;
/// Links followed for one path, as the kernel has it.
const LINKS_MAX: usize = 40;

/// What of a path, named by this key, is to be said.
type Doubt<'a> = (&'static str, &'a Path, String);

/// All that is doubtful.
pub(crate) fn doubts(model: &Model, naming: &Naming<'_>) -> Vec<Problem> {
    let mut doubts = unreachable_roots(model);
    doubts.extend(missing(model));
    doubts.extend(led_away(model));
    let placed = |(key, path, message): Doubt<'_>| Problem::at(naming.place(&[key], path), message);
    doubts.into_iter().map(placed).collect()
}

/// The roots that no request can open, for the user the server becomes.
fn unreachable_roots(model: &Model) -> Vec<Doubt<'_>> {
    let mut roots = BTreeMap::new();
    for site in &model.sites {
        for root in all_roots(site).take(PATHS_MAX.saturating_sub(roots.len())) {
            let key = (&root.path, &root.within, root.symlinks as u8);
            roots.entry(key).or_insert((site, root));
        }
    }
    let look = || {
        let roots = roots.into_values();
        let doubts = roots.filter_map(|(site, root)| unreachable_root(site, root));
        doubts.collect()
    };
    as_server(model, look).unwrap_or_default()
}

/// Looks as the user that the server becomes.
pub(crate) fn as_server<T: Send>(
    model: &Model,
    look: impl FnOnce() -> T + Send,
) -> std::io::Result<T> {
    let user = User::look_up(&model.user).or_else(|_| User::this_process());
    user.and_then(|user| user.act(look))
}

/// A site's root, and those of its mounts.
fn all_roots(site: &Site) -> impl Iterator<Item = &Root> {
    let mounts = site.mounts.iter().map(|mount| &mount.root);
    site.root.iter().chain(mounts)
}

fn unreachable_root<'a>(site: &Site, root: &'a Root) -> Option<Doubt<'a>> {
    let why = engine::resolve::unreachable(root)?;
    let (name, path) = (site.name(), root.path.display());
    let message = format!("site {name}: no request can open {path}: {why}");
    Some(("root", root.path.as_path(), message))
}

/// What pools are to see, and where applications are to start, that is not there.
fn missing(model: &Model) -> impl Iterator<Item = Doubt<'_>> {
    let seen = model.pool_terms.see.iter().filter_map(|path| {
        let why = match std::fs::metadata(path) {
            Ok(_) => return None,
            Err(error) if error.kind() == ErrorKind::PermissionDenied => return None,
            Err(error) => reason(&error),
        };
        let message = format!("pools cannot see `{}`: {why}", path.display());
        Some(("see", path.as_path(), message))
    });
    let started = directories(model).filter_map(|path| {
        let why = match std::fs::metadata(path) {
            Ok(facts) if facts.is_dir() => return None,
            Ok(_) => "it is no directory".to_owned(),
            Err(error) if error.kind() == ErrorKind::PermissionDenied => return None,
            Err(error) => reason(&error),
        };
        let message = format!("no application can start in `{}`: {why}", path.display());
        Some(("directory", path, message))
    });
    seen.chain(started)
}

/// Where applications start, each directory once.
fn directories(model: &Model) -> impl Iterator<Item = &Path> {
    let apps = model.pools.iter().filter_map(|pool| match &pool.program {
        PoolProgram::App(app) => Some(app.directory.as_path()),
        PoolProgram::Php(_) => None,
    });
    apps.collect::<BTreeSet<_>>().into_iter()
}

/// Roots, and what pools see, that a link of somebody's leads to from where they are named, and
/// that belong to somebody else.
fn led_away(model: &Model) -> Vec<Doubt<'_>> {
    let roots = model.sites.iter().flat_map(all_roots);
    let paths: BTreeSet<_> = roots.flat_map(paths_of).collect();
    let paths = paths.into_iter().take(PATHS_MAX);
    let sees = model
        .pool_terms
        .see
        .iter()
        .map(|path| ("see", path.as_path()));
    let mut told = BTreeSet::new();
    let doubts = paths.chain(sees).filter_map(|(key, path)| {
        let (link, target) = foreign_link(path)?;
        let (of_link, of_target) = (owner(&link)?, owner(&target)?);
        let message = format!(
            "`{}` is a link of user {of_link} and leads to `{}`, which is user {of_target}'s: name that itself, or have one of the two own both",
            link.display(),
            target.display()
        );
        // A boundary that nobody has named is the root itself.
        told.insert(message.clone()).then_some((key, path, message))
    });
    doubts.collect()
}

fn paths_of(root: &Root) -> [(&'static str, &Path); 2] {
    let (path, within) = (root.path.as_path(), root.within.as_path());
    [("root", path), ("within", within)]
}

/// Whose a file is, be it a link.
fn owner(path: &Path) -> Option<u32> {
    Some(std::fs::symlink_metadata(path).ok()?.uid())
}

/// The first link on the way to a path that belongs neither to root nor to whose that is which it
/// leads to; and where it leads.
fn foreign_link(path: &Path) -> Option<(PathBuf, PathBuf)> {
    let mut steps = steps(path);
    let (mut at, mut links) = (PathBuf::from("/"), 0);
    while let Some(step) = steps.pop() {
        if step == ".." {
            at.pop();
            continue;
        }
        let next = at.join(step);
        let facts = std::fs::symlink_metadata(&next).ok()?;
        if !facts.is_symlink() {
            at = next;
            continue;
        }
        let target = std::fs::canonicalize(&next).ok()?;
        if facts.uid() != 0 && owner(&target)? != facts.uid() {
            return Some((next, target));
        }
        links += 1;
        let text = std::fs::read_link(&next)
            .ok()
            .filter(|_| links <= LINKS_MAX)?;
        if text.is_absolute() {
            at = PathBuf::from("/");
        }
        steps.extend(self::steps(&text));
    }
    None
}

/// The steps of a path, the last first.
fn steps(path: &Path) -> Vec<OsString> {
    let steps = path.components().rev().filter_map(|step| match step {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    });
    steps.collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{lchown, symlink};

    use super::*;

    #[test]
    fn a_link_is_foreign_where_its_owner_is_neither_root_nor_whose_that_is_which_it_leads_to() {
        if testkit::lacks_root("to give links away") {
            return;
        }
        let directory = testkit::TempDir::new();
        let base = directory.path().canonicalize().unwrap();
        let at = |name: &str| base.join(name);
        for (name, user) in [("alice/own", 12_345), ("bob/www", 12_346), ("common", 0)] {
            std::fs::create_dir_all(at(name)).unwrap();
            lchown(at(name), Some(user), None).unwrap();
        }
        for (link, text, user) in [
            ("alice/www", "../bob/www", 12_345),
            ("alice/mine", "own", 12_345),
            ("alice/system", "../common", 12_345),
            ("current", "alice/www", 0),
            ("loop", "loop", 0),
        ] {
            symlink(text, at(link)).unwrap();
            lchown(at(link), Some(user), None).unwrap();
        }
        for (path, expected) in [
            ("alice/own", None),
            ("alice/mine", None),
            ("bob/www", None),
            ("loop", None),
            ("nowhere", None),
            ("alice/www", Some(("alice/www", "bob/www"))),
            ("alice/system", Some(("alice/system", "common"))),
            ("current", Some(("alice/www", "bob/www"))),
        ] {
            let expected = expected.map(|(link, target)| (at(link), at(target)));
            assert_eq!(foreign_link(&at(path)), expected, "{path}");
        }
    }
}
