//! A regular file that was found: its facts, its descriptor while one is needed, and its budget.

use std::cell::RefCell;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{SystemTime, UNIX_EPOCH};

use os::file::FileFacts;

use super::kept::Kept;
use crate::error::Result;
use crate::helper::{Helpers, Lane};

/// A file changed this shortly before it was opened may change again within the same tick of the
/// file system's clock, unseen.
const SETTLED_NS: u64 = 50_000_000;

/// The time that files are changed by, since 1970.
pub(crate) fn now_ns() -> u128 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| now.as_nanos())
}

/// An opened file or directory.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) descriptor: OwnedFd,
    pub(super) facts: FileFacts,
    pub(super) lane: Lane,
    /// Its full name, no links in its path.
    pub(super) place: Vec<u8>,
    /// Its name below the boundary, where a link led to it.
    pub(super) behind_links: Option<Vec<u8>>,
}

/// Siblings of a file, by the suffixes of their codings.
pub const SIBLINGS: [&str; 3] = [".br", ".zst", ".gz"];

/// A regular file, as it was when it was opened.
#[derive(Debug)]
pub struct File {
    /// What is known of it.
    pub facts: FileFacts,
    /// Whom reading it makes wait.
    pub lane: Lane,
    /// What the static handler keeps with it: it lives exactly as long.
    pub(crate) kept: Kept,
    handle: RefCell<Option<Arc<Handle>>>,
    settled: bool,
}

impl File {
    pub(super) fn new(opened: Opened, helpers: &Helpers, handles: &Budget) -> Self {
        let changed_ns = u128::from(opened.facts.changed_ns.saturating_add(SETTLED_NS));
        Self {
            facts: opened.facts,
            lane: opened.lane,
            kept: Kept::default(),
            settled: changed_ns < now_ns(),
            handle: RefCell::new(Some(Arc::new(Handle::new(opened, helpers, handles)))),
        }
    }

    /// Its descriptor; `None` after [`Self::forget_handle`].
    pub fn handle(&self) -> Option<Arc<Handle>> {
        self.handle.borrow().clone()
    }

    /// Lets the descriptor go: the content is in memory.
    pub fn forget_handle(&self) {
        self.handle.take();
    }

    /// Whether `other`, opened later, is the same file with the same content.
    pub(super) fn is_still(&self, other: &Opened) -> bool {
        self.settled && self.facts == other.facts
    }
}

/// An open descriptor, closed without making the worker wait.
#[derive(Debug)]
pub struct Handle {
    descriptor: Option<OwnedFd>,
    /// Whom using it makes wait, and the threads that may.
    lane: Lane,
    helpers: Helpers,
    _share: Share,
}

impl Handle {
    pub(super) fn new(opened: Opened, helpers: &Helpers, handles: &Budget) -> Self {
        Self {
            descriptor: Some(opened.descriptor),
            lane: opened.lane,
            helpers: helpers.clone(),
            _share: handles.share(1),
        }
    }

    /// Runs `work`, which uses the descriptor, on a helper thread.
    ///
    /// # Errors
    /// As [`Helpers::run`].
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T> {
        self.helpers.run(self.lane, work).await
    }
}

impl AsFd for Handle {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor
            .as_ref()
            .expect("only drop takes the descriptor")
            .as_fd()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // Elsewhere closing may wait, too.
        if self.lane != Lane::Local
            && let Some(descriptor) = self.descriptor.take()
        {
            self.helpers.close(descriptor);
        }
    }
}

/// An amount of something that a worker's cache may hold.
#[derive(Debug, Clone)]
pub(super) struct Budget {
    used: Arc<AtomicUsize>,
    max: usize,
}

impl Budget {
    /// Makes an unused budget.
    pub(super) fn new(max: usize) -> Self {
        Self {
            used: Arc::default(),
            max,
        }
    }

    /// Takes a share, be there room or not.
    pub(super) fn share(&self, amount: usize) -> Share {
        self.used.fetch_add(amount, Relaxed);
        Share {
            used: Arc::clone(&self.used),
            amount,
        }
    }

    /// Whether so much more fits.
    pub(super) fn has_room(&self, amount: usize) -> bool {
        self.used.load(Relaxed).saturating_add(amount) <= self.max
    }
}

impl Share {
    /// Gives back all but `amount`.
    pub fn shrunk_to(mut self, amount: usize) -> Self {
        let rest = self.amount.saturating_sub(amount);
        self.used.fetch_sub(rest, Relaxed);
        self.amount -= rest;
        self
    }
}

/// A share of a budget, given back on drop.
#[derive(Debug)]
pub struct Share {
    used: Arc<AtomicUsize>,
    amount: usize,
}

impl Drop for Share {
    fn drop(&mut self) {
        self.used.fetch_sub(self.amount, Relaxed);
    }
}
