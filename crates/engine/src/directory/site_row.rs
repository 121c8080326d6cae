//! What a site that a row makes has of that row.

use std::sync::Arc;

use ipc::rows::RowOrder;
use limits::TenantLease;

use super::entry::HostEntry;
use super::tenants::RowTenant;
use crate::programs::pools::ProgramPool;

/// What of a site is a row's.
#[derive(Debug)]
pub(crate) struct SiteRow {
    pub(super) entry: Arc<HostEntry>,
    /// Its tenant's place in the ledger; `None` where nothing is limited.
    pub(crate) lease: Option<Arc<TenantLease>>,
    /// What is counted of its tenant.
    pub(crate) tenant: Arc<RowTenant>,
    /// Index of the tenant's plan.
    pub(crate) plan: Option<u32>,
    /// What the spawner is told of it, where it may start programs for it.
    pub(crate) order: Option<Box<RowOrder>>,
    /// Where its pages run.
    pub(crate) pool: Option<Arc<ProgramPool>>,
}

impl SiteRow {
    /// What the row says in a column; nothing where it does not have it.
    pub(crate) fn column(&self, name: &str) -> &str {
        let row = self.entry.row();
        row.and_then(|row| row.column(name)).unwrap_or_default()
    }

    /// All columns, with what the row says in them.
    pub(crate) fn columns(&self) -> impl Iterator<Item = (&str, &str)> {
        let columns = self.entry.row().into_iter().flat_map(|row| &row.columns);
        columns.map(|(name, text)| (name.as_str(), text.as_str()))
    }

    /// Whether this row says the same.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        self.columns().eq(other.columns())
    }

    /// How old the row is.
    pub(crate) fn age_ms(&self, now_ms: u64) -> u64 {
        self.entry.age_ms(now_ms)
    }

    /// Whether its tenant is refused.
    pub(crate) fn is_suspended(&self) -> bool {
        let said = self.column("suspended").trim();
        !["", "0", "no", "false", "f", "n"]
            .iter()
            .any(|word| said.eq_ignore_ascii_case(word))
    }

    /// The host that requests are sent to.
    pub(crate) fn redirect(&self) -> Option<&str> {
        Some(self.column("redirect")).filter(|host| !host.is_empty())
    }
}
