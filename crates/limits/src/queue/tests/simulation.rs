//! A simulated gate: sources of requests, so many permits, a virtual clock.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::time::Duration;

use fastrand::Rng;

use super::network;
use crate::ask::Class;
use crate::queue::{Charge, Next, Queue, Share, Waiter};
use crate::time::Time;

/// When a source's requests come.
#[derive(Debug, Clone, Copy)]
pub(super) enum Arrivals {
    /// Independently of each other, so many a second.
    Poisson(f64),
    /// As soon as one leaves the queue: so many always wait.
    Backlog(u32),
    /// So many within 100 ms at the beginning of each second, and Poisson at the given rate.
    Bursts(u32, f64),
    /// The next one as soon as the one before was served.
    Loop,
}

/// How long a service takes.
#[derive(Debug, Clone, Copy)]
pub(super) enum Service {
    Fixed(u64),
    /// Between half and one and a half of it.
    Even(u64),
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Source {
    pub(super) tenant: u32,
    pub(super) weight: u32,
    pub(super) client: u32,
    pub(super) arrivals: Arrivals,
    pub(super) service: Service,
}

/// What became of a source's requests.
#[derive(Debug, Default, Clone)]
pub(super) struct Outcome {
    pub(super) waits_ns: Vec<u64>,
    pub(super) cost_ns: u64,
    pub(super) refused: u64,
    pub(super) late: u64,
    pub(super) expired: u64,
    pub(super) pushed_out: u64,
    /// Predicted and real waits of those who waited and were served.
    pub(super) predictions: Vec<(u64, u64)>,
}

impl Outcome {
    pub(super) fn served(&self) -> u64 {
        self.waits_ns.len() as u64
    }

    pub(super) fn lost(&self) -> u64 {
        self.refused + self.late + self.expired + self.pushed_out
    }
}

/// The value below which this share of them lies.
pub(super) fn quantile(values: &[u64], share: f64) -> u64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    let place = ((sorted.len() as f64 * share) as usize).min(sorted.len().saturating_sub(1));
    sorted.get(place).copied().unwrap_or(0)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrive {
        source: usize,
    },
    Finish {
        source: usize,
        charge: (u64, u8),
        held_ns: u64,
    },
}

pub(super) struct Simulation {
    pub(super) queue: Queue,
    pub(super) now: Time,
    pub(super) permits: u32,
    pub(super) queue_max: usize,
    pub(super) patience: Duration,
    pub(super) sources: Vec<Source>,
    pub(super) outcomes: Vec<Outcome>,
    /// Who was served, in their order: source, and when it had come.
    pub(super) served: Vec<(usize, Time)>,
    free: u32,
    ids: u64,
    chance: Vec<Rng>,
    events: BinaryHeap<Reverse<(Time, u64, Event)>>,
    /// Of those who wait: source and predicted wait.
    waiting: HashMap<u64, (usize, Option<Duration>)>,
    events_made: u64,
}

impl Simulation {
    pub(super) fn new(share: Share, permits: u32, sources: Vec<Source>) -> Self {
        let count = sources.len();
        let mut simulation = Self {
            queue: Queue::with_seed(share, Time::ZERO, 7),
            now: Time::ZERO,
            permits,
            queue_max: 10_000,
            patience: Duration::from_secs(2),
            sources,
            outcomes: vec![Outcome::default(); count],
            served: Vec::new(),
            free: permits,
            ids: 0,
            chance: (0..count)
                .map(|source| Rng::with_seed(source as u64 + 1))
                .collect(),

            events: BinaryHeap::new(),
            waiting: HashMap::new(),
            events_made: 0,
        };
        (0..count).for_each(|source| simulation.begin(source));
        simulation
    }

    /// Runs until so many requests have come.
    pub(super) fn run(&mut self, requests: usize) {
        while self.ids < requests as u64 {
            assert!(!self.events.is_empty(), "no more requests come");
            self.step();
        }
    }

    /// Runs until this time.
    pub(super) fn run_until(&mut self, until: Time) {
        while self
            .events
            .peek()
            .is_some_and(|Reverse((at, _, _))| *at < until)
        {
            self.step();
        }
        self.now = until;
    }

    fn begin(&mut self, source: usize) {
        match self.sources[source].arrivals {
            Arrivals::Backlog(count) => {
                (0..count).for_each(|_| self.plan(Duration::ZERO, Event::Arrive { source }))
            }
            Arrivals::Loop => self.plan(Duration::ZERO, Event::Arrive { source }),
            Arrivals::Poisson(rate) => self.plan_poisson(source, rate),
            Arrivals::Bursts(_, rate) => {
                self.plan_poisson(source, rate);
                self.plan_bursts(source);
            }
        }
    }

    /// The bursts of the next hundred seconds.
    fn plan_bursts(&mut self, source: usize) {
        let Arrivals::Bursts(count, _) = self.sources[source].arrivals else {
            return;
        };
        for second in 0..100 {
            for number in 0..u64::from(count) {
                let after = Duration::from_secs(second)
                    + Duration::from_millis(100 * number / u64::from(count));
                self.events_made += 1;
                let event = Event::Arrive {
                    source: source + self.sources.len(),
                };
                self.events
                    .push(Reverse((self.now + after, self.events_made, event)));
            }
        }
    }

