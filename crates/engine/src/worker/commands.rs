//! What a worker can be told, by the server and by the other workers.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use config::model::ListenAddress;
use ipc::ring::RingWriter;
use tokio::io::unix::AsyncFd;

use crate::error::Result;
use crate::generation::Generation;
use crate::listener::arrival::{Arrival, Listener};

/// What a worker can be told.
#[derive(Debug)]
pub enum Command {
    /// Serve a connection another worker accepted.
    Connection(Arrival),
    /// Open what the scripts of a generation need, and say how that went.
    Prepare(Box<Prepare>),
    /// The generation of this number will not come.
    Discard(u64),
    /// Serve this generation from now on, accepting from these sockets besides those it has.
    Swap(Box<Swap>),
    /// Have programs run by the spawner at the other end from now on.
    Programs(OwnedFd),
    /// Tell the recorder of requests by this ring from now on.
    Record(Box<RingWriter>),
    /// Close idle connections to this server: somebody waits for one of its processes.
    Release(Arc<str>),
    /// Finish what is under way, then end.
    Drain,
    /// Do nothing else for `busy` out of every `busy` and `rest`: a stand-in for work that holds
    /// a worker up.
    #[cfg(test)]
    Spin {
        /// At a stretch.
        busy: Duration,
        /// Between.
        rest: Duration,
    },
}

/// A generation that is to come into force.
#[derive(Debug)]
pub struct Prepare {
    /// The generation.
    pub generation: Arc<Generation>,
    /// Where the worker says how that went.
    pub done: std::sync::mpsc::Sender<Result<()>>,
}

/// A listener a worker is to accept from; by its socket, whether its runtime watches it.
#[derive(Debug)]
pub struct Opened<S> {
    /// Its address as configured.
    pub address: ListenAddress,
    /// What its connections are to know of it.
    pub listener: Arc<Listener>,
    /// Its socket.
    pub socket: S,
}

/// A change of generation for one worker.
#[derive(Debug)]
pub struct Swap {
    /// The generation.
    pub generation: Arc<Generation>,
    /// New listeners.
    pub added: Vec<Opened<AsyncFd<OwnedFd>>>,
    /// Every address that is to be listened on; others are given up.
    pub kept: Arc<[ListenAddress]>,
    /// When the workers were told.
    pub told: Instant,
    /// Where the worker says its number when it has done it.
    pub done: std::sync::mpsc::Sender<usize>,
}

impl Swap {
    /// How long a worker may take to swap before the log says that it is late. In the end its
    /// turn ends or the warden ends the server; both leave one generation in force.
    pub const PATIENCE: Duration = Duration::from_millis(if cfg!(test) { 300 } else { 5_000 });
}
