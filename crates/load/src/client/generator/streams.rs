//! Exchanges over streams of HTTP/2: where a stream takes the place of a connection.

use std::io::{self, ErrorKind};
use std::task::Poll;

use rustix::event::epoll;

use super::Generator;
use super::endings::Reply;
use crate::client::connection::State;
use crate::client::http2::{Came, Head, Link, LinkName, Wire, Woken};
use crate::client::io::connected;
use crate::client::outcome::FirstReply;
use crate::client::plan::Reuse;
use crate::client::recorder::Class;

/// Turns of polling before sockets, timeouts and the clock have theirs.
const ROUNDS_MAX: usize = 8;

impl Generator<'_> {
    /// Sends a stream's request, once its connection is there.
    pub(super) fn join(&mut self, index: usize) {
        let connection = &mut self.connections[index];
        connection.state = State::Connecting;
        connection.active_ns = self.now_ns;
        connection.begun_ns = self.now_ns;
        let place = self.http2.place_of(index);
        let name = self.http2.places[place].link;
        let link = name.and_then(|name| self.http2.link(name));
        if let Some(link) = link.filter(|link| link.is_open()) {
            let name = link.name;
            return self.ask(index, name);
        }
        self.http2.places[place].waiting.push(index);
        if name.is_none() {
            self.open_link(place);
        }
    }

    fn open_link(&mut self, place: usize) {
        let endpoint = self.connections[place * self.http2.each].endpoint;
        let opened = self.open_socket(endpoint, place).and_then(|io| {
            let entry = self.http2.links.vacant_entry();
            let name = LinkName {
                at: entry.key(),
                generation: self.http2.generation,
            };
            self.http2.generation = self.http2.generation.wrapping_add(1);
            let token = name.at as u64 | (u64::from(name.generation) << 32);
            let flags = epoll::EventFlags::IN | epoll::EventFlags::OUT;
            let token = epoll::EventData::new_u64(token);
            epoll::add(&self.epoll, &io, token, flags).map_err(|e| (Class::Connect, e.into()))?;
            let list = &self.http2.list;
            entry.insert(Link::new(name, place, Wire::new(io), list));
            Ok(name)
        });
        match opened {
            Ok(name) => self.http2.places[place].link = Some(name),
            Err((class, error)) => self.fail_waiting(place, class, &error),
        }
    }

    /// No connection came about: whoever waits for it has failed.
    fn fail_waiting(&mut self, place: usize, class: Class, error: &io::Error) {
        let place = &mut self.http2.places[place];
        if let Some(name) = place.link.take() {
            self.http2.links.try_remove(name.at);
        }
        for index in std::mem::take(&mut place.waiting) {
            self.fail(index, class, Some(error));
        }
    }

    /// Something is there to be read, or room to write.
    pub(super) fn ready_link(&mut self, at: usize, generation: u32) {
        let name = LinkName { at, generation };
        let Some(link) = self.http2.link(name) else {
            return;
        };
        if link.is_open() {
            link.wire.get().is_drained = false;
            return self.poll_link(at);
        }
        let place = link.place;
        match agree(link) {
            Ok(true) => {
                let handshake = link.wire.get().io.handshake();
                self.recorder.counts.handshakes.add(handshake);
                self.now_ns = self.shared.now_ns();
                self.poll_link(at);
                for index in std::mem::take(&mut self.http2.places[place].waiting) {
                    self.join(index);
                }
            }
            Ok(false) => self.set_link_interest(at),
            Err((class, error)) => self.fail_waiting(place, class, &error),
        }
    }

    /// Sends a request over a link that is open; a stream without one is free.
    fn ask(&mut self, index: usize, name: LinkName) {
        let Some(carried) = &mut self.connections[index].carried else {
            return self.set_free(index);
        };
        let request = &self.shared.plan.requests[carried.request as usize];
        carried.connected_ns = self.now_ns;
        carried.sent_ns = self.now_ns;
        carried.written = request.bytes.len();
        let made = match (
            &request.numbered,
            self.shared.heads.get(carried.request as usize),
        ) {
            (None, Some(head)) => Ok(head.clone()),
            _ => Head::of(request, self.numbers.bytes(request, carried.number)),
        };
        let Some(link) = self.http2.link(name) else {
            return;
        };
        carried.kept = link.served > 0;
        let (Ok(head), Some(mut sender)) = (made, link.sender()) else {
            return self.fail(index, Class::Write, None);
        };
        let sent = sender.send_request(head.request, head.body.is_empty());
        let sent = sent.and_then(|(response, mut stream)| {
            if !head.body.is_empty() {
                stream.send_data(head.body, true)?;
            }
            Ok(response)
        });
        match sent {
            Ok(response) => {
                link.live += 1;
                link.begun = link.begun.saturating_add(1);
                let is_last = match self.shared.plan.reuse {
                    Reuse::Keep => false,
                    Reuse::Close => true,
                    Reuse::Requests(most) => link.begun >= most,
                };
                self.http2.streams[index].expect(response, name);
                self.connections[index].state = State::Receiving;
                if is_last {
                    self.http2.retire(name);
                }
                self.poll_stream(index);
            }
            // The server has said that it goes, or has gone: nothing was sent.
            Err(error) => {
                self.http2.retire(name);
                if !self.send_over_another(index) {
                    self.stream_broken(index, &error);
                }
            }
        }
    }

    /// Polls whoever was woken, and whoever they wake.
    pub(super) fn run_woken(&mut self) {
        if !self.http2.is_spoken() {
            return;
        }
        for _ in 0..ROUNDS_MAX {
            let mut woken = std::mem::take(&mut self.woken);
            self.http2.list.swap(&mut woken);
            if woken.is_empty() {
                break;
            }
            for who in woken.drain(..) {
                match who {
                    Woken::Link(at) => self.poll_link(at),
                    Woken::Stream(index) => self.poll_stream(index),
                }
            }
            self.woken = woken;
        }
    }

    fn poll_link(&mut self, at: usize) {
        // One that had its place before may have been woken: this one still waits for its socket.
        let Some(link) = self.http2.links.get_mut(at).filter(|link| link.is_open()) else {
            return;
        };
        link.wire.get().wants_write = false;
        let ended = link.poll();
        let mut wire = link.wire.get();
        if wire.received > 0 {
            link.heard_ns = self.now_ns;
        }
        self.recorder.counts.received_bytes += std::mem::take(&mut wire.received);
        self.recorder.counts.sent_bytes += std::mem::take(&mut wire.sent);
        drop(wire);
        match ended {
            Poll::Pending => self.set_link_interest(at),
            Poll::Ready(_) => {
                // Its streams hear of it: what was whole stays so.
                let name = link.name;
                self.http2.retire(name);
                self.http2.links.try_remove(name.at);
            }
        }
    }

    fn set_link_interest(&mut self, at: usize) {
        let Some(link) = self.http2.links.get_mut(at) else {
            return;
        };
        let wire = link.wire.get();
        let wants_write = wire.wants_write || wire.io.has_unsent();
        if link.wants_write == wants_write {
            return;
        }
        link.wants_write = wants_write;
        let flags = match wants_write {
            true => epoll::EventFlags::IN | epoll::EventFlags::OUT,
            false => epoll::EventFlags::IN,
        };
        let token = at as u64 | (u64::from(link.name.generation) << 32);
        // It was added, so it can be changed.
        let _ = epoll::modify(
            &self.epoll,
            &wire.io,
            epoll::EventData::new_u64(token),
            flags,
        );
    }

    fn poll_stream(&mut self, index: usize) {
        loop {
            let wants_server = self.recorder.first.is_none();
            let came = self.http2.streams[index].poll(wants_server);
            if !matches!(came, Came::Nothing) {
                self.now_ns = self.shared.now_ns();
                let connection = &mut self.connections[index];
                connection.active_ns = self.now_ns;
                if let Some(carried) = &mut connection.carried
                    && carried.first_ns == 0
                {
                    carried.first_ns = self.now_ns;
                }
            }
            match came {
                Came::Nothing => return,
                Came::Part => self.shared.open_gate(),
                Came::Whole => return self.stream_whole(index),
                Came::Broken(error) => return self.stream_broken(index, &error),
            }
        }
    }

    /// A stream's exchange has failed. A link on which nothing came since it began is dead.
    pub(super) fn leave_failed(&mut self, index: usize, class: Class) {
        let begun_ns = self.connections[index]
            .carried
            .map(|carried| carried.start_ns);
        let name = self.http2.streams[index].link();
        if let (Class::Timeout, Some(begun_ns), Some(name)) = (class, begun_ns, name) {
            let link = self.http2.link(name);
            if link.is_some_and(|link| link.heard_ns < begun_ns) {
                self.http2.retire(name);
            }
        }
        self.http2.streams[index].again = 0;
        self.http2.leave(index);
    }

    fn stream_whole(&mut self, index: usize) {
        let stream = &mut self.http2.streams[index];
        stream.again = 0;
        let reply = Reply {
            status: stream.status,
            body_bytes: stream.body_bytes,
            keeps: true,
        };
        let server = std::mem::take(&mut stream.server);
        let name = stream.link();
        let link = name.and_then(|name| self.http2.link(name));
        if let Some(link) = &link
            && self.recorder.first.is_none()
        {
            self.recorder.first = Some(FirstReply {
                server,
                body_bytes: reply.body_bytes,
                tls: link.wire.get().io.tls_facts(),
                status: reply.status,
                streams_max: link.streams_max(),
            });
        }
        if let Some(link) = link {
            link.served = link.served.saturating_add(1);
        }
        self.http2.leave(index);
        self.complete_with(index, reply);
    }

    /// What the server has not begun to work on goes out again over another connection, and that is
    /// no failure. Each connection serves one request at least; false where that has not come true.
    fn send_over_another(&mut self, index: usize) -> bool {
        let stream = &mut self.http2.streams[index];
        if stream.again >= self.http2.each {
            stream.again = 0;
            return false;
        }
        stream.again += 1;
        self.http2.leave(index);
        if let Some(carried) = &mut self.connections[index].carried {
            carried.first_ns = 0;
        }
        self.join(index);
        true
    }

    fn stream_broken(&mut self, index: usize, error: &h2::Error) {
        self.now_ns = self.shared.now_ns();
        let goes = error.is_go_away() && error.is_remote();
        if let Some(name) = self.http2.streams[index].link().filter(|_| goes) {
            self.http2.retire(name);
        }
        let is_untouched = goes && error.reason() == Some(h2::Reason::NO_ERROR);
        if is_untouched && self.send_over_another(index) {
            return;
        }
        let class = match error.get_io().map(io::Error::kind) {
            Some(ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted) => Class::Reset,
            Some(ErrorKind::TimedOut) => Class::Timeout,
            Some(_) => Class::Closed,
            None if goes => Class::Closed,
            None if error.is_reset() && error.is_remote() => Class::Reset,
            None => Class::Framing,
        };
        let words = match error.get_io() {
            Some(error) => io::Error::new(error.kind(), error.to_string()),
            None => io::Error::other(error.to_string()),
        };
        self.fail(index, class, Some(&words));
    }
}

/// Goes on connecting; true once HTTP/2 is spoken.
fn agree(link: &mut Link) -> Result<bool, (Class, io::Error)> {
    let mut wire = link.wire.get();
    connected(std::os::fd::AsFd::as_fd(&wire.io)).map_err(|e| (Class::Connect, e))?;
    wire.wants_write = false;
    if !wire.io.agree().map_err(|e| (Class::Tls, e))? {
        return Ok(false);
    }
    if !wire.io.may_speak_http2() {
        let words = "it does not offer HTTP/2 (`h2` of ALPN) there; with --http 1.1 it may answer";
        return Err((Class::Tls, io::Error::other(words)));
    }
    drop(wire);
    let greeted = link.greet();
    greeted.map_err(|e| (Class::Closed, io::Error::other(e.to_string())))?;
    Ok(true)
}
