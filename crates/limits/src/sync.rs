//! The one kind of lock the ledger is made of, and room between things that different workers write.
//!
//! A lock whose holder panicked is taken over: every change under one is complete before anything
//! that could panic is called. In tests a lock is also where a schedule may switch threads.

use std::ops::Deref;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

/// A mutex that is taken over when its holder panicked.
#[derive(Debug, Default)]
pub(crate) struct Lock<T>(Mutex<T>);

impl<T> Lock<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        #[cfg(test)]
        crate::interleave::turn_when(|| {
            !matches!(self.0.try_lock(), Err(TryLockError::WouldBlock))
        });
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The lock, if nobody has it.
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        #[cfg(test)]
        crate::interleave::turn_when(|| true);
        match self.0.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

/// A value in cache lines of its own, so that workers do not take turns at one.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Apart<T>(pub(crate) T);

impl<T> Deref for Apart<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}
