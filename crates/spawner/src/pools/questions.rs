//! What operators ask of pools, and have done.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use config::reason;
use ipc::manifest::FromSpawner;
use ipc::pools::{PoolAnswer, PoolManifest, PoolQuestion, PoolStanding};
use os::cgroup::Usage;
use os::user::User;

use crate::Spawner;

/// Bytes of why a pool failed that are told.
const FAILURE_BYTES_MAX: usize = 500;
/// Entries of a cache's directory that are removed.
const ENTRIES_MAX: usize = 1 << 20;

impl Spawner {
    /// Does what an operator asks, and answers.
    pub(crate) fn on_question(&mut self, number: u64, question: PoolQuestion) {
        let now = Instant::now();
        let count = |done: usize| PoolAnswer::Begun(u32::try_from(done).unwrap_or(u32::MAX));
        let answer = match question {
            PoolQuestion::List => PoolAnswer::Pools(self.standings(now)),
            _ if !self.pools.is_in_charge => {
                PoolAnswer::Refused("pools are being handed over".into())
            }
            PoolQuestion::Restart(ids) => {
                let done = ids.iter().filter(|id| self.pools.machine.restart(id, now));
                count(done.count())
            }
            PoolQuestion::Stop(ids) => {
                let done = ids.iter().filter(|id| self.pools.machine.stop(id, now));
                count(done.count())
            }
            PoolQuestion::Clear(ids) => match self.clear(&ids, now) {
                Ok(known) => count(known),
                Err(why) => PoolAnswer::Refused(why),
            },
        };
        self.tell_supervisor(&FromSpawner::Pools { number, answer });
        self.mind_pools();
    }

    /// Ends pools, and empties their caches as their users, one after the other and for one question
    /// at a time: how many are known.
    fn clear(&mut self, ids: &[String], now: Instant) -> Result<usize, String> {
        let clearing = self.pools.clearing.as_ref();
        if clearing.is_some_and(|it| !it.is_finished()) {
            return Err("others are being cleared: try again later".into());
        }
        let ids: BTreeSet<&String> = ids.iter().collect();
        let known = ids.into_iter().filter_map(|id| self.pools.pool(id));
        let caches: Vec<_> = known
            .map(|pool| {
                let cache = pool.directory.join("cache");
                (pool.id.clone(), pool.name.clone(), cache, pool.user.clone())
            })
            .collect();
        for (id, ..) in &caches {
            self.pools.machine.stop(id, now);
        }
        let count = caches.len();
        let work = move || {
            for (_, name, cache, user) in caches {
                clear_as(user.as_deref(), &name, &cache);
            }
        };
        let builder = std::thread::Builder::new().name("nagaya-clear".into());
        let started = builder.spawn(work);
        let started = started.map_err(|error| format!("start a thread: {}", reason(&error)))?;
        self.pools.clearing = Some(started);
        Ok(count)
    }

    /// How each pool of the latest manifest stands.
    fn standings(&self, now: Instant) -> Vec<PoolStanding> {
        let Some(latest) = self.manifests.kept().last() else {
            return Vec::new();
        };
        let pools = latest.manifest.pools.iter();
        pools.map(|pool| self.standing(pool, now)).collect()
    }

    fn standing(&self, pool: &PoolManifest, now: Instant) -> PoolStanding {
        let machine = &self.pools.machine;
        let figures = machine.figures(&pool.id);
        let run = machine.run(&pool.id);
        let run = run.and_then(|run| self.pools.runs.get(&run));
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let usage = self.usage_of(pool);
        let mut failure = figures.failure.clone();
        ipc::codec::cut(&mut failure, FAILURE_BYTES_MAX);
        PoolStanding {
            id: pool.id.clone(),
            name: pool.name.clone(),
            tenant: pool.tenant.clone(),
            state: machine.state(&pool.id, now),
            pid: run.and_then(|run| run.pids().next()),
            starts: figures.starts,
            starts_failed: figures.starts_failed,
            start_p50_ms: figures.percentile(50).map(ms),
            start_p99_ms: figures.percentile(99).map(ms),
            processes: run.map_or(0, |run| u32::try_from(run.count()).unwrap_or(u32::MAX)),
            memory_bytes: usage.memory_bytes,
            cpu_us: usage.cpu_us,
            throttled_us: usage.throttled_us,
            failure,
            retry_ms: machine.rest(&pool.id, now).map(ms),
        }
    }

    fn usage_of(&self, pool: &PoolManifest) -> Usage {
        let latest = self.manifests.kept().last();
        let usage = latest.and_then(|known| {
            let at = usize::try_from(pool.group?).ok()?;
            let group = known.manifest.groups.get(at)?;
            Usage::of(&known.manifest.layout, &group.path)
        });
        usage.unwrap_or_default()
    }
}

/// Empties a pool's cache as its user.
fn clear_as(user: Option<&str>, name: &str, cache: &Path) {
    let user = user.map_or_else(User::this_process, User::look_up);
    let cleared = user.and_then(|user| user.act(|| empty(cache)));
    if let Err(error) = cleared.and_then(|cleared| cleared) {
        let error = reason(&error);
        tracing::warn!(pool = name, error, "what it keeps cannot be removed");
    }
}

/// Removes what is in a directory, all that can be; links in it are removed, not followed.
///
/// # Errors
/// The first of what could not be removed.
pub(super) fn empty(directory: &Path) -> std::io::Result<()> {
    let mut outcome = Ok(());
    for entry in std::fs::read_dir(directory)?.take(ENTRIES_MAX) {
        let entry = entry?;
        let path = entry.path();
        let removed = match entry.file_type()?.is_dir() {
            true => std::fs::remove_dir_all(path),
            false => std::fs::remove_file(path),
        };
        outcome = outcome.and(removed);
    }
    outcome
}
