//! Days of traffic on a virtual clock: after every event the ledger has to keep what it promises.
//!
//! A model beside it knows every permit and every waiter. It knows nothing of queues: what it checks
//! holds in whatever order they serve.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use fastrand::Rng;
use limits::{
    Admission, Ask, Change, Concurrent, Definition, Keyed, Ledger, LimitId, Mode, Outcome, Permit,
    Refusal, Shared, TenantDefinition, TenantId, Ticket, Time, Used, Want, Why,
};

/// File, site, tenant, process; the first two keyed by request.
const LIMITS: usize = 4;
const TENANTS: usize = 5;
const KEYS: u8 = 6;
const WAIT: Duration = Duration::from_millis(400);

/// The key of each of a request's gates; no gate: none.
type Keys = [Option<u8>; LIMITS];
type Gate = (usize, u8);

#[derive(Default)]
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

struct Waiting {
    ticket: Ticket,
    keys: Keys,
    /// In which order it came, and whose it is: tenant and network.
    number: u64,
    whose: (usize, u8),
    flag: Arc<Flag>,
}

struct Model {
    ledger: Ledger,
    random: Rng,
    now: Time,
    definitions: Vec<Definition>,
    limits: Vec<LimitId>,
    tenants: Vec<TenantId>,
    held: Vec<(Permit, Keys, Time)>,
    waiting: Vec<Waiting>,
    in_flight: BTreeMap<Gate, u32>,
    arrived: u64,
    tally: BTreeMap<&'static str, u64>,
}

#[test]
fn a_day_of_traffic_breaks_no_promise() {
    let events = events();
    for seed in 0..4 {
        let mut model = Model::new(seed);
        for event in 0..events / 4 {
            model.step();
            model.check();
            if event % 512 == 0 {
                model.compare();
            }
        }
        let tally = model.finish();
        for word in [
            "admitted",
            "granted",
            "limit_full",
            "limit_queue_full",
            "aborted",
        ] {
            assert!(tally.contains_key(word), "seed {seed}: {word} in {tally:?}");
        }
    }
}

impl Model {
    fn new(seed: u64) -> Self {
        let definitions = vec![
            definition("file", Keyed::Dynamic, 2, 4),
            definition("client", Keyed::Dynamic, 3, 0),
            definition("site", Keyed::Fixed, 12, 12),
            definition("process", Keyed::Fixed, 16, 30),
        ];
        let mut model = Self {
            ledger: Ledger::new(2, [seed, 2, 3, 4]),
            random: Rng::with_seed(seed),
            now: Time(1),
            definitions,
            limits: Vec::new(),
            tenants: Vec::new(),
            held: Vec::new(),
            waiting: Vec::new(),
            in_flight: BTreeMap::new(),
            arrived: 0,
            tally: BTreeMap::new(),
        };
        model.define();
        model
    }

    fn define(&mut self) {
        let tenants: Vec<TenantDefinition> = (0..TENANTS)
            .map(|tenant| TenantDefinition {
                name: format!("tenant{tenant}"),
                weight: 1 + tenant as u32,
                keys_max: 1000,
            })
            .collect();
        let defined = self.ledger.define(self.now, &self.definitions, &tenants);
        self.limits = defined.limits;
        self.tenants = defined.tenants;
    }

    fn step(&mut self) {
        self.now = self.now + Duration::from_micros(self.random.u64(..2_000));
        match self.random.u32(..1000) {
            0..470 => self.arrive(),
            470..850 => self.end(),
            850..900 => self.abort(),
            900..980 => self.ledger.tick(self.now),
            980..995 => self.change(),
            _ => self.reload(),
        }
        // At the latest a tick ends a wait; nobody waits beyond its time after one.
        self.collect();
    }

    fn arrive(&mut self) {
        let mut keys: Keys = [None; LIMITS];
        while keys == [None; LIMITS] {
            for (limit, key) in keys.iter_mut().enumerate() {
                let distinct = if self.definitions[limit].keyed == Keyed::Fixed {
                    1
                } else {
                    KEYS
                };
                *key = self.random.bool().then(|| self.random.u8(..distinct));
            }
        }
        let whose = (self.random.usize(..TENANTS), self.random.u8(..8));
        self.arrived += 1;
        match self.ask(keys, whose) {
            Admission::Admitted(permit) => {
                self.count("admitted");
                self.begin(permit, keys);
            }
            Admission::Waiting(ticket) => {
                self.count("waiting");
                let flag = Arc::<Flag>::default();
                flag.0.store(true, Ordering::SeqCst);
                self.waiting.push(Waiting {
                    ticket,
                    keys,
                    number: self.arrived,
                    whose,
                    flag,
                });
            }
            Admission::Refused(refusal) => self.refused(keys, &refusal),
        }
    }

