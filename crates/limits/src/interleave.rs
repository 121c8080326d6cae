//! Schedules for threads in tests: one runs at a time, and at every lock a seeded choice says which.
//!
//! All that workers share is behind locks, so the order of locking is the whole of what a schedule
//! can vary (as in Burckhardt et al. 2010, with plain random choice). A seed that fails can be
//! played again. Also here: what is shown with it of the hand-over.

use std::cell::RefCell;
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use fastrand::Rng;

use crate::{
    Admission, Ask, Change, Concurrent, Definition, Keyed, Ledger, LimitId, Outcome, Permit,
    TenantDefinition, TenantId, Ticket, Time, Used, Want,
};

/// Turns without anybody getting on after which nobody ever will.
const IDLE_TURNS_MAX: u32 = 100_000;

thread_local! {
    static PART: RefCell<Option<(Arc<Baton>, usize)>> = const { RefCell::new(None) };
}

/// Who may run.
struct Baton {
    state: Mutex<Turns>,
    passed: Condvar,
}

struct Turns {
    running: usize,
    alive: Vec<bool>,
    random: Rng,
    idle: u32,
}

/// Lets others have turns, until `ready` says so and it is this thread's turn. Does nothing on
/// threads without a schedule.
pub(crate) fn turn_when(ready: impl Fn() -> bool) {
    let Some((baton, own)) = PART.with(|part| part.borrow().clone()) else {
        return;
    };
    loop {
        baton.pass(own);
        if ready() {
            baton.turns().idle = 0;
            return;
        }
    }
}

impl Baton {
    fn turns(&self) -> std::sync::MutexGuard<'_, Turns> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets a random thread go on, perhaps this one, and returns when it is this one.
    fn pass(&self, own: usize) {
        let mut turns = self.turns();
        turns.idle += 1;
        turns.choose();
        self.passed.notify_all();
        while turns.running != own && turns.idle <= IDLE_TURNS_MAX {
            turns = self
                .passed
                .wait(turns)
                .unwrap_or_else(PoisonError::into_inner);
        }
        let stuck = turns.idle > IDLE_TURNS_MAX;
        drop(turns);
        if stuck && !std::thread::panicking() {
            self.passed.notify_all();
            panic!("nobody gets on: a wake-up was lost, or there is a deadlock");
        }
    }

