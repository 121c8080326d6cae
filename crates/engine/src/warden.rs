//! Watches the workers from outside their loops.
//!
//! A worker in a long turn can't accept. The warden accepts for it and hands the connections to
//! a worker that is free, so that one slow request doesn't hold up new clients. A worker that
//! shows no life for [`SILENCE_MAX_US`] is beyond help: the server ends with a report, and the
//! supervisor starts a fresh one on the same sockets.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use config::model::ListenAddress;

use crate::listener::accept::{accept_some, is_full};
use crate::worker::commands::Opened;
use crate::worker::shared::Shared;
use ipc::server::{LinkSender, ToSupervisor};

/// How often the warden looks while a worker is in a turn.
const LOOK: Duration = Duration::from_millis(3);
/// How often it looks while all are parked: an idle server should be idle.
const LOOK_IDLE: Duration = Duration::from_millis(15);
/// How often it looks at a worker that has nobody to help it, only to see whether it lives.
const LOOK_ALONE: Duration = Duration::from_millis(250);
/// Longest silence of a worker.
const SILENCE_MAX_US: u64 = 10_000_000;
/// A longer time between two looks means that the warden itself stood still.
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// Connections rescued from one listener in one look.
const RESCUED_MAX: usize = 64;

/// What the warden watches.
#[derive(Debug)]
pub(crate) struct Watched {
    shared: Shared,
    /// Held while listeners change and while stuck workers' listeners are looked at.
    listeners: Mutex<Vec<WatchedListener>>,
}

#[derive(Debug)]
struct WatchedListener {
    worker: usize,
    opened: Opened<OwnedFd>,
}

impl Watched {
    /// Makes a watch over these workers.
    pub(crate) fn new(shared: Shared) -> Self {
        Self {
            shared,
            listeners: Mutex::default(),
        }
    }

    /// Watches a listener too.
    pub(crate) fn add(&self, worker: usize, opened: Opened<OwnedFd>) {
        self.lock().push(WatchedListener { worker, opened });
    }

    /// Forgets listeners whose address is not among `kept`.
    pub(crate) fn retain(&self, kept: &Arc<[ListenAddress]>) {
        self.lock()
            .retain(|listener| kept.contains(&listener.opened.address));
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<WatchedListener>> {
        self.listeners
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn rescue(&self) {
        let loads = &self.shared.loads;
        for listener in self
            .lock()
            .iter()
            .filter(|listener| loads.is_stuck(listener.worker))
        {
            let Some(rescuer) = loads.rescuer(listener.worker) else {
                continue;
            };
            let opened = &listener.opened;
            let (room, full_at) = self.room();
            let room = room.min(RESCUED_MAX);
            if room == 0 || is_full(full_at) {
                return;
            }
            let (socket, listener) = (opened.socket.as_fd(), &opened.listener);
            for arrival in accept_some(socket, listener, room, full_at) {
                // A full queue closes the connection; its client sees that at once.
                let _ = self.shared.peers.hand(rescuer, arrival);
            }
        }
    }

    /// Connections the process may still take, and the descriptor from which on it takes none.
    fn room(&self) -> (usize, u64) {
        let Some(generation) = self.shared.generation() else {
            return (0, 0);
        };
        let connections_max = generation.connections_max();
        let left = connections_max.saturating_sub(self.shared.loads.connections_total());
        (left, generation.room.full_at)
    }

    /// How long the warden may look away.
    fn rest(&self) -> Duration {
        match self.shared.loads.is_idle() {
            _ if self.shared.stats.len() < 2 => LOOK_ALONE,
            true => LOOK_IDLE,
            false => LOOK,
        }
    }

    fn silent_worker(&self) -> Option<usize> {
        let loads = &self.shared.loads;
        (0..self.shared.stats.len()).find(|worker| {
            loads
                .silence_us(*worker)
                .is_some_and(|silence_us| silence_us > SILENCE_MAX_US)
        })
    }
}

/// Watches until the process ends.
pub(crate) fn run(watched: &Watched, sender: &LinkSender) {
    let mut attention = Attention::begin(Instant::now());
    loop {
        std::thread::sleep(watched.rest());
        watched.rescue();
        if attention.can_judge(Instant::now())
            && let Some(worker) = watched.silent_worker()
        {
            let request = watched.shared.loads.last_request(worker);
            let report = format!(
                "worker {worker} stood still for 10 s; the last request it began was {request:016x}"
            );
            // The supervisor may be gone as well; this process ends either way.
            let _ = sender.send(&ToSupervisor::Stuck { report });
            std::process::abort();
        }
    }
}

/// Since when the warden has looked without a pause. A process that is stopped, frozen or
/// suspended shows no life either, and is well when it goes on.
#[derive(Debug)]
struct Attention {
    since: Instant,
    looked: Instant,
}

impl Attention {
    fn begin(now: Instant) -> Self {
        Self {
            since: now,
            looked: now,
        }
    }

    /// Notes a look; whether a worker's silence means anything by now.
    fn can_judge(&mut self, now: Instant) -> bool {
        if now.duration_since(self.looked) > PAUSE_MAX {
            self.since = now;
        }
        self.looked = now;
        now.duration_since(self.since) > Duration::from_micros(SILENCE_MAX_US)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_was_frozen_is_not_taken_for_a_stuck_one() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let mut attention = Attention::begin(begin);
        let looks: Vec<_> = (1..=11).map(|now| attention.can_judge(at(now))).collect();
        assert_eq!(looks.iter().filter(|judges| **judges).count(), 1);
        assert!(!attention.can_judge(at(60)), "it was frozen itself");
        assert!((61..=70).all(|now| !attention.can_judge(at(now))));
        assert!(attention.can_judge(at(71)));
    }
}
