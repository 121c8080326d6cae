//! From a canonical path to a file: once per request, before its rules or when a handler asks.
//!
//! The result is what rules match, what a limit on files counts and what is served; nobody looks
//! a second time. A worker opens without waiting what the kernel has in memory; the rest goes to
//! the helper pool, once however many ask for it. What a path came to is kept for a moment
//! (`cache`), and a root's directory is opened once a second, never one per configured site.

mod cache;
pub(crate) mod file;
pub(crate) mod file_systems;
pub(crate) mod files;
pub(crate) mod kept;
pub(crate) mod resolved;
pub(crate) mod search;

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::rc::Rc;
use std::sync::Arc;

use config::model;
use os::file::{Wait, Wish};

pub use file::{File, Handle, SIBLINGS};
pub use file_systems::FileSystems;
pub use files::Files;
pub use resolved::{Found, Resolved};
pub use search::unreachable;

use crate::error::{Error, Kind, Result};
use crate::exchange::Exchange;
use crate::helper::{Helpers, Lane};
use crate::stage::Routed;
use crate::tree::Tree;
use cache::{Key, Lookup};
use file::{Opened, now_ns};
use files::SearchTurn;
use search::{Ending, Root, SearchOutcome, Seen, leads_to_source};

/// How often an exchange lets another one look for it.
const FOLLOWS_MAX: usize = 3;
/// Finds the tree that the path leads into, and resolves it where a rule or a limit will look at the
/// result.
///
/// # Errors
/// As [`fn@file`].
pub async fn before_rules(routed: Routed<'_>, exchange: &mut Exchange) -> Result<()> {
    find_tree(routed, exchange);
    if routed.site.needs_file {
        file(routed, exchange).await?;
    } else if routed.site.has_scripts {
        // A script may ask for it, and goes without where it cannot be had.
        let _ = file(routed, exchange).await;
    }
    Ok(())
}

/// Has a directory listed that the site itself does not list.
///
/// # Errors
/// As [`fn@file`].
pub(crate) async fn directory(routed: Routed<'_>, exchange: &mut Exchange) -> Result<()> {
    let Some(tree) = find_tree(routed, exchange) else {
        return Ok(());
    };
    let path = exchange.route.lookup_path(&exchange.request);
    let relative = resolved::relative_of(tree.below(path).unwrap_or_default()).to_vec();
    let (name, looked_ns) = (relative.clone(), now_ns());
    let seen = ask(routed, tree, move |root: &Root, wait| {
        root.look(&name, wait)
    })
    .await?;
    if let Seen::Directory(opened) = seen {
        let outcome = SearchOutcome::named(&relative, Ending::Directory(opened));
        let resolved = finish(routed, tree, (outcome, looked_ns), None);
        exchange.route.file = Some(Rc::new(resolved));
    }
    Ok(())
}

/// Notes the tree that the path leads into.
pub(crate) fn find_tree<'a>(routed: Routed<'a>, exchange: &mut Exchange) -> Option<&'a Tree> {
    let path = exchange.route.lookup_path(&exchange.request);
    let tree = routed.site.tree_of(path);
    exchange.route.tree = tree.map(|tree| tree.number);
    tree
}

/// What the request's path comes to; `None` where it leads into no tree.
///
/// # Errors
/// When the machine is in trouble, or too many wait for its disks.
pub async fn file(routed: Routed<'_>, exchange: &mut Exchange) -> Result<Option<Rc<Resolved>>> {
    if let Some(resolved) = &exchange.route.file {
        return Ok(Some(Rc::clone(resolved)));
    }
    let Some(tree) = find_tree(routed, exchange) else {
        return Ok(None);
    };
    let Exchange { request, route, .. } = exchange;
    let cache = &routed.serving.files.cache;
    let key = cache.key(tree.number, route.lookup_path(request));
    let resolved = match cache.get(&key, routed.worker.deadlines.now_ms()) {
        Lookup::Fresh(resolved) => resolved,
        // Boxed: most find it in the cache, and need not have room for a search, nor move it.
        known => Box::pin(resolve(routed, tree, &key, known)).await?,
    };
    route.file = Some(Rc::clone(&resolved));
    Ok(Some(resolved))
}

