//! Light flows beside heavy ones.

use std::time::Duration;

use super::simulation::{Arrivals, Outcome, Service, Simulation, Source, quantile};
use super::{at_ms, events};
use crate::queue::Share;

fn source(tenant: u32, client: u32, arrivals: Arrivals, service: Service) -> Source {
    Source {
        tenant,
        weight: 1,
        client,
        arrivals,
        service,
    }
}

/// All waits of some sources together.
fn waits_ns<'a>(outcomes: impl IntoIterator<Item = &'a Outcome>) -> Vec<u64> {
    outcomes
        .into_iter()
        .flat_map(|outcome| outcome.waits_ns.iter().copied())
        .collect()
}

/// Nine tenants at 0.8 of their share, and one at `heavy` times its share.
fn ten_tenants(share: Share, permits: u32, heavy: f64) -> Simulation {
    let service = Service::Even(50);
    let fair_rate = f64::from(permits) / 0.050 / 10.0;
    let mut sources: Vec<Source> = (1..10)
        .map(|tenant| source(tenant, tenant, Arrivals::Poisson(0.8 * fair_rate), service))
        .collect();
    if heavy > 0.0 {
        sources.push(source(
            10,
            10,
            Arrivals::Poisson(heavy * fair_rate),
            service,
        ));
    }
    let mut simulation = Simulation::new(share, permits, sources);
    simulation.queue_max = 100;
    simulation
}

#[test]
fn nine_tenants_hardly_notice_a_heavy_one() {
    for permits in [4, 20] {
        let mut without = ten_tenants(Share::TenantsThenClients, permits, 0.0);
        let mut with = ten_tenants(Share::TenantsThenClients, permits, 20.0);
        let until = at_ms(events() as u64 * 50 * 10 / 27 / u64::from(permits));
        without.run_until(until);
        with.run_until(until);
        let lost: u64 = with.outcomes[..9].iter().map(Outcome::lost).sum();
        let alone_ns = quantile(&waits_ns(&without.outcomes), 0.99);
        let beside_ns = quantile(&waits_ns(&with.outcomes[..9]), 0.99);
        eprintln!(
            "{permits} permits: p99 {} us without, {} us with",
            alone_ns / 1000,
            beside_ns / 1000
        );
        assert_eq!(
            lost,
            0,
            "{:?}",
            with.outcomes.iter().map(Outcome::lost).collect::<Vec<_>>()
        );
        // One service is 50 ms on average and 75 ms at most; a short run is too noisy for the average.
        assert!(
            beside_ns <= alone_ns + 75_000_000,
            "{permits}: {alone_ns} ns became {beside_ns}"
        );
        assert!(with.outcomes[9].lost() > 0);
    }
}

#[test]
fn of_a_thousand_tenants_64_heavy_ones_cost_no_light_one_a_request() {
    let service = Service::Even(50);
    // 20 permits, 400 a second: each may have 0.4; a light one wants half of that.
    let sources = (0..1_000).map(|tenant| {
        let rate = if tenant < 64 { 20.0 } else { 0.2 };
        source(tenant, tenant, Arrivals::Poisson(rate), service)
    });
    let mut simulation = Simulation::new(Share::TenantsThenClients, 20, sources.collect());
    simulation.queue_max = 500;
    simulation.run(events().max(20_000));
    let lost: u64 = simulation.outcomes[64..].iter().map(Outcome::lost).sum();
    let light = waits_ns(&simulation.outcomes[64..]);
    eprintln!(
        "light: p50 {} us, p99 {} us, max {} us",
        quantile(&light, 0.5) / 1000,
        quantile(&light, 0.99) / 1000,
        quantile(&light, 1.0) / 1000
    );
    assert_eq!(lost, 0);
    assert!(quantile(&light, 0.99) <= 50_000_000);
}

#[test]
fn people_hardly_notice_a_crawler() {
    for permits in [1, 4] {
        let service = Service::Even(50);
        let people = || {
            (0..20).map(|client| {
                source(
                    0,
                    client,
                    Arrivals::Poisson(f64::from(permits) / 8.0),
                    service,
                )
            })
        };
        let crawler = source(0, 99, Arrivals::Backlog(80), service);
        let mut without = Simulation::new(Share::Clients, permits, people().collect());
        let mut with =
            Simulation::new(Share::Clients, permits, people().chain([crawler]).collect());
        with.queue_max = 100;
        with.patience = Duration::from_secs(10);
        let until = at_ms(events() as u64 * 50 / u64::from(permits) / 2);
        without.run_until(until);
        with.run_until(until);
        let alone_ns = quantile(&waits_ns(&without.outcomes), 0.99);
        let beside_ns = quantile(&waits_ns(&with.outcomes[..20]), 0.99);
        let lost: u64 = with.outcomes[..20].iter().map(Outcome::lost).sum();
        eprintln!(
            "{permits} permits: p99 {} us without, {} us with",
            alone_ns / 1000,
            beside_ns / 1000
        );
        assert_eq!(lost, 0);
        // One service of the crawler's has begun when somebody comes, whoever is next: 75 ms at most.
        assert!(
            beside_ns <= alone_ns + 75_000_000,
            "{alone_ns} ns became {beside_ns}"
        );
    }
}
