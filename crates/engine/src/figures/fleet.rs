//! The store that machines share: whether it answers, and what is leased of it.

use std::collections::BTreeMap;
use std::time::Instant;

use control::{Fleet, FleetLease, Status};
use limits::fleet::FleetState;
use limits::{LimitId, LimitLook};

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
        let found = look.leases.binary_search_by_key(&id, |it| it.limit).ok()?;
        let lease = look.leases.get(found)?;
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
        evicts: shared.fleet.is_evicting(),
        slowest_answer_s: shared.fleet.slowest().map(|it| it.as_secs_f64()),
        answered_ago_s: look.answered.map(|ago| ago.as_secs_f64()),
        why: (look.state == FleetState::Lost).then(|| shared.fleet.why()),
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

/// How the store is, in words.
pub(super) fn store(of: &Fleet) -> String {
    let why = of.why.iter().filter(|why| !why.is_empty());
    let why: String = why.map(|why| format!(": {why}")).collect();
    let evicts = match of.evicts {
        true => ", and evicts keys: set `maxmemory-policy noeviction` there",
        false => "",
    };
    match (&*of.store, of.answered_ago_s) {
        ("lost", Some(ago)) => format!("store lost for {ago:.0} s{why}"),
        ("lost", None) => format!("store never answered{why}"),
        ("quiet", _) => format!("store gives out nothing yet{evicts}"),
        _ => format!("store answers{evicts}"),
    }
}

/// What has come to each rate that machines share, since the server started.
pub(crate) fn rates(shared: &Shared) -> Vec<(String, LimitLook)> {
    let generation = shared.generation();
    let limits = generation.iter().map(|it| &it.limits);
    let named = limits.flat_map(|limits| {
        let definitions = limits.definitions().iter().enumerate();
        let shared = definitions.filter(|(_, it)| it.fleet.is_some() && it.rate.is_some());
        shared.filter_map(|(index, it)| Some((limits.id(index)?, it.identity.clone())))
    });
    let mut named: BTreeMap<LimitId, String> = named.collect();
    if named.is_empty() {
        return Vec::new();
    }
    let looks = shared.limits.ledger.totals().into_iter();
    let looks = looks.filter_map(|look| Some((named.remove(&look.limit)?, look)));
    looks.collect()
}

/// Puts it into a line.
pub(super) fn line(figures: &Status) -> Option<(&'static str, String)> {
    let of = figures.fleet.as_ref()?;
    let sum = |count: fn(&FleetLease) -> u64| of.leases.iter().map(count).sum::<u64>();
    let store = store(of);
    let (leased, in_flight) = (sum(|it| it.leased), sum(|it| it.in_flight));
    let machines = of.machines;
    let mut text =
        format!("{store} · {machines} machines · {leased} permits leased, {in_flight} in flight");
    if of.drained {
        text.push_str(" · drained: nagaya fleet undrain has it serve again");
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
    let help = "Whether the store evicts keys when it is full.";
    text.one("fleet_evicts", help, u8::from(of.evicts));
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
