//! The machine of pools against a clock and processes of a test.

#[path = "machine_joins_tests.rs"]
mod joins;

use ipc::pools::PoolState;

use super::super::pool::UNNAMED;
use super::*;

const WHY: &str = "the test wants it";

/// The machine, and a world that does what it says.
struct World {
    machine: Machine,
    now: Instant,
    /// Runs that are there, and their pools; whether they were killed.
    runs: BTreeMap<u64, (String, bool)>,
    /// Answers so far.
    said: BTreeMap<Ask, Vec<Word>>,
    cold: Vec<String>,
    /// Hand-overs, and how many runs had been told to end by then.
    handed_over: Vec<(String, usize)>,
    quit: Vec<u64>,
    /// What has begun and ended, and why.
    notes: Vec<(&'static str, &'static str)>,
}

fn terms(tenant: &str, idle_s: Option<u64>) -> Terms {
    Terms {
        tenant: tenant.into(),
        weight: 1,
        is_named: true,
        idle: idle_s.map(Duration::from_secs),
        start_max: Duration::from_secs(30),
        stop_max: Duration::from_secs(20),
    }
}

impl World {
    fn new(starting_max: u32, pools: &[(&str, Terms)]) -> World {
        let mut world = World {
            machine: Machine::default(),
            now: Instant::now(),
            runs: BTreeMap::new(),
            said: BTreeMap::new(),
            cold: Vec::new(),
            handed_over: Vec::new(),
            quit: Vec::new(),
            notes: Vec::new(),
        };
        world.name(starting_max, pools);
        world
    }

    fn name(&mut self, starting_max: u32, pools: &[(&str, Terms)]) {
        let pools = pools
            .iter()
            .map(|(id, terms)| ((*id).to_owned(), terms.clone()));
        self.machine.name(pools, starting_max, self.now);
        self.obey();
    }

    /// Does what is to be done, and looks whether it may be.
    fn obey(&mut self) {
        for deed in self.machine.deeds() {
            match deed {
                Deed::Start { pool, run } => {
                    let killed = |(of, is_killed): &(String, bool)| *of == pool && *is_killed;
                    assert!(!self.runs.values().any(killed), "{pool}: one is not gone");
                    self.runs.insert(run, (pool, false));
                }
                Deed::Quit { run } => self.quit.push(run),
                Deed::Kill { run } => {
                    if let Some((_, is_killed)) = self.runs.get_mut(&run) {
                        *is_killed = true;
                    }
                }
                Deed::Say { ask, word } => self.said.entry(ask).or_default().push(word),
                Deed::Cold { pool } => self.cold.push(pool),
                Deed::HandedOver { pool } => self.handed_over.push((pool, self.quit.len())),
                Deed::Note { what, why, .. } => self.notes.push((what, why)),
                Deed::Log { .. } => {}
            }
        }
    }

    fn after(&mut self, time: Duration) {
        self.now += time;
        self.machine.tick(self.now);
        self.obey();
    }

    fn want(&mut self, id: &str, terms: &Terms, ask: u64) {
        self.want_of(id, terms, (ask, false));
    }

    fn join(&mut self, id: &str, terms: &Terms, ask: u64) {
        self.want_of(id, terms, (ask, true));
    }

    fn want_of(&mut self, id: &str, terms: &Terms, (ask, is_latest): (u64, bool)) {
        let ask = (Some((1, ask)), is_latest);
        self.machine.want(id, terms, ask, self.now);
        self.obey();
    }

    fn ready(&mut self, run: u64) {
        self.machine.ready(run, 30_000, self.now);
        self.obey();
    }

    fn died(&mut self, run: u64) {
        self.machine.died(run, "it broke", self.now);
        self.obey();
    }

    fn gone(&mut self, run: u64) {
        self.runs.remove(&run);
        self.machine.gone(run, self.now);
        self.obey();
    }

    fn coming(&self) -> Vec<u64> {
        let runs = self.runs.keys().copied();
        runs.filter(|run| self.machine.is_coming(*run)).collect()
    }

    fn state(&self, id: &str) -> PoolState {
        self.machine.state(id, self.now)
    }

    fn last(&self, ask: u64) -> &Word {
        self.said[&(1, ask)].last().unwrap()
    }
}

