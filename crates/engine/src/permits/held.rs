//! What an exchange holds of the limits it met, until the source of its reply has said its last.

use std::time::Instant;

use limits::{LimitId, Outcome, Permit, Time, Used};

use ipc::console::RequestState;

use super::limiter::Limiter;
use super::listed::ListedPlace;

/// What an exchange holds of the limits it met.
#[derive(Debug)]
pub struct Held {
    pub(super) permit: Permit,
    pub(super) since: Instant,
    /// How long it was answered before it became a tunnel.
    pub(super) before_tunnel_ns: Option<u64>,
    /// Whether a place for a program is among it.
    pub(super) has_place: bool,
    /// Processor time of programs that ended before it was taken: it is charged already.
    pub(super) cpu_before_ns: u64,
    /// Where it is listed for who wants to know what held places.
    pub(super) listed: Option<ListedPlace>,
}

impl Held {
    /// What becomes of the request now.
    pub(crate) fn note(&self, state: RequestState) {
        if let Some(listed) = &self.listed {
            listed.note(state);
        }
    }

    /// Gives it back for a request nobody waited for to its end: what it took is charged, and says
    /// nothing about whoever answered.
    pub(crate) fn end_abandoned(self, limiter: &Limiter) {
        let now = Instant::now();
        let used = Used::Measured(self.used_ns(now));
        let now = limiter.time(now);
        self.permit.end(now, used, Outcome::Ignored);
    }

    /// What is left of it without the permits of these limits.
    pub(super) fn without(mut self, now: Time, used: Used, limits: &[LimitId]) -> Option<Self> {
        self.permit.end_of(now, used, limits);
        (!self.permit.is_empty()).then_some(self)
    }

    pub(super) fn used_ns(&self, now: Instant) -> u64 {
        let lasted = || nanos(self.since, now);
        self.before_tunnel_ns.unwrap_or_else(lasted)
    }
}

pub(super) fn nanos(since: Instant, until: Instant) -> u64 {
    u64::try_from(until.saturating_duration_since(since).as_nanos()).unwrap_or(u64::MAX)
}