    fn plan(&mut self, after: Duration, event: Event) {
        self.events_made += 1;
        self.events
            .push(Reverse((self.now + after, self.events_made, event)));
    }

    fn plan_poisson(&mut self, source: usize, rate: f64) {
        let gap = -(1.0 - self.chance[source].f64()).ln() / rate;
        self.plan(Duration::from_secs_f64(gap), Event::Arrive { source });
    }

    fn step(&mut self) {
        let Some(Reverse((at, _, event))) = self.events.pop() else {
            return;
        };
        self.now = at;
        while let Some(waiter) = self.queue.expired(at) {
            let source = self.left(waiter.id);
            self.outcomes[source].expired += 1;
        }
        match event {
            Event::Arrive { source } if source >= self.sources.len() => {
                self.arrive(source - self.sources.len())
            }
            Event::Arrive { source } => {
                if let Arrivals::Poisson(rate) | Arrivals::Bursts(_, rate) =
                    self.sources[source].arrivals
                {
                    self.plan_poisson(source, rate);
                }
                self.arrive(source);
            }
            Event::Finish {
                source,
                charge: (cost_ns, bucket),
                held_ns,
            } => {
                let Source {
                    tenant,
                    client,
                    arrivals,
                    ..
                } = self.sources[source];
                if let Arrivals::Loop = arrivals {
                    self.plan(Duration::ZERO, Event::Arrive { source });
                }
                let charge = Charge {
                    cost_ns,
                    class: 0,
                    bucket,
                };
                if charge != Charge::NONE {
                    self.queue
                        .settle(at, tenant, network(client), charge, held_ns);
                }
                self.queue.note_service(held_ns);
                self.free += 1;
            }
        }
        self.dispatch();
        assert!(
            self.free == 0 || self.queue.is_empty(),
            "a free permit beside a waiter"
        );
        assert_eq!(self.queue.len(), self.waiting.len());
    }

    fn arrive(&mut self, source: usize) {
        self.ids += 1;
        let Source {
            tenant,
            weight,
            client,
            ..
        } = self.sources[source];
        let (arrived, until) = (self.now, self.now + self.patience);
        let waiter = Waiter {
            id: self.ids,
            arrived,
            until,
            tenant,
            weight,
            class: Class::NONE,
            client: network(client),
        };
        if self.free > 0 && self.queue.is_empty() {
            return self.serve(source, &waiter, Charge::NONE);
        }
        let predicted = self
            .queue
            .predicted_wait_for(self.now, self.permits, &waiter);
        let is_hopeless = predicted.is_some_and(|wait| wait > self.patience);
        if is_hopeless && self.queue.late_ns.is_some() {
            return self.refuse(source);
        }
        if self.queue.len() >= self.queue_max {
            let Some(victim) = self.queue.push_out(&waiter, false) else {
                return self.refuse(source);
            };
            let victim = self.left(victim.id);
            self.outcomes[victim].pushed_out += 1;
        }
        self.waiting.insert(waiter.id, (source, predicted));
        self.queue.push(self.now, waiter);
    }

    /// One is refused; another of a backlog tries a little later.
    fn refuse(&mut self, source: usize) {
        self.outcomes[source].refused += 1;
        if let Arrivals::Backlog(_) = self.sources[source].arrivals {
            self.plan(Duration::from_secs(1), Event::Arrive { source });
        }
    }

    fn dispatch(&mut self) {
        while self.free > 0 {
            match self.queue.next(self.now) {
                None => return,
                Some(Next::Late(waiter)) => {
                    let source = self.left(waiter.id);
                    self.outcomes[source].late += 1;
                }
                Some(Next::Serve(waiter, charge)) => {
                    let predicted = self.waiting.get(&waiter.id).and_then(|waiting| waiting.1);
                    let source = self.left(waiter.id);
                    if let Some(predicted) = predicted {
                        let waits_ns = (
                            predicted.as_nanos() as u64,
                            self.now.since_ns(waiter.arrived),
                        );
                        self.outcomes[source].predictions.push(waits_ns);
                    }
                    self.serve(source, &waiter, charge);
                }
            }
        }
    }

    /// One no longer waits; another of a backlog comes in its place.
    fn left(&mut self, id: u64) -> usize {
        let (source, _) = self
            .waiting
            .remove(&id)
            .expect("nobody leaves who did not wait");
        if let Arrivals::Backlog(_) = self.sources[source].arrivals {
            self.plan(Duration::from_nanos(1), Event::Arrive { source });
        }
        source
    }

    fn serve(&mut self, source: usize, waiter: &Waiter, charge: Charge) {
        self.free -= 1;
        let held_ns = match self.sources[source].service {
            Service::Fixed(ms) => ms * 1_000_000,
            Service::Even(ms) => (ms * 500_000) + self.chance[source].u64(0..ms * 1_000_000),
        };
        if charge == Charge::NONE
            && let Arrivals::Backlog(_) = self.sources[source].arrivals
        {
            self.plan(Duration::ZERO, Event::Arrive { source });
        }
        self.served.push((source, waiter.arrived));
        let outcome = &mut self.outcomes[source];
        outcome.waits_ns.push(self.now.since_ns(waiter.arrived));
        outcome.cost_ns += held_ns;
        let charge = (charge.cost_ns, charge.bucket);
        self.plan(
            Duration::from_nanos(held_ns),
            Event::Finish {
                source,
                charge,
                held_ns,
            },
        );
    }
}
