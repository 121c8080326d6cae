//! One memcached server as a worker sees it: the commands that wait, and the connections that take
//! them.
//!
//! Connections belong to the address: memcached knows no login and keeps nothing for a connection,
//! so every object of a script that names the server uses the same ones. A command wakes the first
//! connection that has room, which takes whatever waits by then and sends it in one piece. Another
//! one is opened when those there are full, or one of them is at a long value.

use std::cell::{RefCell, RefMut};
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::line::{DEPTH_MAX, Line, Load, drive};
use super::question::Question;
use super::queue::{Command, Queue};
use super::reply::Reply;
use crate::address::Address;
use crate::attempt::{Attempt, Target};
use crate::error::{Error, Kind};
use crate::limits::Limits;
use crate::names::Names;

const SERVICE: &str = "memcached";
/// Servers known at once; beyond it, those no object names any more go first.
const SERVERS_MAX: usize = 256;

/// A server and the connections to it.
pub(crate) struct Server {
    address: Address,
    limits: Limits,
    names: Rc<Names>,
    queue: RefCell<Queue>,
    lines: RefCell<Vec<Opened>>,
}

/// A connection and the task that serves it, which ends with this.
struct Opened {
    line: Rc<Line>,
    task: AbortHandle,
}

impl Drop for Opened {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Server {
    /// Sends a command when there is room on a connection; the answer comes to the receiver.
    pub(super) fn ask(
        self: &Rc<Self>,
        question: Question,
        bytes: Vec<u8>,
    ) -> Result<oneshot::Receiver<Result<Reply, Error>>, Error> {
        let (asker, answer) = oneshot::channel();
        let command = Command {
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
        let lines = self.lines.borrow();
        let found = lines.iter().find(|opened| suits(opened.line.load()));
        found.map(|opened| opened.line.wake()).is_some()
    }

    /// Opens a connection, unless so many are being made already or none may be added.
    fn open_for(self: &Rc<Self>, wanted: usize) {
        let mut lines = self.lines.borrow_mut();
        let coming = lines
            .iter()
            .filter(|opened| opened.line.load() == Load::Connecting);
        if coming.count() >= wanted || lines.len() >= self.limits.connections_max.max(1) {
            return;
        }
        let line = Rc::new(Line::default());
        let task = tokio::task::spawn_local(drive(Rc::clone(self), Rc::clone(&line)));
        let task = task.abort_handle();
        lines.push(Opened { line, task });
    }

    /// Takes a connection away; whoever served it is at its end.
    pub(super) fn remove(&self, line: &Rc<Line>) {
        let mut lines = self.lines.borrow_mut();
        let place = lines
            .iter()
            .position(|opened| Rc::ptr_eq(&opened.line, line));
        let removed = place.map(|place| lines.remove(place));
        drop(lines);
        drop(removed);
    }

    pub(super) fn queue(&self) -> RefMut<'_, Queue> {
        self.queue.borrow_mut()
    }

    pub(super) fn names(&self) -> &Names {
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
        let lines = self.lines.borrow();
        lines
            .iter()
            .any(|opened| opened.line.load() != Load::Connecting)
    }

    /// Closes connections on which nothing was under way since before a moment.
    fn sweep(&self, before: Instant) {
        self.close_where(|line| line.load() == Load::Idle && line.used() < before);
    }

    fn close_where(&self, goes: impl Fn(&Line) -> bool) {
        let mut lines = self.lines.borrow_mut();
        let (gone, kept) = std::mem::take(&mut *lines)
            .into_iter()
            .partition(|opened: &Opened| goes(&opened.line));
        *lines = kept;
        drop(lines);
        drop::<Vec<Opened>>(gone);
    }

    /// Whether no object of a script names it, as far as holders can tell: the table and each
    /// connection hold it too.
    fn is_unnamed(self: &Rc<Self>) -> bool {
        Rc::strong_count(self) <= self.lines.borrow().len() + 1
    }

    #[cfg(test)]
    pub(super) fn connections(&self) -> usize {
        self.lines.borrow().len()
    }

    #[cfg(test)]
    pub(super) fn is_full(&self) -> bool {
        let lines = self.lines.borrow();
        !lines.is_empty() && lines.iter().all(|opened| opened.line.load() == Load::Full)
    }
}

fn refuse(commands: Vec<Command>, error: &Error) {
    for command in commands {
        // Whoever asked may have gone.
        let _ = command.asker.send(Err(error.clone()));
    }
}

/// The servers a worker's scripts have named, by address.
#[derive(Default)]
pub(crate) struct Servers {
    servers: RefCell<HashMap<Address, Rc<Server>>>,
}

impl Servers {
    /// The server at an address, the same one for all objects.
    pub(super) fn server(
        &self,
        address: &Address,
        limits: Limits,
        names: &Rc<Names>,
    ) -> Rc<Server> {
        let mut servers = self.servers.borrow_mut();
        if let Some(server) = servers.get(address) {
            return Rc::clone(server);
        }
        if servers.len() >= SERVERS_MAX {
            servers.retain(|_, server| {
                let unnamed = server.is_unnamed();
                if unnamed {
                    server.close_where(|_| true);
                }
                !unnamed
            });
        }
        let server = Rc::new(Server {
            address: address.clone(),
            limits,
            names: Rc::clone(names),
            queue: RefCell::default(),
            lines: RefCell::default(),
        });
        servers.insert(address.clone(), Rc::clone(&server));
        server
    }

    /// Closes connections that were idle for longer than allowed.
    pub(crate) fn sweep(&self, idle_max: Duration) {
        let Some(before) = Instant::now().checked_sub(idle_max) else {
            return;
        };
        self.servers.borrow_mut().retain(|_, server| {
            server.sweep(before);
            !server.is_unnamed() || !server.lines.borrow().is_empty()
        });
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.servers.borrow().len()
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        for server in self.servers.borrow().values() {
            server.close_where(|_| true);
        }
    }
}
