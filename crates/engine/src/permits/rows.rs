//! What each limit of the generation in force has come to: for `limits list`, status and metrics.

use std::collections::HashMap;
use std::time::{SystemTime, UNIX_EPOCH};

use config::model::Reserve;
use limits::{Definition, LimitId, LimitLook, Totals};

use super::limit::Scope;
use super::limiter::Origin;
use crate::worker::Shared;

/// A limit, and what all its keys together have come to.
#[derive(Debug)]
pub struct Row {
    /// As it is now.
    pub limit: Definition,
    /// Who says so.
    pub origin: Origin,
    /// Whether its `when` holds now; `true` where it has none.
    pub holds: bool,
    /// Whether it has a `match`, and counts some requests only.
    pub has_match: bool,
    /// Whether it counts handshakes instead of requests.
    pub is_of_handshakes: bool,
    /// What tenants have of it before others.
    pub reserves: Vec<Reserve>,
    /// What it holds, and has come to.
    pub look: LimitLook,
}

impl Row {
    /// Whether a request has ever met it.
    pub fn is_in_use(&self) -> bool {
        let LimitLook {
            in_flight, queued, ..
        } = self.look;
        in_flight + queued > 0 || self.look.totals != Totals::default()
    }

    /// Requests refused so far.
    pub fn refused_total(&self) -> u64 {
        self.look.totals.refused.iter().sum()
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
    let looks = limiter.ledger.totals().into_iter();
    let mut by_limit: HashMap<LimitId, LimitLook> = looks.map(|look| (look.limit, look)).collect();
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
    let unix_s = since_1970.map_or(0, |since| since.as_secs());
    let rows = limits.definitions().iter().enumerate();
    rows.filter_map(|(index, configured)| {
        let look = by_limit.remove(&limits.id(index)?)?;
        let (limit, origin) = limiter.in_force(configured);
        let scope = limits.scope(index);
        Some(Row {
            limit,
            origin,
            holds: scope.is_none_or(|scope| scope.holds(unix_s)),
            has_match: scope.is_some_and(Scope::has_match),
            is_of_handshakes: scope.is_some_and(Scope::is_of_handshakes),
            reserves: limits.reserves_of(index).cloned().collect(),
            look,
        })
    })
    .collect()
}