    fn ask(&mut self, keys: Keys, whose: (usize, u8)) -> Admission {
        let bytes = keys.map(|key| [key.unwrap_or_default()]);
        let wants: Vec<Want<'_>> = (0..LIMITS)
            .filter(|limit| keys[*limit].is_some())
            .map(|limit| Want {
                limit: self.limits[limit],
                key: (self.definitions[limit].keyed == Keyed::Dynamic).then_some(&bytes[limit]),
            })
            .collect();
        let ask = Ask::of(
            self.random.usize(..2),
            self.tenants[whose.0],
            [10, 0, whose.1, 1].into(),
            &wants,
        );
        self.ledger.admit(self.now, &ask)
    }

    /// Counts an admission: no gate that refuses may have been full.
    fn begin(&mut self, permit: Permit, keys: Keys) {
        for gate in gates(keys) {
            let definition = &self.definitions[gate.0];
            let count = self.in_flight.entry(gate).or_default();
            let full = *count >= cap(definition);
            assert!(
                !full || definition.mode == Mode::Shadow,
                "{gate:?} had {count} in flight"
            );
            *count += 1;
        }
        self.held.push((permit, keys, self.now));
    }

    /// A refusal on arrival is for a gate of the request that is full or waited at.
    fn refused(&mut self, keys: Keys, refusal: &Refusal) {
        self.count(refusal.why.word());
        let limit = self.limits.iter().position(|limit| *limit == refusal.limit);
        let limit = limit.expect("a limit in force");
        assert!(keys[limit].is_some());
        assert_eq!(self.definitions[limit].mode, Mode::Enforce);
        let queue = self.definitions[limit].queue;
        match refusal.why {
            Why::Full => assert_eq!(queue, 0),
            Why::QueueFull => assert!(refusal.queued >= queue, "{refusal:?}"),
            why => panic!("refused on arrival, with room to wait: {why:?}"),
        }
        assert!(
            refusal.in_flight >= refusal.cap || refusal.queued > 0,
            "{refusal:?}"
        );
        assert_eq!(refusal.cap, cap(&self.definitions[limit]));
    }

    fn end(&mut self) {
        if self.held.is_empty() {
            return;
        }
        let at = self.random.usize(..self.held.len());
        let (permit, keys, since) = self.held.swap_remove(at);
        for gate in gates(keys) {
            *self.in_flight.entry(gate).or_default() -= 1;
        }
        match self.random.u8(..4) {
            0 => drop(permit),
            1 => permit.end(self.now, Used::Nothing, Outcome::Ignored),
            _ => {
                let nanos = (self.now - since).as_nanos() as u64 / 2;
                permit.end(self.now, Used::Measured(nanos), Outcome::Fine);
            }
        }
    }

    fn abort(&mut self) {
        if !self.waiting.is_empty() {
            let at = self.random.usize(..self.waiting.len());
            drop(self.waiting.swap_remove(at));
            self.count("aborted");
        }
    }

    fn change(&mut self) {
        let limit = self.random.usize(..LIMITS);
        let fixed = self.definitions[limit].keyed == Keyed::Fixed;
        let change = match self.random.u8(..8) {
            0 => Change::Mode(Mode::Shadow),
            1..4 => Change::Mode(Mode::Enforce),
            4 => Change::Queue(self.random.u32(..20)),
            _ => {
                let most = if fixed { 30 } else { 4 };
                Change::Concurrent(Some(Concurrent::Fixed(self.random.u32(1..most))))
            }
        };
        let definition = &mut self.definitions[limit];
        match change {
            Change::Mode(mode) => definition.mode = mode,
            Change::Queue(queue) => definition.queue = queue,
            Change::Concurrent(concurrent) => definition.concurrent = concurrent,
            _ => {}
        }
        self.ledger.change(self.now, self.limits[limit], &change);
    }

    /// The file says now what was changed while running.
    fn reload(&mut self) {
        let limits = self.limits.clone();
        self.define();
        assert_eq!(self.limits, limits, "state is kept by identity");
    }

