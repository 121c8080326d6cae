//! What a machine says of itself to the others.
//!
//! The idea: what `nagaya fleet` shows of it, as JSON, some seconds apart. To look at leases takes time where there are many:
//! that is done the seldomer, so that it takes a thousandth of the time at most.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use control::{FleetLease, FleetMachine, FleetRate};
use ipc::fleet::REPORT_BYTES_MAX;

use super::inquiry::{LEASES_MAX, REPORT_PAUSE};
use crate::figures;
use crate::worker::Shared;

/// The part of a configuration that was set while running.
const CHANGES: &str = "limits set";
/// How much longer than a look at leases it is until the next.
const LOOK_REST: u32 = 1_000;

/// When it is said next.
#[derive(Debug, Default)]
pub(super) struct OwnReport {
    due: Option<Instant>,
    look_due: Option<Instant>,
    leases: Vec<FleetLease>,
    rates: Vec<FleetRate>,
    /// What had begun and come of each rate, and when that was looked at.
    before: Option<(Instant, BTreeMap<String, [u64; 2]>)>,
}

impl OwnReport {
    /// Says it as soon as can be.
    pub(super) fn hurry(&mut self) {
        (self.due, self.look_due) = (None, None);
    }

    /// What is to be said, if it is time.
    pub(super) fn next(&mut self, shared: &Shared) -> Option<String> {
        let now = Instant::now();
        let is_due = |due: Option<Instant>| due.is_none_or(|due| due <= now);
        if !is_due(self.due) {
            return None;
        }
        self.due = Some(now + REPORT_PAUSE);
        if is_due(self.look_due) {
            let fleet = figures::fleet::collect(shared);
            self.leases = fleet.map_or(Vec::new(), |it| it.leases);
            self.leases
                .sort_by_key(|it| std::cmp::Reverse(it.leased + it.queued));
            self.leases.truncate(LEASES_MAX);
            self.look_at_rates(shared, now);
            self.look_due = Some(now + now.elapsed().saturating_mul(LOOK_REST));
        }
        let mut machine = of_machine(shared);
        machine.leases.clone_from(&self.leases);
        machine.rates.clone_from(&self.rates);
        let mut report = control::json(&machine);
        while report.len() > REPORT_BYTES_MAX {
            let popped = match machine.rates.len() > machine.leases.len() {
                true => machine.rates.pop().is_some(),
                false => machine.leases.pop().is_some(),
            };
            if !popped {
                break;
            }
            report = control::json(&machine);
        }
        Some(report)
    }

    /// Notes what came to rates since they were looked at before.
    fn look_at_rates(&mut self, shared: &Shared, now: Instant) {
        // What came in a moment is no rate.
        if matches!(&self.before, Some((since, _)) if now - *since < REPORT_PAUSE / 2) {
            return;
        }
        let (mut sums, mut rates) = (BTreeMap::new(), Vec::new());
        for (limit, look) in figures::fleet::rates(shared) {
            let refused = look.totals.refused.iter().sum::<u64>();
            let begun = look.totals.admitted;
            let sum = [begun, begun + refused + look.queued];
            if let Some((since, before)) = &self.before
                && let Some(&before) = before.get(&limit)
            {
                let over_s = (now - *since).as_secs_f64().max(f64::EPSILON);
                let [begun_per_s, came_per_s] = [0, 1].map(|at| {
                    let [sum, before] = [sum, before].map(|it| it[at]);
                    sum.saturating_sub(before) as f64 / over_s
                });
                rates.push(FleetRate {
                    limit: limit.clone(),
                    begun_per_s,
                    came_per_s,
                    queued: look.queued,
                });
            }
            sums.insert(limit, sum);
        }
        rates.retain(|it| it.came_per_s > 0.0 || it.queued > 0);
        rates.sort_by(|one, other| other.came_per_s.total_cmp(&one.came_per_s));
        rates.truncate(LEASES_MAX);
        (self.rates, self.before) = (rates, Some((now, sums)));
    }
}

fn of_machine(shared: &Shared) -> FleetMachine {
    // In this order: a request that ends in between is not under way.
    let under_way = shared.stats.iter().map(|it| {
        let (ended, begun) = (it.ended.load(Relaxed), it.begun.load(Relaxed));
        begun.saturating_sub(ended)
    });
    let digests = shared.generation().map(|it| it.limits.digests.clone());
    let mut digests = digests.unwrap_or_default();
    let changes = shared.limits.changes();
    if !changes.is_empty() {
        digests.insert(CHANGES.to_owned(), config::digest(&changes));
    }
    FleetMachine {
        drained: shared.fleet.is_drained(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        in_flight: under_way.sum(),
        slowest_answer_s: shared.fleet.slowest().map(|it| it.as_secs_f64()),
        digests,
        ..FleetMachine::default()
    }
}
