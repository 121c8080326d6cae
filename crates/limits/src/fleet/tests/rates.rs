//! Histories of rates: blocks that are lost or late, machines that are cut off or killed, stores that restart, in any order.
//!
//! What the store gives out is never more than the rate and a burst; what begins is never more than that and what was drawn within
//! the time that a block may take and last.

mod losses;

use super::*;
use crate::definition::RateDefinition;
use crate::rate::Rate;

/// How long what was drawn may be used.
const LIFE_MS: u64 = 100;
/// How long a request waits for the store.
const PATIENCE_MS: u64 = 1_000;

/// A machine with one key of a rate.
struct RateMachine {
    holder: Holder,
    contact: Contact,
    lease: RateLease,
    stock: RateStock,
    full_at: Time,
    seq: u64,
    ahead_ms: u64,
    is_cut: bool,
    arrived: u64,
    /// When those came that wait.
    waiting: Vec<u64>,
    is_prompt: bool,
    looks_at_ms: u64,
    begun: u64,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum RateWord {
    Asked(usize, u64, u64, Option<[u64; 5]>),
    Answered(usize, u64, u64, (u64, u32), Option<[u64; 3]>),
}

struct RateWorld {
    rng: Rng,
    trouble: Trouble,
    rate: RateDefinition,
    now_ms: u64,
    store: StoreModel,
    snapshot: StoreModel,
    run: u64,
    is_up: bool,
    up_until_ms: u64,
    down_until_ms: u64,
    machines: Vec<RateMachine>,
    wire: BinaryHeap<Reverse<(u64, u64, RateWord)>>,
    words: u64,
    /// When how many were given out by the store, and when each began.
    given: Vec<(u64, u64)>,
    begun: Vec<(u64, u64)>,
    refused: u64,
}

impl RateMachine {
    fn new(number: usize, run: u64, ahead_ms: u64) -> Self {
        let it = Machine::new(number, run, ahead_ms);
        Self {
            holder: it.holder,
            contact: it.contact,
            lease: RateLease::default(),
            stock: RateStock::NONE,
            full_at: Time::ZERO,
            seq: 0,
            ahead_ms,
            is_cut: false,
            arrived: 0,
            waiting: Vec::new(),
            is_prompt: false,
            looks_at_ms: 0,
            begun: 0,
        }
    }

    fn time(&self, now_ms: u64) -> Time {
        Time((now_ms + self.ahead_ms) * 1_000_000)
    }

    fn in_use(&self) -> RateUse {
        RateUse {
            arrived: self.arrived,
            waiting: self.waiting.len() as u32,
            full_at: self.full_at,
        }
    }

    /// Whether one may begin, before whom so many wait; `None`: that has to be asked.
    fn may_begin(&mut self, now: Time, rate: &RateDefinition, before: u32) -> Option<bool> {
        match (self.stock.by, self.stock.offer(now, before)) {
            (RateBy::Share(machines), _) => {
                let rate = Rate::new(rate.count, rate.per, rate.burst);
                let next = rate.shared(machines.into()).check(self.full_at, now);
                self.full_at = *next.as_ref().unwrap_or(&self.full_at);
                if next.is_ok() {
                    self.stock.note_own();
                }
                Some(next.is_ok())
            }
            (RateBy::Closed, _) | (_, Offer::Spent(_)) => Some(false),
            (_, Offer::Ready) => {
                self.stock.take(now);
                Some(true)
            }
            (_, Offer::Unknown) => None,
        }
    }
}

impl RateWorld {
    fn new(seed: u64, machines: usize, rate: RateDefinition, trouble: Trouble) -> Self {
        let mut rng = Rng::with_seed(seed);
        let machines = (0..machines).map(|at| RateMachine::new(at, 1, rng.u64(1..7_200_000)));
        Self {
            machines: machines.collect(),
            rng,
            trouble,
            rate,
            now_ms: 1_000_000_000_000,
            store: StoreModel::default(),
            snapshot: StoreModel::default(),
            run: 1,
            is_up: true,
            up_until_ms: 0,
            down_until_ms: 0,
            wire: BinaryHeap::new(),
            words: 0,
            given: Vec::new(),
            begun: Vec::new(),
            refused: 0,
        }
    }

