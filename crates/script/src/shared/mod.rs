//! What scripts of all workers and generations share: `Cache` and global `Mutex`es, by their names.
//!
//! It outlives every interpreter, so that a reload loses neither a counter nor a lock.

mod lock;
mod pool;
mod shard;
#[cfg(test)]
mod tests;

use std::sync::{Mutex, MutexGuard, PoisonError};

pub(crate) use lock::{Entered, Lock, Locks, Turn};
pub(crate) use pool::{Bounds, Namespace, Pool, Refusal};

/// What scripts of all workers and generations share: `Cache` and global `Mutex`es.
#[derive(Debug, Default)]
pub struct Shared {
    pub(crate) pool: Pool,
    pub(crate) locks: Locks,
}

/// Enters a lock whose data is whole at every instant, whoever panicked in it.
fn enter<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
