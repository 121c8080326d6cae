//! What tenants of rows do, for operators: counted from the first site of theirs that is stamped until the last is gone.
//!
//! The idea: nobody describes them, so whoever wants to know of them asks for those there are. A tenant with two plans
//! is here twice, for its programs have a group for each.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// How many are looked through for those that are gone, at least.
const SWEPT_MIN: usize = 256;

/// A tenant of rows, with one plan.
#[derive(Debug)]
pub(crate) struct RowTenant {
    pub(crate) name: Arc<str>,
    pub(crate) plan: Option<Box<str>>,
    /// The group of its programs.
    pub(crate) group: [String; 1],
    pub(crate) counts: Arc<RowCounts>,
}

/// What a tenant of rows is asked, with one plan.
#[derive(Debug, Default)]
pub(crate) struct RowCounts {
    /// Requests that ended, and those that were refused, or shed.
    pub(crate) requests: AtomicU64,
    pub(crate) refused: AtomicU64,
    /// Handshakes of TLS after which a request came.
    pub(crate) handshakes: AtomicU64,
    /// Requests that wait now.
    pub(crate) waiting: AtomicU64,
}

/// Counts as waiting until dropped.
#[derive(Debug)]
pub(crate) struct RowWaits<'a>(&'a AtomicU64);

/// Those whose sites some worker has.
#[derive(Debug, Default)]
pub(crate) struct RowTenants {
    /// By name and plan. Held to find or make one, or to list all.
    known: Mutex<KnownTenants>,
}

#[derive(Debug, Default)]
struct KnownTenants {
    /// By name and plan, with a space between them, which no name has.
    by_name: BTreeMap<Box<str>, Weak<RowTenant>>,
    /// With so many those are forgotten that are gone.
    sweep_at: usize,
}

impl RowTenant {
    /// Counts a request that waits from now on.
    pub(crate) fn wait(&self) -> RowWaits<'_> {
        self.counts.waiting.fetch_add(1, Relaxed);
        RowWaits(&self.counts.waiting)
    }
}

impl Drop for RowWaits<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

impl RowTenants {
    /// The tenant of this name with this plan.
    pub(crate) fn of(&self, name: &str, plan: Option<&str>) -> Arc<RowTenant> {
        let key = format!("{name} {}", plan.unwrap_or_default());
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(tenant) = known.by_name.get(&*key).and_then(Weak::upgrade) {
            return tenant;
        }
        if known.by_name.len() >= known.sweep_at {
            known.by_name.retain(|_, it| it.strong_count() > 0);
            known.sweep_at = SWEPT_MIN.max(2 * known.by_name.len());
        }
        let tenant = Arc::new(RowTenant {
            name: name.into(),
            plan: plan.map(Box::from),
            group: [ipc::rows::group_name(name, plan)],
            counts: Arc::default(),
        });
        known.by_name.insert(key.into(), Arc::downgrade(&tenant));
        tenant
    }

    /// Those there are.
    pub(crate) fn all(&self) -> Vec<Arc<RowTenant>> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.by_name.values().filter_map(Weak::upgrade).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_is_known_as_long_as_somebody_has_it() {
        let tenants = RowTenants::default();
        let anna = tenants.of("anna", Some("small"));
        assert!(Arc::ptr_eq(&anna, &tenants.of("anna", Some("small"))));
        assert!(!Arc::ptr_eq(&anna, &tenants.of("anna", None)));
        let waits = anna.wait();
        assert_eq!(anna.counts.waiting.load(Relaxed), 1);
        drop(waits);
        assert_eq!(anna.counts.waiting.load(Relaxed), 0);
        for at in 0..10 * SWEPT_MIN {
            drop(tenants.of(&format!("t{at}"), None));
        }
        let known = tenants.known.lock().unwrap().by_name.len();
        assert!(known <= SWEPT_MIN, "{known}");
        assert_eq!(tenants.all().len(), 1);
    }
}
