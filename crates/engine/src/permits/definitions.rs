//! What a limit of the configuration is for the ledger.

use std::time::Duration;

use config::model;
use limits::fleet::OnLoss;
use limits::{Concurrent, Definition, Keyed, Mode, RateDefinition, Shared};

use super::limit::{Key, Place};

/// Most requests at once that `concurrent = "auto"` comes to.
const AUTO_MAX: u32 = 1_000;

/// A limit's definition, under its identity.
pub(super) fn definition(
    limit: &model::Limit,
    identity: String,
    key: &Key,
    place: Place,
    workers: usize,
) -> Definition {
    let plain = Definition {
        identity,
        shared: match key.is_of_one_tenant(place) {
            true => Shared::OneTenant,
            false => Shared::Tenants,
        },
        keyed: match key {
            Key::Fixed => Keyed::Fixed,
            Key::Parts(_) => Keyed::Dynamic,
        },
        fleet: limit.fleet.map(|on_loss| match on_loss {
            model::OnLoss::Share => OnLoss::Share,
            model::OnLoss::Open => OnLoss::Open,
            model::OnLoss::Closed => OnLoss::Closed,
        }),
        ..Definition::of(&limit.name)
    };
    changed(&plain, limit, workers)
}

/// The definition of the same limit, with the values that an entry of `limits` gives it; `workers`
/// is how many the gateway has.
#[must_use]
pub fn changed(before: &Definition, limit: &model::Limit, workers: usize) -> Definition {
    Definition {
        concurrent: limit.concurrent.map(|concurrent| match concurrent {
            model::Concurrent::Fixed(count) => Concurrent::Fixed(count),
            model::Concurrent::Auto => Concurrent::Auto {
                floor: u32::try_from(workers).unwrap_or(AUTO_MAX).min(AUTO_MAX),
                ceiling: AUTO_MAX,
            },
        }),
        queue: limit.queue,
        wait: Duration::from_millis(limit.wait_ms),
        late: (limit.late_ms > 0).then(|| Duration::from_millis(limit.late_ms)),
        rate: limit.rate.map(|rate| RateDefinition {
            count: rate.count,
            per: Duration::from_millis(rate.per_ms),
            burst: rate.burst,
        }),
        mode: match limit.mode {
            model::Mode::Enforce => Mode::Enforce,
            model::Mode::Shadow => Mode::Shadow,
        },
        ..before.clone()
    }
}
