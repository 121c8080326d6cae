//! The store that machines share: whether it answers, and what is leased of it.

use std::time::Instant;

use control::{Fleet, FleetLease, Status};
use limits::fleet::FleetState;

use super::exposition::Text;
use crate::worker::Shared;

/// How it is; `None` where the configuration has none.
pub(crate) fn collect(shared: &Shared) -> Option<Fleet> {
    let generation = shared.generation()?;
    let limits = &generation.limits;
    limits.fleet?;
    let limiter = &shared.limits;
    let look = limiter.ledger.fleet_look(limiter.time(Instant::now()))?;
    let leases = limits.definitions().iter().enumerate();
    let leases = leases.filter_map(|(index, definition)| {
        let id = limits.id(index)?;
        let lease = look.leases.iter().find(|it| it.limit == id)?;
        Some(FleetLease {
            limit: definition.identity.clone(),
            keys: lease.keys,
            leased: lease.held,
            in_flight: lease.in_flight,
            queued: lease.waiting,
        })
    });
    Some(Fleet {
        store: word(look.state).into(),
        machines: look.machines,
        drained: shared.fleet.is_drained(),
        slowest_answer_s: shared.fleet.slowest().map(|it| it.as_secs_f64()),
        answered_ago_s: look.answered.map(|ago| ago.as_secs_f64()),
        leases: leases.collect(),
    })
}

fn word(state: FleetState) -> &'static str {
    match state {
        FleetState::Answers => "answers",
        FleetState::Quiet => "quiet",
        FleetState::Lost => "lost",
    }
}

/// Puts it into a line.
pub(super) fn line(figures: &Status) -> Option<(&'static str, String)> {
    let of = figures.fleet.as_ref()?;
    let sum = |count: fn(&FleetLease) -> u64| of.leases.iter().map(count).sum::<u64>();
    let store = match (&*of.store, of.answered_ago_s) {
        ("lost", Some(ago)) => format!("store lost for {ago:.0} s"),
        ("lost", None) => "store never answered".to_owned(),
        ("quiet", _) => "store gives out nothing yet".to_owned(),
        _ => "store answers".to_owned(),
    };
    let (leased, in_flight) = (sum(|it| it.leased), sum(|it| it.in_flight));
    let machines = of.machines;
    let mut text =
        format!("{store} · {machines} machines · {leased} permits leased, {in_flight} in flight");
    if of.drained {
        text.push_str(" · drained: nagaya fleet drain --undo has it serve again");
    }
    Some(("fleet", text))
}

/// Puts it among the metrics.
pub(super) fn prometheus(of: Option<&Fleet>, text: &mut Text) {
    let Some(of) = of else {
        return;
    };
    let help = "Whether the store that machines share answers and gives out permits.";
    text.one("fleet_up", help, u8::from(of.store == "answers"));
    let help = "Machines that the store has told of.";
    text.one("fleet_machines", help, of.machines);
    let help = "Whether an operator has this machine drained.";
    text.one("fleet_drained", help, u8::from(of.drained));
    if let Some(slowest_s) = of.slowest_answer_s {
        let help = "The longest that the store took to answer in the last minutes.";
        text.one("fleet_slowest_answer_seconds", help, slowest_s);
    }
    let each = |count: fn(&FleetLease) -> u64| {
        let leases = of.leases.iter();
        leases.map(move |it| ([("limit", it.limit.as_str())], count(it)))
    };
    let help = "Permits that this machine may give out of a limit that machines share.";
    text.each("fleet_leased", help, each(|it| it.leased));
}
