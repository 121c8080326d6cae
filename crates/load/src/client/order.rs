//! In which order requests of different weight follow one another, and who has which connection.

use std::sync::Arc;

use super::plan::{Endpoint, Plan};
use super::schedule::Turn;

/// Longest order; weights that do not fit are rounded, each to one turn at least.
const TURNS_MAX: u64 = 16 * 1024;
/// Orders are mixed the same way in every run.
const SEED: u64 = 0x6e61_6761_7961;

/// The endpoints of a plan, each once, and what goes to them.
#[derive(Debug)]
pub(crate) struct Routes {
    pub(crate) endpoints: Vec<Endpoint>,
    /// All requests.
    pub(crate) order: Arc<[Turn]>,
    /// The requests of each endpoint.
    pub(crate) by_endpoint: Vec<Arc<[Turn]>>,
    /// Connections of each endpoint.
    pub(crate) connections: Vec<usize>,
}

impl Routes {
    /// The plan has requests, and at least as many connections as endpoints.
    pub(crate) fn of(plan: &Plan) -> Routes {
        let mut endpoints: Vec<Endpoint> = Vec::new();
        let mut turns = Vec::new();
        for (index, request) in plan.requests.iter().enumerate() {
            let known = endpoints.iter().position(|e| *e == request.endpoint);
            let endpoint = known.unwrap_or_else(|| {
                endpoints.push(request.endpoint.clone());
                endpoints.len() - 1
            });
            let turn = Turn {
                request: index as u32,
                endpoint: endpoint as u32,
            };
            turns.push((turn, u64::from(request.weight.max(1))));
        }
        let by_endpoint: Vec<Arc<[Turn]>> = (0..endpoints.len() as u32)
            .map(|e| mix(turns.iter().filter(|(turn, _)| turn.endpoint == e)))
            .collect();
        let mut weights = vec![0; endpoints.len()];
        for (turn, weight) in &turns {
            weights[turn.endpoint as usize] += weight;
        }
        Routes {
            order: mix(turns.iter()),
            by_endpoint,
            connections: share_out(plan.connections, &weights),
            endpoints,
        }
    }

    /// The lane of a thread among those with connections to an endpoint; `None` if it has none.
    /// Endpoints begin at different threads, so that the few connections of each are spread.
    pub(crate) fn lane(&self, endpoint: usize, thread: usize, threads: usize) -> Option<u32> {
        let lane = (thread + threads - endpoint % threads) % threads;
        let connections = self.connections.get(endpoint).copied().unwrap_or_default();
        (lane < connections).then_some(lane as u32)
    }

    /// How many lanes an endpoint has.
    pub(crate) fn lanes(&self, endpoint: usize, threads: usize) -> u32 {
        let connections = self.connections.get(endpoint).copied().unwrap_or_default();
        connections.min(threads) as u32
    }

    /// A thread's connections: the endpoint of each, and its number among all.
    pub(crate) fn connections_of(&self, thread: usize, threads: usize) -> Vec<(usize, usize)> {
        let mut found = Vec::new();
        let mut number = 0;
        for (endpoint, connections) in self.connections.iter().enumerate() {
            for nth in 0..*connections {
                if (nth + endpoint) % threads == thread {
                    found.push((endpoint, number));
                }
                number += 1;
            }
        }
        found
    }
}

/// Each as often as its weight says, in an order without pattern.
fn mix<'a>(turns: impl Iterator<Item = &'a (Turn, u64)> + Clone) -> Arc<[Turn]> {
    let divisor = turns
        .clone()
        .fold(0, |d, (_, weight)| common_divisor(d, *weight));
    let sum: u64 = turns
        .clone()
        .map(|(_, weight)| weight / divisor.max(1))
        .sum();
    let mut order = Vec::new();
    for (turn, weight) in turns {
        let weight = weight / divisor.max(1);
        let count = match sum {
            0..=TURNS_MAX => weight,
            _ => (u128::from(weight) * u128::from(TURNS_MAX) / u128::from(sum)).max(1) as u64,
        };
        order.extend((0..count).map(|_| *turn));
    }
    fastrand::Rng::with_seed(SEED).shuffle(&mut order);
    order.into()
}

fn common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { common_divisor(b, a % b) }
}

/// Shares connections out by weight, one at least to each.
fn share_out(connections: usize, weights: &[u64]) -> Vec<usize> {
    let sum: u64 = weights.iter().sum();
    let spare = connections.saturating_sub(weights.len()) as u64;
    let share = |weight: &u64| u128::from(spare) * u128::from(*weight) / u128::from(sum.max(1));
    let mut shares: Vec<usize> = weights
        .iter()
        .map(|weight| 1 + share(weight) as usize)
        .collect();
    // What rounding left over is less than one for each.
    let left = connections.saturating_sub(shares.iter().sum());
    for share in shares.iter_mut().take(left) {
        *share += 1;
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::plan::{Address, ReplyTo, Request};

    fn request(port: u16, weight: u32) -> Request {
        Request {
            endpoint: Endpoint {
                address: Address::Tcp(([127, 0, 0, 1], port).into()),
                tls: None,
            },
            bytes: Vec::new(),
            numbered: None,
            body_bytes: 0,
            weight,
            reply: ReplyTo::Other,
            patience: None,
            label: String::new(),
        }
    }

    fn routes(requests: &[(u16, u32)], connections: usize) -> Routes {
        let requests = requests
            .iter()
            .map(|(port, weight)| request(*port, *weight));
        let mut plan = Plan::new(requests.collect());
        plan.connections = connections;
        Routes::of(&plan)
    }

    #[test]
    fn requests_come_as_often_as_they_weigh() {
        let count = |weights: &[(u16, u32)]| {
            let routes = routes(weights, 10);
            let of = |n: u32| routes.order.iter().filter(|turn| turn.request == n).count();
            (0..weights.len() as u32).map(of).collect::<Vec<_>>()
        };
        assert_eq!(count(&[(1, 10), (2, 30), (1, 0)]), [10, 30, 1]);
        assert_eq!(count(&[(1, 5), (2, 5)]), [1, 1]);
        assert_eq!(count(&[(1, 1_000_000), (2, 1)]), [16383, 1]);
    }

    #[test]
    fn connections_are_shared_out_by_weight() {
        assert_eq!(routes(&[(1, 1), (2, 1)], 10).connections, [5, 5]);
        assert_eq!(routes(&[(1, 99), (2, 1)], 10).connections, [9, 1]);
        assert_eq!(routes(&[(1, 99), (2, 1)], 2).connections, [1, 1]);
        assert_eq!(routes(&[(1, 3), (2, 1), (1, 2)], 8).connections, [6, 2]);
    }

    #[test]
    fn every_connection_has_one_thread_and_every_lane_a_connection() {
        let routes = routes(&[(1, 8), (2, 1), (3, 3)], 12);
        let mut seen = Vec::new();
        for thread in 0..4 {
            let mine = routes.connections_of(thread, 4);
            for endpoint in 0..3 {
                let has = mine.iter().any(|(e, _)| *e == endpoint);
                assert_eq!(routes.lane(endpoint, thread, 4).is_some(), has);
            }
            seen.extend(mine.into_iter().map(|(_, number)| number));
        }
        seen.sort_unstable();
        assert_eq!(seen, (0..12).collect::<Vec<_>>());
    }
}
