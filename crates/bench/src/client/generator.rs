//! One thread of the generator: an event loop over its connections.
//!
//! The idea: an exchange costs one `send`, one `recv` and its share of an `epoll_wait`. Readiness
//! is level-triggered, so nothing is read only to hear that there is no more, and what is written
//! is asked about only where it did not fit. The clock is read once for each reply.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::ErrorKind;
use std::os::fd::OwnedFd;

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;

use super::connection::{Carried, Connection, State};
use super::io::{self, Io};
use super::live::Phase;
use super::outcome::FirstReply;
use super::plan::{Address, Opening, Pace, Reuse};
use super::pulse::nanoseconds;
use super::recorder::{Class, Recorder, Whole};
use super::reply::{Ended, Notes, Scan};
use super::schedule::{Cursor, Mine, Schedule};
use super::shared::Shared;

/// Bytes of the read buffer.
const BUFFER_BYTES: usize = 128 * 1024;
/// Full buffers read from one connection before the others have their turn.
const READS_MAX: usize = 16;
/// Events taken at a time.
const EVENTS_MAX: usize = 1024;
/// Longest sleep: the end of the load, a stop and timeouts are looked at this often.
const SLEEP_NS: u64 = 100_000_000;
/// Sleep while another thread has the only connection.
const GATE_SLEEP_NS: u64 = 1_000_000;
/// An exchange may take this many of the plan's timeouts, if bytes keep coming.
const EXCHANGE_TIMEOUTS: u64 = 10;
/// A wait shorter than this is waited out by polling: a sleep would be late.
const SPIN_BELOW_NS: u64 = 60_000;

/// See the module.
pub(crate) struct Generator<'a> {
    shared: &'a Shared<'a>,
    thread: usize,
    epoll: OwnedFd,
    connections: Vec<Connection>,
    /// Places in each endpoint's order, in a closed loop.
    positions: Vec<usize>,
    /// What is due at each endpoint, in an open loop.
    cursors: Vec<Option<Cursor>>,
    /// Free connections of each endpoint, in an open loop. The last is taken first: it is warm.
    free: Vec<Vec<usize>>,
    /// Connections that begin, or begin again, at an instant.
    rests: BinaryHeap<Reverse<(u64, usize)>>,
    pub(crate) recorder: Recorder,
    buffer: Box<[u8]>,
    now_ns: u64,
    /// The tenth of a second that runs, and when the next begins.
    tenth: u64,
    next_tenth_ns: u64,
    sweep_ns: u64,
    next_sweep_ns: u64,
    /// Connections that carry an exchange.
    busy: usize,
    /// Connections that are not done, in a closed loop.
    alive: usize,
    /// Behind the gate: not yet begun.
    held: Vec<usize>,
    /// Time spent polling for want of work.
    spun_ns: u64,
    pub(crate) usage: Usage,
}

/// What a thread used while it recorded.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Usage {
    begun_ns: u64,
    begun_cpu_ns: u64,
    begun_spun_ns: u64,
    /// CPU time.
    pub(crate) cpu_ns: u64,
    /// Share of the time, 0 to 1, without what was spent waiting for work.
    pub(crate) busy: f64,
}

