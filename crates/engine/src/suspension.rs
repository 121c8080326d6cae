//! Tenants that operators have suspended: nothing is done for them, and who waits is told so.
//!
//! The idea: a request asks once when its site is known, and again after each wait; where nobody is
//! suspended, that is one look. The overrides file says who is, at each reload; `nagaya tenant`
//! says it in between.

use std::collections::BTreeSet;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use crate::error::{Error, Kind, Result};
use crate::programs::recent::Unserved;
use crate::recent::Recent;

/// Why their requests are refused.
pub(crate) const REASON: &str = "tenant_suspended";

/// Who is suspended.
#[derive(Debug, Default)]
pub(crate) struct Suspension {
    /// Whether anybody is.
    is_any: AtomicBool,
    /// Held for one look or change.
    tenants: Mutex<BTreeSet<String>>,
    changed: Notify,
    refused: AtomicU64,
    /// Who was refused lately.
    pub(crate) recent: Recent<Unserved>,
}

impl Suspension {
    /// Whether requests of this tenant may go on.
    ///
    /// # Errors
    /// It is suspended.
    pub(crate) fn check(&self, tenant: &str) -> Result<()> {
        if !self.is_any.load(Acquire) || !self.lock().contains(tenant) {
            return Ok(());
        }
        let detail = format!("tenant {tenant} is suspended");
        Err(Error::new(Kind::Refused(503), REASON, detail))
    }

    /// Ready with the next change that was made after this was called.
    pub(crate) fn changed(&self) -> Notified<'_> {
        self.changed.notified()
    }

    /// These are suspended from now on.
    pub(crate) fn put_in_force(&self, tenants: &BTreeSet<String>) {
        self.change(|it| it.clone_from(tenants));
    }

    /// This one is, or is not.
    pub(crate) fn set(&self, tenant: &str, is_suspended: bool) {
        self.change(|tenants| {
            match is_suspended {
                true => tenants.insert(tenant.to_owned()),
                false => tenants.remove(tenant),
            };
        });
    }

    /// Who is suspended.
    pub(crate) fn tenants(&self) -> BTreeSet<String> {
        self.lock().clone()
    }

    /// Counts a request that was refused, and remembers it.
    pub(crate) fn note(&self, refused: Unserved) {
        self.refused.fetch_add(1, Relaxed);
        self.recent.remember(refused.id, refused);
    }

    /// Requests that were refused.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Relaxed)
    }

    fn change(&self, change: impl FnOnce(&mut BTreeSet<String>)) {
        let mut tenants = self.lock();
        change(&mut tenants);
        self.is_any.store(!tenants.is_empty(), Release);
        drop(tenants);
        self.changed.notify_waiters();
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.tenants.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_suspended_is_refused_and_nobody_else() {
        let suspension = Suspension::default();
        assert!(suspension.check("a").is_ok());
        suspension.set("a", true);
        let error = suspension.check("a").unwrap_err();
        assert_eq!((error.kind, error.reason), (Kind::Refused(503), REASON));
        assert!(suspension.check("b").is_ok());
        suspension.put_in_force(&["b".to_owned()].into());
        assert!(suspension.check("a").is_ok() && suspension.check("b").is_err());
        suspension.set("b", false);
        assert!(suspension.check("b").is_ok() && suspension.tenants().is_empty());
    }
}
