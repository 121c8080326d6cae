//! Serves a configuration in one process, without supervisor, until its standard input ends.
//!
//! For profilers, which lose sight of a server that was started by `exec`. Usage:
//! `in_process FILE`, then Ctrl-D. `scripts/phase_cost.sh` counts instructions with it. Where the
//! configuration has a recorder, each worker writes a ring that is read and thrown away.

use std::io::Read as _;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

use config::model::ListenAddress;
use ipc::recorder::{AlertFailures, RecorderNews};
use ipc::ring::{CURSOR_WORDS, RING_WORDS, RingKeys, RingReader};
use ipc::server::{Configure, ListenerSocket, ProcessLife, Tally, ToServer, ToSupervisor};

/// As often as the recorder looks.
const LOOK_EVERY: Duration = Duration::from_millis(50);

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let path = std::env::args().nth(1).ok_or("usage: in_process FILE")?;
    let (ours, theirs) = os::fdpass::pair()?;
    let model = model(Path::new(&path))?;
    let rings = if model.1.recorder.is_some() {
        model.1.workers
    } else {
        0
    };
    let first = configure(model)?;
    let server = std::thread::spawn(move || engine::serve(theirs, first));
    println!("{:?}", ToSupervisor::recv(ours.as_fd())?);
    if rings > 0 {
        ToServer::Recorder(record(rings)?).send(ours.as_fd())?;
    }
    std::io::stdin().read_to_end(&mut Vec::new())?;
    ToServer::Drain.send(ours.as_fd())?;
    server.join().map_err(|_| "the server panicked")??;
    Ok(())
}

/// Rings for so many workers, which are read on another thread.
fn record(workers: usize) -> Result<RecorderNews, Failure> {
    let mut news = RecorderNews {
        life: ProcessLife::default(),
        alerts: AlertFailures::default(),
        rings: Vec::new(),
        console: None,
    };
    for _ in 0..workers {
        let (ring, read_ring) = os::shared::memory("ring", RING_WORDS)?;
        let (write_cursor, cursor) = os::shared::memory("cursor", CURSOR_WORDS)?;
        let mut reader = RingReader::new(read_ring.as_fd(), write_cursor.as_fd())?;
        reader.tell_anew(&RingKeys {
            names: [1, 2],
            salt: [3, 4],
        });
        news.rings.extend([ring, cursor]);
        std::thread::spawn(move || {
            loop {
                reader.read(|_| (), |_| ());
                std::thread::sleep(LOOK_EVERY);
            }
        });
    }
    Ok(news)
}

fn model(path: &Path) -> Result<(config::Sources, config::model::Model), Failure> {
    let sources = config::Sources::read(path).map_err(|error| error.to_string())?;
    let model = config::load(&sources).map_err(|error| error.to_string())?;
    Ok((sources, model))
}

fn configure(
    (sources, model): (config::Sources, config::model::Model),
) -> Result<Configure, Failure> {
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
