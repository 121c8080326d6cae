//! What a worker counts. Written by one thread, read by any; no counter is shared between workers.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use std::time::Instant;

use crate::exchange::Exchange;

/// The counters of one worker.
#[derive(Debug, Default)]
pub struct WorkerStats {
    /// Exchanges ended, by hundreds of their status; index 0 counts those without one.
    pub replies: [AtomicU64; 6],
    /// Exchanges begun.
    pub begun: AtomicU64,
    /// Handlers that panicked.
    pub panics: AtomicU64,
    /// Body bytes sent.
    pub body_bytes: AtomicU64,
    /// Connections accepted.
    pub accepted: AtomicU64,
    /// Connections closed at once because of a cap.
    pub refused: AtomicU64,
    /// Fresh connections given to another worker.
    pub handed_over: AtomicU64,
}

impl WorkerStats {
    /// Counts an exchange that has ended.
    pub fn count(&self, exchange: &Exchange, _ended: Instant) {
        let class = usize::from(exchange.status() / 100);
        if let Some(counter) = self.replies.get(class) {
            bump(counter, 1);
        }
        bump(&self.body_bytes, exchange.reply.body_bytes());
    }
}

/// Adds to a counter that only this thread writes: no locked instruction is needed.
pub fn bump(counter: &AtomicU64, by: u64) {
    counter.store(counter.load(Relaxed).wrapping_add(by), Relaxed);
}
