//! A back end, its callers and one limit before it, on a virtual clock.
//!
//! Callers do not wait for each other (open loop, Poisson), so overload is overload. The back end
//! serves a number of requests at once and gets slower beyond it, so congestion can collapse.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use limits::{Adaptive, Outcome, Time};

pub(crate) const SECOND: u64 = 1_000_000_000;
const MILLISECOND: u64 = 1_000_000;
const TICK_NS: u64 = 100 * MILLISECOND;
/// A reply later than this after the request's arrival is of no use to anybody.
const DEADLINE_NS: u64 = SECOND;
/// How long a request waits before it leaves.
const PATIENCE_NS: u64 = 500 * MILLISECOND;

/// Something that says how many requests may be in flight.
pub(crate) trait Controller {
    fn limit(&self) -> u32;
    fn sample(&mut self, now: Time, held_ns: u64, in_flight: u32, queued: u32);
    fn tick(&mut self, _now: Time, _in_flight: u32, _queued: u32) {}
}

impl Controller for Adaptive {
    fn limit(&self) -> u32 {
        Adaptive::limit(self)
    }

    fn sample(&mut self, now: Time, held_ns: u64, in_flight: u32, queued: u32) {
        Adaptive::sample(self, now, held_ns, in_flight, queued, Outcome::Fine);
    }

    fn tick(&mut self, now: Time, in_flight: u32, queued: u32) {
        Adaptive::tick(self, now, in_flight, queued);
    }
}

/// A limit that never changes.
pub(crate) struct Fixed(pub(crate) u32);

impl Controller for Fixed {
    fn limit(&self) -> u32 {
        self.0
    }

    fn sample(&mut self, _now: Time, _held_ns: u64, _in_flight: u32, _queued: u32) {}
}

/// What happens to a back end beyond its capacity.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Overload {
    /// Each request takes `1 + (n / capacity)^2` times as long: it does less the more it has.
    Collapses,
    /// All share what there is: it does as much as before, later.
    Shares,
}

/// A back end at some time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Backend {
    pub(crate) capacity: u32,
    pub(crate) service_ms: f64,
    /// Spread of the service times: 0 all equal, else that of a lognormal distribution.
    pub(crate) sigma: f64,
    /// Time a reply takes on top, which keeps nobody else waiting.
    pub(crate) away_ms: f64,
    pub(crate) overload: Overload,
}

/// An experiment.
#[derive(Debug, Clone)]
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) seconds: u64,
    pub(crate) arrivals_per_second: f64,
    pub(crate) queue: usize,
    /// From which second on which back end answers; the first from 0.
    pub(crate) phases: Vec<(u64, Backend)>,
}

/// What one second came to.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Second {
    pub(crate) arrived: u32,
    pub(crate) refused: u32,
    /// Answered in time.
    pub(crate) good: u32,
    /// The limit at its end.
    pub(crate) limit: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Served,
    Replied,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Due {
    at: u64,
    number: u64,
    event: Event,
    arrived: u64,
    started: u64,
}

struct Run<'a> {
    scenario: &'a Scenario,
    controller: &'a mut dyn Controller,
    /// For arrivals, so that they are the same whatever the controller does.
    callers: fastrand::Rng,
    /// For service times.
    services: fastrand::Rng,
    now: u64,
    number: u64,
    due: BinaryHeap<Reverse<Due>>,
    waiting: VecDeque<u64>,
    in_flight: u32,
    in_service: u32,
    seconds: Vec<Second>,
}

/// Runs a scenario and tells every second of it.
pub(crate) fn run(scenario: &Scenario, controller: &mut dyn Controller, seed: u64) -> Vec<Second> {
    let mut run = Run {
        scenario,
        controller,
        callers: fastrand::Rng::with_seed(seed),
        services: fastrand::Rng::with_seed(!seed),
        now: 0,
        number: 0,
        due: BinaryHeap::new(),
        waiting: VecDeque::new(),
        in_flight: 0,
        in_service: 0,
        seconds: vec![Second::default(); scenario.seconds as usize],
    };
    run.all();
    run.seconds
}

