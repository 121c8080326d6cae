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

type RateMachine = Machine<Draws>;
type RateWorld = World<Draws, RateWord, RateTrial>;

/// A machine's side of a key of a rate.
#[derive(Default)]
struct Draws {
    lease: RateLease,
    stock: RateStock,
    full_at: Time,
    arrived: u64,
    /// When those came that wait.
    waiting: Vec<u64>,
    begun: u64,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum RateWord {
    Asked(usize, u64, u64, Option<[u64; 5]>),
    Answered(usize, u64, u64, (u64, u32), Option<[u64; 3]>),
}

struct RateTrial {
    rate: RateDefinition,
    down_until_ms: u64,
    /// When how many were given out by the store, and when each began.
    given: Vec<(u64, u64)>,
    begun: Vec<(u64, u64)>,
    refused: u64,
}

impl RateMachine {
    fn in_use(&self) -> RateUse {
        RateUse {
            arrived: self.key.arrived,
            waiting: self.key.waiting.len() as u32,
            full_at: self.key.full_at,
        }
    }

    /// Whether one may begin, before whom so many wait; `None`: that has to be asked.
    fn may_begin(&mut self, now: Time, rate: &RateDefinition, before: u32) -> Option<bool> {
        match (self.key.stock.by, self.key.stock.offer(now, before)) {
            (RateBy::Share(machines), _) => {
                let rate = Rate::new(rate.count, rate.per, rate.burst);
                let next = rate.shared(machines.into()).check(self.key.full_at, now);
                self.key.full_at = *next.as_ref().unwrap_or(&self.key.full_at);
                if next.is_ok() {
                    self.key.stock.note_own();
                }
                Some(next.is_ok())
            }
            (RateBy::Closed, _) | (_, Offer::Spent(_)) => Some(false),
            (_, Offer::Ready) => {
                self.key.stock.take(now);
                Some(true)
            }
            (_, Offer::Unknown) => None,
        }
    }
}

impl RateWorld {
    fn of_rate(seed: u64, machines: usize, rate: RateDefinition, trouble: Trouble) -> Self {
        let trial = RateTrial {
            rate,
            down_until_ms: 0,
            given: Vec::new(),
            begun: Vec::new(),
            refused: 0,
        };
        Self::new(seed, machines, trouble, trial)
    }

    /// A request comes.
    fn arrive(&mut self, at: usize) {
        let (now_ms, it) = (self.now_ms, &mut self.machines[at]);
        it.key.arrived += 1;
        let before = it.key.waiting.len() as u32;
        match it.may_begin(it.time(now_ms), &self.trial.rate, before) {
            Some(true) => self.begin(at),
            Some(false) => self.trial.refused += 1,
            None => {
                it.key.waiting.push(now_ms);
                it.is_prompt = true;
                self.look(at);
            }
        }
    }

    fn begin(&mut self, at: usize) {
        self.machines[at].key.begun += 1;
        self.trial.begun.push((self.now_ms, 1));
    }

