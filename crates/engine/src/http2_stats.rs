//! What one worker counts of its connections of HTTP/2.

use std::sync::atomic::AtomicU64;

/// One worker's counters of HTTP/2.
#[derive(Debug, Default)]
pub struct Http2Stats {
    /// Connections now.
    pub connections: AtomicU64,
    /// Streams that are answered now.
    pub streams: AtomicU64,
    /// Connections that were broken off for what they did below their requests.
    pub broken_off: AtomicU64,
}
