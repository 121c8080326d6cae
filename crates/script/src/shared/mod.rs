//! What scripts of all workers and generations share: `Cache` and global `Mutex`es, by their names.
//!
//! It outlives every interpreter, so that a reload loses neither a counter nor a lock.

mod groups;
mod kept;
mod kept_text;
mod lock;
mod pool;
mod senses;
mod shard;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub(crate) use groups::{Form, Given, Groups, Key};
pub(crate) use kept::{BY_FILE, Kept};
pub(crate) use lock::{Entered, Lock, Locks, Turn};
pub(crate) use pool::{Bounds, Namespace, Pool, Refusal};
pub use senses::Sensed;
pub(crate) use senses::Senses;

/// What scripts of all workers and generations share: `Cache` and global `Mutex`es.
#[derive(Debug, Default)]
pub struct Shared {
    pub(crate) pool: Arc<Pool>,
    /// Files that namespaces of `Cache` are kept in.
    pub(crate) kept: Kept,
    pub(crate) locks: Locks,
    /// Control groups that scripts define.
    pub(crate) groups: Arc<Mutex<Groups>>,
    pub(crate) senses: Senses,
}

impl Shared {
    /// Has sensors answered so; what was said first holds.
    pub fn answer_sensors(&self, answer: impl Fn(&str) -> Sensed + Send + Sync + 'static) {
        self.senses.answer_by(Box::new(answer));
    }
}

impl Shared {
    /// Has the files of `Cache` written before the process ends, for as long as `within`.
    pub fn keep_files(&self, within: Duration) {
        self.kept.keep(within);
    }
}

/// Enters a lock whose data is whole at every instant, whoever panicked in it.
pub(crate) fn enter<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
