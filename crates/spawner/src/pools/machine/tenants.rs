//! Tenants of which nothing may run, and the end of what runs of one.
//!
//! The idea: who is suspended is one set. What runs of theirs finishes what it has begun, as if an
//! operator had stopped it; nothing starts while they are in the set, and who asks is told so.

use std::collections::BTreeSet;
use std::time::Instant;

use ipc::order::Failure;

use super::super::pool::{Pool, REST, Terms};
use super::{Deed, Machine, Word};

impl Machine {
    /// These tenants are suspended from now on, and no others; how many pools have to end.
    pub(in crate::pools) fn suspend(&mut self, tenants: BTreeSet<String>, now: Instant) -> usize {
        self.suspended = tenants;
        let mut ended = 0;
        for id in self.ids(|machine, id| machine.is_kept_still(id)) {
            let is_ended = self.call_off(&id, now) | self.stop(&id, "its tenant is suspended", now);
            ended += usize::from(is_ended);
            self.tell_suspended(&id);
        }
        self.tick(now);
        ended
    }

    /// Knows of a pool that nobody has wanted.
    pub(in crate::pools) fn know(&mut self, id: String, terms: Terms, now: Instant) {
        let pool = self.pools.entry(id);
        pool.or_insert_with(|| Pool::new(terms, now));
    }

    /// The tenants that are suspended.
    pub(in crate::pools) fn suspended(&self) -> &BTreeSet<String> {
        &self.suspended
    }

    /// Whether a pool is one of which nothing may run.
    pub(super) fn is_kept_still(&self, id: &str) -> bool {
        let pool = self.pools.get(id);
        pool.is_some_and(|pool| self.suspended.contains(&pool.terms.tenant))
    }

    /// Kills what runs of a tenant; how many pools that are. Who waits for one goes on waiting.
    pub(in crate::pools) fn kill_tenant(&mut self, tenant: &str, now: Instant) -> usize {
        let mut killed = 0;
        for id in self.ids(|machine, id| machine.is_of(id, tenant)) {
            let mut runs = Vec::new();
            let was_coming = self.call_off(&id, now);
            if let Some(pool) = self.pools.get_mut(&id) {
                let leaving = pool
                    .leaving
                    .iter()
                    .filter(|leaving| leaving.until.is_some());
                runs.extend(leaving.map(|leaving| leaving.number));
                if let Some(serving) = pool.serving.take() {
                    pool.stale = None;
                    runs.push(serving.number);
                    self.deeds.push(Deed::Cold { pool: id.clone() });
                }
            }
            killed += usize::from(was_coming || !runs.is_empty());
            for run in runs {
                self.kill(&id, run, Some("its tenant was killed"), now);
            }
        }
        self.tick(now);
        killed
    }

    fn is_of(&self, id: &str, tenant: &str) -> bool {
        let pool = self.pools.get(id);
        pool.is_some_and(|pool| pool.terms.tenant == tenant)
    }

    /// The pools that are meant.
    fn ids(&self, is_meant: impl Fn(&Machine, &str) -> bool) -> Vec<String> {
        let ids = self.pools.keys().filter(|id| is_meant(self, id));
        ids.cloned().collect()
    }

    /// Has a pool that nobody asks for wait for its turn no more.
    pub(super) fn leave_turn(&mut self, id: &str) {
        let pool = self.pools.get_mut(id);
        if let Some(pool) = pool.filter(|pool| !pool.is_asked_for())
            && pool.waiting.take().is_some()
        {
            self.turns.leave(&pool.terms.tenant, id);
        }
    }

    /// Ends a start that is under way or waits for its turn; whether one was under way.
    fn call_off(&mut self, id: &str, now: Instant) -> bool {
        let Some(pool) = self.pools.get_mut(id) else {
            return false;
        };
        let tenant = pool.terms.tenant.clone();
        if pool.waiting.take().is_some() {
            self.turns.leave(&tenant, id);
        }
        let Some(coming) = pool.coming.take() else {
            return false;
        };
        self.turns
            .end(&tenant, (coming.charged_us, coming.charged_us));
        self.kill(id, coming.number, None, now);
        true
    }

    /// Tells who waits for a pool that it will not run.
    fn tell_suspended(&mut self, id: &str) {
        let Some(pool) = self.pools.get_mut(id) else {
            return;
        };
        let word = not_for(&pool.terms.tenant);
        for ask in pool.take_asks() {
            let word = word.clone();
            self.deeds.push(Deed::Say { ask, word });
        }
    }
}

/// What is said to who wants a pool of a tenant that is suspended.
pub(super) fn not_for(tenant: &str) -> Word {
    Word::Not {
        failure: Failure::TenantSuspended,
        detail: format!("tenant {tenant} is suspended"),
        retry: REST,
    }
}
