//! Requests out, replies in.

use std::io::ErrorKind;

use super::{Generator, READS_MAX};
use crate::client::connection::State;
use crate::client::recorder::Class;
use crate::client::reply::{Ended, Notes, Scan};

impl Generator<'_> {
    pub(super) fn expect_reply(&mut self, index: usize) {
        let connection = &mut self.connections[index];
        let Some(carried) = &connection.carried else {
            return;
        };
        let request = &self.shared.plan.requests[carried.request as usize];
        let notes = match self.recorder.first {
            None => Notes::Keep,
            Some(_) => Notes::Drop,
        };
        connection.scanner.expect(request.reply, notes);
        connection.active_ns = self.now_ns;
        connection.state = match carried.written == request.bytes.len() {
            true => State::Receiving,
            false => State::Sending,
        };
    }

    pub(super) fn send_first(&mut self, index: usize) {
        if let Some(carried) = &mut self.connections[index].carried {
            // A request that goes out in one piece counts from before it.
            carried.sent_ns = self.now_ns;
        }
        self.expect_reply(index);
        self.send(index);
    }

    pub(super) fn send(&mut self, index: usize) {
        let connection = &mut self.connections[index];
        let (Some(io), Some(carried)) = (&mut connection.io, &mut connection.carried) else {
            return;
        };
        let request = &self.shared.plan.requests[carried.request as usize];
        let bytes = self.numbers.bytes(request, carried.number);
        let rest = bytes.get(carried.written..).unwrap_or_default();
        let first = carried.written == 0;
        match io.write(rest) {
            Ok(count) => {
                carried.written += count;
                self.recorder.counts.sent_bytes += count as u64;
                let whole = count == rest.len() && !io.has_unsent();
                if !whole || !first {
                    self.now_ns = self.shared.now_ns();
                    carried.sent_ns = self.now_ns;
                    connection.active_ns = self.now_ns;
                }
                connection.state = if whole {
                    State::Receiving
                } else {
                    State::Sending
                };
                self.set_interest(index, !whole);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                connection.state = State::Sending;
                self.set_interest(index, true);
            }
            // A server may reply before it has read a body, and close. What it said counts.
            Err(error) if is_reset(&error) => self.receive_last(index, &error),
            Err(error) => self.fail(index, Class::Write, Some(&error)),
        }
    }

    pub(super) fn receive(&mut self, index: usize) {
        for _ in 0..READS_MAX {
            let connection = &mut self.connections[index];
            let Some(io) = &mut connection.io else {
                return;
            };
            match io.read(&mut self.buffer) {
                Ok(0) => return self.ended(index),
                Ok(count) => {
                    let drained = count < self.buffer.len() && !io.may_hold_more();
                    if !self.received(index, count) || drained {
                        return;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) => return self.broken_off(index, &error),
            }
        }
    }

    /// Reads what a server said before it closed the connection under a request.
    pub(super) fn receive_last(&mut self, index: usize, cause: &std::io::Error) {
        loop {
            let Some(io) = &mut self.connections[index].io else {
                return;
            };
            match io.read(&mut self.buffer) {
                Ok(0) if self.connections[index].scanner.end() == Ended::Whole => {
                    return self.ended(index);
                }
                Ok(0) | Err(_) => return self.broken_off(index, cause),
                Ok(count) => {
                    if !self.received(index, count) {
                        return;
                    }
                }
            }
        }
    }

    /// Takes bytes from the buffer; false when the exchange has come to its end.
    #[inline]
    pub(super) fn received(&mut self, index: usize, count: usize) -> bool {
        self.now_ns = self.shared.now_ns();
        let connection = &mut self.connections[index];
        connection.active_ns = self.now_ns;
        self.recorder.counts.received_bytes += count as u64;
        if let Some(carried) = &mut connection.carried
            && carried.first_ns == 0
        {
            carried.first_ns = self.now_ns;
        }
        let bytes = self.buffer.get(..count).unwrap_or_default();
        match connection.scanner.feed(bytes) {
            Scan::More => {
                if connection.scanner.status() != 0 {
                    self.shared.open_gate();
                }
                return true;
            }
            Scan::Whole(used) if used == count => self.complete(index),
            Scan::Whole(_) => self.fail_framing(index, "bytes follow the end of the reply"),
            Scan::Broken(fault) => self.fail_framing(index, fault),
        }
        false
    }

    pub(super) fn ended(&mut self, index: usize) {
        self.now_ns = self.shared.now_ns();
        let connection = &mut self.connections[index];
        let kept = connection.carried.is_some_and(|carried| carried.kept);
        match connection.scanner.end() {
            Ended::Whole => {
                self.complete(index);
            }
            Ended::Before if kept => self.send_again(index),
            Ended::Before | Ended::Within => self.fail(index, Class::Closed, None),
        }
    }

    pub(super) fn broken_off(&mut self, index: usize, error: &std::io::Error) {
        self.now_ns = self.shared.now_ns();
        let connection = &self.connections[index];
        let kept = connection.carried.is_some_and(|carried| carried.kept);
        if kept && !connection.scanner.begun() {
            return self.send_again(index);
        }
        let class = match is_reset(error) {
            true => Class::Reset,
            false if error.kind() == ErrorKind::TimedOut => Class::Timeout,
            false => Class::Closed,
        };
        self.fail(index, class, Some(error));
    }

    /// A server may close a kept connection at any time, also while a request is on its way. The
    /// request goes out again over a new connection, and that is no failure; it happens once, for
    /// a new connection is not a kept one.
    pub(super) fn send_again(&mut self, index: usize) {
        let connection = &mut self.connections[index];
        connection.close();
        if let Some(carried) = &mut connection.carried {
            carried.kept = false;
            carried.written = 0;
            carried.first_ns = 0;
        }
        self.connect(index);
    }

    /// Something came while nothing was asked. What is no business of TLS's own, or the end,
    /// makes the connection useless.
    pub(super) fn read_idle(&mut self, index: usize) {
        let connection = &mut self.connections[index];
        let Some(io) = &mut connection.io else {
            return;
        };
        match io.read(&mut self.buffer) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            _ => connection.close(),
        }
    }
}

fn is_reset(error: &std::io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::ConnectionAborted
    )
}