/// Replies in time, a second, from one second until before another.
pub(crate) fn goodput(seconds: &[Second], from: usize, until: usize) -> f64 {
    let good: u32 = seconds[from..until].iter().map(|second| second.good).sum();
    f64::from(good) / (until - from) as f64
}

impl Run<'_> {
    fn all(&mut self) {
        let end = self.scenario.seconds * SECOND;
        let (mut arrival, mut tick) = (self.gap_ns(), TICK_NS);
        loop {
            let due = self.due.peek().map_or(u64::MAX, |Reverse(due)| due.at);
            self.now = arrival.min(tick).min(due);
            if self.now >= end {
                return;
            }
            if self.now == due {
                self.next_due();
            } else if self.now == arrival {
                self.arrive();
                arrival += self.gap_ns();
            } else {
                self.controller
                    .tick(Time(self.now), self.in_flight, self.waiting.len() as u32);
                tick += TICK_NS;
            }
            self.start_waiting();
            let limit = self.controller.limit();
            self.second().limit = limit;
        }
    }

    fn arrive(&mut self) {
        self.second().arrived += 1;
        if self.waiting.is_empty() && self.in_flight < self.controller.limit() {
            self.start(self.now);
        } else if self.waiting.len() < self.scenario.queue {
            self.waiting.push_back(self.now);
        } else {
            self.second().refused += 1;
        }
    }

    fn start_waiting(&mut self) {
        while let Some(arrived) = self.waiting.front().copied() {
            let late = self.now - arrived > PATIENCE_NS;
            if !late && self.in_flight >= self.controller.limit() {
                return;
            }
            self.waiting.pop_front();
            if late {
                self.second().refused += 1;
            } else {
                self.start(arrived);
            }
        }
    }

    fn start(&mut self, arrived: u64) {
        self.in_flight += 1;
        self.in_service += 1;
        let service_ns = self.service_ns();
        self.push(self.now + service_ns, Event::Served, arrived, self.now);
    }

    fn next_due(&mut self) {
        let Some(Reverse(due)) = self.due.pop() else {
            return;
        };
        if due.event == Event::Served {
            self.in_service -= 1;
            let away_ns = (self.backend().away_ms * MILLISECOND as f64) as u64;
            self.push(self.now + away_ns, Event::Replied, due.arrived, due.started);
            return;
        }
        let held_ns = self.now - due.started;
        self.controller.sample(
            Time(self.now),
            held_ns,
            self.in_flight,
            self.waiting.len() as u32,
        );
        self.in_flight -= 1;
        if self.now - due.arrived <= DEADLINE_NS {
            self.second().good += 1;
        }
    }

    fn push(&mut self, at: u64, event: Event, arrived: u64, started: u64) {
        self.number += 1;
        self.due.push(Reverse(Due {
            at,
            number: self.number,
            event,
            arrived,
            started,
        }));
    }

    fn backend(&self) -> Backend {
        let second = self.now / SECOND;
        let begun = self
            .scenario
            .phases
            .iter()
            .rev()
            .find(|(from, _)| *from <= second);
        begun.expect("the first phase begins at 0").1
    }

    fn service_ns(&mut self) -> u64 {
        let backend = self.backend();
        let load = f64::from(self.in_service) / f64::from(backend.capacity);
        let slower = match backend.overload {
            _ if load <= 1.0 => 1.0,
            Overload::Collapses => 1.0 + load * load,
            Overload::Shares => load,
        };
        let spread = backend.sigma * self.normal() - backend.sigma * backend.sigma / 2.0;
        (backend.service_ms * slower * spread.exp() * MILLISECOND as f64) as u64
    }

    /// Normally distributed (Box and Muller).
    fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.services.f64()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.services.f64()).cos()
    }

    fn gap_ns(&mut self) -> u64 {
        let gap = -(1.0 - self.callers.f64()).ln() / self.scenario.arrivals_per_second;
        (gap * SECOND as f64) as u64 + 1
    }

    fn second(&mut self) -> &mut Second {
        &mut self.seconds[(self.now / SECOND) as usize]
    }
}
