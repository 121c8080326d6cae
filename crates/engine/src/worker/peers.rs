//! What workers tell each other, and are told.
//!
//! A queue takes so many commands and no more. A connection that is handed over counts as its new
//! worker's at once, so that nobody takes more of them than there may be.

use std::sync::Arc;

use tokio::sync::mpsc;

use super::commands::Command;
use crate::listener::arrival::Arrival;
use crate::load_table::LoadTable;

/// The workers' command queues, through which connections and commands come in.
#[derive(Debug, Clone)]
pub struct Peers {
    queues: Arc<[mpsc::Sender<Command>]>,
    loads: Arc<LoadTable>,
}

impl Peers {
    /// Makes them of the queues, and the load table on which they count what is handed over.
    pub(super) fn new(queues: Vec<mpsc::Sender<Command>>, loads: Arc<LoadTable>) -> Self {
        let queues = queues.into();
        Self { queues, loads }
    }

    /// Hands a connection to a worker, whose it is from now on ([`crate::listener::start_handed`]);
    /// comes back when its queue is full or closed.
    ///
    /// # Errors
    /// The arrival itself.
    pub fn hand(&self, worker: usize, arrival: Arrival) -> std::result::Result<(), Arrival> {
        let Some(queue) = self.queues.get(worker) else {
            return Err(arrival);
        };
        self.loads.connected(worker);
        queue
            .try_send(Command::Connection(arrival))
            .map_err(|refused| {
                self.loads.disconnected(worker);
                match refused.into_inner() {
                    Command::Connection(arrival) => arrival,
                    _ => unreachable!("a connection was sent"),
                }
            })
    }

    /// Tells a worker something; `false` when it has ended.
    pub fn tell(&self, worker: usize, command: Command) -> bool {
        self.queues
            .get(worker)
            .is_some_and(|queue| queue.blocking_send(command).is_ok())
    }

    /// As [`Self::tell`], for a worker: it never waits. What does not get through is lost.
    pub fn try_tell(&self, worker: usize, command: Command) {
        if let Some(queue) = self.queues.get(worker) {
            // Nothing depends on it.
            let _ = queue.try_send(command);
        }
    }
}
