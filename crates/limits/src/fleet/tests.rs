//! Histories of a fleet: leases, losses, delays, crashes, stores that restart or are replaced, in any order.
//!
//! Machines ask by clocks of their own, over wires that delay and lose; requests take at most a lease's margin. What all
//! machines together may give out, or have in flight, is never above the limit.

mod figures;
mod needs;
mod rates;
mod schedules;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::ops::RangeInclusive;
use std::time::Duration;

use fastrand::Rng;

use super::*;
use crate::Time;

const LEASE_MS: u64 = 5_000;
const KEY: FleetKey = FleetKey([7, 9]);
/// Histories of each kind; `NAGAYA_HISTORIES` says another number.
const HISTORIES: u64 = 3_000;

/// What may go wrong in a history.
#[derive(Debug, Clone, Copy)]
struct Trouble {
    on_loss: OnLoss,
    /// Words that are lost, in a thousand.
    lost: u32,
    /// The longest that a word is under way.
    delay_ms: u64,
    /// Words that are under way for up to twenty seconds, in a thousand.
    stray: u32,
    /// Whether single machines are cut off.
    has_cuts: bool,
}

/// A machine, with its side of one key.
struct Machine<T> {
    holder: Holder,
    contact: Contact,
    seq: u64,
    /// How far its clock is ahead.
    ahead_ms: u64,
    is_cut: bool,
    /// When it looks at what it holds again, and whether it does so at once.
    looks_at_ms: u64,
    is_prompt: bool,
    key: T,
}

/// A machine's side of a key of permits.
#[derive(Default)]
struct Permits {
    lease: PermitLease,
    waiting: u32,
    /// When requests in flight end.
    ends: Vec<u64>,
}

/// What the store says, in an order.
type Reply = (u64, u32, Vec<FleetKey>, Vec<(u32, u32, bool, bool)>);

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Word {
    Asked(usize, u64, u64, Vec<[u32; 5]>),
    Answered(usize, u64, Option<Reply>, u64),
    Called(usize),
}

/// Machines, their store, and wires that carry words between them.
struct World<T, W, U> {
    rng: Rng,
    trouble: Trouble,
    now_ms: u64,
    store: StoreModel,
    snapshot: StoreModel,
    run: u64,
    is_up: bool,
    /// Until when it stays so.
    up_until_ms: u64,
    machines: Vec<Machine<T>>,
    wire: BinaryHeap<Reverse<(u64, u64, W)>>,
    words: u64,
    /// What is tried, and what has come of it.
    trial: U,
}

type PermitWorld = World<Permits, Word, PermitTrial>;

struct PermitTrial {
    limit: u32,
    used: u64,
    /// How long requests take.
    service_ms: RangeInclusive<u64>,
    /// Every how many milliseconds machines look at what they hold, unless they have a reason; 0: all the time.
    round_ms: u64,
}

impl<T: Default> Machine<T> {
    fn new(number: usize, run: u64, ahead_ms: u64) -> Self {
        let rules = FleetRules {
            lease: Duration::from_millis(LEASE_MS),
            machines_min: 0,
        };
        Self {
            holder: Holder {
                machine: format!("web{number}"),
                run,
            },
            contact: Contact::new(rules),
            seq: 0,
            ahead_ms,
            is_cut: false,
            looks_at_ms: 0,
            is_prompt: false,
            key: T::default(),
        }
    }

    fn time(&self, now_ms: u64) -> Time {
        Time((now_ms + self.ahead_ms) * 1_000_000)
    }
}

impl<T: Default, W: Ord, U> World<T, W, U> {
    fn new(seed: u64, machines: usize, trouble: Trouble, trial: U) -> Self {
        let mut rng = Rng::with_seed(seed);
        let machines = (0..machines).map(|at| Machine::new(at, 1, rng.u64(1..7_200_000)));
        Self {
            machines: machines.collect(),
            rng,
            trouble,
            now_ms: 1_000_000_000_000,
            store: StoreModel::default(),
            snapshot: StoreModel::default(),
            run: 1,
            is_up: true,
            up_until_ms: 0,
            wire: BinaryHeap::new(),
            words: 0,
            trial,
        }
    }

