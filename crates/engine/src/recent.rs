//! What is remembered of the last requests of a kind, for `nagaya why`.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::exchange::request::RequestId;

/// Requests of a kind that are remembered.
pub(crate) const REMEMBERED_MAX: usize = 1_024;

/// The last ones. Held for one of them, or to copy what is asked for.
#[derive(Debug)]
pub(crate) struct Recent<T>(Mutex<VecDeque<(RequestId, T)>>);

impl<T> Default for Recent<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Clone> Recent<T> {
    /// Remembers something of a request.
    pub(crate) fn remember(&self, id: RequestId, what: T) {
        let mut ring = self.lock();
        let is_full = ring.len() == REMEMBERED_MAX;
        let oldest = is_full.then(|| ring.pop_front());
        ring.push_back((id, what));
        drop(ring);
        // Others need not wait for it to be given back.
        drop(oldest);
    }

    /// What is remembered of this request.
    pub(crate) fn find(&self, id: &[u8]) -> Option<T> {
        let ring = self.lock();
        let mut last_first = ring.iter().rev();
        let found = last_first.find(|(of, _)| of.as_bytes() == id);
        found.map(|(_, what)| what.clone())
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<(RequestId, T)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
