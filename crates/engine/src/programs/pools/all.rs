//! All pools, for all workers: those of the generation in force, and those of rows that somebody has.
//!
//! The idea: what is heard of a pool goes by its id. One of a row is known here as long as a site holds it.

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Instant;

use config::model::is_row_pool_id;
use ipc::order::{FileCost, PoolCounts};
use ipc::rows::RowOrder;

use super::{PoolTimes, ProgramPool, lock};
use crate::costs::Costs;
use crate::programs::recent::Unserved;
use crate::recent::Recent;

/// The pools of rows, by their id: one for each row and generation.
#[derive(Debug, Default)]
struct PoolsOfRows {
    by_id: HashMap<Box<str>, Vec<Weak<ProgramPool>>>,
    /// How many ids there may be before those are forgotten that nobody holds.
    most: usize,
}

/// Ids of rows' pools before those are looked for that nobody holds.
const OF_ROWS_MIN: usize = 1_024;

/// The pools of the generation in force, for all workers.
#[derive(Debug, Default)]
pub struct AllPools {
    /// Held to copy or replace it.
    in_force: Mutex<Arc<[Arc<ProgramPool>]>>,
    /// Those of rows. Held for one look or change.
    of_rows: Mutex<PoolsOfRows>,
    /// What files cost, once there is a generation.
    costs: OnceLock<Arc<Costs>>,
    /// Who was not answered lately.
    pub(crate) recent: Recent<Unserved>,
}

impl AllPools {
    /// These are the pools from now on.
    pub(crate) fn put_in_force(&self, pools: &Arc<[Arc<ProgramPool>]>) {
        *self.in_force.lock().unwrap_or_else(PoisonError::into_inner) = Arc::clone(pools);
    }

    /// What files cost is told here from now on.
    pub(crate) fn tell_costs(&self, costs: &Arc<Costs>) {
        let _ = self.costs.set(Arc::clone(costs));
    }

    /// Runs of a tenant's files have cost so much.
    pub(in crate::programs) fn note_costs(&self, tenant: &str, costs: &[FileCost]) {
        let (Some(known), now) = (self.costs.get(), Instant::now()) else {
            return;
        };
        for FileCost { file, runs, cpu_us } in costs {
            known.note(tenant, file.as_bytes(), (*runs, *cpu_us), now);
        }
    }

    /// The pool of a row, which is the same for all who want it for that row.
    pub(crate) fn of_row(
        &self,
        (id, name, tenant, group): (&str, &str, &str, [String; 2]),
        row: &RowOrder,
        socket: &Path,
        times: PoolTimes,
    ) -> Arc<ProgramPool> {
        let mut of_rows = self.lock_rows();
        let same = of_rows.by_id.get(id).into_iter().flatten();
        let mut same = same.filter_map(Weak::upgrade);
        if let Some(known) = same.find(|it| it.row.as_deref() == Some(row)) {
            return known;
        }
        drop(same);
        let pool = Arc::new(ProgramPool {
            php_socket: Some(socket.into()),
            row: Some(Box::new(row.clone())),
            group: Some(Box::new(group)),
            ..ProgramPool::new(id, name, tenant)
        });
        pool.set(times);
        if of_rows.by_id.len() >= of_rows.most {
            of_rows.forget();
        }
        let all = of_rows.by_id.entry(id.into()).or_default();
        all.retain(|it| it.strong_count() > 0);
        all.push(Arc::downgrade(&pool));
        pool
    }

    /// Those of rows that somebody has.
    pub(crate) fn rows(&self) -> Vec<Arc<ProgramPool>> {
        let of_rows = self.lock_rows();
        let all = of_rows.by_id.values().flatten();
        all.filter_map(Weak::upgrade).collect()
    }

    fn lock_rows(&self) -> MutexGuard<'_, PoolsOfRows> {
        self.of_rows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Those in force, and those of rows that somebody has.
    pub(crate) fn each(&self) -> Vec<Arc<ProgramPool>> {
        let rows = self.rows();
        self.in_force().iter().cloned().chain(rows).collect()
    }

    /// The pools in force.
    pub(crate) fn in_force(&self) -> Arc<[Arc<ProgramPool>]> {
        let in_force = self.in_force.lock();
        Arc::clone(&in_force.unwrap_or_else(PoisonError::into_inner))
    }

    /// How many there are.
    pub(in crate::programs) fn count(&self) -> usize {
        self.in_force().len() + self.lock_rows().by_id.len()
    }

    /// The pool of this id, which has ended.
    pub(in crate::programs) fn note_cold(&self, id: &str) -> Option<Arc<ProgramPool>> {
        let pools = self.find(id);
        pools.iter().for_each(|pool| pool.note_cold());
        pools.into_iter().next()
    }

