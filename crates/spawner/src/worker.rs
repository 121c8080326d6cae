//! A worker's link, or the one over which the supervisor has its chores done.
//!
//! The idea: the spawner waits for nobody. What a worker does not read yet is queued, and nothing
//! more is taken from it meanwhile; so the queue holds no more than the ends of programs that run.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use ipc::order::{Order, Report, Unheld};
use os::net::Want;

/// Reports that may wait for a worker to read: of every program that may run, and some.
const QUEUE_MAX: usize = 65_536;

/// The link to a worker, or to the supervisor.
#[derive(Debug)]
pub(super) struct Worker {
    link: OwnedFd,
    /// Whether it is the supervisor's: chores are ordered over it, and nothing else.
    pub(super) has_chores: bool,
    queue: VecDeque<Vec<u8>>,
}

impl Worker {
    pub(super) fn new(link: OwnedFd, has_chores: bool) -> Worker {
        Worker {
            link,
            has_chores,
            queue: VecDeque::new(),
        }
    }

    /// What the link is waited for: orders, or that what is queued can go.
    pub(super) fn want(&self) -> (BorrowedFd<'_>, Want) {
        let want = if self.queue.is_empty() {
            Want::Read
        } else {
            Want::Write
        };
        (self.link.as_fd(), want)
    }

    /// The next order, if there is one and everything said before was taken.
    pub(super) fn next_order(
        &self,
        buffer: &mut Vec<u8>,
    ) -> io::Result<Option<Result<Order, Unheld>>> {
        if !self.queue.is_empty() {
            return Ok(None);
        }
        unless_it_would_block(Order::try_recv(self.link.as_fd(), buffer))
    }

    /// Whether it has read everything it was told.
    pub(super) fn has_read_all(&self) -> bool {
        self.queue.is_empty()
    }

    /// Says something, now or later.
    pub(super) fn say(&mut self, report: &Report) -> io::Result<()> {
        if self.queue.len() >= QUEUE_MAX {
            return Err(io::Error::other("it does not read"));
        }
        self.queue.push_back(report.to_bytes()?);
        self.flush()
    }

    /// Sends what is queued, as far as it goes.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        while let Some(report) = self.queue.front() {
            let sent = os::fdpass::try_send(self.link.as_fd(), report, &[]);
            match unless_it_would_block(sent)? {
                Some(()) => self.queue.pop_front(),
                None => return Ok(()),
            };
        }
        Ok(())
    }
}

fn unless_it_would_block<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        result => result.map(Some),
    }
}