/// As [`fn@file`], whatever is known of it.
///
/// # Errors
/// As [`fn@file`].
pub(crate) async fn file_anew(
    (routed, tree): (Routed<'_>, &Tree),
    exchange: &mut Exchange,
) -> Result<Rc<Resolved>> {
    let Exchange { request, route, .. } = exchange;
    let cache = &routed.serving.files.cache;
    let key = cache.key(tree.number, route.lookup_path(request));
    let resolved = Box::pin(lead(routed, tree, &key, Lookup::Nothing)).await?;
    route.file = Some(Rc::clone(&resolved));
    Ok(resolved)
}

/// What is known of a path of the tree, where that was looked at lately.
pub(crate) fn known(routed: Routed<'_>, tree: &Tree, path: &[u8]) -> Option<Rc<Resolved>> {
    let cache = &routed.serving.files.cache;
    let now_ms = routed.worker.deadlines.now_ms();
    match cache.get(&cache.key(tree.number, path), now_ms) {
        Lookup::Fresh(resolved) => Some(resolved),
        Lookup::Stale(_) | Lookup::Nothing => None,
    }
}

/// The siblings of a file that hold its content in another coding, in the order of [`SIBLINGS`].
/// One that was there the last time and has not changed is given back as it was.
///
/// # Errors
/// As [`fn@file`].
pub async fn siblings(
    routed: Routed<'_>,
    resolved: &Resolved,
    last: [Option<Rc<File>>; 3],
) -> Result<[Option<Rc<File>>; 3]> {
    let Some(tree) = routed.site.tree(resolved.tree) else {
        return Ok([None, None, None]);
    };
    let relative = resolved.relative().to_vec();
    let look = move |root: &Root, wait| {
        let look = |suffix: &str| root.look(&[&relative, suffix.as_bytes()].concat(), wait);
        Ok([look(SIBLINGS[0])?, look(SIBLINGS[1])?, look(SIBLINGS[2])?])
    };
    let seen = ask(routed, tree, look).await?;
    let helpers = helpers(routed, tree);
    let mut last = last.into_iter();
    Ok(seen.map(|seen| match (seen, last.next().flatten()) {
        (Seen::File(opened), _) if leads_to_source(&opened, routed.site) => None,
        (Seen::File(opened), Some(last)) if last.is_still(&opened) => Some(last),
        (Seen::File(opened), _) => {
            let handles = &routed.serving.files.handles;
            Some(Rc::new(File::new(opened, &helpers, handles)))
        }
        _ => None,
    }))
}

/// The tree's root, where it was opened lately and nothing in its file system has to be waited for.
pub(crate) fn local_root(routed: Routed<'_>, tree: &Tree) -> Option<Arc<Root>> {
    let now_ms = routed.worker.deadlines.now_ms();
    let root = routed.serving.files.fresh_root(tree.number, now_ms);
    root.filter(|root| root.lane == Lane::Local)
}

/// Runs `look` on the tree's root: here if nothing has to be waited for, else on a helper thread.
///
/// # Errors
/// As [`fn@file`].
pub(crate) async fn ask<T: Send + 'static>(
    routed: Routed<'_>,
    tree: &Tree,
    look: impl Fn(&Root, Wait) -> io::Result<T> + Send + 'static,
) -> Result<T> {
    let (worker, number, files) = (routed.worker, tree.number, &routed.serving.files);
    let within = &*tree.root.within;
    let (known_lane, helpers) = worker.file_systems.of(within, &worker.helpers);
    let (root, lane) = match files.fresh_root(number, worker.deadlines.now_ms()) {
        Some(root) if root.lane == Lane::Local => match look(&root, Wait::Never) {
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock => (Some(root), Lane::Local),
                io::ErrorKind::CrossesDevices => (Some(root), Lane::Remote),
                _ => return Err(trouble(&error)),
            },
            Ok(result) => return Ok(result),
        },
        Some(root) => (Some(root), Lane::Remote),
        None => (None, known_lane),
    };
    let root = root.ok_or_else(|| (tree.root.clone(), tree.owner));
    let work = move || {
        let root = match root {
            Ok(root) => root,
            Err((named, owner)) => Arc::new(open_root(&named, owner)?),
        };
        let result = look(&root, Wait::Allowed)?;
        Ok((root, result))
    };
    let found = helpers.run(lane, work).await?;
    let (root, result) = found.map_err(|error: io::Error| trouble(&error))?;
    worker.file_systems.note(within, root.lane);
    files.keep_root(number, root, worker.deadlines.now_ms());
    Ok(result)
}