    fn begin(&self, own: usize) {
        let mut turns = self.turns();
        while turns.running != own {
            turns = self
                .passed
                .wait(turns)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn end(&self, own: usize) {
        let mut turns = self.turns();
        turns.alive[own] = false;
        turns.choose();
        self.passed.notify_all();
    }
}

impl Turns {
    fn choose(&mut self) {
        let alive: Vec<usize> = (0..self.alive.len()).filter(|at| self.alive[*at]).collect();
        if !alive.is_empty() {
            self.running = alive[self.random.usize(..alive.len())];
        }
    }
}

/// Runs something on some threads, one at a time, in an order that the seed alone decides.
pub(crate) fn run(seed: u64, threads: usize, work: impl Fn(usize, &mut Rng) + Sync) {
    let baton = Arc::new(Baton {
        state: Mutex::new(Turns {
            running: 0,
            alive: vec![true; threads],
            random: Rng::with_seed(seed),
            idle: 0,
        }),
        passed: Condvar::new(),
    });
    std::thread::scope(|scope| {
        for own in 0..threads {
            let (baton, work) = (baton.clone(), &work);
            scope.spawn(move || {
                let _end = Ending(baton.clone(), own);
                PART.with(|part| *part.borrow_mut() = Some((baton.clone(), own)));
                baton.begin(own);
                let mut random = Rng::with_seed(seed ^ (own as u64 + 1) << 32);
                work(own, &mut random);
            });
        }
    });
}

/// Takes a thread out of the schedule, however it ends.
struct Ending(Arc<Baton>, usize);

impl Drop for Ending {
    fn drop(&mut self) {
        PART.with(|part| *part.borrow_mut() = None);
        self.0.end(self.1);
    }
}

#[derive(Default)]
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// A ledger with an inner limit by key and an outer one, and a count of its own for each gate.
struct Stage {
    ledger: Ledger,
    limits: Vec<LimitId>,
    tenant: TenantId,
    caps: [u32; 2],
    /// Two keys of the inner limit, then the outer one.
    counts: [AtomicU32; 3],
}

impl Stage {
    fn new(caps: [u32; 2], queue: u32) -> Self {
        let ledger = Ledger::new(2, [5; 4]);
        let limits = [
            definition("file", Keyed::Dynamic, caps[0], queue),
            definition("site", Keyed::Fixed, caps[1], queue),
        ];
        let tenant = TenantDefinition {
            name: "example".to_owned(),
            weight: 1,
            keys_max: 100,
        };
        let defined = ledger.define(Time::ZERO, &limits, &[tenant]);
        Self {
            ledger,
            limits: defined.limits,
            tenant: defined.tenants[0],
            caps,
            counts: Default::default(),
        }
    }

    fn admit(&self, worker: usize, key: usize) -> Admission {
        let name = [key as u8];
        let wants = [(0, Some(&name[..])), (1, None)].map(|(at, key)| Want {
            limit: self.limits[at],
            key,
        });
        let ask = Ask::of(worker, self.tenant, [127, 0, 0, 1].into(), &wants);
        self.ledger.admit(Time(1), &ask)
    }

    /// Counts a permit while it is used, and gives it back.
    fn hold(&self, key: usize, permit: Permit, random: &mut Rng) {
        for (gate, cap) in [(key, self.caps[0]), (2, self.caps[1])] {
            let before = self.counts[gate].fetch_add(1, Ordering::SeqCst);
            assert!(before < cap, "gate {gate} has {cap} permits");
        }
        turn_when(|| true);
        for gate in [key, 2] {
            self.counts[gate].fetch_sub(1, Ordering::SeqCst);
        }
        if random.bool() {
            drop(permit);
        } else {
            permit.end(Time(2), Used::Measured(1), Outcome::Fine);
        }
    }

    /// Waits as a task does: polls, sleeps until it is woken, polls again.
    fn wait(&self, mut ticket: Ticket, random: &mut Rng) -> Option<Permit> {
        let flag = Arc::new(Flag::default());
        let waker = Waker::from(flag.clone());
        loop {
            let polled = ticket.poll_wait(Time(1), &mut Context::from_waker(&waker));
            if let Poll::Ready(outcome) = polled {
                return outcome.ok();
            }
            if random.u8(..4) == 0 {
                return None;
            }
            turn_when(|| flag.0.swap(false, Ordering::SeqCst));
        }
    }

    fn request(&self, worker: usize, random: &mut Rng) {
        let key = random.usize(..2);
        match self.admit(worker, key) {
            Admission::Admitted(permit) => self.hold(key, permit, random),
            Admission::Waiting(ticket) => {
                if let Some(permit) = self.wait(ticket, random) {
                    self.hold(key, permit, random);
                }
            }
            Admission::Refused(_) => {}
        }
    }

    fn check_quiet(&self, seed: u64) {
        assert_eq!(self.ledger.drift(), 0, "seed {seed}");
        for look in self.ledger.look(Time(3), None, 100) {
            assert_eq!(
                (look.in_flight, look.queued),
                (0, 0),
                "seed {seed}: {look:?}"
            );
        }
    }
}

pub(crate) fn definition(name: &str, keyed: Keyed, concurrent: u32, queue: u32) -> Definition {
    Definition {
        keyed,
        concurrent: Some(Concurrent::Fixed(concurrent)),
        queue,
        wait: Duration::from_secs(60),
        ..Definition::of(name)
    }
}

/// Schedules tried for each setting.
pub(crate) fn seeds() -> u64 {
    let events = std::env::var("NAGAYA_EVENTS").ok();
    events
        .and_then(|text| text.parse().ok())
        .map_or(60, |events: u64| events / 100)
}

#[test]
fn no_schedule_exceeds_a_limit_loses_a_wake_up_or_a_permit() {
    // Counted centrally, in cells, and on the edge between the two.
    for (caps, queue) in [([1, 2], 8), ([2, 8], 8), ([1, 9], 0), ([9, 8], 2)] {
        for seed in 0..seeds() {
            let stage = Stage::new(caps, queue);
            run(seed, 4, |own, random| {
                for _ in 0..3 {
                    stage.request(own % 2, random);
                }
            });
            stage.check_quiet(seed);
        }
    }
}

#[test]
fn changes_reloads_and_ticks_lose_nothing_under_any_schedule() {
    for seed in 0..seeds() {
        let stage = Stage::new([2, 8], 8);
        run(seed, 4, |own, random| {
            if own > 0 {
                return (0..3).for_each(|_| stage.request(own % 2, random));
            }
            for step in 0..3 {
                // Never above what the stage checks, and at the end as at the beginning.
                let cap = Some(Concurrent::Fixed([1, 5, 8][step]));
                stage
                    .ledger
                    .change(Time(1), stage.limits[1], &Change::Concurrent(cap));
                stage.ledger.tick(Time(1));
            }
        });
        stage.check_quiet(seed);
    }
}

#[test]
fn nobody_barges_in_between_a_permit_that_is_freed_and_who_waits_for_it() {
    for seed in 0..seeds() {
        let stage = Stage::new([1, 100], 8);
        let Admission::Admitted(held) = stage.admit(0, 0) else {
            panic!("the first is admitted");
        };
        let Admission::Waiting(mut first) = stage.admit(0, 0) else {
            panic!("the second waits");
        };
        let held = Mutex::new(Some(held));
        run(seed, 2, |own, _| {
            if own == 0 {
                drop(held.lock().expect("nobody panics").take());
            } else if let Admission::Admitted(_) = stage.admit(1, 0) {
                panic!("seed {seed}: a newcomer is admitted before who waited");
            }
        });
        let polled = first.poll_wait(Time(2), &mut Context::from_waker(Waker::noop()));
        assert!(matches!(polled, Poll::Ready(Ok(_))), "seed {seed}");
    }
}

#[test]
fn the_same_seed_makes_the_same_schedule() {
    let order = |seed| {
        let order = Mutex::new(Vec::new());
        run(seed, 3, |own, _| {
            for _ in 0..5 {
                turn_when(|| true);
                order.lock().expect("nobody panics").push(own);
            }
        });
        order.into_inner().expect("nobody panics")
    };
    assert_eq!(order(7), order(7));
    let orders: HashSet<_> = (0..20).map(order).collect();
    assert!(orders.len() > 10);
}
