//! Histories of a fleet: leases, losses, delays, crashes, stores that restart or are replaced, in any order.
//!
//! Machines ask by clocks of their own, over wires that delay and lose; requests take at most a lease's margin. What all
//! machines together may give out, or have in flight, is never above the limit.

mod figures;
mod rates;
mod schedules;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
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

struct Machine {
    holder: Holder,
    contact: Contact,
    lease: PermitLease,
    seq: u64,
    /// How far its clock is ahead.
    ahead_ms: u64,
    is_cut: bool,
    waiting: u32,
    /// When requests in flight end.
    ends: Vec<u64>,
    /// When it looks at what it holds again, and whether it does so at once.
    looks_at_ms: u64,
    is_prompt: bool,
}

/// What the store says, in an order.
type Reply = (u64, u32, Vec<FleetKey>, Vec<(u32, u32, bool, bool)>);

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Word {
    Asked(usize, u64, u64, Vec<[u32; 5]>),
    Answered(usize, u64, Option<Reply>, u64),
    Called(usize),
}

struct World {
    rng: Rng,
    trouble: Trouble,
    limit: u32,
    now_ms: u64,
    store: StoreModel,
    snapshot: StoreModel,
    run: u64,
    is_up: bool,
    /// Until when it stays so.
    up_until_ms: u64,
    machines: Vec<Machine>,
    wire: BinaryHeap<Reverse<(u64, u64, Word)>>,
    words: u64,
    used: u64,
    /// How long requests take.
    service_ms: RangeInclusive<u64>,
    /// Every how many milliseconds machines look at what they hold, unless they have a reason; 0: all the time.
    round_ms: u64,
}

impl Machine {
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
            lease: PermitLease::default(),
            seq: 0,
            ahead_ms,
            is_cut: false,
            waiting: 0,
            ends: Vec::new(),
            looks_at_ms: 0,
            is_prompt: false,
        }
    }

    /// Has so many wait. Whoever comes where nobody waited has the store asked at once.
    fn await_in(&mut self, waiting: u32) {
        self.is_prompt |= self.waiting == 0 && waiting > 0;
        self.waiting = waiting;
    }

    fn time(&self, now_ms: u64) -> Time {
        Time((now_ms + self.ahead_ms) * 1_000_000)
    }

    fn in_use(&self) -> InUse {
        InUse {
            in_flight: self.ends.len() as u32,
            waiting: self.waiting,
            tenants: u32::from(self.waiting > 0),
        }
    }
}

impl World {
    fn new(seed: u64, machines: usize, limit: u32, trouble: Trouble) -> Self {
        let mut rng = Rng::with_seed(seed);
        let machines = (0..machines).map(|at| Machine::new(at, 1, rng.u64(1..7_200_000)));
        Self {
            machines: machines.collect(),
            rng,
            trouble,
            limit,
            now_ms: 1_000_000_000_000,
            store: StoreModel::default(),
            snapshot: StoreModel::default(),
            run: 1,
            is_up: true,
            up_until_ms: 0,
            wire: BinaryHeap::new(),
            words: 0,
            used: 0,
            service_ms: 1..=LEASE_MS / 5,
            round_ms: 0,
        }
    }

