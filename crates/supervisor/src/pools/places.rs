//! Where pools live: a socket and a directory for each, below one directory of the gateway's own.
//!
//! The idea: a socket is bound once and listened at for as long as a generation names its pool, and
//! a while longer, for requests of generations before; which master accepts from it is the
//! spawner's business. Like listeners, sockets are shared (`Rc`) by the generations that name
//! them. In the one directory only the gateway's user writes, so that nothing there is anybody
//! else's idea, and one gateway at a time, which holds a lock on it; what is in a pool's directory
//! is made as the pool's user, who may have put links there.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fs::{File, Permissions};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, fchown, lchown};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use config::model::{Isolate, Model, Site, is_row_pool_id};
use config::reason;
use ipc::handover::SocketAt;
use ipc::rows::RowUsers;
use os::file::Wish;
use os::user::User;
use os::{directory, net, process};

use super::records;
use super::unused::RowDirectories;
use crate::surroundings;

/// Connections that wait to be accepted; the kernel takes what it allows.
const BACKLOG: u32 = 4_096;
/// Who may enter the directory of all: everybody, without seeing what is there.
const MODE_ALL: u32 = 0o711;
/// Who may enter a pool's: its user.
const MODE_OWN: u32 = 0o700;
/// What is in a pool's directory.
const OWN: [&str; 3] = ["sessions", "uploads", "cache"];
/// How long a socket is listened at that no generation names any more: longer than a request of
/// one before waits for its turn.
const LEAVING: Duration = Duration::from_secs(600);
/// Sockets there may be, with those of rows.
const SOCKETS_MAX: usize = 20_000;
/// How often a socket that refuses connections is bound anew at most.
const REBIND_EVERY: Duration = Duration::from_secs(1);

/// The sockets of a generation's pools.
#[derive(Debug, Default)]
pub(crate) struct Places {
    sockets: BTreeMap<Rc<Path>, Rc<Listening>>,
    /// Those that no generation names any more, and until when they are kept.
    leaving: BTreeMap<Rc<Path>, (Rc<Listening>, Instant)>,
    /// The directory they are in; after it, those of others that are kept.
    claims: Vec<Rc<Claim>>,
}

/// A directory of pools, which no other gateway has while this is there.
#[derive(Debug)]
struct Claim {
    path: PathBuf,
    /// Open, and locked.
    directory: File,
    rows: RefCell<RowDirectories>,
}

/// A socket of a pool; its file goes with it.
#[derive(Debug)]
pub(crate) struct Listening {
    path: Rc<Path>,
    socket: RefCell<OwnedFd>,
    /// No other socket of this process has or had it.
    number: Cell<u64>,
    bound: Cell<Instant>,
}

impl Drop for Listening {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Places {
    /// Makes directories, and the sockets that `before` has not already. On failure says all that
    /// went wrong, and what was newly bound is closed.
    pub(crate) fn make(model: &Model, before: Option<&Places>) -> Result<Places, Vec<String>> {
        let of_rows = model.sites.iter().any(Site::has_pools_of_rows);
        if model.pools.is_empty() && !of_rows {
            return Ok(Places::default());
        }
        let all = model.pool_terms.directory.as_path();
        let said = |why: String| vec![format!("directory of pools {}: {why}", all.display())];
        let claims = before.map_or(&[][..], |before| before.claims.as_slice());
        let claim = claim(all, claims).map_err(said)?;
        let mut users = Users::default();
        let server = users.server(&model.user).map_err(said)?;
        if let Some(server) = &server {
            reachable_by(server, &model.user, all).map_err(said)?;
        }
        let mut places = Places::default();
        places.claims.push(Rc::clone(&claim));
        let mut problems = Vec::new();
        for pool in &model.pools {
            let known = before.and_then(|before| before.find(&pool.socket));
            let made = surroundings::user_of_pool(pool).and_then(|user| {
                let wanted = WantedPlace {
                    id: &pool.id,
                    name: &pool.name,
                    user: user.as_deref(),
                    isolate: pool.isolate,
                };
                make_directory(&wanted, (all, &claim.directory), &mut users)
            });
            let socket = made.and_then(|()| match known {
                Some(known) => Ok(Rc::clone(known)),
                None => {
                    let socket = listen(&pool.socket, server.as_deref())?;
                    Ok(Rc::new(Listening::new(&pool.socket, socket)))
                }
            });
            match socket {
                Ok(socket) => places.add(socket),
                Err(why) => problems.push(format!("pool {}: {why}", pool.name)),
            }
        }
        if problems.is_empty() {
            Ok(places)
        } else {
            Err(problems)
        }
    }

