//! What a second worker costs, and how evenly two workers share connections.

use std::collections::BTreeSet;

use super::bed::{Bed, SERVER_CORE};
use super::http::Connection;
use super::options::Options;
use super::peer::{Peer, Running};
use super::peer_config::Plan;
use super::progress;
use super::stats::{self, Summary};
use super::usage::{self, CpuTime};
use super::work::Kind;
use super::wrk;
use crate::error::Error;

/// Connections whose spread is looked at.
const SPREAD_CONNECTIONS: usize = 200;

/// A server with two workers.
#[derive(Debug)]
pub(crate) struct Workers {
    pub(crate) name: &'static str,
    /// CPU per request of two workers over one's, round by round.
    pub(crate) cost: Summary,
    /// Share of the worker that holds most connections.
    pub(crate) largest_share: f64,
}

/// Measures every server with one worker and with two, slices in turn, on the same cores.
pub(crate) fn run(bed: &Bed, peers: &[Peer], options: &Options) -> Result<Vec<Workers>, Error> {
    let measured = peers
        .iter()
        .map(|peer| measure(bed, peer, options))
        .collect();
    progress::clear();
    measured
}

fn measure(bed: &Bed, peer: &Peer, options: &Options) -> Result<Workers, Error> {
    let path = if peer.server.can(Kind::Respond) {
        "/respond"
    } else {
        "/static/14.txt"
    };
    let name = peer.server.name();
    let cost = cost(bed, peer, path, options)?;
    progress::show(&format!(
        "spread of {SPREAD_CONNECTIONS} connections · {name}"
    ));
    let spread = Plan {
        label: "spread",
        cores: "0,1",
        workers: 2,
        ..Plan::default()
    };
    let largest_share = largest_share(&peer.start(bed, &spread)?, path)?;
    Ok(Workers {
        name,
        cost,
        largest_share,
    })
}

/// CPU per request of two workers over one's, both servers on the same cores.
fn cost(bed: &Bed, peer: &Peer, path: &str, options: &Options) -> Result<Summary, Error> {
    let start = |label, workers| {
        let plan = Plan {
            label,
            cores: cost_cores(),
            workers,
            ..Plan::default()
        };
        peer.start(bed, &plan)
    };
    let (one, two) = (start("one", 1)?, start("two", 2)?);
    let mut costs = [Vec::new(), Vec::new()];
    for round in 0..options.rounds {
        progress::show(&format!(
            "two workers · round {}/{} · {}",
            round + 1,
            options.rounds,
            one.name
        ));
        for (server, costs) in [&one, &two].into_iter().zip(&mut costs) {
            // The same load for both: more connections would cost more by their memory alone.
            let connections = 2 * options.connections;
            costs.push(cost_per_request(
                server,
                path,
                connections,
                options.seconds,
            )?);
        }
    }
    let [one_costs, two_costs] = costs;
    stats::ratios(&two_costs, &one_costs)
        .ok_or_else(|| Error::new("compare workers", "no round was run"))
}

/// A core for each worker, where there is one besides the generator's. Beside the generator the
/// second worker would pay for its neighbour, so on two cores both workers share the first.
fn cost_cores() -> &'static str {
    match std::thread::available_parallelism() {
        Ok(cores) if cores.get() > 2 => "0,2",
        _ => SERVER_CORE,
    }
}

fn cost_per_request(
    server: &Running,
    path: &str,
    connections: usize,
    seconds: u64,
) -> Result<f64, Error> {
    let before = CpuTime::read(server.process.pid());
    let load = wrk::load(server.port, path, connections, seconds)?;
    Ok(CpuTime::read(server.process.pid()).seconds_since(&before) / load.requests)
}

/// Each worker waits for its connections with an epoll instance of its own, and the kernel tells
/// what every instance watches. This holds for any server, whatever it says about itself.
fn largest_share(server: &Running, path: &str) -> Result<f64, Error> {
    let doing = |e| Error::new(format!("spread connections over {}", server.name), e);
    let before: BTreeSet<(u32, u32)> = usage::watched(server.process.pid())
        .into_iter()
        .flat_map(|(pid, targets)| targets.into_iter().map(move |target| (pid, target)))
        .collect();
    let mut held: Vec<Connection> = (0..SPREAD_CONNECTIONS)
        .map(|_| Connection::open(server.port))
        .collect::<Result<_, _>>()
        .map_err(doing)?;
    for connection in &mut held {
        connection.get(path).map_err(doing)?;
    }
    let gained: Vec<usize> = usage::watched(server.process.pid())
        .into_iter()
        .map(|(pid, mut targets)| {
            targets.retain(|target| !before.contains(&(pid, *target)));
            targets.len()
        })
        .collect();
    let total: usize = gained.iter().sum();
    let most = gained.into_iter().max().unwrap_or(0);
    Ok(most as f64 / total.max(1) as f64)
}