#[test]
fn a_pool_starts_when_it_is_wanted_and_ends_without_work() {
    let own = terms("a", Some(600));
    let mut world = World::new(2, &[("p", own.clone())]);
    assert_eq!(world.state("p"), PoolState::Cold);
    assert!(world.machine.is_asleep("p", world.now) && world.runs.is_empty());
    world.want("p", &own, 1);
    world.want("p", &own, 2);
    assert_eq!(
        (world.state("p"), world.coming()),
        (PoolState::Starting, vec![1])
    );
    assert!(matches!(world.last(2), Word::Warming(wait) if *wait <= GUESS));
    world.now += Duration::from_millis(46);
    world.ready(1);
    assert_eq!((world.last(1), world.last(2)), (&Word::Warm, &Word::Warm));
    world.want("p", &own, 3);
    assert_eq!(world.said[&(1, 3)], [Word::Warm]);
    let figures = world.machine.figures("p");
    assert_eq!(figures.percentile(99), Some(Duration::from_millis(46)));
    for _ in 0..100 {
        world.after(Duration::from_secs(599));
        world.machine.works(1, world.now);
    }
    assert_eq!(world.state("p"), PoolState::Warm);
    world.after(Duration::from_secs(600));
    assert_eq!(world.state("p"), PoolState::Draining);
    assert_eq!(
        (world.quit.as_slice(), world.cold.as_slice()),
        (&[1][..], &["p".to_owned()][..])
    );
    world.gone(1);
    assert_eq!(world.state("p"), PoolState::Cold);
}

#[test]
fn starts_that_fail_rest_longer_and_longer_and_are_told_of() {
    let own = terms("a", Some(600));
    let mut world = World::new(2, &[("p", own.clone())]);
    for seconds in [1, 2, 4, 8, 16, 32, 60, 60] {
        world.want("p", &own, seconds);
        let run = world.coming()[0];
        world.died(run);
        world.gone(run);
        let retry = Duration::from_secs(seconds);
        let not = |retry, word: &Word| {
            matches!(word, Word::Not { failure: Failure::PoolFailed, detail, retry: said }
                if detail == "it broke" && *said == retry)
        };
        assert!(not(retry, world.last(seconds)), "{:?}", world.last(seconds));
        world.now += retry / 2;
        world.want("p", &own, 99);
        assert!(not(retry / 2, world.last(99)), "{:?}", world.last(99));
        assert_eq!(world.state("p"), PoolState::Failed);
        assert!(!world.machine.is_asleep("p", world.now));
        world.after(retry / 2);
        assert!(world.machine.is_asleep("p", world.now));
    }
    world.want("p", &own, 5);
    let run = world.coming()[0];
    world.ready(run);
    world.died(run);
    world.gone(run);
    world.want("p", &own, 6);
    let run = world.coming()[0];
    world.died(run);
    assert!(matches!(world.last(6), Word::Not { retry, .. } if *retry == REST));
}

#[test]
fn one_that_is_never_ready_is_killed() {
    let own = terms("a", Some(600));
    let mut world = World::new(2, &[("p", own.clone())]);
    world.want("p", &own, 1);
    world.after(Duration::from_secs(29));
    assert_eq!(world.state("p"), PoolState::Starting);
    assert!(world.machine.tick(world.now).unwrap() <= world.now + Duration::from_secs(1));
    world.after(Duration::from_secs(1));
    assert!(matches!(world.last(1), Word::Not { detail, .. } if detail.contains("30000 ms")));
    assert_eq!(world.runs[&1], ("p".into(), true));
}

#[test]
fn a_run_that_ends_is_started_again_once_it_is_gone_and_rests_when_it_always_does() {
    let own = terms("a", Some(600));
    let mut world = World::new(2, &[("p", own.clone())]);
    for round in 0..=u64::from(CRASHES_FREE) {
        world.want("p", &own, round);
        let run = world.coming()[0];
        world.ready(run);
        world.died(run);
        // It left somebody behind: nobody else may listen yet.
        world.want("p", &own, 100 + round);
        if round < u64::from(CRASHES_FREE) {
            assert_eq!(world.state("p"), PoolState::Waiting);
            world.gone(run);
            assert_eq!(world.state("p"), PoolState::Starting);
            let run = world.coming()[0];
            world.ready(run);
            world.now += CRASH;
            world.after(Duration::from_secs(600));
            world.gone(run);
            // Only the crash counts.
            world.machine.pools.get_mut("p").unwrap().crashes = u32::try_from(round).unwrap() + 1;
        }
    }
    assert!(matches!(world.last(108), Word::Not { detail, .. } if detail.contains("9 times")));
}