    fn send(&mut self, machine: usize, word: RateWord) {
        let is_lost = self.rng.u32(0..1_000) < self.trouble.lost;
        if self.machines[machine].is_cut || is_lost {
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

    /// A request comes.
    fn arrive(&mut self, at: usize) {
        let (now_ms, it) = (self.now_ms, &mut self.machines[at]);
        it.arrived += 1;
        let before = it.waiting.len() as u32;
        match it.may_begin(it.time(now_ms), &self.rate, before) {
            Some(true) => self.begin(at),
            Some(false) => self.refused += 1,
            None => {
                it.waiting.push(now_ms);
                it.is_prompt = true;
                self.look(at);
            }
        }
    }

    fn begin(&mut self, at: usize) {
        self.machines[at].begun += 1;
        self.begun.push((self.now_ms, 1));
    }

    /// Those who wait look again.
    fn serve(&mut self, at: usize) {
        let (now_ms, it) = (self.now_ms, &mut self.machines[at]);
        let waiting = std::mem::take(&mut it.waiting);
        for came in waiting {
            let it = &mut self.machines[at];
            match it.may_begin(it.time(now_ms), &self.rate, 0) {
                Some(true) => self.begin(at),
                None if now_ms < came + PATIENCE_MS => it.waiting.push(came),
                _ => self.refused += 1,
            }
        }
    }

    /// A machine looks at its key, and asks what is to be asked.
    fn look(&mut self, at: usize) {
        let on_loss = self.trouble.on_loss;
        let (now_ms, it) = (self.now_ms, &mut self.machines[at]);
        let now = it.time(now_ms);
        if let Some(sent) = it.contact.unanswered(now) {
            it.contact.give_up();
            it.lease.fail(sent);
        }
        let terms = RateTerms::of(&self.rate);
        let (by, since) = RateLease::by(now, &it.contact, on_loss);
        if it.stock.set_by(by) {
            it.full_at = it.full_at.max(since + terms.unknown(by));
        }
        let is_turn = now_ms >= it.looks_at_ms;
        if !it.contact.is_asking() && (is_turn || it.is_prompt) {
            it.is_prompt = false;
            if is_turn {
                it.looks_at_ms = now_ms + 25;
            }
            let in_use = it.in_use();
            let claim = it
                .lease
                .claim(now, &it.contact, (KEY, terms), &it.stock, in_use);
            if claim.is_some() || it.contact.is_word_due(now) {
                it.contact.ask(now);
                it.seq += 1;
                let claim = claim.map(|it| {
                    [
                        it.interval_ns,
                        it.full_us,
                        it.want.into(),
                        it.demand.into(),
                        it.spent_us,
                    ]
                });
                let word = RateWord::Asked(at, it.holder.run, it.seq, claim);
                self.send(at, word);
            }
        }
        self.serve(at);
    }

    fn hear_word(&mut self, word: RateWord) {
        match word {
            RateWord::Asked(at, run, seq, claim) if self.is_up => {
                self.ask_store(at, run, seq, claim)
            }
            RateWord::Asked(..) => {}
            RateWord::Answered(at, run, seq, said, grant) => {
                self.answer(at, (run, seq), said, grant)
            }
        }
    }

    fn ask_store(&mut self, at: usize, run: u64, seq: u64, claim: Option<[u64; 5]>) {
        let claims = claim.map(|[interval_ns, full_us, want, demand, spent_us]| RateClaim {
            key: KEY,
            interval_ns,
            full_us,
            want: want as u32,
            demand: demand as u32,
            spent_us,
        });
        let claims: Vec<_> = claims.into_iter().collect();
        let holder = Holder {
            machine: format!("web{at}"),
            run,
        };
        let now = (self.run, self.now_ms * 1_000);
        let Some(reply) = self
            .store
            .call(now, &holder, (seq, LEASE_MS), (&[], &claims))
        else {
            return;
        };
        let grant = reply.rates.first();
        self.given
            .extend(grant.map(|it| (self.now_ms, it.count.into())));
        let grant = grant.map(|it| [it.count.into(), it.next_us, it.full_us]);
        let word = RateWord::Answered(at, run, seq, (reply.quiet_ms, reply.machines), grant);
        self.send(at, word);
    }

    fn answer(
        &mut self,
        at: usize,
        (run, seq): (u64, u64),
        said: (u64, u32),
        grant: Option<[u64; 3]>,
    ) {
        let (now_ms, it) = (self.now_ms, &mut self.machines[at]);
        let now = it.time(now_ms);
        let Some(sent) = it.contact.asked_at().filter(|_| it.contact.is_asking()) else {
            return;
        };
        if it.seq != seq || it.holder.run != run {
            return;
        }
        let reply = StoreReply {
            quiet_ms: said.0,
            machines: said.1,
            called: Vec::new(),
            grants: Vec::new(),
            rates: Vec::new(),
        };
        it.contact.hear(sent, &reply);
        if let Some([count, next_us, full_us]) = grant {
            let count = count as u32;
            let grant = RateGrant {
                count,
                next_us,
                full_us,
            };
            it.full_at = it.lease.hear(sent, now, &grant, &mut it.stock, it.full_at);
        }
        it.is_prompt = true;
        self.look(at);
    }

    /// Time passes until then.
    fn pass(&mut self, until_ms: u64) {
        while let Some(Reverse((at_ms, ..))) = self.wire.peek()
            && *at_ms <= until_ms
        {
            let at_ms = *at_ms;
            self.now_ms = self.now_ms.max(at_ms);
            if let Some(Reverse((.., word))) = self.wire.pop() {
                self.hear_word(word);
            }
        }
        self.now_ms = until_ms;
        (0..self.machines.len()).for_each(|at| self.look(at));
    }

    fn happen(&mut self) {
        let at = self.rng.usize(0..self.machines.len());
        let has_cuts = self.trouble.has_cuts;
        match self.rng.u32(0..2_000) {
            0..3 if has_cuts => {
                let run = self.machines[at].holder.run + 1;
                self.machines[at] = RateMachine::new(at, run, self.rng.u64(1..7_200_000));
            }
            3..6 if has_cuts => self.machines[at].is_cut = true,
            6..30 => self.machines[at].is_cut = false,
            30..33 => self.snapshot = self.store.clone(),
            33..39 if self.now_ms >= self.up_until_ms && self.is_up => {
                // As long as machines take to know, and the store to be quiet afterwards.
                self.is_up = false;
                let least = if has_cuts { 0 } else { LEASE_MS };
                self.down_until_ms = self.now_ms + least;
            }
            39..60 if self.now_ms >= self.down_until_ms => self.come_up(false),
            60..63 if has_cuts => self.come_up(true),
            63..66 if has_cuts => {
                self.store.empty();
                self.come_up(true);
            }
            66..69 if has_cuts => {
                self.store = self.snapshot.clone();
                self.come_up(true);
            }
            _ => {}
        }
    }

    fn come_up(&mut self, is_other: bool) {
        self.run += u64::from(is_other);
        if !std::mem::replace(&mut self.is_up, true) {
            self.up_until_ms = self.now_ms + 2 * LEASE_MS;
        }
    }
}

/// The most by which events go beyond what a rate brings, in any stretch of time.
fn most_beyond(rate: &RateDefinition, events: &[(u64, u64)]) -> f64 {
    let per_ms = f64::from(rate.count) / rate.per.as_secs_f64() / 1_000.0;
    let (mut level, mut most, mut before): (f64, f64, u64) = (0.0, 0.0, 0);
    for (at_ms, count) in events {
        level = (level - (at_ms - before) as f64 * per_ms).max(0.0) + *count as f64;
        (most, before) = (most.max(level), *at_ms);
    }
    most
}

fn rate(count: u32, per_ms: u64, burst: u32) -> RateDefinition {
    RateDefinition {
        count,
        per: Duration::from_millis(per_ms),
        burst,
    }
}

/// Runs histories of one kind, and tells how many began.
fn never_beyond(trouble: Trouble, first_seed: u64) -> usize {
    let mut begun = 0;
    for seed in first_seed..first_seed + histories() / 10 {
        let mut choice = Rng::with_seed(seed ^ 0x5eed);
        let machines = choice.usize(1..=4);
        let rates = [
            (1, 2_000),
            (5, 1_000),
            (30, 1_000),
            (200, 1_000),
            (1_000, 1_000),
        ];
        let (count, per_ms) = rates[choice.usize(0..rates.len())];
        let rate = rate(count, per_ms, choice.u32(1..=count * 2));
        let mut world = RateWorld::new(seed, machines, rate, trouble);
        let mut demands = vec![1; machines];
        for _ in 0..1_500 {
            world.happen();
            if world.rng.u32(0..50) == 0 {
                let at = world.rng.usize(0..machines);
                demands[at] = world.rng.u32(0..=count.div_ceil(25).min(40));
            }
            for (at, demand) in demands.iter().enumerate() {
                for _ in 0..world.rng.u32(0..=*demand) {
                    world.arrive(at);
                }
            }
            let until_ms = world.now_ms + world.rng.u64(1..=40);
            world.pass(until_ms);
        }
        // Where a rate is drawn ahead a burst is no less than what it brings between two draws.
        let each_ms = f64::from(count) / per_ms as f64;
        let ahead = if each_ms * 50.0 >= 4.0 {
            each_ms * 35.0
        } else {
            1.0
        };
        let burst = f64::from(rate.burst).max(ahead) + 0.001;
        let given = most_beyond(&rate, &world.given);
        assert!(
            given <= burst,
            "history {seed}: {given} at once of {rate:?}"
        );
        let late_ms = LIFE_MS
            + trouble
                .delay_ms
                .max(if trouble.stray > 0 { PATIENCE_MS } else { 0 });
        let burst = burst.max(machines as f64) + each_ms * late_ms as f64;
        let began = most_beyond(&rate, &world.begun);
        assert!(
            began <= burst,
            "history {seed}: {began} at once of {rate:?}"
        );
        begun += world.begun.len();
    }
    begun
}

#[test]
fn nothing_that_happens_lets_more_begin_than_the_rate_and_a_burst() {
    let begun = never_beyond(
        Trouble {
            on_loss: OnLoss::Closed,
            lost: 30,
            delay_ms: 60,
            stray: 20,
            has_cuts: true,
        },
        1,
    );
    assert!(
        begun as u64 > histories() * 10,
        "{begun}: hardly anything went on"
    );
}

#[test]
fn parts_of_a_rate_are_no_more_than_the_rate_while_the_store_is_away_for_all() {
    let begun = never_beyond(
        Trouble {
            on_loss: OnLoss::Share,
            lost: 0,
            delay_ms: 20,
            stray: 0,
            has_cuts: false,
        },
        1_000_000,
    );
    assert!(
        begun as u64 > histories() * 10,
        "{begun}: hardly anything went on"
    );
}

/// Three machines and a store without trouble, when it is quiet no more.
fn steady(rate: RateDefinition) -> RateWorld {
    let trouble = Trouble {
        on_loss: OnLoss::Share,
        lost: 0,
        delay_ms: 1,
        stray: 0,
        has_cuts: false,
    };
    let mut world = RateWorld::new(1, 3, rate, trouble);
    let end_ms = world.now_ms + 2 * LEASE_MS;
    while world.now_ms < end_ms {
        let next_ms = world.now_ms + 1;
        world.pass(next_ms);
    }
    world.given.clear();
    world
}

/// So many come each second at each machine, for so long.
fn run(world: &mut RateWorld, demand: [f64; 3], for_ms: u64) {
    let end_ms = world.now_ms + for_ms;
    while world.now_ms < end_ms {
        for (at, each_s) in demand.iter().enumerate() {
            // As they come of many clients: at any time.
            let come = each_s / 1_000.0;
            let mut left = come;
            while left > 0.0 {
                if world.rng.f64() < left.min(0.1) {
                    world.arrive(at);
                }
                left -= 0.1;
            }
        }
        let next_ms = world.now_ms + 1;
        world.pass(next_ms);
    }
}

/// The most that began in any second.
fn most_in_a_second(world: &RateWorld) -> usize {
    let times: Vec<u64> = world.begun.iter().map(|(at, _)| *at).collect();
    let until = |at: u64| times.partition_point(|it| *it < at + 1_000);
    let counts = times
        .iter()
        .enumerate()
        .map(|(first, at)| until(*at) - first);
    counts.max().unwrap_or(0)
}

#[test]
fn a_thousand_a_second_of_three_machines_are_a_thousand_a_second() {
    for (demand, least) in [
        ([2_000.0; 3], 9_800),
        ([3_000.0, 300.0, 20.0], 9_800),
        ([1_500.0, 0.0, 0.0], 9_800),
        ([400.0; 3], 9_700),
        ([300.0; 3], 8_700),
    ] {
        let mut world = steady(rate(1_000, 1_000, 10));
        run(&mut world, demand, 1_000);
        world.begun.clear();
        let asked: u64 = world.machines.iter().map(|it| it.seq).sum();
        run(&mut world, demand, 10_000);
        let asked = world.machines.iter().map(|it| it.seq).sum::<u64>() - asked;
        let (began, most) = (world.begun.len(), most_in_a_second(&world));
        println!("{demand:?}: {began} in 10 s, at most {most} in a second, {asked} questions");
        assert!((least..=10_200).contains(&began) && most <= 1_050);
    }
}

#[test]
fn machines_that_compete_for_a_rate_have_what_they_need_or_equal_parts() {
    let mut world = steady(rate(1_000, 1_000, 10));
    run(&mut world, [3_000.0, 3_000.0, 100.0], 2_000);
    world.machines.iter_mut().for_each(|it| it.begun = 0);
    run(&mut world, [3_000.0, 3_000.0, 100.0], 10_000);
    let begun: Vec<u64> = world.machines.iter().map(|it| it.begun).collect();
    println!("{begun:?} of 30,000, 30,000 and 1,000");
    assert!(
        begun[2] > 800 && begun[0].abs_diff(begun[1]) < 700,
        "{begun:?}"
    );
}

#[test]
fn a_burst_is_one_burst_wherever_its_client_goes() {
    for rate in [
        rate(1, 1_000, 5),
        rate(3, 1_000, 3),
        rate(10, 60_000, 10),
        rate(40, 1_000, 6),
    ] {
        let mut world = steady(rate);
        run(&mut world, [0.0; 3], 60_000);
        world.begun.clear();
        for turn in 0..60 {
            world.arrive(turn % 3);
            let next_ms = world.now_ms + 3;
            world.pass(next_ms);
        }
        let most = most_beyond(&rate, &world.begun);
        let begun = world.begun.len() as f64;
        let least = f64::from(rate.burst) + 0.18 * f64::from(rate.count) / rate.per.as_secs_f64();
        assert!(most <= f64::from(rate.burst) + 0.2, "{rate:?}: {most}");
        assert!(begun + 1.5 >= least, "{rate:?}: {begun} of {least}");
    }
}
