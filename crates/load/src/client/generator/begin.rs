//! How connections and exchanges begin.

use std::cmp::Reverse;
use std::io::ErrorKind;

use rustix::event::epoll;

use super::Generator;
use crate::client::connection::{Carried, Connection, State};
use crate::client::io::{self, Io};
use crate::client::plan::{Pace, Reuse};
use crate::client::recorder::Class;
use crate::client::tls::TlsStream;

impl Generator<'_> {
    pub(super) fn rest(&mut self, index: usize, until_ns: u64) {
        self.connections[index].state = State::Resting;
        self.rests.push(Reverse((until_ns, index)));
    }

    pub(super) fn wake_rested(&mut self) {
        if !self.held.is_empty() && self.shared.gate_is_open() {
            for index in std::mem::take(&mut self.held) {
                self.rest(index, self.now_ns);
            }
        }
        // Those that rest again at once have their turn after the others.
        for _ in 0..self.rests.len() {
            match self.rests.peek() {
                Some(Reverse((at_ns, _))) if *at_ns <= self.now_ns => {}
                _ => return,
            }
            if let Some(Reverse((_, index))) = self.rests.pop() {
                self.connections[index].state = State::Closed;
                self.next(index);
            }
        }
    }

    /// Gives a connection that has nothing to do its next exchange, or sets it free.
    pub(super) fn next(&mut self, index: usize) {
        let connection = &mut self.connections[index];
        let endpoint = connection.endpoint;
        if self.shared.plan.pace != Pace::Closed {
            let unopened = connection.io.is_none() && connection.failures == 0;
            if unopened && self.shared.plan.reuse != Reuse::Close {
                return self.connect(index);
            }
            return self.set_free(index);
        }
        if self.now_ns >= self.shared.end_ns || !self.shared.issue() {
            connection.close();
            connection.state = State::Done;
            self.alive -= 1;
            return;
        }
        let order = &self.shared.routes.by_endpoint[endpoint];
        let position = &mut self.positions[endpoint];
        let request = order[*position].request;
        *position += 1;
        if *position == order.len() {
            *position = 0;
        }
        self.begin(index, request, self.now_ns);
    }

    pub(super) fn set_free(&mut self, index: usize) {
        let connection = &mut self.connections[index];
        connection.state = match connection.io {
            Some(_) => State::Idle,
            None => State::Closed,
        };
        self.free[connection.endpoint].push(index, self.now_ns);
    }

    pub(super) fn send_due(&mut self) {
        if self.now_ns >= self.shared.end_ns {
            return;
        }
        for endpoint in 0..self.cursors.len() {
            while let Some(cursor) = &mut self.cursors[endpoint] {
                let Some(due) = cursor.peek().filter(|due| due.at_ns <= self.now_ns) else {
                    break;
                };
                let Some(index) = self.free[endpoint].connections.pop() else {
                    break;
                };
                cursor.advance();
                self.record_from_now_on();
                let free_ns = self.free[endpoint].since_ns;
                self.recorder.sent_late(due.at_ns, free_ns, self.now_ns);
                self.begin(index, due.request, due.at_ns);
                self.now_ns = self.shared.now_ns();
            }
        }
    }

    /// When the next request is due that has a free connection.
    pub(super) fn next_sendable_ns(&self) -> Option<u64> {
        let cursors = self.cursors.iter().zip(&self.free);
        let sendable = cursors.filter(|(_, free)| !free.connections.is_empty());
        let due = sendable.filter_map(|(cursor, _)| cursor.as_ref()?.peek());
        due.map(|due| due.at_ns).min()
    }

    pub(super) fn begin(&mut self, index: usize, request: u32, due_ns: u64) {
        let now_ns = self.now_ns;
        let number = self
            .numbers
            .draw(&self.shared.plan.requests[request as usize]);
        let connection = &mut self.connections[index];
        connection.carried = Some(Carried {
            request,
            number,
            due_ns,
            start_ns: now_ns,
            connected_ns: now_ns,
            kept: connection.served > 0,
            ..Carried::default()
        });
        self.busy += 1;
        if connection.io.is_some() {
            self.send_first(index);
        } else {
            self.connect(index);
        }
    }

    pub(super) fn connect(&mut self, index: usize) {
        if self.http2.is_spoken() {
            return self.join(index);
        }
        let connection = &mut self.connections[index];
        connection.active_ns = self.now_ns;
        connection.begun_ns = self.now_ns;
        let endpoint = connection.endpoint;
        let io = match self.open_socket(endpoint, index) {
            Ok(io) => io,
            Err((class, error)) => return self.fail(index, class, Some(&error)),
        };
        let connection = &mut self.connections[index];
        connection.io = Some(io);
        connection.state = State::Connecting;
        connection.wants_write = true;
        // Over loopback the connection is there already. Asking for it costs a wait, sending does not.
        match self.try_at_once(index) {
            Ok(()) => self.register(index),
            Err(error) if error.kind() == ErrorKind::WouldBlock => self.register(index),
            Err(error) => self.fail(index, Class::Connect, Some(&error)),
        }
    }

    /// Begins a connection, without waiting for it.
    pub(super) fn open_socket(
        &self,
        endpoint: usize,
        nth: usize,
    ) -> Result<Io, (Class, std::io::Error)> {
        let shared = self.shared;
        let address = &shared.routes.endpoints[endpoint].address;
        let socket = io::connect(address, &shared.plan.socket, nth)
            .map_err(|error| (Class::Connect, error))?;
        match &shared.tls[endpoint] {
            None => Ok(Io::Plain(socket)),
            Some(target) => TlsStream::new(socket, target)
                .map(|tls| Io::Tls(Box::new(tls)))
                .map_err(|error| (Class::Tls, std::io::Error::other(error))),
        }
    }

    /// Sends on a connection of which nobody has heard yet that it is there.
    pub(super) fn try_at_once(&mut self, index: usize) -> std::io::Result<()> {
        let connection = &mut self.connections[index];
        let (Some(io @ Io::Plain(_)), Some(carried)) =
            (&mut connection.io, &mut connection.carried)
        else {
            return Ok(());
        };
        let request = &self.shared.plan.requests[carried.request as usize];
        let now_ns = self.shared.now_ns();
        carried.written = io.write(self.numbers.bytes(request, carried.number))?;
        carried.connected_ns = now_ns;
        carried.sent_ns = now_ns;
        connection.wants_write = carried.written < request.bytes.len();
        self.recorder.counts.sent_bytes += carried.written as u64;
        self.expect_reply(index);
        Ok(())
    }

    pub(super) fn register(&mut self, index: usize) {
        let connection = &self.connections[index];
        let Some(fd) = connection.fd() else {
            return;
        };
        let added = epoll::add(
            &self.epoll,
            fd,
            connection.token(index),
            interest(connection),
        );
        if let Err(error) = added {
            self.fail(index, Class::Connect, Some(&error.into()));
        }
    }

    pub(super) fn set_interest(&mut self, index: usize, wants_write: bool) {
        let connection = &mut self.connections[index];
        if connection.wants_write == wants_write {
            return;
        }
        connection.wants_write = wants_write;
        if let Some(fd) = connection.fd() {
            // It was added, so it can be changed.
            let _ = epoll::modify(
                &self.epoll,
                fd,
                connection.token(index),
                interest(connection),
            );
        }
    }

    pub(super) fn connecting(&mut self, index: usize) {
        let connection = &mut self.connections[index];
        let Some(fd) = connection.fd() else {
            return;
        };
        if let Err(error) = io::connected(fd) {
            return self.fail(index, Class::Connect, Some(&error));
        }
        let connection = &mut self.connections[index];
        let Some(io) = &mut connection.io else {
            return;
        };
        match io.agree() {
            Ok(true) => self.recorder.counts.handshakes.add(io.handshake()),
            Ok(false) => {
                let unsent = io.has_unsent();
                connection.active_ns = self.now_ns;
                return self.set_interest(index, unsent);
            }
            Err(error) => return self.fail(index, Class::Tls, Some(&error)),
        }
        self.now_ns = self.shared.now_ns();
        connection.active_ns = self.now_ns;
        match &mut connection.carried {
            Some(carried) => {
                carried.connected_ns = self.now_ns;
                self.send_first(index);
            }
            None => self.set_free(index),
        }
        // Otherwise it has ended meanwhile, and the socket may be another.
        if matches!(
            self.connections[index].state,
            State::Idle | State::Receiving
        ) {
            self.set_interest(index, false);
        }
    }
}

fn interest(connection: &Connection) -> epoll::EventFlags {
    match connection.wants_write {
        true => epoll::EventFlags::IN | epoll::EventFlags::OUT,
        false => epoll::EventFlags::IN,
    }
}
