//! Compiled files that pools keep on the disk: as many as they may, and none where an operator says so.
//!
//! The idea: they are their pool's user's, in a directory where that user may put anything. So they are
//! removed as that user, on a thread beside, for one pool after the other; those that an operator has
//! cleared not before the runs have ended that may still write some.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use config::reason;
use ipc::pools::{PoolManifest, PoolProgramManifest};
use os::user::User;

use super::Pools;
use crate::Spawner;

/// How often those of pools that serve are looked at.
const LOOK: Duration = Duration::from_secs(5 * 60);
/// How long after its start one is looked at: not while its first page is waited for.
const AFTER_START: Duration = Duration::from_secs(5);

/// What is to be removed, and who does it.
#[derive(Debug, Default)]
pub(super) struct Caches {
    to_clear: Vec<ToClear>,
    /// Pools that have started since they were looked at.
    started: BTreeMap<String, Instant>,
    looked: Option<Instant>,
    worker: Option<JoinHandle<()>>,
}

/// A cache to be emptied once these runs are gone.
#[derive(Debug)]
struct ToClear {
    cache: Cache,
    after: Vec<u64>,
}

/// Where a pool keeps compiled files.
#[derive(Debug)]
struct Cache {
    name: String,
    user: Option<String>,
    directory: PathBuf,
}

impl Cache {
    fn of(pool: &PoolManifest) -> Option<Cache> {
        let is_php = matches!(pool.program, PoolProgramManifest::Php { .. });
        is_php.then(|| Cache {
            name: pool.name.clone(),
            user: pool.user.clone(),
            directory: pool.directory.join("cache"),
        })
    }

    /// Leaves no more than so many bytes.
    fn prune(&self, bytes_max: u64) {
        let user = self.user.as_deref();
        let user = user.map_or_else(User::this_process, User::look_up);
        let prune = || os::directory::prune(&self.directory, bytes_max);
        let pruned = user.and_then(|user| user.act(prune)).and_then(|it| it);
        let name = &self.name;
        match pruned {
            Ok(0) => {}
            Ok(files) => tracing::debug!(pool = name, files, "compiled files were removed"),
            Err(error) => {
                let error = reason(&error);
                tracing::warn!(pool = name, error, "compiled files cannot be removed");
            }
        }
    }
}

impl Caches {
    /// Whether something waits for its time.
    pub(super) fn has_more(&self) -> bool {
        !self.to_clear.is_empty() || !self.started.is_empty()
    }

    pub(super) fn note_start(&mut self, id: String, now: Instant) {
        self.started.insert(id, now);
    }
}

impl Pools {
    /// The caches to be pruned now, and to how many bytes: 0 is to be cleared.
    fn due(&mut self, now: Instant) -> Vec<(Cache, u64)> {
        let machine = &self.machine;
        let to_clear = std::mem::take(&mut self.caches.to_clear).into_iter();
        let is_due = |it: &ToClear| !it.after.iter().any(|run| machine.has(*run));
        let (due, later): (Vec<_>, Vec<_>) = to_clear.partition(is_due);
        self.caches.to_clear = later;
        let started = std::mem::take(&mut self.caches.started).into_iter();
        let is_fresh = |since| now.saturating_duration_since(since) < AFTER_START;
        let (fresh, started): (_, BTreeMap<_, _>) = started.partition(|it| is_fresh(it.1));
        self.caches.started = fresh;
        let mut ids: BTreeSet<String> = started.into_keys().collect();
        let looked = self.caches.looked;
        let is_over = looked.is_none_or(|it| now.saturating_duration_since(it) >= LOOK);
        if is_over {
            self.caches.looked = Some(now);
            ids.extend(machine.serving().map(|(id, _)| id.to_owned()));
        }
        let pruned = ids.iter().filter_map(|id| {
            let (known, at) = self.named.get(id)?;
            let cache = Cache::of(&known.pool(*at)?)?;
            Some((cache, known.manifest.cache_bytes.max(1)))
        });
        let cleared = due.into_iter().map(|it| (it.cache, 0));
        cleared.chain(pruned).collect()
    }
}

impl Spawner {
    /// Ends pools, and has their caches emptied when they have ended: how many are known.
    pub(super) fn clear(&mut self, ids: &[String], now: Instant) -> usize {
        let ids: BTreeSet<&String> = ids.iter().collect();
        let mut known = 0;
        for id in ids {
            let Some(pool) = self.pools.pool(id) else {
                continue;
            };
            known += 1;
            let (cache, after) = (Cache::of(&pool), self.pools.machine.runs_of(id));
            let why = "an operator cleared it";
            self.pools.machine.stop(id, why, now);
            if let Some(cache) = cache {
                let to_clear = &mut self.pools.caches.to_clear;
                to_clear.retain(|it| it.cache.directory != cache.directory);
                to_clear.push(ToClear { cache, after });
            }
        }
        known
    }

    /// Has removed what is to be, unless something is being.
    pub(super) fn mind_caches(&mut self, now: Instant) {
        let worker = self.pools.caches.worker.as_ref();
        if worker.is_some_and(|it| !it.is_finished()) {
            return;
        }
        let due = self.pools.due(now);
        if due.is_empty() {
            return;
        }
        let work = move || {
            due.iter()
                .for_each(|(cache, bytes_max)| cache.prune(*bytes_max))
        };
        let worker = std::thread::Builder::new().name("nagaya-caches".into());
        match worker.spawn(work) {
            Ok(worker) => self.pools.caches.worker = Some(worker),
            Err(error) => {
                let error = reason(&error);
                tracing::warn!(error, "compiled files are not looked at");
            }
        }
    }
}
