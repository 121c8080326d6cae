//! What each limit of the generation in force has come to: for `limits list`, status and metrics.

use std::collections::HashMap;

use limits::{Definition, LimitId, LimitLook, Totals};

use super::limiter::Origin;
use crate::worker::Shared;

/// A limit, and what all its keys together have come to.
#[derive(Debug)]
pub struct Row {
    /// As it is now.
    pub limit: Definition,
    /// Who says so.
    pub origin: Origin,
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
    let rows = limits.definitions().iter().enumerate();
    rows.filter_map(|(index, configured)| {
        let look = by_limit.remove(&limits.id(index)?)?;
        let (limit, origin) = limiter.in_force(configured);
        Some(Row {
            limit,
            origin,
            look,
        })
    })
    .collect()
}
