//! A thousand tenants at one limit, 64 of them heavy: what the light ones notice. A virtual clock.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use limits::{
    Admission, Ask, Concurrent, Definition, Ledger, LimitId, Outcome, Permit, Shared,
    TenantDefinition, TenantId, Ticket, Time, Used, Want,
};

const TENANTS: usize = 1_000;
const HEAVY: usize = 64;
/// Permits and what each is held for: 2,000 requests a second, 2 for each tenant.
const PERMITS: u32 = 100;
const SERVICE: Duration = Duration::from_millis(50);
/// Requests a second: 20 times a tenant's share, and four fifths of it.
const HEAVY_RATE: f64 = 40.0;
const LIGHT_RATE: f64 = 1.6;
const REQUESTS: usize = 100_000;
const TICK: Duration = Duration::from_millis(100);

/// Names who was woken.
struct Bell {
    number: u64,
    woken: Arc<Mutex<Vec<u64>>>,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        let mut woken = self.woken.lock().unwrap_or_else(PoisonError::into_inner);
        woken.push(self.number);
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrive(usize),
    Finish(u64),
    Tick,
}

struct Waiting {
    ticket: Ticket,
    tenant: usize,
    arrived: Time,
}

struct Gateway {
    ledger: Arc<Ledger>,
    limit: LimitId,
    tenants: Vec<TenantId>,
    now: Time,
    events: BinaryHeap<Reverse<(Time, u64, Event)>>,
    numbers: u64,
    chance: fastrand::Rng,
    held: HashMap<u64, Permit>,
    waiting: HashMap<u64, Waiting>,
    woken: Arc<Mutex<Vec<u64>>>,
    refused: Vec<u64>,
    waits: Vec<Vec<Duration>>,
}

impl Gateway {
    fn new() -> Gateway {
        let ledger = Arc::new(Ledger::new(2, [1, 2, 3, 4]));
        let definition = Definition {
            shared: Shared::Tenants,
            concurrent: Some(Concurrent::Fixed(PERMITS)),
            queue: 2_000,
            wait: Duration::from_secs(2),
            ..Definition::of("upstream")
        };
        let tenant = |number| TenantDefinition {
            name: format!("tenant {number}"),
            weight: 1,
            keys_max: 16,
        };
        let tenants: Vec<_> = (0..TENANTS).map(tenant).collect();
        let defined = ledger.define(Time::ZERO, &[definition], &tenants);
        let mut gateway = Gateway {
            ledger,
            limit: defined.limits[0],
            tenants: defined.tenants,
            now: Time::ZERO,
            events: BinaryHeap::new(),
            numbers: 0,
            chance: fastrand::Rng::with_seed(1),
            held: HashMap::new(),
            waiting: HashMap::new(),
            woken: Arc::default(),
            refused: vec![0; TENANTS],
            waits: vec![Vec::new(); TENANTS],
        };
        (0..TENANTS).for_each(|tenant| gateway.plan_arrival(tenant));
        gateway.plan(TICK, Event::Tick);
        gateway
    }

    fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    fn plan(&mut self, after: Duration, event: Event) {
        let number = self.number();
        self.events.push(Reverse((self.now + after, number, event)));
    }

    fn plan_arrival(&mut self, tenant: usize) {
        let rate = if tenant < HEAVY {
            HEAVY_RATE
        } else {
            LIGHT_RATE
        };
        let gap = -(1.0 - self.chance.f64()).ln() / rate;
        self.plan(Duration::from_secs_f64(gap), Event::Arrive(tenant));
    }

    fn step(&mut self) {
        let Reverse((now, _, event)) = self.events.pop().expect("ticks never end");
        self.now = now;
        match event {
            Event::Arrive(tenant) => {
                self.plan_arrival(tenant);
                self.arrive(tenant);
            }
            Event::Finish(number) => {
                let permit = self.held.remove(&number).expect("it began");
                let used = Used::Measured(SERVICE.as_nanos() as u64);
                permit.end(now, used, Outcome::Fine);
            }
            Event::Tick => {
                self.ledger.tick(now);
                self.plan(TICK, Event::Tick);
            }
        }
        self.answer_the_woken();
        assert!(self.held.len() <= PERMITS as usize, "above the limit");
        let is_idle = self.held.len() < PERMITS as usize;
        assert!(
            !is_idle || self.waiting.is_empty(),
            "a free permit beside a waiter"
        );
    }

    fn arrive(&mut self, tenant: usize) {
        let client = IpAddr::V4(Ipv4Addr::from(0x0a00_0000 + tenant as u32 * 256));
        let wants = [Want {
            limit: self.limit,
            key: None,
        }];
        let ask = Ask::of(tenant % 2, self.tenants[tenant], client, &wants);
        match self.ledger.admit(self.now, &ask) {
            Admission::Admitted(permit) => self.begin(tenant, permit, Duration::ZERO),
            Admission::Refused(_) => self.refused[tenant] += 1,
            Admission::Waiting(ticket) => {
                let number = self.number();
                let arrived = self.now;
                let waiting = Waiting {
                    ticket,
                    tenant,
                    arrived,
                };
                self.waiting.insert(number, waiting);
                self.poll(number);
            }
        }
    }

    fn begin(&mut self, tenant: usize, permit: Permit, waited: Duration) {
        self.waits[tenant].push(waited);
        let number = self.number();
        self.held.insert(number, permit);
        self.plan(SERVICE, Event::Finish(number));
    }

    fn answer_the_woken(&mut self) {
        loop {
            let mut woken = self.woken.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(number) = woken.pop() else { return };
            drop(woken);
            self.poll(number);
        }
    }

    fn poll(&mut self, number: u64) {
        let Some(mut waiting) = self.waiting.remove(&number) else {
            return;
        };
        let woken = self.woken.clone();
        let waker = Waker::from(Arc::new(Bell { number, woken }));
        let polled = waiting
            .ticket
            .poll_wait(self.now, &mut Context::from_waker(&waker));
        match polled {
            Poll::Pending => drop(self.waiting.insert(number, waiting)),
            Poll::Ready(Err(_)) => self.refused[waiting.tenant] += 1,
            Poll::Ready(Ok(permit)) => {
                self.begin(waiting.tenant, permit, self.now - waiting.arrived);
            }
        }
    }
}

#[test]
fn of_a_thousand_tenants_the_light_ones_are_never_refused_for_64_heavy_ones() {
    let mut gateway = Gateway::new();
    let done = |gateway: &Gateway| {
        let refused: u64 = gateway.refused.iter().sum();
        gateway.waits.iter().map(Vec::len).sum::<usize>() + refused as usize
    };
    while done(&gateway) < REQUESTS {
        (0..1_000).for_each(|_| gateway.step());
    }
    let (heavy, light) = gateway.refused.split_at(HEAVY);
    assert!(heavy.iter().all(|refused| *refused > 0), "{heavy:?}");
    assert_eq!(light.iter().sum::<u64>(), 0, "light requests were refused");
    let mut waits: Vec<Duration> = gateway.waits[HEAVY..].concat();
    waits.sort_unstable();
    let p99 = waits[waits.len() * 99 / 100];
    println!("{} light requests, p99 of their wait {p99:?}", waits.len());
    // A round of all who wait takes each at most once: 1,000 of them half a second.
    assert!(p99 < Duration::from_millis(500), "{p99:?}");
    assert_eq!(gateway.ledger.drift(), 0);
}
