//! Reserves: permits of a limit that are a tenant's before all others'.
//!
//! The idea: nothing is kept idle. A tenant that holds less than its reserve is owed the next permit
//! that comes back, before all that wait; until it comes, others have them. So each permit a
//! tenant takes of such a limit is counted at its reserve, until it is given back.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::Books;
use super::entry::{Entry, Table};
use super::holds::Hold;
use crate::Time;
use crate::ask::{LimitId, TenantId};

/// What a tenant is to have of a limit before others.
#[derive(Debug, Clone)]
pub(crate) struct Reserve {
    tenant: u32,
    permits: u32,
    /// Permits that it holds.
    held: Arc<AtomicU32>,
}

/// Permits of limits with reserves, each counted there until this is dropped.
#[derive(Debug, Default)]
pub(crate) struct Reserved(Vec<(u32, Arc<AtomicU32>)>);

impl Reserved {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Counts those of some limits no more.
    pub(crate) fn release(&mut self, is_given: impl Fn(u32) -> bool) {
        self.0.retain(|(limit, held)| {
            let is_kept = !is_given(*limit);
            if !is_kept {
                held.fetch_sub(1, Release);
            }
            is_kept
        });
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.release(|_| true);
    }
}

impl Entry {
    /// The tenants that hold less than their reserves.
    pub(super) fn owed(&self) -> impl Iterator<Item = u32> {
        let owed = self.reserves.iter();
        let owed = owed.filter(|it| it.held.load(Acquire) < it.permits);
        owed.map(|it| it.tenant)
    }

    /// Whether a tenant would hold no more than its reserve, had it so many permits more.
    pub(super) fn owes(&self, tenant: u32, more: u32) -> bool {
        let mut reserves = self.reserves.iter();
        reserves.any(|it| {
            let held = it.held.load(Acquire);
            it.tenant == tenant && held.saturating_add(more) <= it.permits
        })
    }
}

impl Table {
    /// Counts permits that a tenant has taken at its reserves.
    pub(super) fn reserved<'h>(
        &self,
        tenant: u32,
        holds: impl Iterator<Item = &'h Hold>,
    ) -> Reserved {
        let counted = holds.filter_map(|hold| {
            let mut reserves = self.at(hold.limit)?.reserves.iter();
            let own = reserves.find(|it| it.tenant == tenant)?;
            own.held.fetch_add(1, Relaxed);
            Some((hold.limit, Arc::clone(&own.held)))
        });
        Reserved(counted.collect())
    }
}

impl Books {
    /// What tenants are to have of limits before others, instead of what was said before.
    pub(super) fn set_reserves(&self, now: Time, reserves: &[(LimitId, TenantId, u32)]) {
        let _register = self.register.lock();
        let before = self.in_force();
        let mut wanted: HashMap<u32, Vec<(u32, u32)>> = HashMap::new();
        for (limit, tenant, permits) in reserves {
            let of_limit = wanted.entry(limit.index).or_default();
            of_limit.push((tenant.0, *permits));
        }
        let mut table = (*before).clone();
        let mut is_other = false;
        for entry in table.limits.iter_mut().flatten() {
            let wanted = wanted.get(&entry.index()).map_or(&[][..], Vec::as_slice);
            let known = |it: &Reserve| (it.tenant, it.permits);
            if entry.reserves.iter().map(known).eq(wanted.iter().copied()) {
                continue;
            }
            is_other = true;
            let reserves = wanted.iter().map(|&(tenant, permits)| {
                let same = entry.reserves.iter().find(|it| it.tenant == tenant);
                Reserve {
                    tenant,
                    permits,
                    held: same.map_or_else(Arc::default, |it| Arc::clone(&it.held)),
                }
            });
            let reserves = reserves.collect();
            *entry = Arc::new(Entry {
                reserves,
                ..(**entry).clone()
            });
        }
        self.has_reserves.store(!wanted.is_empty(), Release);
        if is_other {
            self.put_in_force(now, table);
        }
    }
}