    /// Those who wait look again.
    fn serve(&mut self, at: usize) {
        let (now_ms, it) = (self.now_ms, &mut self.machines[at]);
        let waiting = std::mem::take(&mut it.key.waiting);
        for came in waiting {
            let it = &mut self.machines[at];
            match it.may_begin(it.time(now_ms), &self.trial.rate, 0) {
                Some(true) => self.begin(at),
                None if now_ms < came + PATIENCE_MS => it.key.waiting.push(came),
                _ => self.trial.refused += 1,
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
            it.key.lease.fail(sent);
        }
        let terms = RateTerms::of(&self.trial.rate);
        let (by, since) = RateLease::by(now, &it.contact, on_loss);
        if it.key.stock.set_by(by) {
            it.key.full_at = it.key.full_at.max(since + terms.unknown(by));
        }
        let is_turn = now_ms >= it.looks_at_ms;
        if !it.contact.is_asking() && (is_turn || it.is_prompt) {
            it.is_prompt = false;
            if is_turn {
                it.looks_at_ms = now_ms + 25;
            }
            let in_use = it.in_use();
            let claim = it
                .key
                .lease
                .claim(now, &it.contact, (KEY, terms), &it.key.stock, in_use);
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
        self.trial
            .given
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
            ..StoreReply::default()
        };
        it.contact.hear(sent, &reply);
        if let Some([count, next_us, full_us]) = grant {
            let count = count as u32;
            let grant = RateGrant {
                count,
                next_us,
                full_us,
            };
            it.key.full_at =
                it.key
                    .lease
                    .hear(sent, now, &grant, &mut it.key.stock, it.key.full_at);
        }
        it.is_prompt = true;
        self.look(at);
    }

    /// Time passes until then.
    fn pass(&mut self, until_ms: u64) {
        while let Some(word) = self.arriving(until_ms) {
            self.hear_word(word);
        }
        (0..self.machines.len()).for_each(|at| self.look(at));
    }

    fn happen(&mut self) {
        let at = self.rng.usize(0..self.machines.len());
        let has_cuts = self.trouble.has_cuts;
        match self.rng.u32(0..2_000) {
            0..3 if has_cuts => {
                self.begin_anew(at);
            }
            3..6 if has_cuts => self.machines[at].is_cut = true,
            6..30 => self.machines[at].is_cut = false,
            30..33 => self.snapshot = self.store.clone(),
            33..39 if self.now_ms >= self.up_until_ms && self.is_up => {
                // As long as machines take to know, and the store to be quiet afterwards.
                self.is_up = false;
                let least = if has_cuts { 0 } else { LEASE_MS };
                self.trial.down_until_ms = self.now_ms + least;
            }
            39..60 if self.now_ms >= self.trial.down_until_ms => self.come_up(false, 2 * LEASE_MS),
            60..63 if has_cuts => self.come_up(true, 2 * LEASE_MS),
            63..66 if has_cuts => {
                self.store.empty();
                self.come_up(true, 2 * LEASE_MS);
            }
            66..69 if has_cuts => {
                self.store = self.snapshot.clone();
                self.come_up(true, 2 * LEASE_MS);
            }
            _ => {}
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
        let mut world = RateWorld::of_rate(seed, machines, rate, trouble);
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
        let given = most_beyond(&rate, &world.trial.given);
        assert!(
            given <= burst,
            "history {seed}: {given} at once of {rate:?}"
        );
        let late_ms = LIFE_MS
            + trouble
                .delay_ms
                .max(if trouble.stray > 0 { PATIENCE_MS } else { 0 });
        let burst = burst.max(machines as f64) + each_ms * late_ms as f64;
        let began = most_beyond(&rate, &world.trial.begun);
        assert!(
            began <= burst,
            "history {seed}: {began} at once of {rate:?}"
        );
        begun += world.trial.begun.len();
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
    let mut world = RateWorld::of_rate(1, 3, rate, trouble);
    let end_ms = world.now_ms + 2 * LEASE_MS;
    while world.now_ms < end_ms {
        let next_ms = world.now_ms + 1;
        world.pass(next_ms);
    }
    world.trial.given.clear();
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
    let times: Vec<u64> = world.trial.begun.iter().map(|(at, _)| *at).collect();
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
        world.trial.begun.clear();
        let asked: u64 = world.machines.iter().map(|it| it.seq).sum();
        run(&mut world, demand, 10_000);
        let asked = world.machines.iter().map(|it| it.seq).sum::<u64>() - asked;
        let (began, most) = (world.trial.begun.len(), most_in_a_second(&world));
        assert!(
            (least..=10_200).contains(&began) && most <= 1_050,
            "{demand:?}: {began} in 10 s, at most {most} in a second, {asked} questions"
        );
    }
}

#[test]
fn machines_that_compete_for_a_rate_have_what_they_need_or_equal_parts() {
    let mut world = steady(rate(1_000, 1_000, 10));
    run(&mut world, [3_000.0, 3_000.0, 100.0], 2_000);
    world.machines.iter_mut().for_each(|it| it.key.begun = 0);
    run(&mut world, [3_000.0, 3_000.0, 100.0], 10_000);
    let begun: Vec<u64> = world.machines.iter().map(|it| it.key.begun).collect();
    assert!(
        begun[2] > 800 && begun[0].abs_diff(begun[1]) < 700,
        "{begun:?} of 30,000, 30,000 and 1,000"
    );
}

/// How many begin at each of two machines at which requests come at these intervals, the second's so much later, in 16 seconds.
fn evenly(rate: RateDefinition, every_ms: [u64; 2], later_ms: u64) -> [u64; 2] {
    let mut world = steady(rate);
    let begun_ms = world.now_ms;
    for ms in 0..26_000 {
        if ms == 10_000 {
            world.machines.iter_mut().for_each(|it| it.key.begun = 0);
        }
        for (at, every_ms) in every_ms.into_iter().enumerate() {
            if (ms + later_ms * at as u64).is_multiple_of(every_ms) {
                world.arrive(at);
            }
        }
        world.pass(begun_ms + ms + 1);
    }
    [0, 1].map(|at| world.machines[at].key.begun)
}

#[test]
fn machines_to_which_requests_come_evenly_have_equal_parts_of_a_slow_rate() {
    for (count, burst) in [(4, 4), (20, 2), (20, 20), (20, 40), (50, 50), (79, 79)] {
        let interval_ms = 1_000 / u64::from(count);
        for later_ms in [5, 49].map(|it| it * interval_ms / 50) {
            for every in [1, 3, 5].map(|it| (it * interval_ms / 4).max(2)) {
                let begun = evenly(rate(count, 1_000, burst), [every, interval_ms], later_ms);
                let (all, least) = (begun[0] + begun[1], begun[0].min(begun[1]));
                assert!(
                    least * 10 >= all * 4 && all * 100 >= u64::from(count) * 16 * 97,
                    "{count}/s, {every} and {interval_ms} ms, {later_ms} ms later: {begun:?}"
                );
            }
        }
    }
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
        world.trial.begun.clear();
        for turn in 0..60 {
            world.arrive(turn % 3);
            let next_ms = world.now_ms + 3;
            world.pass(next_ms);
        }
        let most = most_beyond(&rate, &world.trial.begun);
        let begun = world.trial.begun.len() as f64;
        let least = f64::from(rate.burst) + 0.18 * f64::from(rate.count) / rate.per.as_secs_f64();
        assert!(most <= f64::from(rate.burst) + 0.2, "{rate:?}: {most}");
        assert!(begun + 1.5 >= least, "{rate:?}: {begun} of {least}");
    }
}
