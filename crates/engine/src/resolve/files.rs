//! What a worker keeps of the file systems, for one generation: what paths came to, open roots, and
//! the searches that go on.

use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::cache::Cache;
use super::file::{Budget, Share};
use super::search::Root;
use crate::error::Error;

/// How long an opened root is used.
const ROOT_FRESH_MS: u64 = 900;
/// Roots open at once.
const ROOTS_MAX: usize = 256;
/// How often the error log hears of the same root.
const COMPLAINT: Duration = Duration::from_secs(1);
/// What a worker keeps of the file systems, for one generation.
#[derive(Debug)]
pub struct Files {
    pub(super) cache: Cache,
    roots: RefCell<HashMap<u32, (Arc<Root>, u64)>>,
    /// Paths a helper is looking for, and who waits for them.
    pub(super) pending: RefCell<HashMap<u64, Rc<Pending>>>,
    pub(super) handles: Budget,
    roots_max: usize,
    memory: Budget,
    /// When the error log last heard of a site's root.
    complained: RefCell<HashMap<u32, Instant>>,
}

impl Files {
    /// Makes an empty one that keeps at most so many bytes of content, and so many files open.
    pub fn new(memory_max: usize, handles_max: usize) -> Self {
        Self {
            cache: Cache::new(),
            roots: RefCell::default(),
            pending: RefCell::default(),
            handles: Budget::new(handles_max),
            roots_max: ROOTS_MAX.min(handles_max),
            memory: Budget::new(memory_max),
            complained: RefCell::default(),
        }
    }

    /// Takes room for content; `None` when there is none even after forgetting what is least used.
    pub fn memory(&self, bytes: usize) -> Option<Share> {
        let has_room = || self.memory.has_room(bytes);
        self.cache
            .make_room(has_room, |_| true)
            .then(|| self.memory.share(bytes))
    }

    /// Takes room for open descriptors, where there is.
    pub(crate) fn handles(&self, count: usize) -> Option<Share> {
        self.handles
            .has_room(count)
            .then(|| self.handles.share(count))
    }

    /// Whether the error log is to hear of a site's root again: it does at most once in
    /// [`COMPLAINT`], however many are refused.
    pub fn may_complain(&self, index: u32) -> bool {
        let mut complained = self.complained.borrow_mut();
        let last = complained.get(&index);
        let may = last.is_none_or(|last| last.elapsed() >= COMPLAINT);
        if may {
            complained.insert(index, Instant::now());
        }
        may
    }

    /// Forgets some of what nobody has asked for in a while; called once a tick.
    pub fn sweep(&self, now_ms: u64) {
        self.cache.sweep(now_ms);
    }

    pub(super) fn fresh_root(&self, index: u32, now_ms: u64) -> Option<Arc<Root>> {
        let roots = self.roots.borrow();
        let (root, seen_ms) = roots.get(&index)?;
        (now_ms.saturating_sub(*seen_ms) < ROOT_FRESH_MS).then(|| Arc::clone(root))
    }

    pub(super) fn keep_root(&self, index: u32, root: Arc<Root>, now_ms: u64) {
        let mut roots = self.roots.borrow_mut();
        if let Some((known, _)) = roots.get(&index)
            && Arc::ptr_eq(known, &root)
        {
            return;
        }
        if roots.len() >= self.roots_max && !roots.contains_key(&index) {
            let oldest = roots.iter().min_by_key(|(_, (_, seen_ms))| *seen_ms);
            if let Some(oldest) = oldest.map(|(index, _)| *index) {
                roots.remove(&oldest);
            }
        }
        roots.insert(index, (root, now_ms));
    }

    pub(super) fn pending(&self, hash: u64) -> Option<Rc<Pending>> {
        self.pending.borrow().get(&hash).cloned()
    }
}

/// A search others wait for.
#[derive(Debug, Default)]
pub(super) struct Pending {
    pub(super) ended: Notify,
    /// Theirs as well: who starts over would only wait once more.
    pub(super) failure: OnceCell<Error>,
}

/// A search that goes on; whoever waits for it is woken when it ends, however it ends.
pub(super) struct SearchTurn<'a> {
    files: &'a Files,
    hash: u64,
    pending: Rc<Pending>,
}

impl<'a> SearchTurn<'a> {
    pub(super) fn begin(files: &'a Files, hash: u64) -> Self {
        let pending = Rc::<Pending>::default();
        let taken = Rc::clone(&pending);
        files.pending.borrow_mut().insert(hash, taken);
        Self {
            files,
            hash,
            pending,
        }
    }

    pub(super) fn fail(&self, error: Error) -> Error {
        // Only this turn sets it, and once.
        let _ = self.pending.failure.set(error.clone());
        error
    }
}

impl Drop for SearchTurn<'_> {
    fn drop(&mut self) {
        let mut pending = self.files.pending.borrow_mut();
        // Another one may look for it by now.
        let current = pending.get(&self.hash);
        if current.is_some_and(|current| Rc::ptr_eq(current, &self.pending)) {
            pending.remove(&self.hash);
        }
        self.pending.ended.notify_waiters();
    }
}
