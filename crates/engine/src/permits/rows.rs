//! What each limit of the generation in force has come to: for `limits list`, status and metrics.

use std::collections::HashMap;
use std::time::Instant;

use limits::{Definition, GateLook, LimitId};

use super::refusals::Counts;
use crate::worker::Shared;

/// Keys that are looked at for the sums of one answer.
const KEYS_MAX: usize = 100_000;

/// A limit, and what all its keys together have come to.
#[derive(Debug)]
pub struct Row {
    /// How the ledger names it.
    pub id: LimitId,
    /// As it is now.
    pub limit: Definition,
    /// Who says so.
    pub origin: Origin,
    /// Keys in use.
    pub keys: usize,
    /// Requests under way.
    pub in_flight: u64,
    /// Requests that wait.
    pub queued: u64,
    /// Requests admitted so far by keys in use.
    pub admitted: u64,
    /// Those of them that waited.
    pub waited: u64,
    /// Requests that would have been refused.
    pub shadow_refused: u64,
    /// Requests refused so far, by reason.
    pub refused: Counts,
    /// What `concurrent` comes to now, where it adapts.
    pub cap: Option<u32>,
}

/// Who has made a limit what it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The configuration.
    Configured,
    /// An operator, while running.
    Set,
}

impl Row {
    /// Whether requests have met it lately, or it has ever refused one.
    pub fn is_in_use(&self) -> bool {
        self.keys > 0 || self.refused_total() > 0
    }

    /// Requests refused so far.
    pub fn refused_total(&self) -> u64 {
        self.refused.iter().sum()
    }
}

impl Origin {
    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Configured => "config",
            Self::Set => "set",
        }
    }
}

/// Every limit, in the order of the configuration.
pub fn collect(shared: &Shared) -> Vec<Row> {
    let Some(generation) = shared.generation() else {
        return Vec::new();
    };
    let (limits, limiter) = (&generation.limits, &shared.limits);
    if limits.definitions().is_empty() {
        return Vec::new();
    }
    let mut by_limit: HashMap<LimitId, Vec<GateLook>> = HashMap::new();
    let now = limiter.time(Instant::now());
    for gate in limiter.ledger.look(now, None, KEYS_MAX) {
        by_limit.entry(gate.limit).or_default().push(gate);
    }
    let rows = limits.definitions().iter().enumerate();
    rows.filter_map(|(index, configured)| {
        let id = limits.id(index)?;
        let changed = limiter.changed(configured);
        let origin = match &changed {
            Some(_) => Origin::Set,
            None => Origin::Configured,
        };
        let limit = changed.unwrap_or_else(|| configured.clone());
        let gates = by_limit.remove(&id).unwrap_or_default();
        let sum = |of: fn(&GateLook) -> u64| gates.iter().map(of).sum();
        Some(Row {
            id,
            limit,
            origin,
            keys: gates.len(),
            in_flight: sum(|gate| gate.in_flight.into()),
            queued: sum(|gate| gate.queued.into()),
            admitted: sum(|gate| gate.admitted),
            waited: sum(|gate| gate.waited),
            shadow_refused: sum(|gate| gate.shadow_refused),
            refused: limiter.refusals.counts(id),
            cap: gates.iter().filter_map(|gate| gate.cap).max(),
        })
    })
    .collect()
}
