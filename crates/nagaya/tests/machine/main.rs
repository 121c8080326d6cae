//! What measures the machine, or changes its own process: one test at a time, beside no others.

use std::sync::{Mutex, MutexGuard, PoisonError};

mod idle;
mod slow_clients;
mod slow_files;

static ALONE: Mutex<()> = Mutex::new(());

/// Held for the length of a test.
fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}
