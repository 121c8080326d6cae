//! Tenants by what they take just now.

use serde::{Deserialize, Serialize};

/// What a tenant takes.
#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TenantNow {
    /// Its name; that of its site, where the site has no tenant.
    pub tenant: String,
    /// Processor time of its groups in a second: 1 is a whole core.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_cores: Option<f64>,
    /// The share of periods in which the limit of one of its groups ran out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub throttled_share: Option<f64>,
    /// Memory of its groups.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Bytes that its groups read from devices and wrote to them in a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub io_bytes_per_s: Option<f64>,
    /// Requests answered in a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests_per_s: Option<f64>,
    /// Requests that wait, for their turn or a pool.
    pub waiting: u64,
    /// Requests refused in a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused_per_s: Option<f64>,
    /// Handshakes of TLS in a second, of those after which a request came; none before there was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handshakes_per_s: Option<f64>,
    /// Processes of its groups that were killed for want of memory in a second; none before one was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub killed_per_s: Option<f64>,
}
