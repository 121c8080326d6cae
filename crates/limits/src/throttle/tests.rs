//! The bound against a kernel of a test, millisecond by millisecond.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;

/// How often the figures are read.
const LOOK_MS: u64 = 200;
/// What a quota is counted over.
const PERIOD_MS: u64 = 100;
const CORES: usize = 2;

/// A page on its way: what it takes still, and waits for others before that.
#[derive(Debug, Clone, Copy)]
struct Page {
    begun_ms: u64,
    waits_ms: u64,
    cpu_ms: f64,
}

/// A tenant's group with half a core, and a queue before it.
struct World {
    quota_ms: f64,
    /// What a page waits for before it computes, and computes.
    page: (u64, f64),
    fixed: u32,
    throttle: Option<Throttle>,
    queue: VecDeque<u64>,
    running: Vec<Page>,
    now_ms: u64,
    left_ms: f64,
    kept_ms: f64,
    used_ms: f64,
    let_in: u64,
    /// How long pages took once they were let in, in milliseconds.
    served: Vec<u64>,
}

impl World {
    fn new(page: (u64, f64), throttle: Option<Throttle>) -> World {
        World {
            quota_ms: 50.0,
            page,
            fixed: 20,
            throttle,
            queue: VecDeque::new(),
            running: Vec::new(),
            now_ms: 0,
            left_ms: 0.0,
            kept_ms: 0.0,
            used_ms: 0.0,
            let_in: 0,
            served: Vec::new(),
        }
    }

    fn cap(&self) -> usize {
        let cap = self.throttle.as_ref().and_then(Throttle::cap);
        cap.map_or(self.fixed, |cap| cap.min(self.fixed)) as usize
    }

    /// A page is asked for every so many milliseconds, for so long.
    fn run(&mut self, every_ms: u64, for_ms: u64) {
        let until_ms = self.now_ms + for_ms;
        while self.now_ms < until_ms {
            if self.now_ms.is_multiple_of(every_ms) && self.queue.len() < 200 {
                self.queue.push_back(self.now_ms);
            }
            self.step();
        }
    }

    fn step(&mut self) {
        if self.now_ms.is_multiple_of(PERIOD_MS) {
            self.left_ms = self.quota_ms;
        }
        while self.running.len() < self.cap() && self.queue.pop_front().is_some() {
            let (waits_ms, cpu_ms) = self.page;
            let begun_ms = self.now_ms;
            self.let_in += 1;
            self.running.push(Page {
                begun_ms,
                waits_ms,
                cpu_ms,
            });
        }
        let mut ready: Vec<&mut Page> = Vec::new();
        for page in &mut self.running {
            match page.waits_ms.checked_sub(1) {
                Some(left) => page.waits_ms = left,
                None => ready.push(page),
            }
        }
        let cores = ready.len().min(CORES) as f64;
        let given_ms = cores.min(self.left_ms);
        self.left_ms -= given_ms;
        self.kept_ms += cores - given_ms;
        self.used_ms += given_ms;
        let each_ms = given_ms / ready.len().max(1) as f64;
        ready.iter_mut().for_each(|page| page.cpu_ms -= each_ms);
        self.now_ms += 1;
        let now_ms = self.now_ms;
        let ended = self.running.extract_if(.., |page| page.cpu_ms <= 1e-9);
        self.served.extend(ended.map(|page| now_ms - page.begun_ms));
        if now_ms.is_multiple_of(LOOK_MS) {
            let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
            let quotas = self.quota_ms * (LOOK_MS / PERIOD_MS) as f64;
            let look = ThrottleLook {
                used: std::mem::take(&mut self.used_ms) / quotas,
                kept_from: std::mem::take(&mut self.kept_ms) / LOOK_MS as f64,
                in_flight: count(self.running.len()),
                waiting: count(self.queue.len()),
                let_in: std::mem::take(&mut self.let_in),
            };
            if let Some(throttle) = &mut self.throttle {
                throttle.look(&look);
            }
        }
    }

    /// Pages a second and the median of their times, after a while of five times the load.
    fn overloaded(mut self) -> (f64, u64) {
        let (_, cpu_ms) = self.page;
        let every_ms = (cpu_ms * 1_000.0 / (self.quota_ms * 10.0) / 5.0) as u64;
        self.run(every_ms, 20_000);
        self.served.clear();
        self.run(every_ms, 60_000);
        self.served.sort_unstable();
        let median_ms = self.served[self.served.len() / 2];
        (self.served.len() as f64 / 60.0, median_ms)
    }
}

