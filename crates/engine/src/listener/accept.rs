//! Accepting: a bounded number a turn, each connection to the worker that should have it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use tokio::io::Interest;

use super::connection::{self, Arrival};
use crate::exchange::Peer;
use crate::io::register;
use crate::worker::Worker;

/// Connections taken before others get their turn.
const TURN_MAX: usize = 64;
/// Rest after the process ran out of descriptors or connections.
const REST: Duration = Duration::from_millis(50);
/// How long a removed listener goes on accepting, so that whoever was about to connect still can.
/// One that closes for the server's end doesn't: whoever comes now is to go elsewhere at once.
const FAREWELL: Duration = Duration::from_millis(500);

/// A worker's listener, as everybody sees it who has a connection from there: the worker itself,
/// those it hands connections to, and the warden, which accepts for it.
#[derive(Debug, Default)]
pub struct Listener {
    removed: AtomicBool,
    wake: tokio::sync::Notify,
}

impl Listener {
    /// Whether the listener is gone from the configuration: its connections end with their reply.
    pub fn is_removed(&self) -> bool {
        self.removed.load(Relaxed)
    }

    /// Takes the listener out: it is accepted empty, then closed.
    pub fn remove(&self) {
        self.removed.store(true, Relaxed);
        self.wake.notify_one();
    }

    /// Accepts until removed.
    pub async fn run(self: Arc<Self>, worker: Rc<Worker>, socket: OwnedFd) -> io::Result<()> {
        let socket = register(socket, Interest::READABLE)?;
        while !self.is_removed() {
            tokio::select! {
                biased;
                () = self.wake.notified() => {}
                ready = socket.readable() => {
                    let mut ready = ready?;
                    match take_turn(&worker, &self, socket.get_ref().as_fd()) {
                        Turn::Empty => ready.clear_ready(),
                        Turn::More => tokio::task::yield_now().await,
                        Turn::Full => tokio::time::sleep(REST).await,
                    }
                }
            }
        }
        if !worker.is_draining() {
            tokio::time::sleep(FAREWELL).await;
        }
        while let Turn::More = take_turn(&worker, &self, socket.get_ref().as_fd()) {}
        Ok(())
    }
}

enum Turn {
    Empty,
    More,
    Full,
}

fn take_turn(worker: &Rc<Worker>, listener: &Arc<Listener>, socket: BorrowedFd<'_>) -> Turn {
    let connections_max = worker.serving().generation.process.caps.connections;
    for _ in 0..TURN_MAX {
        if worker.board.connections_total() >= connections_max {
            return Turn::Full;
        }
        match accept_one(socket, listener) {
            Ok(Some(arrival)) => place(worker, arrival),
            Ok(None) => return Turn::Empty,
            Err(error) => {
                let error = config::reason(&error);
                tracing::warn!(error, "accept failed, resting");
                return Turn::Full;
            }
        }
    }
    Turn::More
}

fn place(worker: &Rc<Worker>, arrival: Arrival) {
    let target = worker.board.place(worker.index);
    if target == worker.index {
        connection::start(worker, arrival);
    } else if let Err(arrival) = worker.peers.hand(target, arrival) {
        connection::start(worker, arrival);
    } else {
        crate::stats::bump(&worker.stats.handed_over, 1);
    }
}

/// Accepts up to `count_max` connections on behalf of a worker that can't.
///
/// An error ends it; what came before is kept, and the worker will meet the error itself.
pub fn accept_some(
    socket: BorrowedFd<'_>,
    listener: &Arc<Listener>,
    count_max: usize,
) -> Vec<Arrival> {
    let mut arrivals = Vec::new();
    while arrivals.len() < count_max
        && let Ok(Some(arrival)) = accept_one(socket, listener)
    {
        arrivals.push(arrival);
    }
    arrivals
}

fn accept_one(socket: BorrowedFd<'_>, listener: &Arc<Listener>) -> io::Result<Option<Arrival>> {
    loop {
        match os::net::accept(socket) {
            Ok((stream, os::net::Peer::Unix)) => {
                return Ok(Some(Arrival {
                    stream,
                    peer: Peer::LOCAL,
                    listener: Arc::clone(listener),
                }));
            }
            Ok((stream, os::net::Peer::Tcp(address))) => {
                // Nagle's delay would cost; a socket without the option still works.
                let _ = os::net::set_nodelay(stream.as_fd());
                let local = os::net::local_address(stream.as_fd()).ok();
                return Ok(Some(Arrival {
                    stream,
                    peer: Peer {
                        address,
                        local_ip: local.map_or(Peer::LOCAL.local_ip, |local| local.ip()),
                        local_port: local.map_or(0, |local| local.port()),
                    },
                    listener: Arc::clone(listener),
                }));
            }
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock => return Ok(None),
                io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset => {}
                _ => return Err(error),
            },
        }
    }
}
