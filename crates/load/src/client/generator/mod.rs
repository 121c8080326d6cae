//! One thread of the generator: an event loop over its connections.
//!
//! The idea: an exchange costs one `send`, one `recv` and its share of an `epoll_wait`. Readiness
//! is level-triggered, so nothing is read only to hear that there is no more, and what is written
//! is asked about only where it did not fit. The clock is read once for each reply.

mod begin;
mod endings;
mod streams;
mod transfer;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;

use super::connection::{Connection, State};
use super::http2::{Http2, Woken};
use super::live::Phase;
use super::numbers::NumberSource;
use super::plan::{Opening, Pace};
use super::pulse::nanoseconds;
use super::recorder::Recorder;
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
/// A wait shorter than this is waited out by polling: a sleep would be late.
const SPIN_BELOW_NS: u64 = 60_000;

/// See the module.
pub(crate) struct Generator<'a> {
    shared: &'a Shared<'a>,
    thread: usize,
    epoll: OwnedFd,
    /// In HTTP/2 its streams: each carries one exchange, and none has a socket of its own.
    connections: Vec<Connection>,
    http2: Http2,
    /// Who is polled just now; the room is kept.
    woken: Vec<Woken>,
    /// Places in each endpoint's order, in a closed loop.
    positions: Vec<usize>,
    /// What is due at each endpoint, in an open loop.
    cursors: Vec<Option<Cursor>>,
    /// Free connections of each endpoint, in an open loop.
    free: Vec<Free>,
    /// Connections that begin, or begin again, at an instant.
    rests: BinaryHeap<Reverse<(u64, usize)>>,
    pub(crate) recorder: Recorder,
    numbers: NumberSource,
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
    /// CPU time spent polling for want of work.
    spun_ns: u64,
    /// CPU time when the last turn was over, if it was spent so.
    spinning_since_ns: Option<u64>,
    pub(crate) usage: Usage,
}

/// Connections with nothing to do. The last is taken first: it is warm.
#[derive(Debug, Clone, Default)]
struct Free {
    connections: Vec<usize>,
    /// Since when there has been one.
    since_ns: u64,
}

impl Free {
    fn push(&mut self, index: usize, now_ns: u64) {
        if self.connections.is_empty() {
            self.since_ns = now_ns;
        }
        self.connections.push(index);
    }
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
        let http2 = Http2::new(plan.protocol, mine.len());
        let streams = |one| std::iter::repeat_n(one, http2.each);
        let mine: Vec<_> = mine.into_iter().flat_map(streams).collect();
        let endpoints = shared.routes.endpoints.len();
        let patience = plan.requests.iter().filter_map(|request| request.patience);
        let least_ns = nanoseconds(patience.fold(plan.timeout, Duration::min));
        let mut generator = Generator {
            shared,
            thread,
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            connections: mine.iter().map(|(e, _)| Connection::new(*e)).collect(),
            http2,
            woken: Vec::new(),
            positions: vec![0; endpoints],
            cursors: Vec::new(),
            free: vec![Free::default(); endpoints],
            rests: BinaryHeap::with_capacity(mine.len()),
            recorder: Recorder::new(plan),
            numbers: NumberSource::new(thread, shared.threads, shared.first_number),
            buffer: vec![0; BUFFER_BYTES].into_boxed_slice(),
            now_ns: shared.now_ns(),
            tenth: 0,
            next_tenth_ns: shared.pulse.start_ns(1),
            sweep_ns: (least_ns / 10).clamp(1_000_000, SLEEP_NS),
            next_sweep_ns: 0,
            busy: 0,
            alive: mine.len(),
            held: Vec::new(),
            spun_ns: 0,
            spinning_since_ns: None,
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
                self.run_woken();
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
        self.record_from_now_on();
        if self.shared.live.stopped() {
            return false;
        }
        if self.now_ns >= self.next_sweep_ns {
            self.sweep();
        }
        self.wake_rested();
        self.run_woken();
        match self.shared.plan.pace {
            Pace::Closed => self.now_ns < self.shared.end_ns && self.alive > 0,
            Pace::Open { .. } => self.turn_open(),
        }
    }

    fn turn_open(&mut self) -> bool {
        if self.now_ns < self.shared.end_ns {
            self.send_due();
            self.run_woken();
            let waits = |cursor: &Cursor| cursor.peek().is_some() || cursor.ends_by_time();
            return self.busy > 0 || self.cursors.iter().flatten().any(waits);
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

    /// Begins to record, if that instant has come.
    fn record_from_now_on(&mut self) {
        if self.recorder.is_recording() || self.now_ns < self.shared.pulse.recording_at() {
            return;
        }
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
        let carried = self.connections.iter().filter_map(|c| c.carried);
        let cut = carried.filter(|carried| self.recorder.counts_from(carried.due_ns));
        self.recorder.counts.cut = cut.count() as u64;
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
        if self.http2.has_woken() {
            until_ns = self.now_ns;
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
            self.spin();
        } else {
            self.spinning_since_ns = None;
        }
        Ok(())
    }

    /// Lets somebody else have the core for a moment, and counts what polling costs ourselves.
    fn spin(&mut self) {
        rustix::thread::sched_yield();
        let cpu_ns = os::cpu::thread_cpu_ns();
        if let Some(since_ns) = self.spinning_since_ns {
            self.spun_ns += cpu_ns.saturating_sub(since_ns);
        }
        self.spinning_since_ns = Some(cpu_ns);
    }

    fn ready(&mut self, index: usize, generation: u32, flags: epoll::EventFlags) {
        if self.http2.is_spoken() {
            return self.ready_link(index, generation);
        }
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_free_connection_since_the_first_of_several() {
        let mut free = Free::default();
        free.push(7, 100);
        free.push(8, 200);
        assert_eq!((free.connections.pop(), free.since_ns), (Some(8), 100));
        free.connections.pop();
        free.push(9, 300);
        assert_eq!(free.since_ns, 300);
    }
}