#[test]
fn a_hand_over_serves_all_the_time_and_one_that_fails_is_tried_again() {
    let own = terms("a", Some(600));
    let mut world = World::new(2, &[("p", own.clone())]);
    assert!(!world.machine.restart("p", WHY, world.now), "nothing runs");
    world.want("p", &own, 1);
    world.ready(1);
    world.cold.clear();
    assert!(world.machine.restart("p", WHY, world.now));
    world.obey();
    assert_eq!(
        (world.state("p"), world.coming()),
        (PoolState::HandingOver, vec![2])
    );
    world.want("p", &own, 2);
    assert_eq!(world.last(2), &Word::Warm);
    world.died(2);
    world.gone(2);
    assert_eq!(
        (world.state("p"), world.coming()),
        (PoolState::Warm, vec![])
    );
    world.after(REST);
    assert_eq!(world.coming(), [3]);
    world.ready(3);
    assert_eq!((world.quit.as_slice(), world.cold.len()), (&[1][..], 0));
    assert_eq!(world.handed_over, [("p".to_owned(), 0)], "told before");
    assert_eq!(
        (world.state("p"), world.machine.run("p")),
        (PoolState::Warm, Some(3))
    );
    assert_eq!(
        world.notes,
        [("started", "a request came"), ("started", WHY)],
        "the first has not ended yet"
    );
    // The first does not end: it is killed in time.
    world.after(Duration::from_secs(20));
    assert!(world.runs[&1].1);
    world.gone(1);
    let ended = ("ended", "another one has taken over");
    assert_eq!(world.notes.last(), Some(&ended));
}

#[test]
fn one_that_is_stopped_while_it_starts_is_killed_and_started_anew_for_who_waits() {
    let own = terms("a", Some(600));
    let mut world = World::new(1, &[("p", own.clone()), ("q", own.clone())]);
    assert!(!world.machine.stop("p", WHY, world.now), "nothing runs");
    world.want("p", &own, 1);
    assert!(world.machine.stop("p", WHY, world.now));
    world.obey();
    assert!(world.runs[&1].1);
    assert_eq!(world.state("p"), PoolState::Waiting);
    world.gone(1);
    assert_eq!(world.coming(), [2]);
    world.ready(2);
    assert_eq!(world.last(1), &Word::Warm);
    // Its place is free again.
    world.want("q", &own, 2);
    assert_eq!(world.coming(), [3]);
}

#[test]
fn pools_that_are_kept_start_by_themselves_and_those_not_named_end_soon() {
    let kept = terms("a", None);
    let mut world = World::new(2, &[("p", kept.clone())]);
    assert_eq!(world.coming(), [1]);
    world.ready(1);
    world.after(Duration::from_secs(100_000));
    assert_eq!(world.state("p"), PoolState::Warm);
    world.died(1);
    world.gone(1);
    assert_eq!(world.coming(), [2], "nobody has to ask");
    world.ready(2);
    world.name(2, &[]);
    world.after(UNNAMED);
    assert_eq!(world.state("p"), PoolState::Draining);
    world.gone(2);
    assert!(world.machine.pools.is_empty());
    // A generation before still has it.
    let kept = Terms {
        is_named: false,
        ..kept
    };
    world.want("p", &kept, 7);
    assert_eq!(world.coming(), [3]);
}

#[test]
fn a_socket_that_refuses_is_waited_for() {
    let own = terms("a", Some(600));
    let mut world = World::new(2, &[("p", own.clone())]);
    world.want("p", &own, 1);
    world.ready(1);
    world.machine.is_deaf("p", world.now);
    world.obey();
    world.want("p", &own, 2);
    assert_eq!(
        (world.cold.len(), world.state("p")),
        (1, PoolState::Waiting)
    );
    assert!(!world.machine.is_asleep("p", world.now));
    world.machine.hears_again("p", world.now);
    world.obey();
    assert_eq!(world.coming(), [2]);
    assert_eq!(world.machine.deaf().count(), 0);
}

