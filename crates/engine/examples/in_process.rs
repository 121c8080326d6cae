//! Serves a configuration in one process, without supervisor, until its standard input ends.
//!
//! For profilers, which lose sight of a server that was started by `exec`. Usage:
//! `in_process FILE`, then Ctrl-D. `scripts/phase_cost.sh` counts instructions with it.

use std::io::Read as _;
use std::os::fd::AsFd;
use std::path::Path;

use config::model::ListenAddress;
use ipc::server::{Configure, ListenerSocket, Tally, ToServer, ToSupervisor};

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let path = std::env::args().nth(1).ok_or("usage: in_process FILE")?;
    let (ours, theirs) = os::fdpass::pair()?;
    let first = configure(Path::new(&path))?;
    let server = std::thread::spawn(move || engine::serve(theirs, first));
    println!("{:?}", ToSupervisor::recv(ours.as_fd())?);
    std::io::stdin().read_to_end(&mut Vec::new())?;
    ToServer::Drain.send(ours.as_fd())?;
    server.join().map_err(|_| "the server panicked")??;
    Ok(())
}

fn configure(path: &Path) -> Result<Configure, Failure> {
    let sources = config::Sources::read(path).map_err(|error| error.to_string())?;
    let model = config::load(&sources).map_err(|error| error.to_string())?;
    let mut listeners = Vec::new();
    for listener in &model.listeners {
        let bind = match &listener.address {
            ListenAddress::Tcp(address) => os::net::Bind::Tcp(*address),
            ListenAddress::Unix(path) => os::net::Bind::Unix(path.clone()),
        };
        for worker in 0..model.workers {
            listeners.push(ListenerSocket {
                address: listener.address.clone(),
                worker: Some(worker),
                socket: os::net::bind(&bind, listener.backlog)?,
            });
        }
    }
    Ok(Configure {
        generation: 1,
        sources: os::file::memfd("sources", &sources.to_bytes())?,
        listeners,
        logs: Vec::new(),
        control: None,
        programs: Vec::new(),
        keeper: Vec::new(),
        certificates: None,
        earlier: None,
        challenges: Vec::new(),
        layout: Default::default(),
        tally: Tally::default(),
    })
}
