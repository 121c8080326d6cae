//! Accepting: a bounded number a turn, each connection to the worker that should have it.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::io::unix::AsyncFd;

use super::arrival::{Arrival, Listener};
use super::connection;
use crate::exchange::request::Peer;
use crate::worker::Worker;

/// Connections taken before others get their turn.
const TURN_MAX: usize = 64;
/// Rest after the process ran out of descriptors or connections.
const REST: Duration = Duration::from_millis(50);
/// How often the log hears of that from one listener.
const SAY_EVERY: Duration = Duration::from_secs(60);
/// How long a removed listener goes on accepting, so that whoever was about to connect still can.
/// One that closes for the server's end doesn't: whoever comes now is to go elsewhere at once.
const FAREWELL: Duration = Duration::from_millis(500);

/// Accepts until the listener is removed.
///
/// # Errors
/// When its socket fails.
pub(crate) async fn run(
    listener: Arc<Listener>,
    worker: Rc<Worker>,
    socket: AsyncFd<OwnedFd>,
) -> io::Result<()> {
    let (mut lack, mut said) = (None, None);
    while !listener.is_removed() {
        tokio::select! {
            biased;
            () = listener.wake.notified() => {}
            ready = socket.readable() => {
                let mut ready = ready?;
                let turn = take_turn(&worker, &listener, socket.get_ref().as_fd(), lack);
                lack = None;
                match turn {
                    AcceptTurn::Empty => ready.clear_ready(),
                    AcceptTurn::More => tokio::task::yield_now().await,
                    AcceptTurn::Full(of) => {
                        lack = Some(of);
                        say(&worker, of, &mut said);
                        tokio::time::sleep(REST).await;
                    }
                }
            }
        }
    }
    worker.deadlines.wake_streams();
    if !worker.is_draining() {
        tokio::time::sleep(FAREWELL).await;
        // Another worker may have taken its listener out later, and have connections here.
        worker.deadlines.wake_streams();
    }
    while let AcceptTurn::More = take_turn(&worker, &listener, socket.get_ref().as_fd(), lack) {}
    Ok(())
}

enum AcceptTurn {
    Empty,
    More,
    Full(Lack),
}

/// Why nothing is accepted for a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lack {
    /// As many as there may be are here.
    Connections,
    /// The descriptors left are for those who are here.
    Descriptors,
    /// The kernel gives none, with this error.
    Accepting(i32),
}

/// `lack` is why the last turn ended: what was short then is looked at before anything is taken.
fn take_turn(
    worker: &Rc<Worker>,
    listener: &Arc<Listener>,
    socket: BorrowedFd<'_>,
    lack: Option<Lack>,
) -> AcceptTurn {
    let generation = Arc::clone(&worker.serving().generation);
    let full_at = generation.room.full_at;
    if lack == Some(Lack::Descriptors) && is_full(full_at) {
        return AcceptTurn::Full(Lack::Descriptors);
    }
    for _ in 0..TURN_MAX {
        if worker.loads.connections_total() >= generation.connections_max() {
            return AcceptTurn::Full(Lack::Connections);
        }
        match accept_one(socket, listener) {
            Ok(Some(arrival)) => {
                let number = arrival.number();
                place(worker, arrival);
                if number >= full_at {
                    return AcceptTurn::Full(Lack::Descriptors);
                }
            }
            Ok(None) => return AcceptTurn::Empty,
            Err(error) => {
                return AcceptTurn::Full(Lack::Accepting(error.raw_os_error().unwrap_or(0)));
            }
        }
    }
    AcceptTurn::More
}

/// Tells the log that accepting rests, now and then.
fn say(worker: &Worker, lack: Lack, said: &mut Option<Instant>) {
    if said.is_some_and(|said| said.elapsed() < SAY_EVERY) {
        return;
    }
    *said = Some(Instant::now());
    let serving = worker.serving();
    let (worker, connections) = (worker.index, worker.loads.connections_total());
    match lack {
        Lack::Connections => {
            let most = serving.generation.connections_max();
            tracing::warn!(
                worker,
                connections,
                "{most} connections are here, as many as there may be (caps.connections): further ones wait"
            );
        }
        Lack::Descriptors => tracing::warn!(
            worker,
            connections,
            "the descriptors that are left are for those who are here: further connections wait; raise the limit (LimitNOFILE, ulimit -Hn)"
        ),
        Lack::Accepting(error) => {
            let error = config::reason(&io::Error::from_raw_os_error(error));
            tracing::warn!(worker, error, "accept failed, resting");
        }
    }
}

fn place(worker: &Rc<Worker>, arrival: Arrival) {
    let target = worker.loads.place(worker.index);
    if target == worker.index {
        connection::start(worker, arrival);
    } else if let Err(arrival) = worker.peers.hand(target, arrival) {
        connection::start(worker, arrival);
    } else {
        crate::stats::bump(&worker.stats.handed_over, 1);
    }
}

/// Accepts up to `count_max` connections on behalf of a worker that can't, and none after one
/// whose descriptor is `full_at` or above: the others are for those who are here.
///
/// An error ends it; what came before is kept, and the worker will meet the error itself.
pub(crate) fn accept_some(
    socket: BorrowedFd<'_>,
    listener: &Arc<Listener>,
    count_max: usize,
    full_at: u64,
) -> Vec<Arrival> {
    let mut arrivals = Vec::new();
    let mut is_full = false;
    while arrivals.len() < count_max
        && !is_full
        && let Ok(Some(arrival)) = accept_one(socket, listener)
    {
        is_full = arrival.number() >= full_at;
        arrivals.push(arrival);
    }
    arrivals
}

/// Whether the descriptors that are left are for those who are here.
pub(crate) fn is_full(full_at: u64) -> bool {
    os::process::next_descriptor().map_or(true, |next| next >= full_at)
}

impl Arrival {
    /// The number of its descriptor: as many are open at least, for the kernel gives the lowest
    /// that is free.
    fn number(&self) -> u64 {
        u64::from(self.stream.as_raw_fd().unsigned_abs())
    }
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
