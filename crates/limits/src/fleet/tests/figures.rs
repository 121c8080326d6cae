//! How much of a limit is used, and how often the store is asked for that, as a clock of the tests has it.

use super::*;

/// A fleet of three without trouble, as machines are that look at what they hold now and then; after it has begun.
fn steady(limit: u32, service_ms: RangeInclusive<u64>, delay_ms: u64) -> PermitWorld {
    let trouble = Trouble {
        on_loss: OnLoss::Share,
        lost: 0,
        delay_ms,
        stray: 0,
        has_cuts: false,
    };
    let mut world = PermitWorld::of_limit(1, 3, limit, trouble);
    (world.trial.service_ms, world.trial.round_ms) = (service_ms, 25);
    let until_ms = world.now_ms + 2 * LEASE_MS;
    while world.now_ms < until_ms {
        world.pass(|_, _| 0);
    }
    world
}

impl PermitWorld {
    /// A millisecond passes, in which so many wait at each machine.
    fn pass(&mut self, waiting: impl Fn(u64, usize) -> u32) {
        for at in 0..self.machines.len() {
            self.machines[at].await_in(waiting(self.now_ms, at));
        }
        let next_ms = self.now_ms + 1;
        self.deliver(next_ms);
        self.serve();
        assert!(self.sum() <= self.trial.limit);
        self.trial.used += u64::from(self.in_flight());
    }

    /// The share of the limit that is used, and how often the store is asked for each request, in half a minute.
    fn figures(&mut self, waiting: impl Fn(u64, usize) -> u32) -> (f64, f64) {
        let asked = |world: &Self| world.machines.iter().map(|it| it.seq).sum::<u64>();
        let (before, until_ms) = (asked(self), self.now_ms + 30_000);
        self.trial.used = 0;
        while self.now_ms < until_ms {
            self.pass(&waiting);
        }
        let (used, each_ms) = (self.trial.used as f64, *self.trial.service_ms.end() as f64);
        let asked = (asked(self) - before) as f64;
        (
            used / f64::from(self.trial.limit) / 30_000.0,
            asked / (used / each_ms),
        )
    }
}

#[test]
fn demand_that_moves_each_second_uses_nearly_all_of_the_limit() {
    for (limit, each_ms, delay_ms) in [(100, 40, 1), (100, 200, 1), (24, 40, 1), (100, 40, 4)] {
        let mut world = steady(limit, each_ms..=each_ms, delay_ms);
        let moves = |now_ms, at| match (now_ms / 1_000) % 3 == at as u64 {
            true => 2 * limit,
            false => 0,
        };
        let (used, asked) = world.figures(moves);
        println!(
            "limit {limit}, {each_ms} ms each, {delay_ms} ms: {used:.3}, {asked:.3} questions a request"
        );
        assert!(used >= 0.95, "limit {limit}, {each_ms} ms each: {used:.3}");
    }
}

#[test]
fn machines_that_all_have_more_than_enough_to_do_use_nearly_all_of_the_limit() {
    for (limit, each_ms) in [(100, 40), (100, 200), (24, 40)] {
        let mut world = steady(limit, each_ms..=each_ms, 1);
        let (used, asked) = world.figures(|_, _| limit);
        println!("limit {limit}, {each_ms} ms each: {used:.3}, {asked:.3} questions a request");
        assert!(used >= 0.95, "limit {limit}, {each_ms} ms each: {used:.3}");
    }
}

#[test]
fn a_steady_load_asks_the_store_for_hardly_any_request() {
    // About sixty of a hundred in flight, of twenty clients each machine that come back at once.
    let mut world = steady(100, 20..=60, 1);
    let until_ms = world.now_ms + 30_000;
    let asked = |world: &PermitWorld| world.machines.iter().map(|it| it.seq).sum::<u64>();
    let before = asked(&world);
    let mut rng = Rng::with_seed(1);
    world.trial.used = 0;
    while world.now_ms < until_ms {
        let waiting: Vec<u32> = world
            .machines
            .iter()
            .map(|it| 20_u32.saturating_sub(it.key.ends.len() as u32))
            .map(|most| if rng.u32(0..4) == 0 { most } else { most / 2 })
            .collect();
        world.pass(|_, at| waiting[at]);
    }
    let (asked, served) = (
        (asked(&world) - before) as f64,
        world.trial.used as f64 / 40.0,
    );
    println!("{:.4} questions a request", asked / served);
    assert!(asked / served <= 0.05, "{asked} for {served}");
}

#[test]
fn shares_use_the_whole_limit_while_the_store_is_away_for_all() {
    let mut world = steady(99, 40..=40, 1);
    for _ in 0..2_000 {
        world.pass(|_, _| 99);
    }
    world.is_up = false;
    let mut used = Vec::new();
    for _ in 0..14 {
        world.trial.used = 0;
        for _ in 0..1_000 {
            world.pass(|_, _| 99);
        }
        used.push(world.trial.used as f64 / 99_000.0);
    }
    println!("{used:.2?}");
    let least = used.iter().copied().fold(1.0, f64::min);
    assert!(least > 0.9, "{used:.2?}");
}
