//! Requests that hold places of limits, or wait for them, for who is told later what went wrong.
//!
//! The idea: each worker lists its own while a recorder wants to know, behind a lock that others take only
//! when something went wrong. What is listed says nothing of a client: neither address nor query. Where a
//! list is full the next is not in it: how many there are the gates count.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use ipc::console::{INCIDENT_REQUESTS_MAX, RequestInFlight, RequestState};
use slab::Slab;

/// Requests of a worker that are listed.
const LISTED_MAX: usize = 1_024;
/// Bytes of a path that are kept.
pub(super) const PATH_BYTES_MAX: usize = 256;

/// One worker's list.
#[derive(Debug, Default)]
pub(crate) struct ListedRequests {
    /// Held to add, change or take away one, or to look at all.
    requests: Mutex<Slab<ListedRequest>>,
}

/// One request.
#[derive(Debug)]
pub(super) struct ListedRequest {
    pub(super) since: Instant,
    pub(super) site: Arc<str>,
    pub(super) path: Box<[u8]>,
    /// By their numbers.
    pub(super) limits: Box<[u32]>,
    pub(super) state: RequestState,
}

/// A request's place in a list; it leaves that when dropped.
#[derive(Debug)]
pub(crate) struct ListedPlace {
    list: Arc<ListedRequests>,
    at: usize,
}

impl ListedRequests {
    /// Adds a request, where there is room.
    pub(super) fn add(self: &Arc<Self>, request: ListedRequest) -> Option<ListedPlace> {
        let mut requests = self.lock();
        let at = (requests.len() < LISTED_MAX).then(|| requests.insert(request))?;
        let list = Arc::clone(self);
        Some(ListedPlace { list, at })
    }

    /// The oldest that are at the limit of this number, or at any, the oldest first.
    pub(super) fn oldest(&self, limit: Option<u32>, now: Instant) -> Vec<RequestInFlight> {
        let requests = self.lock();
        let all = requests.iter().map(|(_, it)| it);
        let is_at = |it: &&ListedRequest| limit.is_none_or(|limit| it.limits.contains(&limit));
        let mut those: Vec<_> = all.filter(is_at).collect();
        those.sort_unstable_by_key(|it| it.since);
        let told = those.into_iter().take(INCIDENT_REQUESTS_MAX);
        told.map(|it| it.told(now)).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Slab<ListedRequest>> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ListedRequest {
    fn told(&self, now: Instant) -> RequestInFlight {
        let age_ms = now.saturating_duration_since(self.since).as_millis();
        RequestInFlight {
            site: self.site.to_string(),
            path: String::from_utf8_lossy(&self.path).into_owned(),
            age_ms: u64::try_from(age_ms).unwrap_or(u64::MAX),
            state: self.state,
        }
    }
}

impl ListedPlace {
    /// What becomes of the request now.
    pub(crate) fn note(&self, state: RequestState) {
        if let Some(request) = self.list.lock().get_mut(self.at) {
            request.state = state;
        }
    }
}

impl Drop for ListedPlace {
    fn drop(&mut self) {
        let gone = self.list.lock().try_remove(self.at);
        // Its memory goes back while nobody waits.
        drop(gone);
    }
}