#[test]
fn runs_of_a_former_spawner_serve_on() {
    let own = terms("a", Some(600));
    let mut world = World::new(2, &[("p", own.clone())]);
    let before = world.machine.adopt("p", &own, world.now);
    let serving = world.machine.adopt("p", &own, world.now);
    let stray = world.machine.adopt_leaving("q", &own, world.now);
    world.obey();
    assert_eq!(world.quit, [before, stray]);
    assert_eq!(world.machine.run("p"), Some(serving));
    world.want("p", &own, 1);
    assert_eq!(world.said[&(1, 1)], [Word::Warm]);
    world.want("q", &own, 2);
    world.machine.let_go();
    world.obey();
    assert_eq!(world.last(2), &Word::Warm);
    assert!(world.machine.pools.is_empty() && world.machine.runs.is_empty());
}

#[test]
fn whatever_happens_places_are_kept_and_every_order_is_answered_once() {
    const POOLS: [(&str, &str); 6] = [
        ("a1", "a"),
        ("a2", "a"),
        ("a3", "a"),
        ("b1", "b"),
        ("b2", "b"),
        ("c1", "c"),
    ];
    for seed in 1..200_u64 {
        let mut dice = seed;
        let mut roll = |sides: u64| {
            dice ^= dice << 13;
            dice ^= dice >> 7;
            dice ^= dice << 17;
            dice % sides
        };
        let pools: Vec<_> = POOLS
            .iter()
            .map(|(id, tenant)| (*id, terms(tenant, (*id != "c1").then_some(5))))
            .collect();
        let starting_max = u32::try_from(1 + roll(5)).unwrap();
        let mut world = World::new(starting_max, &pools);
        let mut asks = 0;
        for _ in 0..400 {
            let (id, own) = &pools[usize::try_from(roll(6)).unwrap()];
            let all: Vec<u64> = world.runs.keys().copied().collect();
            let at = usize::try_from(roll(all.len().max(1) as u64)).unwrap();
            let run = all.get(at).copied().unwrap_or(0);
            match roll(14) {
                0..=3 => {
                    asks += 1;
                    world.want_of(id, own, (asks, roll(3) == 0));
                }
                4 | 5 if world.coming().contains(&run) => world.ready(run),
                6 if roll(4) == 0 => world.died(run),
                7 if world.quit.contains(&run) || world.runs.get(&run).is_some_and(|it| it.1) => {
                    world.gone(run);
                }
                8 => drop(world.machine.restart(id, WHY, world.now)),
                9 if roll(4) == 0 => drop(world.machine.stop(id, WHY, world.now)),
                10 if roll(9) == 0 => world.machine.is_deaf(id, world.now),
                10 => world.machine.hears_again(id, world.now),
                11 => {
                    let (is_suspended, tenant) = (roll(3) > 0, own.tenant.clone());
                    let mut suspended = world.machine.suspended().clone();
                    match is_suspended {
                        true => suspended.insert(tenant),
                        false => suspended.remove(&tenant),
                    };
                    world.machine.suspend(suspended, world.now);
                }
                12 if roll(4) == 0 => drop(world.machine.kill_tenant(&own.tenant, world.now)),
                _ => world.after(Duration::from_millis(roll(3_000))),
            }
            world.obey();
            check(&world, starting_max);
        }
        settle(&mut world);
        for (ask, words) in &world.said {
            let finals = words
                .iter()
                .filter(|word| !matches!(word, Word::Warming(_)));
            assert_eq!(finals.count(), 1, "seed {seed} {ask:?}: {words:?}");
        }
        assert_eq!(world.said.len() as u64, asks);
    }
}

/// Who starts, all together and of one tenant.
fn check(world: &World, starting_max: u32) {
    let starting = usize::try_from(starting_max).unwrap();
    let coming = world.coming();
    assert!(coming.len() <= starting);
    for tenant in ["a", "b", "c"] {
        let own = coming
            .iter()
            .filter(|run| world.runs[run].0.starts_with(tenant));
        assert!(own.count() <= (starting / 2).max(1));
    }
    for run in &coming {
        let (pool, _) = &world.runs[run];
        assert!(!world.machine.is_kept_still(pool), "{pool} starts");
    }
    let serving: Vec<_> = world.machine.serving().collect();
    assert!(serving.iter().all(|(_, run)| world.runs.contains_key(run)));
}

