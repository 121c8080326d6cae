//! Namespaces of `Cache` that are kept in files, and what others write into those.
//!
//! One thread of the process looks at each file once a second. What others have changed there since
//! it was last read or written goes into memory, key by key; what scripts have changed goes into the
//! file, which is replaced as a whole. Where both changed one key, the file's counts. No script and no
//! worker waits for a disk: files are read before the first script of a generation runs.
//!
//! Left out: to hold a file against others. Between the last look at it and its replacement lie some
//! microseconds, in which a change of others would be lost.

use std::collections::hash_map::RandomState;
use std::collections::{BTreeSet, HashMap};
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions, Permissions};
use std::hash::BuildHasher;
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use os::file::{FileFacts, FileKind, Symlinks, Wait};
use tokio::sync::oneshot;

use super::enter;
use super::kept_text::{self, Pairs};
use super::pool::{Bounds, Namespace, Pool};

/// How often files are looked at, and written at most.
const EVERY: Duration = Duration::from_secs(1);
/// Files that are kept.
const FILES_MAX: usize = 256;
/// Largest file.
const FILE_BYTES_MAX: usize = 16 << 20;
/// Names of one directory that are looked at.
const NAMES_MAX: usize = 10_000;
/// Orders that wait for the thread: one a worker, mostly.
const ORDERS_MAX: usize = 64;
/// Who may read a file that was not there before.
const MODE: u32 = 0o644;

/// What names of namespaces by file begin with.
pub(crate) const BY_FILE: u8 = b'f';

/// The way to the thread.
#[derive(Debug, Default)]
pub(crate) struct Kept(Mutex<Known>);

/// What is known of the thread. Held for a look and to send an order.
#[derive(Debug, Default)]
struct Known {
    /// Once there is one.
    orders: Option<SyncSender<Order>>,
    /// Lists whose files were read: VMs that open later, for a request perhaps, need not wait.
    read: Vec<Weak<[PathBuf]>>,
}

/// What the thread is asked.
#[derive(Debug)]
enum Order {
    /// To keep the files of these directories, and to say when they were read.
    Follow(Followed, oneshot::Sender<()>),
    /// To write what there is, and to say when that is done.
    Keep(SyncSender<()>),
}

/// Directories whose files are kept while a generation has them, so that one that is refused
/// changes nothing.
#[derive(Debug)]
struct Followed {
    directories: Weak<[PathBuf]>,
    bounds: Bounds,
}

impl Kept {
    /// Keeps the files of these directories for as long as somebody has the list, and waits until
    /// they are read.
    pub(crate) async fn follow(
        &self,
        pool: &Arc<Pool>,
        directories: &Arc<[PathBuf]>,
        bounds: Bounds,
    ) {
        let (done, read) = oneshot::channel();
        let list = Arc::downgrade(directories);
        let followed = Followed {
            directories: Weak::clone(&list),
            bounds,
        };
        let is_sent = {
            let mut known = enter(&self.0);
            if known.read.iter().any(|read| read.ptr_eq(&list)) {
                return;
            }
            if known.orders.is_none() && !directories.is_empty() {
                known.orders = start(pool);
            }
            let order = Order::Follow(followed, done);
            let orders = known.orders.as_ref();
            orders.is_some_and(|orders| orders.try_send(order).is_ok())
        };
        // A thread that has ended drops the order.
        if is_sent && read.await.is_ok() {
            let mut known = enter(&self.0);
            known.read.retain(|read| read.strong_count() > 0);
            known.read.push(list);
        }
    }

    /// Has everything written, and waits for that no longer than `within`.
    pub(super) fn keep(&self, within: Duration) {
        let (done, written) = sync_channel(1);
        let sender = enter(&self.0).orders.clone();
        if let Some(sender) = sender
            && sender.try_send(Order::Keep(done)).is_ok()
        {
            // Late or not: the process ends.
            let _ = written.recv_timeout(within);
        }
    }
}

fn start(pool: &Arc<Pool>) -> Option<SyncSender<Order>> {
    let (sender, orders) = sync_channel(ORDERS_MAX);
    let keeper = Keeper {
        pool: Arc::clone(pool),
        followed: Vec::new(),
        directories: BTreeSet::new(),
        bounds: Bounds {
            bytes: 0,
            entries: 0,
        },
        hasher: RandomState::new(),
        files: HashMap::new(),
    };
    let thread = std::thread::Builder::new().name("cache-files".to_owned());
    match thread.spawn(move || keeper.run(&orders)) {
        Ok(_) => Some(sender),
        Err(error) => {
            tracing::error!(%error, "no thread for the files of Cache: they are not kept");
            None
        }
    }
}