    fn send(&mut self, machine: usize, word: W) {
        let is_cut = self.machines[machine].is_cut;
        if is_cut || self.rng.u32(0..1_000) < self.trouble.lost {
            return;
        }
        let most = match self.rng.u32(0..1_000) < self.trouble.stray {
            true => 20_000,
            false => self.trouble.delay_ms,
        };
        self.words += 1;
        let at = self.now_ms + self.rng.u64(0..=most);
        self.wire.push(Reverse((at, self.words, word)));
    }

    /// The next word that arrives until then, at its time; none when it is then.
    fn arriving(&mut self, until_ms: u64) -> Option<W> {
        let next = self.wire.peek_mut().filter(|next| next.0.0 <= until_ms);
        let Some(Reverse((at, _, word))) = next.map(PeekMut::pop) else {
            self.now_ms = until_ms;
            return None;
        };
        self.now_ms = self.now_ms.max(at);
        Some(word)
    }

    fn begin_anew(&mut self, at: usize) {
        let run = self.machines[at].holder.run + 1;
        self.machines[at] = Machine::new(at, run, self.rng.u64(1..7_200_000));
    }

    /// The store answers again, perhaps as another one, and does so for as long as machines take to notice.
    fn come_up(&mut self, is_other: bool, notice_ms: u64) {
        self.run += u64::from(is_other);
        if !std::mem::replace(&mut self.is_up, true) {
            self.up_until_ms = self.now_ms + notice_ms;
        }
    }
}

impl Machine<Permits> {
    /// Has so many wait. Whoever comes where nobody waited has the store asked at once.
    fn await_in(&mut self, waiting: u32) {
        self.is_prompt |= self.key.waiting == 0 && waiting > 0;
        self.key.waiting = waiting;
    }

    fn in_use(&self) -> InUse {
        InUse {
            in_flight: self.key.ends.len() as u32,
            waiting: self.key.waiting,
            tenants: u32::from(self.key.waiting > 0),
        }
    }
}

impl PermitWorld {
    fn of_limit(seed: u64, machines: usize, limit: u32, trouble: Trouble) -> Self {
        let trial = PermitTrial {
            limit,
            used: 0,
            service_ms: 1..=LEASE_MS / 5,
            round_ms: 0,
        };
        Self::new(seed, machines, trouble, trial)
    }

    fn deliver(&mut self, until_ms: u64) {
        while let Some(word) = self.arriving(until_ms) {
            match word {
                Word::Asked(machine, run, seq, claims) => self.ask_store(machine, run, seq, claims),
                Word::Answered(machine, seq, reply, run) => self.answer(machine, seq, reply, run),
                Word::Called(machine) => self.call(machine, &[KEY]),
            }
            self.serve();
        }
    }

    fn ask_store(&mut self, machine: usize, run: u64, seq: u64, claims: Vec<[u32; 5]>) {
        if !self.is_up {
            return;
        }
        let claims: Vec<Claim> = claims
            .into_iter()
            .map(|[used, keep, need, want, weight]| Claim {
                key: KEY,
                limit: self.trial.limit,
                used,
                keep,
                need,
                want,
                weight,
            })
            .collect();
        let holder = Holder {
            machine: format!("web{machine}"),
            run,
        };
        let now = (self.run, self.now_ms * 1_000);
        let reply = (self.store).call(now, &holder, (seq, LEASE_MS), (&claims, &[]));
        let reply = reply.map(|it| {
            let grants = it.grants.iter();
            let grants = grants
                .map(|it| (it.held, it.part, it.is_contended, it.is_coming))
                .collect();
            (it.quiet_ms, it.machines, it.called, grants)
        });
        self.send(machine, Word::Answered(machine, seq, reply, run));
        for at in 0..self.machines.len() {
            let name = &self.machines[at].holder.machine;
            if self.store.listen(name).is_some() {
                self.send(at, Word::Called(at));
            }
        }
    }

