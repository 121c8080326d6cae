//! Watches the workers from outside their loops.
//!
//! A worker in a long turn can't accept. The warden accepts for it and hands the connections to
//! a worker that is free, so that one slow request doesn't hold up new clients. A worker that
//! shows no life for [`SILENCE_MAX_US`] is beyond help: the server ends with a report, and the
//! supervisor starts a fresh one on the same sockets.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use config::model::ListenAddress;

use crate::error::{Error, Kind, Result};
use crate::link::{ToSupervisor, Voice};
use crate::listener::accept_some;
use crate::worker::Shared;

/// How often the warden looks.
const LOOK: Duration = Duration::from_millis(3);
/// Longest silence of a worker.
const SILENCE_MAX_US: u64 = 10_000_000;
/// Connections rescued from one listener in one look.
const RESCUED_MAX: usize = 64;

/// What the warden watches.
#[derive(Debug)]
pub struct Watched {
    shared: Shared,
    /// Held while listeners change and while stuck workers' listeners are looked at.
    listeners: Mutex<Vec<WatchedListener>>,
}

#[derive(Debug)]
struct WatchedListener {
    worker: usize,
    address: ListenAddress,
    socket: OwnedFd,
}

impl Watched {
    /// Makes a watch over these workers.
    pub fn new(shared: Shared) -> Self {
        Self {
            shared,
            listeners: Mutex::default(),
        }
    }

    /// Watches a listener too.
    ///
    /// # Errors
    /// When the descriptor can't be duplicated.
    pub fn add(&self, worker: usize, address: &ListenAddress, socket: &OwnedFd) -> Result<()> {
        let socket = socket
            .try_clone()
            .map_err(|error| Error::new(Kind::Internal, "listener", error.to_string()))?;
        self.lock().push(WatchedListener {
            worker,
            address: address.clone(),
            socket,
        });
        Ok(())
    }

    /// Forgets listeners whose address is not among `kept`.
    pub fn retain(&self, kept: &Arc<[ListenAddress]>) {
        self.lock()
            .retain(|listener| kept.contains(&listener.address));
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<WatchedListener>> {
        self.listeners
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn rescue(&self) {
        let board = &self.shared.board;
        for listener in self
            .lock()
            .iter()
            .filter(|listener| board.is_stuck(listener.worker))
        {
            let Some(rescuer) = board.rescuer(listener.worker) else {
                continue;
            };
            for arrival in accept_some(listener.socket.as_fd(), RESCUED_MAX).unwrap_or_default() {
                // A full door closes the connection; its client sees that at once.
                let _ = self.shared.peers.hand(rescuer, arrival);
            }
        }
    }

    fn silent_worker(&self) -> Option<usize> {
        let board = &self.shared.board;
        (0..self.shared.stats.len()).find(|worker| {
            board
                .silence_us(*worker)
                .is_some_and(|silence_us| silence_us > SILENCE_MAX_US)
        })
    }
}

/// Watches until the process ends.
pub fn run(watched: &Watched, voice: &Voice) {
    loop {
        std::thread::sleep(LOOK);
        watched.rescue();
        if let Some(worker) = watched.silent_worker() {
            let request = watched.shared.board.last_request(worker);
            let report = format!(
                "worker {worker} stood still for 10 s; the last request it began was number {request:016x}"
            );
            // The supervisor may be gone as well; this process ends either way.
            let _ = voice.say(&ToSupervisor::Stuck { report });
            std::process::abort();
        }
    }
}
