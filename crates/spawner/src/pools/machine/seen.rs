//! What of the machine is asked: how pools stand, and which runs are whose.

use std::time::{Duration, Instant};

use ipc::pools::PoolState;

use super::super::pool::{ACCEPTS_MAX, Figures, Pool};
use super::{GUESS, Machine};

impl Machine {
    /// Whether somebody who connects to a pool that does not run is to have it started.
    pub(in crate::pools) fn is_asleep(&self, id: &str, now: Instant) -> bool {
        let asleep = |pool: &Pool| {
            let is_awake = pool.serving.is_some() || pool.coming.is_some();
            !is_awake && pool.waiting.is_none() && pool.rest(now).is_none()
        };
        let may_start = !self.deaf.contains(id) && !self.is_kept_still(id);
        may_start && self.pools.get(id).is_none_or(asleep)
    }

    /// Pools whose sockets are to be bound anew.
    pub(in crate::pools) fn deaf(&self) -> impl Iterator<Item = &str> {
        self.deaf.iter().map(String::as_str)
    }

    pub(in crate::pools) fn state(&self, id: &str, now: Instant) -> PoolState {
        let pool = self.pools.get(id);
        match pool.map_or(PoolState::Cold, |pool| pool.state(now)) {
            PoolState::Cold | PoolState::Failed if self.is_kept_still(id) => PoolState::Suspended,
            state => state,
        }
    }

    pub(in crate::pools) fn figures(&self, id: &str) -> Figures {
        let pool = self.pools.get(id);
        pool.map_or_else(Figures::default, |pool| pool.figures.clone())
    }

    /// How long a pool that failed still rests.
    pub(in crate::pools) fn rest(&self, id: &str, now: Instant) -> Option<Duration> {
        self.pools.get(id)?.rest(now)
    }

    /// How long it will take until a pool is ready; `None` where it is not even wanted.
    pub(super) fn predict(&self, id: &str, now: Instant) -> Option<Duration> {
        let pool = self.pools.get(id)?;
        let mean = self.start_mean.unwrap_or(GUESS);
        let own = pool.figures.times.back().copied().unwrap_or(mean);
        match &pool.coming {
            Some(coming) => Some(own.saturating_sub(now.saturating_duration_since(coming.since))),
            None if pool.serving.is_some() && pool.stale.is_none() => Some(ACCEPTS_MAX),
            None => {
                let rounds = self.turns.rounds_before(&pool.terms.tenant, id);
                let rounds = u32::try_from(rounds).unwrap_or(u32::MAX);
                Some(mean.saturating_mul(rounds) + own)
            }
        }
    }

    /// The run that serves, or else comes.
    pub(in crate::pools) fn run(&self, id: &str) -> Option<u64> {
        let pool = self.pools.get(id)?;
        let serving = pool.serving.as_ref().map(|serving| serving.number);
        serving.or(pool.coming.as_ref().map(|coming| coming.number))
    }

    /// All runs of a pool.
    pub(in crate::pools) fn runs_of(&self, id: &str) -> Vec<u64> {
        let runs = self.runs.iter().filter(|(_, of)| *of == id);
        runs.map(|(run, _)| *run).collect()
    }

    /// Whether something is left of a run.
    pub(in crate::pools) fn has(&self, run: u64) -> bool {
        self.runs.contains_key(&run)
    }

    /// Whether a run is starting.
    pub(in crate::pools) fn is_coming(&self, run: u64) -> bool {
        let pool = self.runs.get(&run).and_then(|id| self.pools.get(id));
        let coming = pool.and_then(|pool| pool.coming.as_ref());
        coming.is_some_and(|coming| coming.number == run)
    }

    /// Runs that serve.
    pub(in crate::pools) fn serving(&self) -> impl Iterator<Item = (&str, u64)> {
        let pools = self.pools.iter();
        pools.filter_map(|(id, pool)| Some((id.as_str(), pool.serving.as_ref()?.number)))
    }
}
