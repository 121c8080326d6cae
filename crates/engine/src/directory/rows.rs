//! What workers share of rows, and its time.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use super::hosts::TenantHosts;
use super::table::Directories;
use super::tenants::RowTenants;
use super::told::RefusedOfRow;
use crate::recent::Recent;

/// How long after one complaint comes the next, at least.
const COMPLAINT_MS: u64 = 1_000;

/// What workers share of rows.
#[derive(Debug)]
pub(crate) struct Rows {
    pub(crate) directories: Directories,
    /// Tenants whose sites were stamped.
    pub(crate) tenants: RowTenants,
    /// Hosts of which sites were stamped.
    pub(crate) hosts: Arc<TenantHosts>,
    /// Requests that were refused lately.
    pub(crate) recent: Recent<RefusedOfRow>,
    started: Instant,
    /// When a row's certificate was last complained of.
    complained_ms: AtomicU64,
}

impl Rows {
    /// Knows nothing.
    pub(crate) fn new(started: Instant) -> Self {
        Self {
            directories: Directories::default(),
            tenants: RowTenants::default(),
            hosts: Arc::default(),
            recent: Recent::default(),
            started,
            complained_ms: AtomicU64::new(0),
        }
    }

    /// Tells of a row that names a certificate which its host cannot be shown; of one a second at most.
    pub(crate) fn complain_of(&self, host: &str, certificate: &str) {
        let now_ms = self.now_ms(Instant::now()) + COMPLAINT_MS;
        let last_ms = self.complained_ms.load(Relaxed);
        if now_ms.saturating_sub(last_ms) >= COMPLAINT_MS
            && self.complained_ms.swap(now_ms, Relaxed) == last_ms
        {
            tracing::warn!(
                host,
                "the row names certificate {certificate:.80?}: none of [tls] certificates is called so and good for the host"
            );
        }
    }

    /// The time of the tables at a moment.
    pub(crate) fn now_ms(&self, moment: Instant) -> u64 {
        let since = moment.saturating_duration_since(self.started);
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }
}
