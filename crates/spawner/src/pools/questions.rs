//! What operators ask of pools, and have done.

use std::path::{Path, PathBuf};
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
            PoolQuestion::Clear(ids) => {
                let known = ids.iter().filter(|id| self.clear(id, now));
                count(known.count())
            }
        };
        self.tell_supervisor(&FromSpawner::Pools { number, answer });
        self.mind_pools();
    }

    /// Ends a pool, and empties its cache as its user; whether it is known.
    fn clear(&mut self, id: &str, now: Instant) -> bool {
        let Some(pool) = self.pools.pool(id) else {
            return false;
        };
        let (cache, user) = (pool.directory.join("cache"), pool.user.clone());
        let name = pool.name.clone();
        self.pools.machine.stop(id, now);
        let work = move || {
            let user = user.as_deref();
            let user = user.map_or_else(User::this_process, User::look_up);
            let cleared = user.and_then(|user| user.act(|| empty(&cache)));
            if let Err(error) = cleared.and_then(|cleared| cleared) {
                let error = reason(&error);
                tracing::warn!(pool = name, error, "what it keeps cannot be removed");
            }
        };
        let builder = std::thread::Builder::new().name("nagaya-clear".into());
        builder.spawn(work).is_ok()
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

/// Removes what is in a directory; links in it are removed, not followed.
pub(super) fn empty(directory: &Path) -> std::io::Result<()> {
    for entry in std::fs::read_dir(directory)?.take(ENTRIES_MAX) {
        let entry = entry?;
        let path: PathBuf = entry.path();
        match entry.file_type()?.is_dir() {
            true => std::fs::remove_dir_all(path)?,
            false => std::fs::remove_file(path)?,
        }
    }
    Ok(())
}