    /// Makes the place of a row's pool, of a user that is one of `allowed`, unless it is there.
    pub(crate) fn place_row<'a>(
        &mut self,
        (id, name, user): (&str, &str, &Rc<User>),
        mut allowed: impl Iterator<Item = &'a RowUsers>,
        server: &str,
    ) -> Result<(), String> {
        let claim = self
            .claims
            .first()
            .ok_or("there is no directory of pools")?;
        if !is_row_pool_id(id) {
            return Err(format!("{id:?} is no pool of a row"));
        }
        let path = claim.path.join(format!("{id}.sock"));
        if self.sockets.len() >= SOCKETS_MAX && !self.sockets.contains_key(&*path) {
            return Err(format!("{SOCKETS_MAX} pools have places already"));
        }
        let uid = user.uid;
        if !allowed.any(|users| users.may_be(uid)) {
            return Err(format!("no programs of rows run as {name}, uid {uid}"));
        }
        let mut users = Users([(name.to_owned(), Rc::clone(user))].into());
        let wanted = WantedPlace {
            id,
            name: id,
            user: Some(name),
            isolate: Isolate::Home,
        };
        let place = (claim.path.as_path(), &claim.directory);
        let is_used = |id: &str| {
            let path = claim.path.join(format!("{id}.sock"));
            self.sockets.contains_key(&*path) || self.leaving.contains_key(&*path)
        };
        claim.rows.borrow_mut().add(place, id, is_used)?;
        make_directory(&wanted, place, &mut users)?;
        let left = self.leaving.remove(&*path).map(|(listening, _)| listening);
        let known = self.sockets.get(&*path).cloned().or(left);
        let socket = match known {
            Some(known) => known,
            None => {
                let server = users.server(server)?;
                Rc::new(Listening::new(&path, listen(&path, server.as_deref())?))
            }
        };
        self.add(socket);
        Ok(())
    }

    /// Gives up the sockets of all pools of rows: there is a spawner that knows none of them.
    pub(crate) fn leave_rows(&mut self) {
        let is_of_row = |listening: &Listening| listening.pool().is_some_and(is_row_pool_id);
        if let Some(claim) = self.claims.first() {
            let left = self
                .sockets
                .values()
                .filter(|listening| is_of_row(listening));
            left.filter_map(|listening| listening.pool())
                .for_each(|id| RowDirectories::note_used(&claim.directory, id));
        }
        self.sockets.retain(|_, listening| !is_of_row(listening));
        self.leaving.retain(|_, (it, _)| !is_of_row(it));
    }

    /// Gives up the socket of a row's pool.
    pub(crate) fn leave_row(&mut self, id: &str) {
        let is_it = |listening: &Listening| is_row_pool_id(id) && listening.pool() == Some(id);
        if let Some(claim) = self.claims.first().filter(|_| is_row_pool_id(id)) {
            RowDirectories::note_used(&claim.directory, id);
        }
        self.sockets.retain(|_, listening| !is_it(listening));
        self.leaving.retain(|_, (listening, _)| !is_it(listening));
    }

    /// Those that another supervisor had.
    pub(crate) fn of(known: Vec<SocketAt>) -> Places {
        let mut places = Places::default();
        for SocketAt { path, socket } in known {
            let file = File::from(socket);
            match file.metadata().is_ok_and(|facts| facts.is_dir()) {
                true => places.claims.push(Rc::new(Claim {
                    path,
                    directory: file,
                    rows: RefCell::default(),
                })),
                false => {
                    places.add(Rc::new(Listening::new(&path, file.into())));
                }
            }
        }
        places
    }

    fn add(&mut self, socket: Rc<Listening>) {
        self.sockets.insert(Rc::clone(&socket.path), socket);
    }

    /// The directory of all.
    pub(crate) fn directory(&self) -> Option<&Path> {
        self.claims.first().map(|claim| &*claim.path)
    }