/// Looks for a path the cache has no fresh answer for, or waits for another one that does.
async fn resolve(
    routed: Routed<'_>,
    tree: &Tree,
    key: &Key<'_>,
    known: Lookup,
) -> Result<Rc<Resolved>> {
    let (worker, files) = (routed.worker, &routed.serving.files);
    if files.pending(key.hash).is_none() {
        return lead(routed, tree, key, known).await;
    }
    let follow = async {
        for _ in 0..FOLLOWS_MAX {
            let Some(other) = files.pending(key.hash) else {
                break;
            };
            other.ended.notified().await;
            if let Some(error) = other.failure.get() {
                return Err(error.clone());
            }
            if let Lookup::Fresh(resolved) = files.cache.get(key, worker.deadlines.now_ms()) {
                return Ok(resolved);
            }
        }
        lead(routed, tree, key, known).await
    };
    // Boxed, since it is moved on the way.
    worker.helpers.in_time(Box::pin(follow)).await
}

/// Looks for a path, and lets others who want it wait for the result.
async fn lead(
    routed: Routed<'_>,
    tree: &Tree,
    key: &Key<'_>,
    known: Lookup,
) -> Result<Rc<Resolved>> {
    let files = &routed.serving.files;
    let turn = SearchTurn::begin(files, key.hash);
    let generation = Arc::clone(&routed.serving.generation);
    let (path, at) = (key.path().to_vec(), (routed.site_index, tree.number));
    let of_row = routed.row.and_then(|row| row.get()).cloned();
    let look = move |root: &Root, wait| {
        let site = usize::try_from(at.0).ok();
        let site = site.and_then(|index| generation.sites.get(index));
        let site = of_row.as_deref().or(site);
        let tree = site.and_then(|site| Some((site, site.tree(at.1)?)));
        search::search(tree.ok_or(io::ErrorKind::InvalidInput)?, root, &path, wait)
    };
    let looked_ns = now_ns();
    let outcome = ask(routed, tree, look).await;
    let outcome = outcome.map_err(|error| turn.fail(error))?;
    let last = match known {
        Lookup::Stale(last) => Some(last),
        Lookup::Fresh(_) | Lookup::Nothing => None,
    };
    let resolved = Rc::new(finish(routed, tree, (outcome, looked_ns), last.as_deref()));
    let now_ms = routed.worker.deadlines.now_ms();
    files.cache.put(key, &resolved, now_ms);
    let has_room = || files.handles.has_room(0);
    files.cache.make_room(has_room, Resolved::holds_handle);
    Ok(resolved)
}

/// Gives an outcome its full name, and the file what is known of it since last time.
fn finish(
    routed: Routed<'_>,
    tree: &Tree,
    (outcome, looked_ns): (SearchOutcome, u128),
    last: Option<&Resolved>,
) -> Resolved {
    let site = routed.site;
    let mut name = tree.root.path.as_os_str().as_bytes().to_vec();
    if !name.ends_with(b"/") {
        name.push(b'/');
    }
    let root_bytes = name.len();
    name.extend_from_slice(&outcome.relative);
    let (helpers, handles) = (&helpers(routed, tree), &routed.serving.files.handles);
    let leads_there = |opened: &Opened| leads_to_source(opened, site);
    let is_source = site.is_source(&name)
        || site.is_guarded(&name)
        || matches!(&outcome.ending, Ending::File(opened) if leads_there(opened));
    let is_linked =
        matches!(&outcome.ending, Ending::File(opened) if opened.behind_links.is_some());
    let found = match outcome.ending {
        // Under another name it would be sent as something else.
        Ending::File(opened) => {
            match last.filter(|last| *last.name == *name).map(Resolved::found) {
                Some(Found::File(last)) if last.is_still(&opened) => Found::File(Rc::clone(last)),
                _ => Found::File(Rc::new(File::new(opened, helpers, handles))),
            }
        }
        Ending::Directory(opened) => {
            Found::Directory(Arc::new(Handle::new(opened, helpers, handles)))
        }
        Ending::Unslashed => Found::Unslashed,
        Ending::Missing(why) => Found::Missing(why),
        Ending::Unreadable => Found::Unreadable,
        Ending::Denied => Found::Denied(outcome.advice),
        Ending::Status(status) => Found::Status(status),
    };
    Resolved {
        tree: tree.number,
        is_source,
        is_linked,
        name: name.into(),
        root_bytes,
        path_info: outcome.path_info.into(),
        is_directory: outcome.is_directory,
        found,
        looked_ns,
    }
}

