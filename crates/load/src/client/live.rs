//! What another thread may see of a running load, and how it ends it.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Shared between a load and whoever watches it: counters of the generator's threads, brought up
/// to date about ten times a second, and a flag that ends the load.
#[derive(Debug, Default)]
pub struct Live {
    stop: AtomicBool,
    began: OnceLock<Instant>,
    completed: AtomicU64,
    failed: AtomicU64,
    broken: AtomicU64,
    reset: AtomicU64,
    unconnected: AtomicU64,
    p99_us: AtomicU64,
    phase: AtomicU8,
}

/// A look at a running load; the warm-up is counted too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LiveLook {
    /// Whole replies.
    pub completed: u64,
    /// Exchanges that failed, whole or not.
    pub failed: u64,
    /// Of these, exchanges without a whole reply.
    pub broken: u64,
    /// Since the load began.
    pub elapsed: Duration,
    /// 99th of a hundred response times of about the last second.
    pub p99_us: u64,
    /// What is being done.
    pub phase: Phase,
}

/// Exchanges without a whole reply.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Broken {
    /// All of them.
    pub all: u64,
    /// Of these, reset while sending or receiving.
    pub reset: u64,
    /// Of these, without a connection or without TLS on it.
    pub unconnected: u64,
}

/// Phases of a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Nothing is recorded yet.
    WarmUp,
    /// Exchanges are recorded.
    Recording,
    /// Nothing more is sent; replies under way may still come.
    Draining,
}

impl Live {
    /// Nothing done yet.
    #[must_use]
    pub fn new() -> Live {
        Live::default()
    }

    /// Ends the load within a tenth of a second; what was done until then is its outcome.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Whether the load was told to end.
    #[must_use]
    pub fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Looks.
    #[must_use]
    pub fn look(&self) -> LiveLook {
        LiveLook {
            completed: self.completed.load(Ordering::Relaxed),
            failed: self.failed.load(Ordering::Relaxed),
            broken: self.broken.load(Ordering::Relaxed),
            elapsed: self.began.get().map_or(Duration::ZERO, Instant::elapsed),
            p99_us: self.p99_us.load(Ordering::Relaxed),
            phase: match self.phase.load(Ordering::Relaxed) {
                0 => Phase::WarmUp,
                1 => Phase::Recording,
                _ => Phase::Draining,
            },
        }
    }

    /// What happened to exchanges without a whole reply.
    #[must_use]
    pub fn broken(&self) -> Broken {
        Broken {
            all: self.broken.load(Ordering::Relaxed),
            reset: self.reset.load(Ordering::Relaxed),
            unconnected: self.unconnected.load(Ordering::Relaxed),
        }
    }

    /// One `Live` may watch several loads one after the other: its time runs from the first.
    pub(crate) fn begin(&self, now: Instant) {
        let _ = self.began.set(now);
    }

    pub(crate) fn add(&self, completed: u64, failed: u64) {
        self.completed.fetch_add(completed, Ordering::Relaxed);
        self.failed.fetch_add(failed, Ordering::Relaxed);
    }

    pub(crate) fn add_broken(&self, broken: Broken) {
        self.broken.fetch_add(broken.all, Ordering::Relaxed);
        self.reset.fetch_add(broken.reset, Ordering::Relaxed);
        self.unconnected
            .fetch_add(broken.unconnected, Ordering::Relaxed);
    }

    pub(crate) fn set_p99_us(&self, p99_us: u64) {
        self.p99_us.store(p99_us, Ordering::Relaxed);
    }

    pub(crate) fn set_phase(&self, phase: Phase) {
        self.phase.store(phase as u8, Ordering::Relaxed);
    }
}