    fn call(&mut self, machine: usize, keys: &[FleetKey]) {
        let it = &mut self.machines[machine];
        if keys.contains(&KEY) {
            let (now, in_use) = (it.time(self.now_ms), it.in_use());
            it.key.lease.call(now, in_use);
            it.is_prompt = true;
        }
    }

    fn answer(&mut self, machine: usize, seq: u64, reply: Option<Reply>, run: u64) {
        let now_ms = self.now_ms;
        let it = &mut self.machines[machine];
        let now = it.time(now_ms);
        let Some((quiet_ms, machines, called, grants)) = reply else {
            return;
        };
        if it.seq != seq || it.holder.run != run || !it.contact.is_asking() {
            return;
        }
        let Some(sent) = it.contact.asked_at() else {
            return;
        };
        let grants = grants.into_iter();
        let grants = grants.map(|(held, part, is_contended, is_coming)| Grant {
            held,
            part,
            is_contended,
            is_coming,
        });
        let reply = StoreReply {
            quiet_ms,
            machines,
            called,
            grants: grants.collect(),
            ..StoreReply::default()
        };
        it.contact.hear(sent, &reply);
        let in_use = it.in_use();
        for grant in &reply.grants {
            it.key.lease.hear(sent, now, &it.contact, grant, in_use);
        }
        it.is_prompt = true;
        self.call(machine, &reply.called);
    }

    /// Lets machines do what they may, and looks whether that is too much.
    fn serve(&mut self) {
        for at in 0..self.machines.len() {
            let on_loss = self.trouble.on_loss;
            let it = &mut self.machines[at];
            let now = it.time(self.now_ms);
            it.key.ends.retain(|end| *end > self.now_ms);
            let (budget, _) = it
                .key
                .lease
                .budget(now, &it.contact, self.trial.limit, on_loss);
            while it.key.waiting > 0 && (it.key.ends.len() as u32) < budget {
                it.key.waiting -= 1;
                it.key
                    .ends
                    .push(self.now_ms + self.rng.u64(self.trial.service_ms.clone()));
            }
            if let Some(sent) = it.contact.unanswered(now) {
                it.contact.give_up();
                it.key.lease.fail(sent);
            }
            let is_turn = self.now_ms >= it.looks_at_ms;
            if it.contact.is_asking() || !is_turn && !it.is_prompt {
                continue;
            }
            if is_turn {
                it.looks_at_ms = self.now_ms + self.trial.round_ms;
            }
            it.is_prompt = false;
            let in_use = it.in_use();
            let claim =
                it.key
                    .lease
                    .claim(now, &it.contact, (KEY, self.trial.limit, on_loss), in_use);
            if claim.is_some() || it.contact.is_word_due(now) {
                it.contact.ask(now);
                it.seq += 1;
                let claims = claim
                    .iter()
                    .map(|it| [it.used, it.keep, it.need, it.want, it.weight]);
                let word = Word::Asked(at, it.holder.run, it.seq, claims.collect());
                self.send(at, word);
            }
        }
    }

    /// What all machines have in flight or may have.
    fn sum(&self) -> u32 {
        let each = self.machines.iter().map(|it| {
            let now = it.time(self.now_ms);
            let on_loss = self.trouble.on_loss;
            let (budget, _) = it
                .key
                .lease
                .budget(now, &it.contact, self.trial.limit, on_loss);
            let in_flight = it.key.ends.iter().filter(|end| **end > self.now_ms).count();
            budget.max(in_flight as u32)
        });
        each.sum()
    }

