//! Predicted waits against real ones.

use std::time::Duration;

use super::events;
use super::simulation::{Arrivals, Service, Simulation, Source, quantile};
use crate::queue::Share;

/// How far predictions were off, in thousandths of the real wait, where that was more than two services.
fn errors(simulation: &Simulation) -> Vec<u64> {
    let predictions = simulation
        .outcomes
        .iter()
        .flat_map(|outcome| outcome.predictions.iter());
    let waited = predictions.filter(|(_, real_ns)| *real_ns > 100_000_000);
    waited
        .map(|(predicted_ns, real_ns)| predicted_ns.abs_diff(*real_ns) * 1_000 / real_ns)
        .collect()
}

fn check(name: &str, share: Share, sources: Vec<Source>) {
    let mut simulation = Simulation::new(share, 4, sources);
    simulation.patience = Duration::from_secs(20);
    simulation.run(events().max(5_000));
    let errors = errors(&simulation);
    let (half, most) = (quantile(&errors, 0.5), quantile(&errors, 0.9));
    eprintln!(
        "{name}: off by {half} / 1000 (p50), {most} / 1000 (p90) of {}",
        errors.len()
    );
    assert!(errors.len() > 500, "{name}: too few waited");
    assert!(most < 300, "{name}: {most} / 1000");
}

fn source(tenant: u32, arrivals: Arrivals) -> Source {
    Source {
        tenant,
        weight: 1,
        client: tenant,
        arrivals,
        service: Service::Even(50),
    }
}

#[test]
fn one_flow_is_predicted_within_thirty_percent() {
    // Bursts that are over within an interval, so that the queue stays in order.
    check(
        "bursts",
        Share::Clients,
        vec![source(0, Arrivals::Bursts(20, 20.0))],
    );
}
