//! A tenant's place in the ledger that no generation names.
//!
//! The idea: places are made many at a time, as the table of all is replaced for that; lending one is a look at a few
//! places, and giving it back a flag. While less than half of the places are lent one is looked for until it is found,
//! so that a table grows with those who are there, not with those who come.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::Books;
use super::entry::Tenant;
use crate::Time;
use crate::ask::TenantId;
use crate::definition::TenantDefinition;

/// Places that are looked at before more are made, and the least that are made then.
const LOOKS_MAX: usize = 64;

/// A place, held until dropped: then it may be another tenant's.
#[derive(Debug)]
pub struct TenantLease {
    id: TenantId,
    place: Arc<Tenant>,
    /// How many leases there are.
    lent: Arc<AtomicUsize>,
}

impl TenantLease {
    /// How the ledger names the tenant.
    #[must_use]
    pub fn tenant(&self) -> TenantId {
        self.id
    }
}

impl Drop for TenantLease {
    fn drop(&mut self) {
        self.place.give_back();
        self.lent.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Books {
    /// Gives a tenant a place that no generation names.
    pub(super) fn lend(&self, now: Time, definition: &TenantDefinition) -> TenantLease {
        let mut register = self.register.lock();
        let table = self.in_force();
        let places = table.tenants.len();
        let looks = match register.lent.load(Ordering::Relaxed) < places / 2 {
            true => places,
            false => LOOKS_MAX.min(places),
        };
        let looks = (0..looks).map(|step| (register.lent_at + step) % places);
        let gone = looks
            .filter_map(|at| Some((at, table.tenants.get(at)?)))
            .find(|(_, place)| place.is_gone())
            .map(|(at, place)| (at, Arc::clone(place)));
        let (at, place) = gone.unwrap_or_else(|| {
            let mut table = (*table).clone();
            let all = Arc::make_mut(&mut table.tenants);
            all.resize_with(places + LOOKS_MAX.max(places / 2), Arc::default);
            let place = all.get(places).map(Arc::clone).unwrap_or_default();
            for shard in &self.shards {
                shard.lock().set_tenants(table.tenants.len());
            }
            self.put_in_force(now, table);
            (places, place)
        });
        register.lent_at = at + 1;
        place.lend(definition);
        register.lent.fetch_add(1, Ordering::Relaxed);
        TenantLease {
            id: TenantId(u32::try_from(at).unwrap_or(u32::MAX)),
            place,
            lent: Arc::clone(&register.lent),
        }
    }
}
