//! What an idle keep-alive connection costs in memory.

use std::time::Duration;

use super::bed::Bed;
use super::http::{self, Connection};
use super::options::Options;
use super::peer::Peer;
use super::peer_config::Plan;
use super::progress;
use super::usage;
use super::work::Kind;
use crate::error::Error;

/// Connections held open.
const CONNECTIONS: usize = 10_000;
/// Descriptors the harness needs besides.
const SPARE_DESCRIPTORS: u64 = 200;
/// Rest before memory is read, so that what frees buffers later has done so.
const REST: Duration = Duration::from_secs(2);

/// A server's memory.
#[derive(Debug)]
pub(crate) struct Idle {
    pub(crate) name: &'static str,
    pub(crate) connections: usize,
    pub(crate) bytes_each: f64,
    pub(crate) bytes_alone: u64,
}

/// Holds connections open that have each made one request, and reads the memory they cost.
pub(crate) fn run(bed: &Bed, peers: &[Peer], _options: &Options) -> Result<Vec<Idle>, Error> {
    let room = rustix::process::getrlimit(rustix::process::Resource::Nofile)
        .current
        .unwrap_or(u64::MAX);
    let connections = CONNECTIONS.min(room.saturating_sub(SPARE_DESCRIPTORS) as usize);
    let measured = peers
        .iter()
        .map(|peer| measure(bed, peer, connections))
        .collect();
    progress::clear();
    measured
}

fn measure(bed: &Bed, peer: &Peer, connections: usize) -> Result<Idle, Error> {
    let running = peer.start(
        bed,
        &Plan {
            label: "idle",
            ..Plan::default()
        },
    )?;
    let path = if peer.server.can(Kind::Respond) {
        "/respond"
    } else {
        "/static/14.txt"
    };
    progress::show(&format!(
        "{connections} idle connections · {}",
        running.name
    ));
    // A first request makes what is made once.
    http::get(running.port, path).map_err(|e| Error::new(format!("ask {}", running.name), e))?;
    let before = usage::resident_bytes(running.process.pid());
    let mut held = Vec::with_capacity(connections);
    for count in 0..connections {
        if count % 500 == 0 {
            progress::check()?;
        }
        let exchange = Connection::open(running.port)
            .and_then(|mut connection| connection.get(path).map(|_| connection));
        held.push(
            exchange.map_err(|e| {
                Error::new(format!("hold connection {count} to {}", running.name), e)
            })?,
        );
    }
    std::thread::sleep(REST);
    let after = usage::resident_bytes(running.process.pid());
    let bytes_each = after.saturating_sub(before) as f64 / connections as f64;
    Ok(Idle {
        name: running.name,
        connections: held.len(),
        bytes_each,
        bytes_alone: before,
    })
}
