//! What a queue promises where nobody is late: nobody is refused who would be served in time, each flow is served in
//! order, and clients that are alike wait alike.

use std::time::Duration;

use super::simulation::{Arrivals, Service, Simulation, Source};
use super::{at_ms, events};
use crate::queue::Share;

/// So many that are alike, in networks of their own or, with `Crowd::OneNetwork`, in one.
fn alike(crowd: Crowd, count: u32, arrivals: Arrivals, service: Service) -> Vec<Source> {
    let source = |number| Source {
        tenant: if crowd == Crowd::Tenants { number } else { 0 },
        weight: 1,
        client: if crowd == Crowd::OneNetwork {
            0
        } else {
            number
        },
        arrivals,
        service,
    };
    (0..count).map(source).collect()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Crowd {
    OneNetwork,
    Networks,
    Tenants,
}

const CROWDS: [Crowd; 3] = [Crowd::OneNetwork, Crowd::Networks, Crowd::Tenants];

fn simulated(crowd: Crowd, permits: u32, sources: Vec<Source>) -> Simulation {
    let share = match crowd {
        Crowd::Tenants => Share::TenantsThenClients,
        Crowd::OneNetwork | Crowd::Networks => Share::Clients,
    };
    let mut simulation = Simulation::new(share, permits, sources);
    simulation.patience = Duration::from_secs(60);
    simulation
}

/// The longest of these, by the shortest.
fn ratio(values: impl Iterator<Item = u64> + Clone) -> f64 {
    values.clone().max().unwrap_or(0) as f64 / values.min().unwrap_or(0).max(1) as f64
}

/// Waits of each until their turns have settled.
const SETTLED: usize = 10;

fn mean(waits_ns: &[u64]) -> u64 {
    waits_ns.iter().sum::<u64>() / (waits_ns.len() as u64).max(1)
}

#[test]
fn clients_that_ask_again_at_once_wait_alike_and_nobody_is_refused() {
    for crowd in CROWDS {
        for (clients, permits) in [(4, 1), (10, 1), (10, 2), (7, 3), (40, 4)] {
            for service in [Service::Fixed(100), Service::Even(100)] {
                let sources = alike(crowd, clients, Arrivals::Loop, service);
                let mut simulation = simulated(crowd, permits, sources);
                simulation.run(events().min(4_000));
                let of = |each: fn(&[u64]) -> u64| {
                    let outcomes = simulation.outcomes.iter();
                    ratio(outcomes.map(move |outcome| each(&outcome.waits_ns[SETTLED..])))
                };
                let case = format!("{crowd:?}, {clients} on {permits}, {service:?}");
                let longest = |waits_ns: &[u64]| waits_ns.iter().copied().max().unwrap_or(0);
                let (means, longest) = (of(mean), of(longest));
                eprintln!("{case}: {means:.2} {longest:.2}");
                assert!(means <= 1.5 && longest <= 1.5, "{case}: {means} {longest}");
                assert!(
                    simulation.outcomes.iter().all(|it| it.lost() == 0),
                    "{case}"
                );
            }
        }
    }
}

#[test]
fn clients_that_ask_as_often_wait_alike_and_nobody_is_refused_while_there_is_room() {
    for crowd in CROWDS {
        for permits in [1, 4] {
            // Eight tenths of what the permits can do.
            let rate = f64::from(permits) / 0.05 * 0.8 / 5.0;
            let sources = alike(crowd, 5, Arrivals::Poisson(rate), Service::Even(50));
            let mut simulation = simulated(crowd, permits, sources);
            simulation.run(events());
            let means = ratio(simulation.outcomes.iter().map(|it| mean(&it.waits_ns)));
            eprintln!("{crowd:?} on {permits}: {means:.2}");
            assert!(means <= 1.5, "{crowd:?} on {permits}: {means}");
            assert!(
                simulation.outcomes.iter().all(|it| it.lost() == 0),
                "{crowd:?}"
            );
        }
    }
}

#[test]
fn inside_a_flow_who_came_first_is_served_first() {
    for crowd in CROWDS {
        let sources = alike(crowd, 10, Arrivals::Poisson(4.0), Service::Even(50));
        let mut simulation = simulated(crowd, 1, sources);
        simulation.run_until(at_ms(events() as u64 * 10));
        let mut last = [crate::time::Time::ZERO; 10];
        for (source, arrived) in simulation.served {
            let flow = if crowd == Crowd::OneNetwork {
                0
            } else {
                source
            };
            assert!(arrived >= last[flow], "{crowd:?}");
            last[flow] = arrived;
        }
    }
}

#[test]
fn under_overload_only_those_are_refused_who_waited_in_vain_or_found_no_room() {
    for crowd in CROWDS {
        for queue_max in [50, 10_000] {
            let sources = alike(crowd, 10, Arrivals::Poisson(4.0), Service::Even(50));
            let mut simulation = simulated(crowd, 1, sources);
            simulation.patience = Duration::from_secs(3);
            simulation.queue_max = queue_max;
            simulation.run(events());
            let sum = |each: fn(&super::simulation::Outcome) -> u64| {
                simulation.outcomes.iter().map(each).sum::<u64>()
            };
            let (refused, expired) = (sum(|it| it.refused + it.pushed_out), sum(|it| it.expired));
            assert_eq!(sum(|it| it.late), 0);
            // In three seconds 60 are served.
            match queue_max {
                50 => assert!(refused > 0),
                _ => assert!(refused == 0 && expired > 0, "{refused} {expired}"),
            }
        }
    }
}
