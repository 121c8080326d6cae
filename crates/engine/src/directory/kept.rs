//! The sites that a worker has stamped of rows, for one generation.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::entry::HostEntry;
use crate::generation::Destination;
use crate::site::Site;

/// Sites that are kept, and about the bytes of their rows and of all that is stamped.
const SITES_MAX: usize = 16_384;
const BYTES_MAX: usize = 32 << 20;
/// What a site takes beside its row, about.
const SITE_BYTES: usize = 1_536;

/// The sites of one worker and generation.
#[derive(Debug, Default)]
pub(crate) struct RowSites {
    kept: RefCell<KeptSites>,
    trees: Cell<u32>,
}

#[derive(Debug, Default)]
struct KeptSites {
    by_host: HashMap<Box<str>, KeptSite>,
    /// In the order of their making; the oldest goes first.
    order: VecDeque<Box<str>>,
    bytes: usize,
}

/// A stamped site, and what it was stamped of.
#[derive(Debug, Clone)]
pub(crate) struct KeptSite {
    pub(super) entry: Arc<HostEntry>,
    pub(super) destination: Destination,
    pub(super) site: Arc<Site>,
}

impl RowSites {
    /// The site of a host, where its row is fresh.
    pub(super) fn fresh(&self, host: &str, now_ms: u64) -> Option<(Destination, Arc<Site>)> {
        let kept = self.kept.borrow();
        let found = kept.by_host.get(host)?;
        let is_fresh = found.entry.is_fresh(now_ms);
        is_fresh.then(|| (found.destination, Arc::clone(&found.site)))
    }

    /// The site that was stamped of what is known of a host.
    pub(super) fn of(&self, host: &str, entry: &Arc<HostEntry>) -> Option<KeptSite> {
        let kept = self.kept.borrow();
        let found = kept.by_host.get(host)?;
        Arc::ptr_eq(&found.entry, entry).then(|| found.clone())
    }

    /// Keeps a site.
    pub(super) fn keep(&self, host: &str, site: KeptSite) {
        let mut kept = self.kept.borrow_mut();
        kept.bytes += site.bytes();
        match kept.by_host.insert(host.into(), site) {
            Some(before) => kept.bytes = kept.bytes.saturating_sub(before.bytes()),
            None => kept.order.push_back(host.into()),
        }
        while kept.order.len() > SITES_MAX || kept.bytes > BYTES_MAX {
            let Some(oldest) = kept.order.pop_front() else {
                return;
            };
            let gone = kept.by_host.remove(&oldest);
            let bytes = gone.map_or(0, |gone| gone.bytes());
            kept.bytes = kept.bytes.saturating_sub(bytes);
        }
    }

    /// A number for the next tree of a row: beyond those of all sites and mounts, counted from the top.
    pub(super) fn next_tree(&self) -> u32 {
        self.trees
            .set(self.trees.get().wrapping_add(1) & (u32::MAX >> 1));
        u32::MAX - self.trees.get()
    }
}

impl KeptSite {
    fn bytes(&self) -> usize {
        SITE_BYTES + self.entry.bytes()
    }
}
