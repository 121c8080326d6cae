//! What workers tell each other, and are told.
//!
//! A door takes so many commands and no more. A connection that is handed over counts as its new
//! worker's at once, so that nobody takes more of them than there may be.

use std::sync::Arc;

use tokio::sync::mpsc;

use super::commands::Command;
use crate::board::Board;
use crate::listener::arrival::Arrival;

/// The workers' doors, through which connections and commands come in.
#[derive(Debug, Clone)]
pub struct Peers {
    doors: Arc<[mpsc::Sender<Command>]>,
    board: Arc<Board>,
}

impl Peers {
    /// Makes them of the doors, and the board on which they count what is handed over.
    pub(super) fn new(doors: Vec<mpsc::Sender<Command>>, board: Arc<Board>) -> Self {
        let doors = doors.into();
        Self { doors, board }
    }

    /// Hands a connection to a worker, whose it is from now on ([`crate::listener::start_handed`]);
    /// comes back when its door is full or closed.
    ///
    /// # Errors
    /// The arrival itself.
    pub fn hand(&self, worker: usize, arrival: Arrival) -> std::result::Result<(), Arrival> {
        let Some(door) = self.doors.get(worker) else {
            return Err(arrival);
        };
        self.board.connected(worker);
        door.try_send(Command::Connection(arrival))
            .map_err(|refused| {
                self.board.disconnected(worker);
                match refused.into_inner() {
                    Command::Connection(arrival) => arrival,
                    _ => unreachable!("a connection was sent"),
                }
            })
    }

    /// Tells a worker something; `false` when it has ended.
    pub fn tell(&self, worker: usize, command: Command) -> bool {
        self.doors
            .get(worker)
            .is_some_and(|door| door.blocking_send(command).is_ok())
    }

    /// As [`Self::tell`], for a worker: it never waits. What does not get through is lost.
    pub fn try_tell(&self, worker: usize, command: Command) {
        if let Some(door) = self.doors.get(worker) {
            // Nothing depends on it.
            let _ = door.try_send(command);
        }
    }
}