/// What the thread works on.
struct Keeper {
    pool: Arc<Pool>,
    /// Those of each generation, the newest last.
    followed: Vec<Followed>,
    directories: BTreeSet<PathBuf>,
    bounds: Bounds,
    hasher: RandomState,
    files: HashMap<PathBuf, KeptFile>,
}

/// A file as it was last read or written.
#[derive(Debug, Default)]
struct KeptFile {
    is_read: bool,
    /// `None` where it was not there.
    stamp: Option<FileFacts>,
    /// Its keys, and of each value a checksum.
    keys: HashMap<Vec<u8>, u64>,
    /// Why it is neither read nor written, as the log was told.
    trouble: Option<String>,
}

impl Keeper {
    fn run(mut self, orders: &Receiver<Order>) {
        loop {
            match orders.recv_timeout(EVERY) {
                Ok(Order::Follow(followed, done)) => {
                    self.follow(followed);
                    self.look();
                    // Whoever asked may have gone.
                    let _ = done.send(());
                }
                Ok(Order::Keep(done)) => {
                    self.look();
                    let _ = done.try_send(());
                }
                Err(RecvTimeoutError::Timeout) => self.look(),
                Err(RecvTimeoutError::Disconnected) => return self.look(),
            }
        }
    }

    fn follow(&mut self, fresh: Followed) {
        let is_known = |known: &Followed| Weak::ptr_eq(&known.directories, &fresh.directories);
        if !self.followed.iter().any(is_known) {
            self.followed.push(fresh);
        }
    }

    /// Forgets the directories that no generation has any more. The last ones are kept: a server
    /// that ends writes once more.
    fn forget(&mut self) {
        self.followed
            .retain(|known| known.directories.strong_count() > 0);
        if let Some(newest) = self.followed.last() {
            self.bounds = newest.bounds;
            let lists = self.followed.iter();
            let lists = lists.filter_map(|known| known.directories.upgrade());
            self.directories = lists.flat_map(|list| list.to_vec()).collect();
        }
    }

    fn look(&mut self) {
        self.forget();
        let paths = self.paths();
        self.files.retain(|path, _| paths.contains(path));
        for path in paths {
            let mut file = self.files.remove(&path).unwrap_or_default();
            let trouble = self.bring_together(&path, &mut file).err();
            let trouble = trouble.map(|error| error.to_string());
            if let Some(why) = trouble
                .as_ref()
                .filter(|why| file.trouble.as_ref() != Some(why))
            {
                let path = path.display();
                tracing::warn!(file = %path, %why, "a file of Cache is neither read nor written");
            }
            file.trouble = trouble;
            self.files.insert(path, file);
        }
    }

    /// Files that lie in the directories, and those that scripts have named.
    fn paths(&self) -> BTreeSet<PathBuf> {
        let mut paths = BTreeSet::new();
        for directory in &self.directories {
            let entries = fs::read_dir(directory)
                .into_iter()
                .flatten()
                .take(NAMES_MAX);
            for entry in entries.flatten() {
                let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
                let is_hidden = entry.file_name().as_bytes().starts_with(b".");
                if is_file && !is_hidden && paths.len() < FILES_MAX {
                    paths.insert(entry.path());
                }
            }
        }
        for name in self.pool.names() {
            if let Some((&BY_FILE, path)) = name.split_first() {
                let path = Path::new(OsStr::from_bytes(path));
                let is_kept = self
                    .directories
                    .iter()
                    .any(|known| path.parent() == Some(known));
                if is_kept && paths.len() < FILES_MAX {
                    paths.insert(path.to_owned());
                }
            }
        }
        paths
    }

    fn bring_together(&self, path: &Path, file: &mut KeptFile) -> io::Result<()> {
        let mut name = vec![BY_FILE];
        name.extend_from_slice(path.as_os_str().as_bytes());
        let namespace = self.pool.open(&name);
        let namespace = namespace.ok_or_else(|| io::Error::other("too many namespaces"))?;
        let there = open(path)?;
        let stamp = there.as_ref().map(|(_, facts)| *facts);
        if !file.is_read || stamp != file.stamp {
            let pairs = there.map_or_else(|| Ok(Pairs::new()), |(opened, _)| read(&opened))?;
            self.take_over(&namespace, file, &pairs)?;
            (file.is_read, file.stamp) = (true, stamp);
        }
        if namespace.take_changes() {
            self.write(path, &namespace, file)
                .inspect_err(|_| namespace.mark())?;
        }
        Ok(())
    }

