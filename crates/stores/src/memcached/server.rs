//! One memcached server as a worker sees it: the commands that wait, and the connections that take
//! them.
//!
//! Connections belong to the address: memcached knows no login and keeps nothing for a connection,
//! so every object of a script that names the server uses the same ones. A command wakes the first
//! connection that has room, which takes whatever waits by then and sends it in one piece. Another
//! one is opened when those there are full, or one of them is at a long value.

use std::cell::{RefCell, RefMut};
use std::rc::Rc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::connection::{DEPTH_MAX, Load, MemcachedConnection, drive};
use super::question::MemcachedQuestion;
use super::queue::{MemcachedCommand, Queue};
use super::reply::MemcachedReply;
use crate::address::Address;
use crate::attempt::{Attempt, Target};
use crate::error::{Error, Kind};
use crate::limits::Limits;
use crate::resolver::Resolver;
use crate::table::Entry;

const SERVICE: &str = "memcached";
/// Servers known at once; beyond it, those no object names any more go first.
const SERVERS_MAX: usize = 256;

/// A server and the connections to it.
pub(crate) struct MemcachedServer {
    address: Address,
    limits: Limits,
    names: Rc<Resolver>,
    queue: RefCell<Queue>,
    connections: RefCell<Vec<Opened>>,
}

/// A connection and the task that serves it, which ends with this.
struct Opened {
    connection: Rc<MemcachedConnection>,
    task: AbortHandle,
}

impl Drop for Opened {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl MemcachedServer {
    pub(super) fn new(address: Address, limits: Limits, names: Rc<Resolver>) -> Self {
        Self {
            address,
            limits,
            names,
            queue: RefCell::default(),
            connections: RefCell::default(),
        }
    }

    /// Sends a command when there is room on a connection; the answer comes to the receiver.
    pub(super) fn submit(
        self: &Rc<Self>,
        question: MemcachedQuestion,
        bytes: Vec<u8>,
    ) -> Result<oneshot::Receiver<Result<MemcachedReply, Error>>, Error> {
        let (asker, answer) = oneshot::channel();
        let command = MemcachedCommand {
            question,
            bytes,
            deadline: Instant::now() + self.limits.command_timeout,
            asker,
        };
        let pushed = self.queue.borrow_mut().push(command);
        if pushed.is_err() {
            return Err(self.crowded());
        }
        self.nudge();
        Ok(answer)
    }

    fn crowded(&self) -> Error {
        let text = format!(
            "too many commands wait for memcached {}: is it slow, or too far away? \
             raise scripts.store_connections",
            self.address
        );
        Error::new(Kind::Waited, text)
    }

    /// Sees to it that somebody takes what waits.
    pub(super) fn nudge(self: &Rc<Self>) {
        let (short, long) = {
            let queue = self.queue.borrow();
            (queue.short(), queue.long())
        };
        if short > 0 && !self.wake(|load| matches!(load, Load::Idle | Load::Open)) {
            self.open_for(short.div_ceil(DEPTH_MAX));
        }
        if long > 0 && !self.wake(|load| load == Load::Idle) {
            self.open_for(long);
        }
    }

    /// Wakes the first connection in such a state; says whether there is one.
    fn wake(&self, suits: impl Fn(Load) -> bool) -> bool {
        let connections = self.connections.borrow();
        let found = connections
            .iter()
            .find(|opened| suits(opened.connection.load()));
        found.map(|opened| opened.connection.wake()).is_some()
    }

    /// Opens a connection, unless so many are being made already or none may be added.
    fn open_for(self: &Rc<Self>, wanted: usize) {
        let mut connections = self.connections.borrow_mut();
        let coming = connections
            .iter()
            .filter(|opened| opened.connection.load() == Load::Connecting);
        if coming.count() >= wanted || connections.len() >= self.limits.connections_max.max(1) {
            return;
        }
        let connection = Rc::new(MemcachedConnection::default());
        let task = tokio::task::spawn_local(drive(Rc::clone(self), Rc::clone(&connection)));
        let task = task.abort_handle();
        connections.push(Opened { connection, task });
    }

    /// Takes a connection away; whoever served it is at its end.
    pub(super) fn remove(&self, connection: &Rc<MemcachedConnection>) {
        let mut connections = self.connections.borrow_mut();
        let place = connections
            .iter()
            .position(|opened| Rc::ptr_eq(&opened.connection, connection));
        let removed = place.map(|place| connections.remove(place));
        drop(connections);
        drop(removed);
    }

    pub(super) fn queue(&self) -> RefMut<'_, Queue> {
        self.queue.borrow_mut()
    }

    pub(super) fn names(&self) -> &Resolver {
        &self.names
    }

    pub(super) fn limits(&self) -> Limits {
        self.limits
    }

    pub(super) fn attempt(&self) -> Attempt<'_> {
        let target = Target {
            service: SERVICE,
            address: &self.address,
        };
        Attempt::new(target, self.limits)
    }

    /// Answers those who have waited for too long.
    pub(super) fn expire(&self, now: Instant) {
        let overdue = self.queue.borrow_mut().overdue(now);
        if overdue.is_empty() {
            return;
        }
        let error = match self.is_connected() {
            true => self.attempt().unplaced(),
            false => self.attempt().unmade(),
        };
        refuse(overdue, &error);
    }

    /// Answers all who wait that no connection can be made, unless there is another that works.
    pub(super) fn give_up(&self, error: &Error) {
        if !self.is_connected() {
            let commands = self.queue.borrow_mut().drain();
            refuse(commands, error);
        }
    }

    fn is_connected(&self) -> bool {
        let connections = self.connections.borrow();
        connections
            .iter()
            .any(|opened| opened.connection.load() != Load::Connecting)
    }

    fn close_where(&self, goes: impl Fn(&MemcachedConnection) -> bool) {
        let mut connections = self.connections.borrow_mut();
        let (gone, kept) = std::mem::take(&mut *connections)
            .into_iter()
            .partition(|opened: &Opened| goes(&opened.connection));
        *connections = kept;
        drop(connections);
        drop::<Vec<Opened>>(gone);
    }

    #[cfg(test)]
    pub(super) fn connections(&self) -> usize {
        self.connections.borrow().len()
    }

    #[cfg(test)]
    pub(super) fn is_full(&self) -> bool {
        let connections = self.connections.borrow();
        !connections.is_empty()
            && connections
                .iter()
                .all(|opened| opened.connection.load() == Load::Full)
    }
}

fn refuse(commands: Vec<MemcachedCommand>, error: &Error) {
    for command in commands {
        // Whoever asked may have gone.
        let _ = command.asker.send(Err(error.clone()));
    }
}

impl Entry for MemcachedServer {
    const MAX: usize = SERVERS_MAX;

    /// Each connection holds it, too.
    fn is_used(self: &Rc<Self>) -> bool {
        Rc::strong_count(self) > self.connections.borrow().len() + 1
    }

    fn is_open(&self) -> bool {
        !self.connections.borrow().is_empty()
    }

    fn sweep(&self, idle_max: Duration) {
        if let Some(before) = Instant::now().checked_sub(idle_max) {
            self.close_where(|connection| {
                connection.load() == Load::Idle && connection.used() < before
            });
        }
    }

    fn close(&self) {
        self.close_where(|_| true);
    }
}