/// The threads that may wait for the tree's file system.
fn helpers(routed: Routed<'_>, tree: &Tree) -> Helpers {
    let worker = routed.worker;
    worker.file_systems.of(&tree.root.within, &worker.helpers).1
}

/// Opens a root, which must be its owner's where there is one.
fn open_root(root: &model::Root, owner: Option<u32>) -> io::Result<Root> {
    let opened = Root::open(root).map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => match search::closed(&root.path, Wish::Enter) {
            Some(advice) => io::Error::new(error.kind(), advice),
            None => error,
        },
        _ => error,
    })?;
    let Some(owner) = owner else {
        return Ok(opened);
    };
    match opened.facts(b".", Wait::Allowed)?.uid {
        uid if uid == owner => Ok(opened),
        uid => {
            let path = root.path.display();
            let why = format!("{path} is of uid {uid}, and the row's user is {owner}");
            Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
        }
    }
}

/// The root itself is not there, or the machine fails.
fn trouble(error: &io::Error) -> Error {
    use os::file::NoFile;
    match NoFile::of(error) {
        _ if error.kind() == io::ErrorKind::PermissionDenied => {
            Error::io(Kind::Refused(403), "root_denied", error)
        }
        Some(_) => Error::io(Kind::Refused(404), "root_missing", error),
        None => Error::io(Kind::Internal, "file_open", error),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::fixture::{Fixture, block_on, exchange, generation, peer, reply};
    use crate::helper::Helpers;

    /// A site with a file, on a worker that waits for no disk longer than this.
    fn fixture(test: &str, wait_ms: u64) -> (Fixture, String) {
        let root = std::env::temp_dir().join(format!("nagaya-{test}-{}", std::process::id()));
        std::fs::create_dir_all(&root).expect("a directory");
        std::fs::write(root.join("a.txt"), "here").expect("a file");
        let text = format!(
            "[[listen]]\naddress = \"127.0.0.1:1\"\n[[sites]]\nhosts = [\"a\"]\nroot = \"{}\"\n",
            root.display()
        );
        let mut fixture = Fixture::new(&text);
        let worker = Rc::get_mut(&mut fixture.worker).expect("nobody else has it");
        worker.resources.helpers = Helpers::patient_for(Duration::from_millis(wait_ms));
        (fixture, text)
    }

    async fn ask(fixture: &Fixture) -> u16 {
        let mut exchange = exchange(
            peer("192.0.2.7:1"),
            "GET /a.txt HTTP/1.1\r\nHost: a\r\n\r\n",
        );
        let served = crate::pipeline::serve(&fixture.worker, &mut exchange).await;
        served.expect("memory takes all");
        reply(&exchange).0
    }

    #[test]
    fn a_root_whose_mount_hangs_leaves_threads_to_those_not_known_yet() {
        let (fixture, _) = fixture("hangs", 5_000);
        block_on(async {
            let (_, hangs) = fixture
                .worker
                .file_systems
                .of(Path::new("/hangs"), &fixture.worker.helpers);
            let mut disks = Vec::new();
            for _ in 0..20 {
                let (answer, disk) = std::sync::mpsc::channel::<()>();
                disks.push(answer);
                let hangs = hangs.clone();
                tokio::task::spawn_local(async move {
                    drop(hangs.run(Lane::Remote, move || disk.recv().is_ok()).await);
                });
            }
            tokio::task::yield_now().await;
            assert!(hangs.is_root_busy());
            assert_eq!(ask(&fixture).await, 200);
        });
    }

    #[test]
    fn a_reload_makes_no_local_disk_wait_for_mounts_that_hang() {
        let (fixture, text) = fixture("reload", 500);
        block_on(async {
            assert_eq!(ask(&fixture).await, 200);
            let _disks = fixture.worker.helpers.hang(Lane::Remote);
            fixture.worker.swap(generation(2, &text));
            assert_eq!(ask(&fixture).await, 200);
        });
    }

    #[test]
    fn who_waits_for_anothers_search_waits_no_longer_than_for_one() {
        let (fixture, _) = fixture("follows", 300);
        block_on(async {
            let _disks = fixture.worker.helpers.hang(Lane::Remote);
            let since = Instant::now();
            let three = tokio::join!(ask(&fixture), ask(&fixture), ask(&fixture));
            assert_eq!(three, (503, 503, 503));
            let waited = since.elapsed();
            assert!(waited < Duration::from_millis(590), "{waited:?}");
        });
    }
}
