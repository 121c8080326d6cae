//! Ten thousand sites: how long the configuration takes to check and to reload, and its memory.

use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::bed::{Bed, Log};
use super::http;
use super::options::Options;
use super::peer::{Peer, Running, Server};
use super::peer_config::{self, Plan};
use super::progress;
use super::usage;
use crate::error::Error;

const SITES: usize = 10_000;
/// Longest wait for a reload.
const RELOAD_WAIT: Duration = Duration::from_secs(60);

/// What ten thousand sites cost a server.
#[derive(Debug)]
pub(crate) struct Sites {
    pub(crate) name: &'static str,
    pub(crate) check: Duration,
    /// From the signal to the first reply of the new configuration.
    pub(crate) reload: Duration,
    pub(crate) bytes_each: f64,
}

/// Between two looks at memory that is settling.
const LOOK: Duration = Duration::from_millis(500);
/// Looks at most.
const LOOKS_MAX: usize = 10;

/// Measures the gateway and nginx; the others have no such sites here.
pub(crate) fn run(bed: &Bed, peers: &[Peer], _options: &Options) -> Result<Vec<Sites>, Error> {
    let able = peers
        .iter()
        .filter(|peer| matches!(peer.server, Server::Nagaya | Server::Nginx));
    let measured = able.map(|peer| measure(bed, peer)).collect();
    progress::clear();
    measured
}

fn measure(bed: &Bed, peer: &Peer) -> Result<Sites, Error> {
    let name = peer.server.name();
    progress::show(&format!("{SITES} sites · {name}"));
    let few = peer.start(
        bed,
        &Plan {
            label: "few-sites",
            ..Plan::default()
        },
    )?;
    let bytes_few = settled_bytes(few.process.pid());
    drop(few);
    let plan = Plan {
        label: "many-sites",
        sites: SITES,
        log: Log::Off,
        ..Plan::default()
    };
    let many = peer.start(bed, &plan)?;
    let bytes_many = settled_bytes(many.process.pid());
    let check = check(peer, &many)?;
    let reload = reload(bed, peer, &plan, &many)?;
    let bytes_each = bytes_many.saturating_sub(bytes_few) as f64 / SITES as f64;
    Ok(Sites {
        name,
        check,
        reload,
        bytes_each,
    })
}

/// Resident bytes once they stand still: right after the start, memory is still being given back.
fn settled_bytes(root: u32) -> u64 {
    let mut bytes = usage::resident_bytes(root);
    for _ in 0..LOOKS_MAX {
        std::thread::sleep(LOOK);
        let before = std::mem::replace(&mut bytes, usage::resident_bytes(root));
        if before == bytes {
            break;
        }
    }
    bytes
}

fn check(peer: &Peer, running: &Running) -> Result<Duration, Error> {
    let mut command = Command::new(&peer.binary);
    match peer.server {
        Server::Nagaya => command
            .args(["check", "-c"])
            .arg(running.home.join("nagaya.toml")),
        _ => command
            .args(["-t", "-q", "-e", "stderr", "-c"])
            .arg(running.home.join("nginx.conf"))
            .arg("-p")
            .arg(&running.home),
    };
    let start = Instant::now();
    let output = command
        .output()
        .map_err(|e| Error::new(format!("check with {}", running.name), e))?;
    let took = start.elapsed();
    if !output.status.success() {
        return Err(Error::new(
            format!("check with {}", running.name),
            String::from_utf8_lossy(&output.stderr),
        ));
    }
    Ok(took)
}

fn reload(bed: &Bed, peer: &Peer, plan: &Plan<'_>, running: &Running) -> Result<Duration, Error> {
    let next = Plan {
        generation: plan.generation + 1,
        ..*plan
    };
    peer_config::write(peer, bed, &next, &running.home, running.port)?;
    let wanted = next.generation.to_string();
    let start = Instant::now();
    running.process.signal(Signal::HUP);
    while start.elapsed() < RELOAD_WAIT {
        progress::check()?;
        if matches!(http::get(running.port, "/generation"), Ok((200, body)) if body == wanted.as_bytes())
        {
            return Ok(start.elapsed());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Err(Error::new(
        format!("reload {}", running.name),
        "the new configuration never answered",
    ))
}
