//! Whose start is next: tenants take turns, by what their starts cost.
//!
//! The idea: there are few places to start at, and each start takes processor time of its own. So
//! a tenant is charged, by its weight, what its starts took; the one charged least is next, and
//! one that comes back has saved nothing up. None holds more than half of the places, so that one
//! who wants many pools at once leaves others a place at any moment.

use std::collections::{BTreeMap, VecDeque};

/// Who waits for a place, and who has one.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// Places.
    starting_max: usize,
    tenants: BTreeMap<String, Tenant>,
    /// What who was last given a place had been charged: nobody begins below it.
    floor: u64,
}

#[derive(Debug, Default)]
struct Tenant {
    weight: u32,
    /// Microseconds, divided by the weight.
    charged: u64,
    queue: VecDeque<String>,
    starting: usize,
}

impl Tenant {
    fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.starting == 0
    }

    fn by_weight(&self, cost_us: u64) -> u64 {
        cost_us / u64::from(self.weight.max(1))
    }
}

impl Turns {
    pub(super) fn set_places(&mut self, starting_max: u32) {
        self.starting_max = usize::try_from(starting_max).unwrap_or(1).max(1);
    }

    /// Places that one tenant may have.
    fn half(&self) -> usize {
        (self.starting_max / 2).max(1)
    }

    /// Has a pool wait for a place, which it does not yet.
    pub(super) fn wait(&mut self, tenant: &str, weight: u32, pool: &str) {
        let floor = self.floor;
        let tenant = self.tenants.entry(tenant.to_owned()).or_default();
        if tenant.is_idle() {
            tenant.charged = tenant.charged.max(floor);
        }
        tenant.weight = weight;
        tenant.queue.push_back(pool.to_owned());
    }

    /// A pool waits no more.
    pub(super) fn leave(&mut self, tenant: &str, pool: &str) {
        if let Some(tenant) = self.tenants.get_mut(tenant) {
            tenant.queue.retain(|waiting| waiting != pool);
        }
        self.tidy();
    }

    /// Gives the next pool a place, if there is one and it can start, and charges its tenant what it
    /// will probably cost.
    pub(super) fn next(
        &mut self,
        can_start: impl Fn(&str) -> bool,
        cost_us: impl Fn(&str) -> u64,
    ) -> Option<String> {
        let starting: usize = self.tenants.values().map(|tenant| tenant.starting).sum();
        if starting >= self.starting_max {
            return None;
        }
        let half = self.half();
        let able = self.tenants.iter().filter_map(|(name, tenant)| {
            let has_room = tenant.starting < half;
            let at = tenant.queue.iter().position(|pool| can_start(pool));
            Some((tenant.charged, name.clone(), at.filter(|_| has_room)?))
        });
        let (charged, name, at) = able.min()?;
        let tenant = self.tenants.get_mut(&name)?;
        let pool = tenant.queue.remove(at)?;
        tenant.starting += 1;
        tenant.charged = charged.saturating_add(tenant.by_weight(cost_us(&pool)));
        self.floor = self.floor.max(charged);
        Some(pool)
    }

    /// Takes a place back, and charges what it has cost instead of what it was to.
    pub(super) fn end(&mut self, tenant: &str, (charged_us, cost_us): (u64, u64)) {
        if let Some(tenant) = self.tenants.get_mut(tenant) {
            tenant.starting = tenant.starting.saturating_sub(1);
            let without = tenant.charged.saturating_sub(tenant.by_weight(charged_us));
            tenant.charged = without.saturating_add(tenant.by_weight(cost_us));
        }
        self.tidy();
    }

    /// Starts that end before one of this pool's does, in its tenant's rounds: it waits, or may.
    pub(super) fn rounds_before(&self, tenant: &str, pool: &str) -> usize {
        let active = self.tenants.values().filter(|tenant| !tenant.is_idle());
        let active = active.count().max(1);
        let places = (self.starting_max / active).clamp(1, self.half());
        let Some(tenant) = self.tenants.get(tenant) else {
            return 0;
        };
        let at = tenant.queue.iter().position(|waiting| waiting == pool);
        let ahead = tenant.starting + at.unwrap_or(tenant.queue.len());
        // Where there are more tenants than places, each round of one is several of all.
        ahead.div_euclid(places) * active.div_ceil(self.starting_max).max(1)
            + active.saturating_sub(1) / self.starting_max
    }