    /// All of them, and those of `before` that are not among them, as another supervisor may have
    /// them, with the directories they are in.
    pub(crate) fn to_hand_over(&self, before: Option<&Places>) -> io::Result<Vec<SocketAt>> {
        let claims = before.into_iter().flat_map(|before| &before.claims);
        let claims = claims.filter(|it| !self.claims.iter().any(|own| own.path == it.path));
        let claims = self.claims.iter().chain(claims).map(|claim| {
            Ok(SocketAt {
                path: claim.path.clone(),
                socket: claim.directory.try_clone()?.into(),
            })
        });
        let is_other = |it: &&Rc<Listening>| self.find(&it.path).is_none();
        let before = before.into_iter().flat_map(Places::all).filter(is_other);
        let sockets = self.all().chain(before).map(|listening| {
            Ok(SocketAt {
                path: listening.path.to_path_buf(),
                socket: listening.socket()?,
            })
        });
        claims.chain(sockets).collect()
    }

    /// Keeps for a while what only `before` has, and the pools of rows until they are given up.
    pub(crate) fn take_over(&mut self, before: &Places) {
        let directory = self.directory().map(Path::to_owned);
        let is_here = |path: &Path| path.parent() == directory.as_deref();
        let of_rows = before
            .sockets
            .iter()
            .filter(|(path, it)| it.pool().is_some_and(is_row_pool_id) && is_here(path));
        for (path, listening) in of_rows {
            self.sockets.insert(Rc::clone(path), Rc::clone(listening));
        }
        let until = Instant::now() + LEAVING;
        let left = before.sockets.iter().map(|(path, it)| (path, it, until));
        let leaving = before.leaving.iter();
        let leaving = leaving.map(|(path, (it, until))| (path, it, *until));
        for (path, listening, until) in left.chain(leaving) {
            if self.find(path).is_none() {
                let kept = (Rc::clone(listening), until);
                self.leaving.insert(Rc::clone(path), kept);
            }
        }
        for claim in &before.claims {
            if !self.claims.iter().any(|own| own.path == claim.path) {
                self.claims.push(Rc::clone(claim));
            }
        }
    }

    /// Lets go of what was kept long enough.
    pub(crate) fn sweep(&mut self, now: Instant) {
        self.leaving.retain(|_, (_, until)| *until > now);
        if self.leaving.is_empty() {
            self.claims.truncate(1);
        }
    }

    /// When there is something to be let go of.
    pub(crate) fn until(&self) -> Option<Instant> {
        self.leaving.values().map(|(_, until)| *until).min()
    }

    /// The socket at a path.
    pub(crate) fn find(&self, path: &Path) -> Option<&Rc<Listening>> {
        let leaving = || self.leaving.get(path).map(|(listening, _)| listening);
        self.sockets.get(path).or_else(leaving)
    }

    /// The sockets of the generation's own pools, each with its pool.
    pub(crate) fn of_pools(&self) -> impl Iterator<Item = (&str, &Listening)> {
        let own = self.sockets.values();
        own.filter_map(|it| Some((it.pool()?, &**it)))
    }

    fn all(&self) -> impl Iterator<Item = &Rc<Listening>> {
        let leaving = self.leaving.values().map(|(listening, _)| listening);
        self.sockets.values().chain(leaving)
    }
}

impl Listening {
    fn new(path: &Path, socket: OwnedFd) -> Listening {
        Listening {
            path: path.into(),
            socket: RefCell::new(socket),
            number: Cell::new(next_number()),
            bound: Cell::new(Instant::now()),
        }
    }

    /// Listens with another socket in place of one that refuses connections, for the same user;
    /// not too often.
    pub(crate) fn bind_anew(&self, user: &str) -> Result<(), String> {
        if self.bound.get().elapsed() < REBIND_EVERY {
            return Ok(());
        }
        self.bound.set(Instant::now());
        let server = Users::default().server(user)?;
        let removed = std::fs::remove_file(&self.path);
        if let Err(error) = removed.or_else(if_absent) {
            return Err(format!(
                "remove {}: {}",
                self.path.display(),
                reason(&error)
            ));
        }
        self.socket.replace(listen(&self.path, server.as_deref())?);
        self.number.set(next_number());
        Ok(())
    }

