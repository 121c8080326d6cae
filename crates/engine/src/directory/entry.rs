//! What is known of one host, and what has come of a directory.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, PoisonError};

use ipc::directory::Row;

use super::hosts::{NotedHost, TenantHosts};

/// What is known of a host.
#[derive(Debug)]
pub(crate) struct HostEntry {
    pub(crate) state: EntryState,
    /// Until when it is served without a further look.
    fresh_ms: AtomicU64,
    /// Until when it is served at all.
    stale_ms: AtomicU64,
    /// When its source said so last.
    heard_ms: AtomicU64,
    /// Whether it was used since the last look for room.
    was_used: AtomicBool,
    /// Whose host this was when a site was stamped of it. Held for one look or change.
    noted: Mutex<Option<NotedHost>>,
}

/// What a host has.
#[derive(Debug)]
pub(crate) enum EntryState {
    /// A row.
    Row(Row),
    /// None.
    Missing,
    /// A row that cannot be used, and why.
    Wrong(String),
}

impl HostEntry {
    /// Something that is known from now on.
    pub(super) fn new(state: EntryState, (fresh_ms, stale_ms): (u64, u64), heard_ms: u64) -> Self {
        Self {
            state,
            fresh_ms: AtomicU64::new(fresh_ms),
            stale_ms: AtomicU64::new(stale_ms),
            heard_ms: AtomicU64::new(heard_ms),
            was_used: AtomicBool::new(false),
            noted: Mutex::default(),
        }
    }

    /// It is served for so long from now on, as its source said then.
    pub(super) fn renew(&self, (fresh_ms, stale_ms): (u64, u64), heard_ms: u64) {
        self.fresh_ms.store(fresh_ms, Relaxed);
        self.stale_ms.store(stale_ms, Relaxed);
        self.heard_ms.store(heard_ms, Relaxed);
    }

    /// It serves nobody from now on.
    pub(super) fn forget(&self) {
        self.fresh_ms.store(0, Relaxed);
        self.stale_ms.store(0, Relaxed);
    }

    /// Notes whose host this is.
    pub(super) fn note(&self, hosts: &Arc<TenantHosts>, tenant: &str, host: &str) {
        let mut noted = self.noted.lock().unwrap_or_else(PoisonError::into_inner);
        if !noted.as_ref().is_some_and(|noted| noted.is_of(tenant)) {
            *noted = Some(hosts.note(tenant, host));
        }
    }

    /// Takes over whose host it was by the row before.
    pub(super) fn note_as(&self, before: &Self) {
        let before = before
            .noted
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        *self.noted.lock().unwrap_or_else(PoisonError::into_inner) = before;
    }

    /// Until when it is fresh.
    pub(crate) fn fresh_until(&self) -> u64 {
        self.fresh_ms.load(Relaxed)
    }

    /// Whether it was used since this was asked last.
    pub(super) fn take_used(&self) -> bool {
        self.was_used.swap(false, Relaxed)
    }

    /// Whether it may be served without a further look.
    pub(crate) fn is_fresh(&self, now_ms: u64) -> bool {
        let is_fresh = now_ms < self.fresh_ms.load(Relaxed);
        if is_fresh && !self.was_used.load(Relaxed) {
            self.was_used.store(true, Relaxed);
        }
        is_fresh
    }

    /// Whether it is served at all.
    pub(crate) fn serves(&self, now_ms: u64) -> bool {
        now_ms < self.stale_ms.load(Relaxed)
    }

    /// How old it is.
    pub(super) fn age_ms(&self, now_ms: u64) -> u64 {
        now_ms.saturating_sub(self.heard_ms.load(Relaxed))
    }

    /// Has it looked at again from this time on.
    pub(super) fn retry_at(&self, at_ms: u64) {
        self.fresh_ms.store(at_ms, Relaxed);
    }

    /// The row.
    pub(crate) fn row(&self) -> Option<&Row> {
        match &self.state {
            EntryState::Row(row) => Some(row),
            EntryState::Missing | EntryState::Wrong(_) => None,
        }
    }

    /// What it takes, about.
    pub(super) fn bytes(&self) -> usize {
        match &self.state {
            EntryState::Row(row) => {
                let columns = row.columns.iter();
                columns
                    .map(|(name, text)| name.len() + text.len() + 64)
                    .sum()
            }
            EntryState::Missing => 0,
            EntryState::Wrong(why) => why.len(),
        }
    }
}

/// What has come of a directory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct DirectoryCounters {
    /// Looks that found something fresh, and something old.
    pub(crate) fresh: u64,
    pub(crate) old: u64,
    /// Looks that found nothing, and waited.
    pub(crate) waited: u64,
    /// Questions, and what was answered: rows, that there is none, wrong rows, nothing.
    pub(crate) asked: u64,
    pub(crate) rows: u64,
    pub(crate) missing: u64,
    pub(crate) wrong: u64,
    pub(crate) down: u64,
    /// Requests that nothing was known for in time, and that were not asked for in time.
    pub(crate) gave_up: u64,
    pub(crate) busy: u64,
}

/// How a directory stands, for operators.
#[derive(Debug, Clone)]
pub(crate) struct DirectoryLook {
    pub(crate) name: String,
    pub(crate) is_linked: bool,
    pub(crate) hosts: usize,
    pub(crate) bytes: usize,
    pub(crate) waiting: usize,
    pub(crate) counters: DirectoryCounters,
}