    /// Forgets who waits for nothing and has no more to his charge than who comes anew.
    fn tidy(&mut self) {
        if self.tenants.values().all(Tenant::is_idle) {
            self.tenants.clear();
            self.floor = 0;
        }
        let floor = self.floor;
        self.tenants
            .retain(|_, tenant| !tenant.is_idle() || tenant.charged > floor);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: fn(&str) -> bool = |_| true;

    fn turns(starting_max: u32) -> Turns {
        let mut turns = Turns::default();
        turns.set_places(starting_max);
        turns
    }

    /// Jain's index: 1 where all have the same.
    fn jain(shares: &[f64]) -> f64 {
        let sum: f64 = shares.iter().sum();
        let squares: f64 = shares.iter().map(|share| share * share).sum();
        sum * sum / (shares.len() as f64 * squares)
    }

    /// Cost of a start of each tenant: the last ones cost five times as much as the first.
    fn cost_us(pool: &str) -> u64 {
        let tenant: u64 = pool.split('-').next().unwrap().parse().unwrap();
        20_000 + tenant * 9_000
    }

    #[test]
    fn tenants_get_the_same_processor_time_whatever_their_starts_cost() {
        let mut turns = turns(4);
        for pool in 0..100 {
            for tenant in 0..10 {
                let name = tenant.to_string();
                turns.wait(&name, 1, &format!("{tenant}-{pool}"));
            }
        }
        let mut spent = [0.0; 10];
        let all: u64 = (0..10)
            .map(|tenant| cost_us(&tenant.to_string()) * 100)
            .sum();
        let mut total = 0;
        let mut under_way = VecDeque::new();
        while total < all / 2 {
            // What is known beforehand is a guess.
            while let Some(pool) = turns.next(ALL, |_| 50_000) {
                under_way.push_back(pool);
            }
            assert_eq!(under_way.len(), 4);
            let pool = under_way.pop_front().unwrap();
            let tenant = pool.split('-').next().unwrap().to_owned();
            let cost = cost_us(&pool);
            turns.end(&tenant, (50_000, cost));
            spent[tenant.parse::<usize>().unwrap()] += cost as f64;
            total += cost;
        }
        assert!(jain(&spent) >= 0.98, "{} {spent:?}", jain(&spent));
    }

    #[test]
    fn weights_are_shares() {
        let mut turns = turns(2);
        for pool in 0..400 {
            turns.wait("a", 3, &format!("a{pool}"));
            turns.wait("b", 1, &format!("b{pool}"));
        }
        let mut counts = BTreeMap::new();
        for _ in 0..200 {
            let pool = turns.next(ALL, |_| 1_000).unwrap();
            let tenant = pool.get(..1).unwrap().to_owned();
            turns.end(&tenant, (1_000, 1_000));
            *counts.entry(tenant).or_insert(0) += 1;
        }
        assert!((148..=152).contains(&counts["a"]), "{counts:?}");
    }

    #[test]
    fn one_who_wants_many_leaves_half_of_the_places_and_who_comes_late_is_next() {
        let mut turns = turns(5);
        for pool in 0..50 {
            turns.wait("many", 1, &format!("m{pool}"));
        }
        for _ in 0..2 {
            assert!(turns.next(ALL, |_| 9).unwrap().starts_with('m'));
        }
        assert_eq!(turns.next(ALL, |_| 9), None, "half of five");
        for tenant in ["a", "b", "c", "d"] {
            turns.wait(tenant, 1, tenant);
        }
        let next: Vec<_> = std::iter::from_fn(|| turns.next(ALL, |_| 9)).collect();
        assert_eq!(next, ["a", "b", "c"], "all five places are taken");
        turns.end("many", (9, 9));
        assert_eq!(turns.next(ALL, |_| 9).as_deref(), Some("d"));
    }

    #[test]
    fn one_place_is_everybodys_and_absence_saves_nothing_up() {
        let mut turns = turns(1);
        turns.wait("rest", 1, "rest");
        turns.wait("rest", 1, "more");
        assert!(turns.next(ALL, |_| 90_000).is_some());
        turns.end("rest", (90_000, 90_000));
        turns.wait("a", 1, "a10");
        for pool in 0..10 {
            turns.wait("b", 1, &format!("b{pool}"));
        }
        let mut order = String::new();
        for _ in 0..4 {
            let next = turns.next(ALL, |_| 9_000).unwrap();
            order.push_str(next.get(..1).unwrap());
            turns.end(next.get(..1).unwrap(), (9_000, 9_000));
        }
        assert!(order.get(..3).unwrap().contains('a'), "{order}");
    }

    #[test]
    fn one_that_cannot_start_yet_holds_nobody_up() {
        let mut turns = turns(2);
        turns.wait("a", 1, "a1");
        turns.wait("a", 1, "a2");
        let can = |pool: &str| pool != "a1";
        assert_eq!(turns.next(can, |_| 1).as_deref(), Some("a2"));
        turns.end("a", (1, 1));
        assert_eq!(turns.next(can, |_| 1), None);
        assert_eq!(turns.next(ALL, |_| 1).as_deref(), Some("a1"));
        turns.end("a", (1, 1));
        assert!(turns.tenants.is_empty());
    }

    #[test]
    fn the_place_in_the_queue_is_told_in_rounds() {
        let mut turns = turns(4);
        assert_eq!(turns.rounds_before("a", "x"), 0);
        for pool in 0..8 {
            turns.wait("a", 1, &pool.to_string());
        }
        let rounds: Vec<_> = (0..8)
            .map(|pool| turns.rounds_before("a", &pool.to_string()))
            .collect();
        assert_eq!(rounds, [0, 0, 1, 1, 2, 2, 3, 3]);
        for tenant in 0..199 {
            turns.wait(&format!("t{tenant}"), 1, "x");
        }
        assert_eq!(turns.rounds_before("t7", "x"), 49);
    }
}