    /// The pool that it is called after.
    fn pool(&self) -> Option<&str> {
        self.path.file_stem()?.to_str()
    }

    /// Which socket it is: another number after another was bound.
    pub(crate) fn number(&self) -> u64 {
        self.number.get()
    }

    /// A copy of it.
    pub(crate) fn socket(&self) -> io::Result<OwnedFd> {
        self.socket.borrow().try_clone()
    }
}

fn next_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Relaxed)
}

/// Listens at `path`, for `server` alone.
fn listen(path: &Path, server: Option<&User>) -> Result<OwnedFd, String> {
    let said = |why: String| format!("listen at {}: {why}", path.display());
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|it| it.file_type().is_socket());
    if is_socket {
        // It was left by a gateway that is no more: nobody else has the directory.
        std::fs::remove_file(path).map_err(|error| said(reason(&error)))?;
    }
    let bound = net::bind_unix(path, BACKLOG, net::MODE_OWNER).and_then(|socket| {
        if let Some(server) = server {
            lchown(path, Some(server.uid), Some(server.gid))?;
        }
        Ok(socket)
    });
    bound.map_err(|error| said(format!("{}{}", reason(&error), advice(&error))))
}

fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::InvalidFilename => {
            " (a socket's path has at most 107 bytes: give `[pools]` a shorter directory)"
        }
        io::ErrorKind::AddrInUse => " (something else than a socket is there)",
        _ => "",
    }
}

pub(super) fn if_absent(error: io::Error) -> io::Result<()> {
    match error.kind() {
        io::ErrorKind::NotFound => Ok(()),
        _ => Err(error),
    }
}

/// Takes the directory of all pools for this gateway, unless it has it among those `before`. What
/// one that was killed has left there is ended.
fn claim(all: &Path, before: &[Rc<Claim>]) -> Result<Rc<Claim>, String> {
    let directory = directory_of_all(all)?;
    let which = |file: &File| file.metadata().map(|it| (it.dev(), it.ino())).ok();
    let is_it = |it: &&Rc<Claim>| it.path == all && which(&it.directory) == which(&directory);
    if let Some(known) = before.iter().find(is_it) {
        return Ok(Rc::clone(known));
    }
    let said = |error: io::Error| reason(&error);
    if !os::file::lock(directory.as_fd()).map_err(said)? {
        return Err("another gateway has its pools there".to_owned());
    }
    records::end_all(all).map_err(said)?;
    Ok(Rc::new(Claim {
        path: all.to_owned(),
        directory,
        rows: RefCell::default(),
    }))
}

/// The first of the directories above one that somebody else could put another in the place of.
fn first_loose(path: &Path) -> io::Result<Option<PathBuf>> {
    let whole = path.canonicalize()?;
    let own = [0, process::user_id(), std::fs::metadata("/")?.uid()];
    for above in whole.ancestors().skip(1) {
        let facts = std::fs::metadata(above)?;
        let (mode, is_own) = (facts.mode(), own.contains(&facts.uid()));
        // In one with the sticky bit everybody may make, and nobody move what is another's.
        if !is_own || (mode & 0o022 != 0 && mode & 0o1000 == 0) {
            return Ok(Some(above.to_owned()));
        }
    }
    Ok(None)
}

/// The directory of all pools: made, and nobody else's to write.
fn directory_of_all(path: &Path) -> Result<File, String> {
    directory::make(path, MODE_ALL).map_err(|error| reason(&error))?;
    let opened = directory::open(path).map(File::from);
    let opened = opened.map_err(|error| format!("{} (it may be no link)", reason(&error)))?;
    let facts = opened.metadata().map_err(|error| reason(&error))?;
    let own = process::user_id();
    if facts.uid() != own {
        let owner = facts.uid();
        return Err(format!(
            "it belongs to user {owner}, and must to user {own}"
        ));
    }
    if facts.mode() & 0o022 != 0 {
        let path = path.display();
        return Err(format!("others may write it: chmod go-w {path}"));
    }
    if let Some(above) = first_loose(path).map_err(|error| reason(&error))? {
        let above = above.display();
        return Err(format!(
            "others may write {above}, and so put another in its place: chmod go-w {above}, or chown root {above}"
        ));
    }
    if facts.mode() & 0o7777 != MODE_ALL {
        let mode = opened.set_permissions(Permissions::from_mode(MODE_ALL));
        mode.map_err(|error| reason(&error))?;
    }
    Ok(opened)
}