impl<'a> Generator<'a> {
    pub(crate) fn new(shared: &'a Shared<'a>, thread: usize) -> std::io::Result<Generator<'a>> {
        let plan = shared.plan;
        let mine = shared.routes.connections_of(thread, shared.threads);
        let endpoints = shared.routes.endpoints.len();
        let timeout_ns = nanoseconds(plan.timeout);
        let mut generator = Generator {
            shared,
            thread,
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            connections: mine.iter().map(|(e, _)| Connection::new(*e)).collect(),
            positions: vec![0; endpoints],
            cursors: Vec::new(),
            free: vec![Vec::new(); endpoints],
            rests: BinaryHeap::with_capacity(mine.len()),
            recorder: Recorder::new(plan),
            buffer: vec![0; BUFFER_BYTES].into_boxed_slice(),
            now_ns: shared.now_ns(),
            tenth: 0,
            next_tenth_ns: shared.pulse.start_ns(1),
            sweep_ns: (timeout_ns / 10).clamp(1_000_000, SLEEP_NS),
            next_sweep_ns: 0,
            busy: 0,
            alive: mine.len(),
            held: Vec::new(),
            spun_ns: 0,
            usage: Usage::default(),
        };
        generator.stagger_orders();
        generator.plan_arrivals();
        generator.plan_opening(&mine);
        Ok(generator)
    }

    /// Threads begin at different places of the same order.
    fn stagger_orders(&mut self) {
        for (position, order) in self
            .positions
            .iter_mut()
            .zip(&self.shared.routes.by_endpoint)
        {
            *position = self.thread * order.len() / self.shared.threads;
        }
    }

    fn plan_arrivals(&mut self) {
        let Pace::Open {
            per_second,
            arrivals,
            ramp,
        } = self.shared.plan.pace
        else {
            return;
        };
        let Shared {
            routes, threads, ..
        } = self.shared;
        let schedule = Schedule::new(per_second, arrivals, ramp);
        for endpoint in 0..routes.endpoints.len() {
            let lane = routes.lane(endpoint, self.thread, *threads);
            let cursor = lane.map(|lane| {
                let mine = Mine {
                    order: routes.order.clone(),
                    endpoint: endpoint as u32,
                    lanes: routes.lanes(endpoint, *threads),
                    lane,
                    end_ns: self.shared.end_ns,
                };
                Cursor::new(schedule.clone(), mine, self.shared.plan.end.requests)
            });
            self.cursors.push(cursor);
        }
    }

    fn plan_opening(&mut self, mine: &[(usize, usize)]) {
        let all = self.shared.plan.connections.max(1) as u128;
        for (index, (_, number)) in mine.iter().enumerate() {
            let at_ns = match self.shared.plan.opening {
                Opening::Ramp(over) => (over.as_nanos() * *number as u128 / all) as u64,
                Opening::FirstAlone if *number > 0 && !self.shared.gate_is_open() => {
                    self.held.push(index);
                    continue;
                }
                _ => 0,
            };
            self.rest(index, at_ns);
        }
    }

    /// Runs to the end of the load.
    pub(crate) fn run(&mut self) -> std::io::Result<()> {
        let mut events = Vec::with_capacity(EVENTS_MAX);
        while self.turn() {
            self.wait(&mut events)?;
            for event in events.drain(..) {
                let token = event.data.u64();
                self.ready(
                    (token & 0xffff_ffff) as usize,
                    (token >> 32) as u32,
                    event.flags,
                );
                self.send_due();
            }
        }
        self.finish();
        Ok(())
    }

    /// What is to be done between waits; false when the load is over.
    fn turn(&mut self) -> bool {
        self.now_ns = self.shared.now_ns();
        if self.now_ns >= self.next_tenth_ns {
            self.pass_tenth();
        }
        if !self.recorder.is_recording() && self.now_ns >= self.shared.pulse.recording_at() {
            self.start_recording();
        }
        if self.shared.live.stopped() {
            return false;
        }
        if self.now_ns >= self.next_sweep_ns {
            self.sweep();
        }
        self.wake_rested();
        match self.shared.plan.pace {
            Pace::Closed => self.now_ns < self.shared.end_ns && self.alive > 0,
            Pace::Open { .. } => self.turn_open(),
        }
    }

    fn turn_open(&mut self) -> bool {
        if self.now_ns < self.shared.end_ns {
            self.send_due();
            return self.busy > 0 || self.next_due_ns().is_some();
        }
        self.shared.live.set_phase(Phase::Draining);
        let drain_ns = nanoseconds(self.shared.plan.timeout) + 2 * self.sweep_ns;
        self.busy > 0 && self.now_ns < self.shared.end_ns.saturating_add(drain_ns)
    }

    fn pass_tenth(&mut self) {
        let reached = self.shared.pulse.tenth(self.now_ns);
        let Shared { pulse, live, .. } = self.shared;
        pulse.beat(self.thread, self.tenth, &self.recorder.beat, reached, live);
        self.recorder.beat.reset();
        self.recorder.tell(live);
        self.tenth = reached;
        self.next_tenth_ns = pulse.start_ns(reached + 1);
    }

    fn start_recording(&mut self) {
        self.recorder.start(self.shared.pulse.recording_at());
        self.shared.live.set_phase(Phase::Recording);
        self.usage.begun_ns = self.now_ns;
        self.usage.begun_cpu_ns = os::cpu::thread_cpu_ns();
        self.usage.begun_spun_ns = self.spun_ns;
    }

    fn finish(&mut self) {
        let now_ns = self.shared.now_ns();
        let used = os::cpu::thread_cpu_ns().saturating_sub(self.usage.begun_cpu_ns);
        let spun = self.spun_ns - self.usage.begun_spun_ns;
        let passed = now_ns.saturating_sub(self.usage.begun_ns).max(1);
        if self.recorder.is_recording() {
            self.usage.cpu_ns = used;
            self.usage.busy = (used.saturating_sub(spun) as f64 / passed as f64).min(1.0);
        }
        self.recorder.counts.cut = self.busy as u64;
        self.count_unsent(now_ns);
        self.recorder.tell(self.shared.live);
        let Shared { pulse, live, .. } = self.shared;
        pulse.leave(self.thread, self.tenth, &self.recorder.beat, live);
    }

    /// Requests whose instant came, and that were never sent.
    fn count_unsent(&mut self, now_ns: u64) {
        for cursor in self.cursors.iter_mut().flatten() {
            while let Some(due) = cursor.peek().filter(|due| due.at_ns <= now_ns) {
                self.recorder.unsent(due.at_ns);
                cursor.advance();
            }
        }
    }

    /// When something is to be done even if no socket is ready.
    fn next_ns(&self) -> u64 {
        let mut next_ns = self.next_tenth_ns.min(self.next_sweep_ns);
        if self.now_ns < self.shared.end_ns {
            next_ns = next_ns.min(self.shared.end_ns);
        }
        if let Some(Reverse((at_ns, _))) = self.rests.peek() {
            next_ns = next_ns.min(*at_ns);
        }
        if !self.held.is_empty() {
            next_ns = next_ns.min(self.now_ns + GATE_SLEEP_NS);
        }
        next_ns
    }

    fn wait(&mut self, events: &mut Vec<epoll::Event>) -> std::io::Result<()> {
        let mut until_ns = self.next_ns();
        let mut spins = false;
        if let Some(due_ns) = self.next_sendable_ns().filter(|due_ns| *due_ns < until_ns) {
            until_ns = due_ns.saturating_sub(SPIN_BELOW_NS);
            spins = until_ns <= self.now_ns;
        }
        let sleep_ns = until_ns.saturating_sub(self.now_ns).min(SLEEP_NS);
        let timeout = Timespec {
            tv_sec: 0,
            tv_nsec: sleep_ns as _,
        };
        match epoll::wait(&self.epoll, spare_capacity(events), Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        if spins && events.is_empty() {
            // Somebody else may have use for the core meanwhile.
            rustix::thread::sched_yield();
            self.spun_ns += self.shared.now_ns().saturating_sub(self.now_ns);
        }
        Ok(())
    }

    fn ready(&mut self, index: usize, generation: u32, flags: epoll::EventFlags) {
        let Some(connection) = self.connections.get(index) else {
            return;
        };
        if connection.generation != generation {
            return;
        }
        match connection.state {
            State::Connecting => self.connecting(index),
            State::Receiving => self.receive(index),
            State::Sending if flags.intersects(!epoll::EventFlags::OUT) => self.receive(index),
            State::Sending => self.send(index),
            State::Idle => self.read_idle(index),
            State::Closed | State::Resting | State::Done => {}
        }
    }

    // ---- beginning ----------------------------------------------------------------------------

    fn rest(&mut self, index: usize, until_ns: u64) {
        self.connections[index].state = State::Resting;
        self.rests.push(Reverse((until_ns, index)));
    }

    fn wake_rested(&mut self) {
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
    fn next(&mut self, index: usize) {
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

    fn set_free(&mut self, index: usize) {
        let connection = &mut self.connections[index];
        connection.state = match connection.io {
            Some(_) => State::Idle,
            None => State::Closed,
        };
        connection.free_ns = self.now_ns;
        self.free[connection.endpoint].push(index);
    }

    fn send_due(&mut self) {
        for endpoint in 0..self.cursors.len() {
            while let Some(cursor) = &mut self.cursors[endpoint] {
                let Some(due) = cursor.peek().filter(|due| due.at_ns <= self.now_ns) else {
                    break;
                };
                let Some(index) = self.free[endpoint].pop() else {
                    break;
                };
                cursor.advance();
                let free_ns = self.connections[index].free_ns;
                self.recorder.sent_late(due.at_ns, free_ns, self.now_ns);
                self.begin(index, due.request, due.at_ns);
                self.now_ns = self.shared.now_ns();
            }
        }
    }

    /// When the next request is due, sendable or not.
    fn next_due_ns(&self) -> Option<u64> {
        let cursors = self.cursors.iter().flatten();
        cursors.filter_map(|c| c.peek().map(|due| due.at_ns)).min()
    }

    /// When the next request is due that has a free connection.
    fn next_sendable_ns(&self) -> Option<u64> {
        let cursors = self.cursors.iter().zip(&self.free);
        let sendable = cursors.filter(|(_, free)| !free.is_empty());
        let due = sendable.filter_map(|(cursor, _)| cursor.as_ref()?.peek());
        due.map(|due| due.at_ns).min()
    }

    fn begin(&mut self, index: usize, request: u32, due_ns: u64) {
        let now_ns = self.now_ns;
        let connection = &mut self.connections[index];
        connection.carried = Some(Carried {
            request,
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

    fn connect(&mut self, index: usize) {
        let shared = self.shared;
        let connection = &mut self.connections[index];
        let endpoint = &shared.routes.endpoints[connection.endpoint];
        connection.active_ns = self.now_ns;
        let socket = match io::connect(&endpoint.address, &shared.plan.socket) {
            Ok(socket) => socket,
            Err(error) => return self.fail(index, Class::Connect, Some(&error)),
        };
        connection.io = Some(Io::Plain(socket));
        connection.state = State::Connecting;
        connection.wants_write = true;
        // Over loopback the connection is there already. Asking for it costs a wait, sending does not.
        match self.try_at_once(index) {
            Ok(()) => self.register(index),
            Err(error) if error.kind() == ErrorKind::WouldBlock => self.register(index),
            Err(error) => self.fail(index, Class::Connect, Some(&error)),
        }
    }

    /// Sends on a connection of which nobody has heard yet that it is there.
    fn try_at_once(&mut self, index: usize) -> std::io::Result<()> {
        let connection = &mut self.connections[index];
        let (Some(io), Some(carried)) = (&mut connection.io, &mut connection.carried) else {
            return Ok(());
        };
        let request = &self.shared.plan.requests[carried.request as usize];
        let now_ns = self.shared.now_ns();
        carried.written = io.write(&request.bytes)?;
        carried.connected_ns = now_ns;
        carried.sent_ns = now_ns;
        connection.wants_write = carried.written < request.bytes.len();
        self.recorder.counts.sent_bytes += carried.written as u64;
        self.expect_reply(index);
        Ok(())
    }

    fn register(&mut self, index: usize) {
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

    fn set_interest(&mut self, index: usize, wants_write: bool) {
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

    fn connecting(&mut self, index: usize) {
        let connection = &mut self.connections[index];
        let Some(fd) = connection.fd() else {
            return;
        };
        if let Err(error) = io::connected(fd) {
            return self.fail(index, Class::Connect, Some(&error));
        }
        self.now_ns = self.shared.now_ns();
        let connection = &mut self.connections[index];
        connection.active_ns = self.now_ns;
        match &mut connection.carried {
            Some(carried) => {
                carried.connected_ns = self.now_ns;
                self.send_first(index);
            }
            None => self.set_free(index),
        }
        if self.connections[index].state != State::Sending {
            self.set_interest(index, false);
        }
    }

    // ---- sending and receiving ----------------------------------------------------------------

    fn expect_reply(&mut self, index: usize) {
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

    fn send_first(&mut self, index: usize) {
        if let Some(carried) = &mut self.connections[index].carried {
            // A request that goes out in one piece counts from before it.
            carried.sent_ns = self.now_ns;
        }
        self.expect_reply(index);
        self.send(index);
    }

    fn send(&mut self, index: usize) {
        let connection = &mut self.connections[index];
        let (Some(io), Some(carried)) = (&mut connection.io, &mut connection.carried) else {
            return;
        };
        let request = &self.shared.plan.requests[carried.request as usize];
        let rest = request.bytes.get(carried.written..).unwrap_or_default();
        let first = carried.written == 0;
        match io.write(rest) {
            Ok(count) => {
                carried.written += count;
                self.recorder.counts.sent_bytes += count as u64;
                let whole = count == rest.len();
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

    fn receive(&mut self, index: usize) {
        for _ in 0..READS_MAX {
            let connection = &mut self.connections[index];
            let Some(io) = &mut connection.io else {
                return;
            };
            match io.read(&mut self.buffer) {
                Ok(0) => return self.ended(index),
                Ok(count) => {
                    if !self.received(index, count) || count < self.buffer.len() {
                        return;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) => return self.broken_off(index, &error),
            }
        }
    }

    /// Reads what a server said before it closed the connection under a request.
    fn receive_last(&mut self, index: usize, cause: &std::io::Error) {
        loop {
            let Some(io) = &mut self.connections[index].io else {
                return;
            };
            match io.read(&mut self.buffer) {
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
    fn received(&mut self, index: usize, count: usize) -> bool {
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

    fn ended(&mut self, index: usize) {
        self.now_ns = self.shared.now_ns();
        let connection = &mut self.connections[index];
        let kept = connection.carried.is_some_and(|carried| carried.kept);
        match connection.scanner.end() {
            Ended::Whole => {
                connection.io = None;
                self.complete(index);
            }
            Ended::Before if kept => self.send_again(index),
            Ended::Before | Ended::Within => self.fail(index, Class::Closed, None),
        }
    }

    fn broken_off(&mut self, index: usize, error: &std::io::Error) {
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
    fn send_again(&mut self, index: usize) {
        let connection = &mut self.connections[index];
        connection.close();
        if let Some(carried) = &mut connection.carried {
            carried.kept = false;
            carried.written = 0;
            carried.first_ns = 0;
        }
        self.connect(index);
    }

    /// Something came, or the end, while nothing was asked: the connection is of no more use.
    fn read_idle(&mut self, index: usize) {
        self.connections[index].close();
    }

    // ---- endings ------------------------------------------------------------------------------

    fn complete(&mut self, index: usize) {
        let connection = &mut self.connections[index];
        let Some(carried) = connection.carried.take() else {
            return;
        };
        let request = &self.shared.plan.requests[carried.request as usize];
        let scanner = &connection.scanner;
        let whole = Whole {
            request: carried.request,
            status: scanner.status(),
            body_bytes: scanner.body_bytes(),
            kept: carried.kept,
            keeps: scanner.keep(),
            due_ns: carried.due_ns,
            start_ns: carried.start_ns,
            connected_ns: carried.connected_ns,
            sent_ns: carried.sent_ns,
            first_ns: carried.first_ns,
            end_ns: self.now_ns,
        };
        if self.recorder.first.is_none() {
            self.recorder.first = Some(FirstReply {
                server: scanner.server().to_owned(),
                body_bytes: whole.body_bytes,
                tls: None,
                status: whole.status,
            });
        }
        self.recorder
            .whole(&whole, self.shared.first_length(whole.body_bytes));
        self.shared.open_gate();
        connection.served = connection.served.saturating_add(1);
        connection.failures = 0;
        let reusable = match self.shared.plan.reuse {
            Reuse::Keep => true,
            Reuse::Close => false,
            Reuse::Requests(most) => connection.served < most,
        };
        let sent = carried.written == request.bytes.len();
        if !(reusable && sent && scanner.keep() && connection.io.is_some()) {
            connection.close();
        }
        self.busy -= 1;
        if self.shared.plan.pace == Pace::Closed {
            self.next(index);
        } else {
            self.set_free(index);
        }
    }

    fn fail_framing(&mut self, index: usize, fault: &'static str) {
        let error = std::io::Error::other(fault);
        self.fail(index, Class::Framing, Some(&error));
    }

    fn fail(&mut self, index: usize, class: Class, error: Option<&std::io::Error>) {
        let connection = &mut self.connections[index];
        let endpoint = &self.shared.routes.endpoints[connection.endpoint];
        let words = || {
            (
                error.and_then(std::io::Error::raw_os_error),
                failure_words(class, &endpoint.address, error),
            )
        };
        match connection.carried.take() {
            Some(carried) => {
                let at = (carried.request, carried.due_ns, self.now_ns);
                self.recorder.failed(class, at, words);
                self.busy -= 1;
            }
            None => self.recorder.note(class, words),
        }
        self.shared.open_gate();
        connection.close();
        connection.failures = connection.failures.saturating_add(1);
        let rest_ns = connection.rest_ns(matches!(class, Class::Connect | Class::Tls));
        self.rest(index, self.now_ns + rest_ns);
    }

    /// Ends what has taken too long.
    fn sweep(&mut self) {
        self.next_sweep_ns = self.now_ns + self.sweep_ns;
        let timeout_ns = nanoseconds(self.shared.plan.timeout);
        let exchange_ns = timeout_ns.saturating_mul(EXCHANGE_TIMEOUTS);
        for index in 0..self.connections.len() {
            let connection = &self.connections[index];
            let silent_ns = self.now_ns.saturating_sub(connection.active_ns);
            let exchange = connection
                .carried
                .map_or(0, |carried| self.now_ns.saturating_sub(carried.start_ns));
            let waits = connection.carried.is_some() || connection.state == State::Connecting;
            if waits && (silent_ns > timeout_ns || exchange > exchange_ns) {
                self.fail(index, Class::Timeout, None);
            }
        }
    }
}

fn interest(connection: &Connection) -> epoll::EventFlags {
    match connection.wants_write {
        true => epoll::EventFlags::IN | epoll::EventFlags::OUT,
        false => epoll::EventFlags::IN,
    }
}

fn is_reset(error: &std::io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::ConnectionAborted
    )
}

fn failure_words(class: Class, address: &Address, error: Option<&std::io::Error>) -> String {
    let shown = match address {
        Address::Tcp(address) => address.to_string(),
        Address::Unix(path) => path.display().to_string(),
    };
    let cause = match error {
        Some(error) if error.kind() == ErrorKind::AddrNotAvailable => {
            return format!(
                "connect to {shown}: no local port is left. Ports rest for a minute after each \
                 connection: keep connections, make fewer of them, or widen \
                 net.ipv4.ip_local_port_range"
            );
        }
        Some(error) => error.to_string(),
        None => String::new(),
    };
    match class {
        Class::Connect => format!("connect to {shown}: {cause}"),
        Class::Tls => format!("agree on TLS with {shown}: {cause}"),
        Class::Reset => format!("{shown} reset the connection: {cause}"),
        Class::Closed => format!("{shown} closed the connection before its reply was whole"),
        Class::Timeout => format!("{shown} was silent or slow for longer than the timeout"),
        Class::Framing => format!("{shown} sent a reply that cannot be trusted: {cause}"),
        Class::Write => format!("send to {shown}: {cause}"),
    }
}
