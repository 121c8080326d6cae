//! A tenant's place in the ledger that no generation names.

use crate::ask::TenantId;

/// A place, held until dropped: then it may be another tenant's.
#[derive(Debug)]
pub struct TenantLease(TenantId);

impl TenantLease {
    pub(super) fn of(at: usize) -> Self {
        Self(TenantId(u32::try_from(at).unwrap_or(u32::MAX)))
    }

    /// How the ledger names the tenant.
    #[must_use]
    pub fn tenant(&self) -> TenantId {
        self.0
    }
}
