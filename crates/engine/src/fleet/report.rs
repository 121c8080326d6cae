//! What a machine says of itself to the others.
//!
//! The idea: what `nagaya fleet` shows of it, as JSON, some seconds apart. To look at leases takes time where there are many:
//! that is done the seldomer, so that it takes a thousandth of the time at most.

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use control::{FleetLease, FleetMachine};
use ipc::fleet::REPORT_BYTES_MAX;

use super::inquiry::LEASES_MAX;
use crate::figures;
use crate::worker::Shared;

const PAUSE: Duration = Duration::from_secs(3);
/// How much longer than a look at leases it is until the next.
const LOOK_REST: u32 = 1_000;

/// When it is said next.
#[derive(Debug, Default)]
pub(super) struct OwnReport {
    due: Option<Instant>,
    look_due: Option<Instant>,
    leases: Vec<FleetLease>,
}

impl OwnReport {
    /// Says it as soon as can be.
    pub(super) fn hurry(&mut self) {
        *self = OwnReport::default();
    }

    /// What is to be said, if it is time.
    pub(super) fn next(&mut self, shared: &Shared) -> Option<String> {
        let now = Instant::now();
        let is_due = |due: Option<Instant>| due.is_none_or(|due| due <= now);
        if !is_due(self.due) {
            return None;
        }
        self.due = Some(now + PAUSE);
        if is_due(self.look_due) {
            let fleet = figures::fleet::collect(shared);
            self.leases = fleet.map_or(Vec::new(), |it| it.leases);
            self.leases
                .sort_by_key(|it| std::cmp::Reverse(it.leased + it.queued));
            self.leases.truncate(LEASES_MAX);
            self.look_due = Some(now + now.elapsed().saturating_mul(LOOK_REST));
        }
        let mut machine = of_machine(shared);
        machine.leases.clone_from(&self.leases);
        let mut report = control::json(&machine);
        while report.len() > REPORT_BYTES_MAX && machine.leases.pop().is_some() {
            report = control::json(&machine);
        }
        Some(report)
    }
}

fn of_machine(shared: &Shared) -> FleetMachine {
    // In this order: a request that ends in between is not under way.
    let under_way = shared.stats.iter().map(|it| {
        let (ended, begun) = (it.ended.load(Relaxed), it.begun.load(Relaxed));
        begun.saturating_sub(ended)
    });
    let digests = shared.generation().map(|it| it.limits.digests.clone());
    let digests = digests.into_iter().flatten();
    FleetMachine {
        drained: shared.fleet.is_drained(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        in_flight: under_way.sum(),
        slowest_answer_s: shared.fleet.slowest().map(|it| it.as_secs_f64()),
        digests: digests
            .map(|(part, digest)| (part.to_owned(), digest))
            .collect(),
        ..FleetMachine::default()
    }
}