    fn send(&mut self, machine: usize, word: Word) {
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

    fn deliver(&mut self, until_ms: u64) {
        while self
            .wire
            .peek()
            .is_some_and(|Reverse((at, ..))| *at <= until_ms)
        {
            let Some(Reverse((at, _, word))) = self.wire.pop() else {
                return;
            };
            self.now_ms = self.now_ms.max(at);
            match word {
                Word::Asked(machine, run, seq, claims) => self.ask_store(machine, run, seq, claims),
                Word::Answered(machine, seq, reply, run) => self.answer(machine, seq, reply, run),
                Word::Called(machine) => self.call(machine, &[KEY]),
            }
            self.serve();
        }
        self.now_ms = until_ms;
    }

    fn ask_store(&mut self, machine: usize, run: u64, seq: u64, claims: Vec<[u32; 5]>) {
        if !self.is_up {
            return;
        }
        let claims: Vec<Claim> = claims
            .into_iter()
            .map(|[used, keep, need, want, weight]| Claim {
                key: KEY,
                limit: self.limit,
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
            it.lease.call(now, in_use);
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
            rates: Vec::new(),
        };
        it.contact.hear(sent, &reply);
        let in_use = it.in_use();
        for grant in &reply.grants {
            it.lease.hear(sent, now, &it.contact, grant, in_use);
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
            it.ends.retain(|end| *end > self.now_ms);
            let (budget, _) = it.lease.budget(now, &it.contact, self.limit, on_loss);
            while it.waiting > 0 && (it.ends.len() as u32) < budget {
                it.waiting -= 1;
                it.ends
                    .push(self.now_ms + self.rng.u64(self.service_ms.clone()));
            }
            if let Some(sent) = it.contact.unanswered(now) {
                it.contact.give_up();
                it.lease.fail(sent);
            }
            let is_turn = self.now_ms >= it.looks_at_ms;
            if it.contact.is_asking() || !is_turn && !it.is_prompt {
                continue;
            }
            if is_turn {
                it.looks_at_ms = self.now_ms + self.round_ms;
            }
            it.is_prompt = false;
            let in_use = it.in_use();
            let claim = it
                .lease
                .claim(now, &it.contact, (KEY, self.limit, on_loss), in_use);
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
            let (budget, _) = it.lease.budget(now, &it.contact, self.limit, on_loss);
            let in_flight = it.ends.iter().filter(|end| **end > self.now_ms).count();
            budget.max(in_flight as u32)
        });
        each.sum()
    }

    /// How everything stands, for whoever wants to know why.
    fn told(&self) -> String {
        let each = self.machines.iter().map(|it| {
            let now = it.time(self.now_ms);
            let (state, lost) = (it.contact.state(now), it.contact.is_long_lost(now));
            let in_flight = it.ends.len();
            let budget = it
                .lease
                .budget(now, &it.contact, self.limit, self.trouble.on_loss);
            format!(
                "{in_flight} of {} {state:?} {lost} {:?}\n",
                budget.0, it.lease
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
        self.machines.iter().map(|it| it.ends.len() as u32).sum()
    }

    /// Something happens that nobody planned.
    fn happen(&mut self) {
        let at = self.rng.usize(0..self.machines.len());
        match self.rng.u32(0..300) {
            0..60 => self.machines[at].waiting = self.rng.u32(0..=self.limit * 2),
            60..72 => self.machines[at].waiting = 0,
            72 if self.trouble.has_cuts => {
                let run = self.machines[at].holder.run + 1;
                self.machines[at] = Machine::new(at, run, self.rng.u64(1..7_200_000));
            }
            73..75 if self.trouble.has_cuts => self.machines[at].is_cut = true,
            75..85 => self.machines[at].is_cut = false,
            85 => self.snapshot = self.store.clone(),
            86..88 if self.now_ms >= self.up_until_ms => self.is_up = false,
            88..96 => self.come_up(false),
            96 => self.come_up(true),
            97 => {
                self.store.empty();
                self.come_up(true);
            }
            98 => {
                self.store = self.snapshot.clone();
                self.come_up(true);
            }
            99 if self.machines.len() < 6 => {
                let joined = Machine::new(self.machines.len(), 1, self.rng.u64(1..7_200_000));
                self.machines.push(joined);
            }
            _ => {}
        }
    }

    /// The store answers again, perhaps as another one. One that is there is so for as long as machines take to notice.
    fn come_up(&mut self, is_other: bool) {
        self.run += u64::from(is_other);
        if !std::mem::replace(&mut self.is_up, true) {
            self.up_until_ms = self.now_ms + LEASE_MS / 2;
        }
    }

    fn step(&mut self) {
        let until_ms = self.now_ms + self.rng.u64(1..=160);
        self.deliver(until_ms);
        self.serve();
        self.used += u64::from(self.in_flight());
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
        let mut world = World::new(seed, machines, limit, trouble);
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
        used += world.used;
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

/// A fleet without trouble, after what there was of it.
fn healed(seed: u64, machines: usize, limit: u32) -> World {
    let trouble = Trouble {
        on_loss: OnLoss::Share,
        lost: 20,
        delay_ms: 60,
        stray: 0,
        has_cuts: true,
    };
    let mut world = World::new(seed, machines, limit, trouble);
    for _ in 0..100 {
        world.happen();
        world.step();
    }
    (world.is_up, world.trouble.lost, world.trouble.delay_ms) = (true, 0, 2);
    world
        .machines
        .iter_mut()
        .for_each(|it| (it.is_cut, it.waiting) = (false, 0));
    let until_ms = world.now_ms + 2 * LEASE_MS;
    while world.now_ms < until_ms {
        world.step();
    }
    world
}

#[test]
fn two_leases_after_any_trouble_the_whole_limit_is_used_by_whoever_needs_it() {
    for seed in 0..300 {
        let mut world = healed(seed, 3, 24);
        assert_eq!(world.store.held(KEY, world.now_ms), 0, "history {seed}");
        for at in [0, 1, 2, 0] {
            world.machines.iter_mut().for_each(|it| it.waiting = 0);
            // Those before it have ended, and it has been asked for.
            let from_ms = world.now_ms;
            while world.now_ms < from_ms + 2_500 {
                world.machines[at].waiting = 100;
                world.step();
            }
            let in_use = world.machines[at].in_use().in_flight;
            assert_eq!(in_use, 24, "history {seed}, machine {at}");
        }
    }
}

#[test]
fn a_key_that_was_granted_before_others_has_its_share_as_soon_as_its_lease_is_over() {
    let rules = FleetRules {
        lease: Duration::from_millis(LEASE_MS),
        machines_min: 0,
    };
    let (mut contact, mut lease) = (Contact::new(rules), PermitLease::default());
    let terms = (FleetKey([1, 1]), 100, OnLoss::Share);
    let in_use = InUse {
        in_flight: 50,
        ..InUse::default()
    };
    let grant = Grant {
        held: 62,
        part: 62,
        is_contended: false,
        is_coming: false,
    };
    let answer = |contact: &mut Contact, now| {
        let reply = StoreReply {
            quiet_ms: 0,
            machines: 2,
            called: Vec::new(),
            grants: Vec::new(),
            rates: Vec::new(),
        };
        contact.ask(now);
        contact.hear(now, &reply);
    };
    for now_ms in (LEASE_MS..=LEASE_MS * 2).step_by(500) {
        let now = Time::ZERO + Duration::from_millis(now_ms);
        answer(&mut contact, now);
        if lease.claim(now, &contact, terms, in_use).is_some() {
            lease.hear(now, now, &contact, &grant, in_use);
        }
    }
    // Of another key it is heard a little longer, then of none.
    let begun_ms = LEASE_MS * 2;
    answer(
        &mut contact,
        Time::ZERO + Duration::from_millis(begun_ms + LEASE_MS / 4),
    );
    for now_ms in (begun_ms + LEASE_MS / 3..begun_ms + LEASE_MS * 3).step_by(25) {
        let now = Time::ZERO + Duration::from_millis(now_ms);
        if lease.claim(now, &contact, terms, in_use).is_some() {
            contact.ask(now);
            contact.give_up();
            lease.fail(now);
        }
        let (budget, until) = lease.budget(now, &contact, 100, OnLoss::Share);
        assert!(budget >= 50 && until > now, "{budget} at {now_ms} ms");
    }
}

#[test]
fn machines_that_compete_come_to_equal_parts_and_each_has_its_turn() {
    for limit in [1, 2, 24] {
        let mut world = healed(1, 3, limit);
        let mut served = [0_u64; 3];
        for _ in 0..8_000 {
            for at in 0..3 {
                world.machines[at].waiting = 50;
            }
            let (until_ms, before) = (world.now_ms + 10, world.now_ms);
            world.deliver(until_ms);
            world.serve();
            for (at, served) in served.iter_mut().enumerate() {
                *served += u64::from(world.machines[at].in_use().in_flight);
            }
            assert!(world.sum() <= limit && before < until_ms);
        }
        let all: u64 = served.iter().sum();
        let squares: u64 = served.iter().map(|it| it * it).sum();
        let jain = (all * all) as f64 / (3.0 * squares as f64);
        assert!(jain > 0.93, "limit {limit}: {served:?}");
        let share = all as f64 / f64::from(limit) / 8_000.0;
        assert!(share > 0.6, "limit {limit}: {served:?}, {share}");
    }
}