    /// How everything stands, for whoever wants to know why.
    fn told(&self) -> String {
        let each = self.machines.iter().map(|it| {
            let now = it.time(self.now_ms);
            let (state, lost) = (it.contact.state(now), it.contact.is_long_lost(now));
            let in_flight = it.key.ends.len();
            let budget =
                it.key
                    .lease
                    .budget(now, &it.contact, self.trial.limit, self.trouble.on_loss);
            format!(
                "{in_flight} of {} {state:?} {lost} {:?}\n",
                budget.0, it.key.lease
            )
        });
        let store = self.store.held(KEY, self.now_ms);
        format!(
            "{}store {store} up {}",
            each.collect::<String>(),
            self.is_up
        )
    }

    fn in_flight(&self) -> u32 {
        self.machines
            .iter()
            .map(|it| it.key.ends.len() as u32)
            .sum()
    }

    /// Something happens that nobody planned.
    fn happen(&mut self) {
        let at = self.rng.usize(0..self.machines.len());
        match self.rng.u32(0..300) {
            0..60 => self.machines[at].key.waiting = self.rng.u32(0..=self.trial.limit * 2),
            60..72 => self.machines[at].key.waiting = 0,
            72 if self.trouble.has_cuts => {
                self.begin_anew(at);
            }
            73..75 if self.trouble.has_cuts => self.machines[at].is_cut = true,
            75..85 => self.machines[at].is_cut = false,
            85 => self.snapshot = self.store.clone(),
            86..88 if self.now_ms >= self.up_until_ms => self.is_up = false,
            88..96 => self.come_up(false, LEASE_MS / 2),
            96 => self.come_up(true, LEASE_MS / 2),
            97 => {
                self.store.empty();
                self.come_up(true, LEASE_MS / 2);
            }
            98 => {
                self.store = self.snapshot.clone();
                self.come_up(true, LEASE_MS / 2);
            }
            99 if self.machines.len() < 6 => {
                let joined = Machine::new(self.machines.len(), 1, self.rng.u64(1..7_200_000));
                self.machines.push(joined);
            }
            _ => {}
        }
    }

    fn step(&mut self) {
        let until_ms = self.now_ms + self.rng.u64(1..=160);
        self.deliver(until_ms);
        self.serve();
        self.trial.used += u64::from(self.in_flight());
    }
}

fn histories() -> u64 {
    let said = std::env::var("NAGAYA_HISTORIES").ok();
    said.and_then(|said| said.parse().ok()).unwrap_or(HISTORIES)
}

/// Runs histories of one kind; the sum of what all used, so that it is seen that something went on.
fn never_above(trouble: Trouble, first_seed: u64) -> u64 {
    let mut used = 0;
    for seed in first_seed..first_seed + histories() {
        let mut choice = Rng::with_seed(seed ^ 0x5eed);
        let (machines, limit) = (choice.usize(1..=4), choice.u32(1..=24));
        let mut world = PermitWorld::of_limit(seed, machines, limit, trouble);
        for step in 0..160 {
            world.happen();
            world.step();
            let sum = world.sum();
            assert!(
                sum <= limit,
                "history {seed}, step {step}: {sum} of {limit}\n{}",
                world.told()
            );
        }
        used += world.trial.used;
    }
    used
}

#[test]
fn nothing_that_happens_to_wires_machines_and_stores_lets_more_in_than_the_limit() {
    let used = never_above(
        Trouble {
            on_loss: OnLoss::Closed,
            lost: 30,
            delay_ms: 120,
            stray: 20,
            has_cuts: true,
        },
        1,
    );
    assert!(used > histories() * 160, "{used}: hardly anything went on");
}

#[test]
fn shares_are_never_above_the_limit_while_the_store_is_away_for_all() {
    let used = never_above(
        Trouble {
            on_loss: OnLoss::Share,
            lost: 0,
            delay_ms: 60,
            stray: 0,
            has_cuts: false,
        },
        1_000_000,
    );
    assert!(used > histories() * 160, "{used}: hardly anything went on");
}