    /// What others have changed in the file goes into memory.
    fn take_over(
        &self,
        namespace: &Namespace,
        file: &mut KeptFile,
        pairs: &Pairs,
    ) -> io::Result<()> {
        let mut keys = HashMap::new();
        for (key, value) in pairs {
            let sum = self.hasher.hash_one(value);
            if file.keys.get(key) != Some(&sum) {
                let stored = namespace.set(key, value, self.bounds);
                stored.map_err(|_| {
                    io::Error::other("no room for all of it: see scripts.cache_bytes")
                })?;
            }
            keys.insert(key.clone(), sum);
        }
        for gone in file.keys.keys().filter(|key| !keys.contains_key(*key)) {
            namespace.delete(gone);
        }
        file.keys = keys;
        Ok(())
    }

    /// What scripts have changed goes into the file.
    fn write(&self, path: &Path, namespace: &Namespace, file: &mut KeptFile) -> io::Result<()> {
        // Nothing is copied for it while scripts wait for their shard.
        if namespace.bytes() > FILE_BYTES_MAX {
            return Err(ErrorKind::FileTooLarge.into());
        }
        let mut pairs = namespace.pairs();
        let sums = pairs
            .iter()
            .map(|(key, value)| (key.clone(), self.hasher.hash_one(value)));
        let keys: HashMap<_, _> = sums.collect();
        if keys == file.keys {
            return Ok(());
        }
        pairs.sort();
        let mut text = Vec::new();
        for (key, value) in &pairs {
            kept_text::write_line(key, value, &mut text);
        }
        if text.len() > FILE_BYTES_MAX {
            return Err(ErrorKind::FileTooLarge.into());
        }
        let beside = beside(path)?;
        let mode = file.stamp.map_or(MODE, |facts| facts.mode & 0o777);
        let written = put(&beside, &text, mode);
        let now = open(path)?.map(|(_, facts)| facts);
        if written.is_err() || now != file.stamp {
            // Others were faster: once more in a second, with what they wrote.
            let _ = fs::remove_file(&beside);
            namespace.mark();
            return written;
        }
        fs::rename(&beside, path)?;
        file.keys = keys;
        file.stamp = open(path)?.map(|(_, facts)| facts);
        Ok(())
    }
}

/// The name under which a file is written before it takes its place.
fn beside(path: &Path) -> io::Result<PathBuf> {
    let name = path.file_name().ok_or(ErrorKind::InvalidInput)?;
    let mut hidden = b".".to_vec();
    hidden.extend_from_slice(name.as_bytes());
    hidden.extend_from_slice(b".new");
    Ok(path.with_file_name(OsStr::from_bytes(&hidden)))
}

fn put(path: &Path, text: &[u8], mode: u32) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = OpenOptions::new();
    let mut file: File = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(text)?;
    file.set_permissions(Permissions::from_mode(mode))?;
    file.sync_data()
}

/// The file, which is a regular one and no link; `None` where there is none.
fn open(path: &Path) -> io::Result<Option<(File, FileFacts)>> {
    let directory = path.parent().ok_or(ErrorKind::InvalidInput)?;
    let name = path.file_name().ok_or(ErrorKind::InvalidInput)?;
    let directory = os::file::open_directory(directory)?;
    let opened = os::file::open_beneath(
        directory.as_fd(),
        name.as_bytes(),
        Symlinks::Deny,
        Wait::Allowed,
    );
    let opened = match opened {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let facts = os::file::facts(opened.as_fd())?;
    match facts.kind {
        FileKind::Regular => Ok(Some((File::from(opened), facts))),
        _ => Err(io::Error::other("not a regular file")),
    }
}

fn read(file: &File) -> io::Result<Pairs> {
    let text = os::file::read_whole(file.as_fd(), FILE_BYTES_MAX)?;
    kept_text::read(&text).map_err(|line| {
        io::Error::other(format!(
            "line {line} has no tab between a key and its value"
        ))
    })
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;

    #[test]
    fn files_that_were_read_are_waited_for_by_nobody_else() {
        let [read, other]: [Arc<[PathBuf]>; 2] = ["/a", "/b"].map(|at| [at.into()].into());
        let (sender, orders) = sync_channel(ORDERS_MAX);
        let kept = Kept(Mutex::new(Known {
            orders: Some(sender),
            read: vec![Arc::downgrade(&read)],
        }));
        let (bytes, entries) = (1, 1);
        let is_ready = |list| {
            let pool = Arc::default();
            let mut follow = pin!(kept.follow(&pool, list, Bounds { bytes, entries }));
            let mut cx = Context::from_waker(Waker::noop());
            follow.as_mut().poll(&mut cx).is_ready()
        };
        // The thread is busy with a disk: it answers no order.
        assert!(is_ready(&read));
        assert!(!is_ready(&other));
        assert_eq!(orders.try_iter().count(), 1);
    }
}