/// Everything comes to its end.
fn settle(world: &mut World) {
    for (id, _) in world.runs.values().cloned().collect::<Vec<_>>() {
        world.machine.hears_again(&id, world.now);
    }
    for id in ["a1", "a2", "a3", "b1", "b2", "c1"] {
        world.machine.hears_again(id, world.now);
    }
    world.machine.suspend(BTreeSet::new(), world.now);
    for _ in 0..100 {
        world.obey();
        for run in world.coming() {
            world.ready(run);
        }
        let killed = world.runs.iter().filter(|(_, run)| run.1);
        for run in killed.map(|(run, _)| *run).collect::<Vec<_>>() {
            world.gone(run);
        }
        world.after(Duration::from_secs(1));
    }
}

#[test]
fn nothing_runs_of_a_tenant_that_is_suspended_until_it_is_resumed() {
    let (own, other) = (terms("a", Some(600)), terms("b", Some(600)));
    let kept = terms("a", None);
    let pools = [
        ("serves", own.clone()),
        ("starts", own.clone()),
        ("waits", own.clone()),
        ("other", other.clone()),
    ];
    let mut world = World::new(4, &pools);
    world.want("serves", &own, 1);
    world.ready(1);
    world.want("starts", &own, 2);
    world.want("other", &other, 3);
    let suspended = |world: &mut World, tenants: &[&str]| {
        let tenants = tenants.iter().map(|&tenant| tenant.to_owned()).collect();
        let ended = world.machine.suspend(tenants, world.now);
        world.obey();
        ended
    };
    assert_eq!(suspended(&mut world, &["a", "nobody"]), 2);
    assert_eq!(
        (&world.quit[..], &world.cold[..]),
        (&[1][..], &["serves".to_owned()][..])
    );
    assert!(world.runs[&2].1, "what starts is killed");
    assert!(!world.runs[&3].1, "another's goes on");
    let is_told = |word: &Word| {
        matches!(
            word,
            Word::Not {
                failure: Failure::TenantSuspended,
                ..
            }
        )
    };
    assert!(is_told(world.last(2)));
    for (ask, pool) in [(4, "serves"), (5, "starts"), (6, "waits"), (7, "new")] {
        world.want(pool, &own, ask);
        assert!(is_told(world.last(ask)), "{pool}");
        assert!(!world.machine.is_asleep(pool, world.now), "{pool}");
    }
    assert_eq!(world.state("waits"), PoolState::Suspended);
    assert_eq!(world.state("serves"), PoolState::Draining);
    world.gone(1);
    world.gone(2);
    // Another manifest, one that keeps a pool of theirs: nothing starts.
    world.name(4, &[("kept", kept.clone()), ("other", other.clone())]);
    world.after(Duration::from_secs(1));
    assert_eq!(
        (world.state("kept"), world.coming()),
        (PoolState::Suspended, vec![3])
    );
    assert_eq!(suspended(&mut world, &[]), 0);
    assert_eq!(world.state("kept"), PoolState::Starting);
    world.want("serves", &own, 8);
    assert!(matches!(world.last(8), Word::Warming(_)));
}

#[test]
fn who_waits_for_a_pool_that_is_killed_has_the_next_one() {
    let (own, other) = (terms("a", Some(600)), terms("b", Some(600)));
    let mut world = World::new(
        4,
        &[("p", own.clone()), ("q", own.clone()), ("o", other.clone())],
    );
    for (ask, pool, terms) in [(1, "p", &own), (2, "o", &other), (3, "q", &own)] {
        world.want(pool, terms, ask);
    }
    world.ready(1);
    world.ready(2);
    // One that serves, one that starts; and one that leaves.
    world.machine.restart("p", WHY, world.now);
    world.obey();
    let next = world.machine.run("p").unwrap();
    assert_eq!(world.machine.kill_tenant("a", world.now), 2);
    world.obey();
    let killed: Vec<u64> = world
        .runs
        .iter()
        .filter(|(_, it)| it.1)
        .map(|(run, _)| *run)
        .collect();
    assert!(
        killed.contains(&1) && killed.contains(&3) && !killed.contains(&2),
        "{killed:?} {next}"
    );
    for run in killed {
        world.gone(run);
    }
    assert_eq!(
        world.state("q"),
        PoolState::Starting,
        "somebody waits for it"
    );
    assert_eq!(world.state("o"), PoolState::Warm);
    let run = *world.coming().last().unwrap();
    world.ready(run);
    assert_eq!(world.last(3), &Word::Warm);
    assert_eq!(world.machine.kill_tenant("nobody", world.now), 0);
}
