//! Pools of processes: how they are and what requests waited for them.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use control::Pool;

use crate::generation::Generation;
use crate::programs::pools::{ProgramPool, REFUSALS};

/// Collects those of a generation that somebody has asked for since the server started.
pub(super) fn collect(generation: &Generation) -> Vec<Pool> {
    let pools = generation.program_pools.iter().map(|it| of(it));
    pools.filter(is_known).collect()
}

fn of(pool: &ProgramPool) -> Pool {
    let read = |counter: &AtomicU64| counter.load(Relaxed);
    let stats = &pool.stats;
    Pool {
        pool: pool.id.to_string(),
        name: pool.name.to_string(),
        tenant: pool.tenant.to_string(),
        state: pool.known(Instant::now()).word().into(),
        waiting: pool.waiting() as u64,
        starts: read(&stats.started),
        failures: read(&stats.failed),
        waited: read(&stats.waited),
        waited_us: read(&stats.waited_us),
        masters: read(&stats.masters),
        masters_us: read(&stats.masters_us),
        mails: read(&stats.mails),
        mails_unsent: read(&stats.mails_unsent),
        refused: REFUSALS
            .into_iter()
            .zip(stats.refused.iter().map(read))
            .collect(),
    }
}

fn is_known(pool: &Pool) -> bool {
    let refused: u64 = pool.refused.iter().map(|(_, count)| count).sum();
    let counted = pool.starts + pool.failures + pool.waited + pool.masters;
    pool.state != "cold" || pool.waiting + counted + refused > 0
}