    /// Polls those who were woken, who came first first, until nobody is.
    fn collect(&mut self) {
        loop {
            let woken = self.waiting.iter().enumerate();
            let woken = woken.filter(|(_, it)| it.flag.0.load(Ordering::SeqCst));
            let Some((at, first)) = woken.min_by_key(|(_, it)| it.number) else {
                return;
            };
            first.flag.0.store(false, Ordering::SeqCst);
            let before = self.before(first);
            let Waiting {
                ticket, flag, keys, ..
            } = &mut self.waiting[at];
            let keys = *keys;
            let waker = Waker::from(flag.clone());
            match ticket.poll_wait(self.now, &mut Context::from_waker(&waker)) {
                Poll::Pending => continue,
                Poll::Ready(Ok(permit)) => {
                    assert!(permit.waited() <= WAIT, "{:?}", permit.waited());
                    assert_eq!(before, 0, "of its flow, for the same, came before it");
                    self.count("granted");
                    self.begin(permit, keys);
                }
                Poll::Ready(Err(refusal)) => {
                    match refusal.why {
                        Why::WaitedTooLong => assert!(ticket.deadline() <= self.now),
                        Why::QueueFull => assert!(refusal.queued >= refusal.queue_max),
                        why => panic!("refused though it might wait: {why:?}"),
                    }
                    self.count(refusal.why.word());
                }
            }
            self.waiting.swap_remove(at);
        }
    }

    /// How many of its flow came before it for the same keys and still wait.
    fn before(&self, waiter: &Waiting) -> usize {
        let is_before = |it: &&Waiting| {
            (it.whose, it.keys) == (waiter.whose, waiter.keys) && it.number < waiter.number
        };
        self.waiting.iter().filter(is_before).count()
    }

    /// Nobody waits who could go on: the ledger conserves work.
    fn check(&self) {
        for waiting in &self.waiting {
            let stopped = gates(waiting.keys).any(|gate| {
                let definition = &self.definitions[gate.0];
                let count = self.in_flight.get(&gate).copied().unwrap_or_default();
                definition.mode == Mode::Enforce && count >= cap(definition)
            });
            assert!(
                stopped,
                "{:?} waits and nothing is in its way",
                waiting.keys
            );
        }
    }

    /// What the ledger shows is what the model counts, and nobody is beyond its time after a tick.
    fn compare(&mut self) {
        self.ledger.tick(self.now);
        self.collect();
        for waiting in &self.waiting {
            assert!(waiting.ticket.deadline() > self.now);
        }
        assert_eq!(self.ledger.drift(), 0);
        let looks = self.ledger.look(self.now, None, 1000);
        let queued: u32 = looks.iter().map(|look| look.queued).sum();
        assert_eq!(queued as usize, self.waiting.len());
        for (limit, id) in self.limits.iter().enumerate() {
            let shown: u32 = looks
                .iter()
                .filter(|look| look.limit == *id)
                .map(|look| look.in_flight)
                .sum();
            let counted: u32 = self
                .in_flight
                .iter()
                .filter(|(gate, _)| gate.0 == limit)
                .map(|(_, count)| count)
                .sum();
            assert_eq!(shown, counted, "{}", self.definitions[limit].name);
        }
    }

    fn finish(mut self) -> BTreeMap<&'static str, u64> {
        while !(self.held.is_empty() && self.waiting.is_empty()) {
            self.abort();
            self.end();
            self.collect();
            self.check();
        }
        self.compare();
        let looks = self.ledger.look(self.now, None, 1000);
        assert!(
            looks
                .iter()
                .all(|look| (look.in_flight, look.queued) == (0, 0))
        );
        self.tally
    }

    fn count(&mut self, word: &'static str) {
        *self.tally.entry(word).or_default() += 1;
    }
}

fn gates(keys: Keys) -> impl Iterator<Item = Gate> {
    (0..)
        .zip(keys)
        .filter_map(|(limit, key)| Some((limit, key?)))
}

fn cap(definition: &Definition) -> u32 {
    match definition.concurrent {
        Some(Concurrent::Fixed(cap)) => cap,
        _ => u32::MAX,
    }
}

fn definition(name: &str, keyed: Keyed, concurrent: u32, queue: u32) -> Definition {
    Definition {
        shared: Shared::Tenants,
        keyed,
        concurrent: Some(Concurrent::Fixed(concurrent)),
        queue,
        wait: WAIT,
        ..Definition::of(name)
    }
}

/// Events in all. The whole million of a release build takes seconds: `NAGAYA_EVENTS=1000000`.
fn events() -> u64 {
    let events = std::env::var("NAGAYA_EVENTS").ok();
    events.and_then(|text| text.parse().ok()).unwrap_or(30_000)
}