/// A pool that is to have a directory.
struct WantedPlace<'a> {
    id: &'a str,
    /// In messages.
    name: &'a str,
    user: Option<&'a str>,
    isolate: Isolate,
}

/// Makes a pool's directory and what is in it, its user's.
fn make_directory(
    pool: &WantedPlace<'_>,
    (path, all): (&Path, &File),
    users: &mut Users,
) -> Result<(), String> {
    let user = pool.user.map(|name| users.of(name)).transpose()?;
    let name = Path::new(pool.id);
    let path = path.join(name);
    let said = |error: io::Error| format!("directory {}: {}", path.display(), reason(&error));
    directory::make_in(all.as_fd(), name, MODE_OWN).map_err(said)?;
    let own = directory::open_in(all.as_fd(), name).map_err(said)?;
    let own = File::from(own);
    let owner = own.metadata().map_err(said)?.uid();
    match &user {
        // It has just been made.
        Some(user) if owner == process::user_id() => {
            fchown(&own, Some(user.uid), Some(user.gid)).map_err(said)?;
        }
        _ => {
            let wanted = user.as_ref().map_or(process::user_id(), |user| user.uid);
            if owner != wanted {
                let path = path.display();
                return Err(format!(
                    "directory {path} belongs to user {owner}, and must to user {wanted}: remove it"
                ));
            }
        }
    }
    let make_all = || {
        let each = OWN.iter().map(Path::new);
        let mut each = each.map(|name| directory::make_in(own.as_fd(), name, MODE_OWN));
        each.try_for_each(|made| made)
    };
    let is_there = |name: &&str| directory::open_in(own.as_fd(), Path::new(name)).is_ok();
    let made = match &user {
        _ if OWN.iter().all(is_there) => Ok(()),
        Some(user) => user.act(make_all).and_then(|made| made),
        None => make_all(),
    };
    if let Err(error) = made {
        // Its user has shut it, or may write no more: that is his pool's trouble, and nobody else's.
        tracing::warn!(
            pool = pool.name,
            "{}: its own directories are missing",
            said(error)
        );
    }
    match (&user, pool.isolate) {
        (Some(user), Isolate::None) => {
            let name = pool.user.unwrap_or_default();
            reachable_by(user, name, path.parent().unwrap_or(&path))
        }
        _ => Ok(()),
    }
}

/// Whether a user gets to what is in a directory.
fn reachable_by(user: &User, name: &str, directory: &Path) -> Result<(), String> {
    let closed = || os::file::first_closed(directory, Wish::Enter).map(Path::to_owned);
    match user.act(closed) {
        Ok(None) => Ok(()),
        Ok(Some(closed)) => {
            let closed = closed.display();
            Err(format!(
                "user {name} does not get there: {closed} is closed to others (chmod o+x {closed})"
            ))
        }
        Err(error) => Err(format!("become user {name}: {}", reason(&error))),
    }
}

/// Users that were looked up.
#[derive(Default)]
struct Users(BTreeMap<String, Rc<User>>);

impl Users {
    fn of(&mut self, name: &str) -> Result<Rc<User>, String> {
        if let Some(user) = self.0.get(name) {
            return Ok(Rc::clone(user));
        }
        let user = User::look_up(name).map_err(|error| format!("user {name}: {}", reason(&error)));
        let user = Rc::new(user?);
        self.0.insert(name.to_owned(), Rc::clone(&user));
        Ok(user)
    }