    /// The pool of this id, which has been handed over. Every worker hears it, and all count: what
    /// matters is that it is another number.
    pub(in crate::programs) fn note_handed_over(&self, id: &str) -> Option<Arc<ProgramPool>> {
        let pools = self.find(id);
        for pool in &pools {
            pool.hand_overs.fetch_add(1, Release);
            *lock(&pool.handed_over) = Some(Instant::now());
            pool.wake();
        }
        pools.into_iter().next()
    }

    /// The pool of this id; of a row's what each who wants it knows of it.
    fn find(&self, id: &str) -> Vec<Arc<ProgramPool>> {
        if is_row_pool_id(id) {
            let of_rows = self.lock_rows();
            let all = of_rows.by_id.get(id).into_iter().flatten();
            return all.filter_map(Weak::upgrade).collect();
        }
        let in_force = self.in_force();
        let found = in_force.iter().find(|pool| *pool.id == *id);
        found.into_iter().cloned().collect()
    }

    /// The spawner has counted so much of the pool of this id.
    pub(in crate::programs) fn note_counts(&self, id: &str, counts: PoolCounts) {
        for pool in self.find(id) {
            let stats = &pool.stats;
            stats.masters.store(counts.masters, Relaxed);
            stats.masters_us.store(counts.masters_us, Relaxed);
            stats.mails.store(counts.mails, Relaxed);
            stats.mails_unsent.store(counts.mails_unsent, Relaxed);
        }
    }

    /// There is another spawner.
    pub(in crate::programs) fn note_spawner(&self) {
        for pool in self.each() {
            match &pool.row {
                None => pool.note_spawner(),
                // The next spawner knows of none: what runs is told to end.
                Some(_) => pool.note_cold(),
            }
        }
    }
}

impl PoolsOfRows {
    /// Forgets those that nobody holds.
    fn forget(&mut self) {
        self.by_id.retain(|_, all| {
            all.retain(|it| it.strong_count() > 0);
            !all.is_empty()
        });
        self.most = (self.by_id.len() * 2).max(OF_ROWS_MIN);
    }
}

#[cfg(test)]
mod tests {
    use super::super::Known;
    use super::*;

    fn known(pool: &ProgramPool) -> &'static str {
        pool.known(Instant::now()).word()
    }

    fn order(host: &str) -> RowOrder {
        RowOrder {
            generation: 1,
            site: 0,
            host: host.into(),
            columns: Vec::new(),
            seal: 0,
        }
    }

    #[test]
    fn a_rows_pool_is_the_same_for_all_and_forgotten_with_who_has_it() {
        let all = AllPools::default();
        let id = config::model::row_pool_id(&["a"]);
        let times = PoolTimes::new(1_000, 1_000, 1);
        let group = || ["row-anna", "pool"].map(str::to_owned);
        let pool = |host: &str| {
            let words = (&*id, "php", "anna", group());
            all.of_row(words, &order(host), Path::new("/a"), times)
        };
        let (first, same, other) = (pool("a"), pool("a"), pool("b"));
        assert!(Arc::ptr_eq(&first, &same) && !Arc::ptr_eq(&first, &other));
        for pool in [&first, &other] {
            pool.note_warm(None);
        }
        all.note_cold(&id);
        assert_eq!([known(&first), known(&other)], ["cold"; 2]);
        first.note_warm(None);
        all.note_spawner();
        assert_eq!(known(&first), "cold", "the next spawner knows of none");
        assert_eq!(all.each().len(), 2);
        drop((first, same, other));
        assert!(all.each().is_empty());
    }

    #[test]
    fn what_runs_is_asked_on_when_its_spawner_is_lost() {
        let all = AllPools::default();
        let [warm, starting] = ["a", "b"].map(|id| Arc::new(ProgramPool::new(id, id, id)));
        all.put_in_force(&[Arc::clone(&warm), Arc::clone(&starting)].into());
        warm.note_warm(None);
        starting.note_starting(None, 5_000);
        for pool in [&warm, &starting] {
            pool.note_lost(None);
        }
        assert_eq!((known(&warm), known(&starting)), ("warm", "cold"));
        starting.note_starting(None, 5_000);
        all.note_spawner();
        assert_eq!(warm.known(Instant::now()), Known::Unsure);
        assert_eq!(known(&starting), "cold");
        all.note_cold("a");
        all.note_cold("nobody's");
        all.note_handed_over("b");
        assert_eq!((warm.hand_overs(), starting.hand_overs()), (0, 1));
        assert_eq!((known(&warm), warm.ends()), ("cold", 1));
    }
}
