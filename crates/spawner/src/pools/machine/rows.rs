//! Pools that no manifest names by itself: they come and go one by one.

use super::super::pool::{Pool, Terms};
use super::Machine;

impl Machine {
    /// A pool that is known is as these terms say from now on.
    pub(in super::super) fn renew(&mut self, id: &str, terms: &Terms) {
        if let Some(pool) = self.pools.get_mut(id)
            && pool.waiting.is_none()
            && pool.coming.is_none()
        {
            pool.terms = terms.clone();
        }
    }

    /// Whether nothing of a pool runs or is to run.
    pub(in super::super) fn is_still(&self, id: &str) -> bool {
        self.pools.get(id).is_none_or(Pool::is_still)
    }

    /// Forgets a pool of which nothing runs.
    pub(in super::super) fn forget_pool(&mut self, id: &str) {
        if self.is_still(id) {
            self.pools.remove(id);
        }
    }
}
