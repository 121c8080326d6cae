//! Who holds places of limits, for who is told later of what went wrong.
//!
//! The idea: as `limits top` has it, less what keys say of clients: where a key is made of an address, a
//! field or a cookie, all its holders are one.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Instant;

use ipc::console::{HeldPlace, INCIDENT_REQUESTS_MAX, LimitOwner, RequestInFlight};
use limits::LimitId;

use crate::worker::Shared;

/// Keys that are told of.
const TOLD_MAX: usize = 50;
/// Keys that are looked at.
const LOOKED_MAX: usize = 1_000;

/// The oldest requests that are at this limit, or at any.
pub(crate) fn oldest(
    shared: &Shared,
    limit: Option<LimitId>,
    now: Instant,
) -> Vec<RequestInFlight> {
    let limit = limit.map(LimitId::number);
    let workers = shared.stats.iter();
    let mut oldest: Vec<_> = workers
        .flat_map(|stats| stats.listed.oldest(limit, now))
        .collect();
    oldest.sort_by_key(|it| Reverse(it.age_ms));
    oldest.truncate(INCIDENT_REQUESTS_MAX);
    oldest
}

/// Who holds places now, or waits for them, those with most first.
pub(crate) fn look(shared: &Shared) -> Vec<HeldPlace> {
    let Some(generation) = shared.generation() else {
        return Vec::new();
    };
    let mut held = BTreeMap::<(String, String), HeldPlace>::new();
    for gate in super::questions::busiest(shared, LOOKED_MAX) {
        if gate.in_flight == 0 && gate.queued == 0 {
            continue;
        }
        let (limit, mut key) = (gate.identity.to_string(), gate.key);
        if !generation.limits.has_public_keys(gate.limit) {
            // Whose it is may be known.
            key = LimitOwner::part(&limit, &key)
                .unwrap_or_default()
                .to_owned();
        }
        let place = held.entry((limit, key)).or_default();
        place.in_flight = place.in_flight.saturating_add(gate.in_flight);
        place.queued = place.queued.saturating_add(gate.queued);
    }
    let mut held: Vec<_> = held
        .into_iter()
        .map(|((limit, key), place)| HeldPlace {
            limit,
            key,
            ..place
        })
        .collect();
    held.sort_by_key(|it| std::cmp::Reverse((it.in_flight, it.queued)));
    held.truncate(TOLD_MAX);
    held
}