#[test]
fn a_throttled_group_serves_as_many_pages_each_of_them_sooner() {
    // What pages wait for a store, and compute.
    for page in [
        (0, 20.0),
        (20, 20.0),
        (60, 20.0),
        (0, 100.0),
        (30, 5.0),
        (100, 50.0),
    ] {
        let (rate, median_ms) = World::new(page, None).overloaded();
        let following = World::new(page, Some(Throttle::new(1)));
        let (rate_following, median_following_ms) = following.overloaded();
        let told = format!(
            "{page:?}: {rate:.1} a second in {median_ms} ms, {rate_following:.1} in {median_following_ms} ms"
        );
        assert!(rate_following >= 0.98 * rate, "{told}");
        assert!(median_following_ms * 10 <= median_ms * 3, "{told}");
    }
}

#[test]
fn a_group_that_is_throttled_no_more_gets_as_many_as_before() {
    let mut world = World::new((0, 20.0), Some(Throttle::new(1)));
    world.run(8, 20_000);
    assert_eq!(world.cap(), 1);
    // Half of what it can do.
    world.run(80, 60_000);
    assert_eq!(world.cap(), 20);
    // Its quota is raised while many wait, and pages are others.
    world.run(8, 20_000);
    assert_eq!(world.cap(), 1);
    world.quota_ms = 1_000.0;
    world.page = (200, 1.0);
    world.run(20, 30_000);
    assert_eq!((world.cap(), world.queue.len()), (20, 0));
}

#[test]
fn pages_pass_those_that_never_end() {
    let mut world = World::new((0, 5.0), Some(Throttle::new(1)));
    let endless = |world: &World| Page {
        begun_ms: world.now_ms,
        waits_ms: 0,
        cpu_ms: f64::INFINITY,
    };
    for _ in 0..10 {
        world.running.push(endless(&world));
    }
    // Those that run are too many from then on.
    world.run(500, 15_000);
    world.served.clear();
    world.run(500, 60_000);
    let served = world.served.len();
    assert!(served >= 100 && world.queue.len() <= 20, "{served} of 120");
    // Another one comes in between.
    world.running.push(endless(&world));
    world.run(500, 15_000);
    world.served.clear();
    world.run(500, 60_000);
    let served = world.served.len();
    assert!(served >= 100 && world.queue.len() <= 20, "{served} of 120");
    // Once they have ended, nobody counts for nothing any more.
    world.running.clear();
    world.page = (0, 20.0);
    world.run(8, 30_000);
    assert_eq!(world.cap(), 1);
}

#[test]
fn a_quota_of_several_cores_is_its_floor() {
    let mut throttle = Throttle::new(3);
    let look = ThrottleLook {
        used: 1.0,
        kept_from: 1.0,
        in_flight: 20,
        waiting: 100,
        let_in: 1,
    };
    (0..100).for_each(|_| throttle.look(&look));
    assert_eq!(throttle.cap(), Some(3));
}

#[test]
fn more_at_once_that_brings_nothing_is_taken_back() {
    let mut throttle = Throttle::new(1);
    let look = |used, kept_from| ThrottleLook {
        used,
        kept_from,
        in_flight: 10,
        waiting: 100,
        let_in: 1,
    };
    (0..LOOKS).for_each(|_| throttle.look(&look(1.0, 1.0)));
    assert_eq!(throttle.cap(), Some(8));
    // It waits for a lock that one of its pages holds.
    let caps: Vec<_> = (0..1_000)
        .map(|_| {
            throttle.look(&look(0.3, 0.0));
            throttle.cap()
        })
        .collect();
    assert!(caps.iter().all(|cap| [Some(8), Some(10)].contains(cap)));
    let more = caps.iter().filter(|cap| **cap == Some(10)).count();
    assert!(more < 150, "{more}");
}

proptest! {
    #[test]
    fn a_bound_is_never_below_its_floor_and_rises_by_a_part(
        floor in 0..5_u32,
        looks in proptest::collection::vec((0.0..1.2_f64, 0.0..2.0_f64, 0..50_u32, 0..3_u32), 0..400),
    ) {
        let mut throttle = Throttle::new(floor);
        for (used, kept_from, in_flight, waiting) in looks {
            let before = throttle.cap;
            let let_in = u64::from(in_flight % 2);
            throttle.look(&ThrottleLook { used, kept_from, in_flight, waiting, let_in });
            let (Some(cap), bound) = (throttle.cap, throttle.cap()) else { continue };
            prop_assert!(cap >= floor.max(1));
            prop_assert!(bound.is_some_and(|bound| bound >= cap && bound <= cap + in_flight));
            if let Some(before) = before {
                prop_assert!(cap <= before + (before / RISE_PART).max(1));
            }
        }
    }
}