    /// What the server becomes; nobody else where this process is not root.
    fn server(&mut self, name: &str) -> Result<Option<Rc<User>>, String> {
        let user = process::is_root().then(|| self.of(name));
        user.transpose()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::net::{UnixListener, UnixStream};

    use config::Sources;
    use testkit::temp::TempDir;

    use super::*;

    /// A model with a pool of this test's user below `all`.
    fn model(all: &Path) -> Model {
        let user = match process::is_root() {
            true => "user = \"nobody\"\n",
            false => "",
        };
        let text = format!(
            "user = \"daemon\"\n[[listen]]\naddress = \"127.0.0.1:8080\"\n\
             [pools]\ndirectory = \"{}\"\n\
             [[sites]]\nhosts = [\"a.jp\"]\n{user}root = \"/srv\"\n\
             rules = [{{ handler = {{ php = true }} }}]\n",
            all.display()
        );
        let sources = Sources::from_text("nagaya.toml", &text);
        let sources = sources.with_php("8.2", "/usr/sbin/php-fpm8.2");
        config::load(&sources).unwrap_or_else(|problems| panic!("{problems}"))
    }

    fn mode(path: &Path) -> u32 {
        fs::symlink_metadata(path).unwrap().mode() & 0o7777
    }

    /// A directory that everybody may go through.
    fn open_directory() -> TempDir {
        let here = TempDir::new();
        fs::set_permissions(here.path(), Permissions::from_mode(0o755)).unwrap();
        here
    }

    #[test]
    fn a_pool_has_a_socket_and_a_directory_that_are_its_users() {
        let here = open_directory();
        let all = here.path().join("pools");
        let model = model(&all);
        let pool = &model.pools[0];
        let places = Places::make(&model, None).unwrap();
        assert_eq!((mode(&all), mode(&pool.socket)), (MODE_ALL, 0o600));
        let own = all.join(&pool.id);
        assert_eq!(mode(&own), 0o700);
        let owner = fs::metadata(&own).unwrap().uid();
        let expected = match &pool.user {
            Some(user) => User::look_up(user).unwrap().uid,
            None => process::user_id(),
        };
        for name in OWN {
            let facts = fs::symlink_metadata(own.join(name)).unwrap();
            assert!(facts.is_dir() && facts.mode() & 0o7777 == 0o700);
            assert_eq!((facts.uid(), owner), (expected, expected));
        }
        UnixStream::connect(&pool.socket).unwrap();
        let again = Places::make(&model, Some(&places)).unwrap();
        let number = |places: &Places| places.find(&pool.socket).unwrap().number();
        assert_eq!(number(&again), number(&places), "it is the same socket");
        drop(places);
        UnixStream::connect(&pool.socket).unwrap();
        drop(again);
        assert!(!pool.socket.exists(), "the file goes with the last of them");
        assert!(own.is_dir(), "what a pool has kept stays");
    }

    #[test]
    fn what_no_generation_names_any_more_is_kept_for_a_while() {
        let here = open_directory();
        let model = model(&here.path().join("pools"));
        let socket = &model.pools[0].socket;
        let before = Places::make(&model, None).unwrap();
        let mut next = Places::default();
        next.take_over(&before);
        drop(before);
        UnixStream::connect(socket).unwrap();
        let until = next.until().unwrap();
        next.sweep(until - Duration::from_secs(1));
        assert!(socket.exists() && next.to_hand_over(None).unwrap().len() == 2);
        let mut back = Places::make(&model, Some(&next)).unwrap();
        back.take_over(&next);
        drop(next);
        assert_eq!(back.until(), None, "it is named again");
        UnixStream::connect(socket).unwrap();
        let mut next = Places::default();
        next.take_over(&back);
        drop(back);
        next.sweep(next.until().unwrap());
        assert!(!socket.exists());
    }

    #[test]
    fn another_socket_takes_the_place_of_one_that_refuses() {
        let here = open_directory();
        let model = model(&here.path().join("pools"));
        let socket = &model.pools[0].socket;
        let places = Places::make(&model, None).unwrap();
        let listening = places.find(socket).unwrap();
        let number = listening.number();
        listening.bind_anew(&model.user).unwrap();
        assert_eq!(listening.number(), number, "not so soon again");
        listening.bound.set(Instant::now() - REBIND_EVERY);
        fs::remove_file(socket).unwrap();
        listening.bind_anew(&model.user).unwrap();
        assert_ne!(listening.number(), number);
        UnixStream::connect(socket).unwrap();
        assert_eq!(mode(socket), 0o600);
    }

    #[test]
    fn a_directory_that_others_may_write_and_a_link_to_one_are_refused() {
        let here = open_directory();
        let all = here.path().join("pools");
        let model = model(&all);
        let refused = || Places::make(&model, None).unwrap_err().join("\n");
        fs::create_dir(&all).unwrap();
        fs::set_permissions(&all, Permissions::from_mode(0o733)).unwrap();
        let why = refused();
        assert!(why.contains("others may write it: chmod go-w"), "{why}");
        fs::rename(&all, here.path().join("elsewhere")).unwrap();
        std::os::unix::fs::symlink(here.path().join("elsewhere"), &all).unwrap();
        let why = refused();
        assert!(why.contains("it may be no link"), "{why}");
        fs::remove_file(&all).unwrap();
        fs::create_dir(&all).unwrap();
        fs::write(&model.pools[0].socket, "x").unwrap();
        let why = refused();
        assert!(
            why.contains("something else than a socket is there"),
            "{why}"
        );
        fs::remove_file(&model.pools[0].socket).unwrap();
        let own = all.join(&model.pools[0].id);
        fs::remove_dir_all(&own).unwrap();
        std::os::unix::fs::symlink("/tmp", &own).unwrap();
        let why = refused();
        assert!(
            why.contains(&format!("directory {}", own.display())),
            "{why}"
        );
        if process::is_root() {
            fs::remove_file(&own).unwrap();
            fs::create_dir(&own).unwrap();
            lchown(&own, Some(12_345), None).unwrap();
            let why = refused();
            assert!(why.contains("belongs to user 12345"), "{why}");
        }
    }

    #[test]
    fn one_gateway_at_a_time_has_the_directory_and_what_hangs_at_its_sockets_is_no_hindrance() {
        let here = open_directory();
        let model = model(&here.path().join("pools"));
        let places = Places::make(&model, None).unwrap();
        let why = Places::make(&model, None).unwrap_err().join("\n");
        assert!(why.contains("another gateway has its pools there"), "{why}");
        let handed = Places::of(places.to_hand_over(None).unwrap());
        assert_eq!(handed.directory(), places.directory());
        drop(Places::make(&model, Some(&handed)).unwrap());
        drop((places, handed));
        // Somebody has outlived his gateway, and listens.
        let socket = &model.pools[0].socket;
        let straggler = UnixListener::bind(socket).unwrap();
        straggler.set_nonblocking(true).unwrap();
        let _next = Places::make(&model, None).unwrap();
        UnixStream::connect(socket).unwrap();
        assert!(straggler.accept().is_err());
    }

    #[test]
    fn a_directory_that_somebody_else_could_put_another_in_the_place_of_is_refused() {
        let here = open_directory();
        let above = here.path().join("above");
        let all = above.join("pools");
        let model = model(&all);
        fs::create_dir(&above).unwrap();
        fs::set_permissions(&above, Permissions::from_mode(0o777)).unwrap();
        let why = Places::make(&model, None).unwrap_err().join("\n");
        assert!(
            why.contains(&format!("chmod go-w {}", above.display())),
            "{why}"
        );
        fs::set_permissions(&above, Permissions::from_mode(0o1777)).unwrap();
        drop(Places::make(&model, None).unwrap());
        if process::is_root() {
            lchown(&above, Some(12_345), None).unwrap();
            assert!(Places::make(&model, None).is_err(), "its owner may");
        }
    }

    #[test]
    fn who_shuts_his_own_directory_keeps_nobody_else_from_a_start() {
        let here = open_directory();
        let all = here.path().join("pools");
        let model = model(&all);
        drop(Places::make(&model, None).unwrap());
        let own = all.join(&model.pools[0].id);
        fs::remove_dir(own.join("uploads")).unwrap();
        fs::set_permissions(&own, Permissions::from_mode(0o500)).unwrap();
        let places = Places::make(&model, None).unwrap();
        assert!(!own.join("uploads").exists(), "it could not be made");
        assert!(places.find(&model.pools[0].socket).is_some());
        fs::set_permissions(&own, Permissions::from_mode(0o700)).unwrap();
    }

    #[test]
    fn links_in_a_pools_own_directory_lead_nowhere() {
        let here = open_directory();
        let all = here.path().join("pools");
        let model = model(&all);
        drop(Places::make(&model, None).unwrap());
        let sessions = all.join(&model.pools[0].id).join("sessions");
        fs::remove_dir(&sessions).unwrap();
        let precious = here.path().join("precious");
        std::os::unix::fs::symlink(&precious, &sessions).unwrap();
        drop(Places::make(&model, None).unwrap());
        assert!(!precious.exists());
    }
}
