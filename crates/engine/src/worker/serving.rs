//! A generation as one worker serves it: its pools of connections, its scripts, what it keeps of files.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;

use config::model;

use super::shared::Shared;
use crate::generation::Generation;
use crate::resolve::files::Files;
use crate::scripts::vms::Vms;
use crate::site::Site;
use crate::stats::WorkerStats;
use crate::stderr_log::StderrShares;
use crate::upstream::Pool;
use crate::upstream::dynamic::Dynamic;

/// A generation as one worker serves it.
#[derive(Debug)]
pub struct Serving {
    /// The generation all workers share.
    pub generation: Arc<Generation>,
    /// Its upstreams' pools on this worker.
    pub pools: Vec<Rc<Pool>>,
    /// The pools of upstreams that scripts have named.
    pub dynamic: Dynamic,
    /// Those with servers whose processes may be waited for, by such a server's address.
    pub(super) slotted: HashMap<Arc<str>, Vec<Rc<Pool>>>,
    /// Its scripts on this worker; `None` is none.
    pub(crate) scripts: Option<Rc<Vms>>,
    /// What this worker keeps of the sites' files.
    pub files: Files,
    /// What the sites' programs have complained of lately.
    pub stderr: StderrShares,
}

impl Serving {
    /// Takes over from `before` the pools of upstreams in which nothing has changed that matters to
    /// a pool.
    pub(super) fn new(
        generation: Arc<Generation>,
        before: Option<&Serving>,
        scripts: Option<Rc<Vms>>,
        stats: &WorkerStats,
        shared: &Shared,
    ) -> Rc<Self> {
        let known = before.map_or(&[][..], |serving| &serving.pools).iter();
        let known: HashMap<&str, &Rc<Pool>> = known.map(|pool| (pool.name(), pool)).collect();
        let pool =
            |(config, terms): (&Arc<model::Upstream>, &_)| match known.get(config.name.as_str()) {
                Some(pool) if pool.suits(config) => Rc::clone(pool),
                _ => Rc::new(Pool::new((config, terms), stats, shared)),
            };
        let pools: Vec<_> = generation
            .upstreams
            .iter()
            .zip(&generation.server_terms)
            .map(pool)
            .collect();
        let mut slotted: HashMap<Arc<str>, Vec<Rc<Pool>>> = HashMap::new();
        for pool in &pools {
            for server in pool
                .servers()
                .iter()
                .filter(|server| server.slots.is_some())
            {
                let sharing = slotted.entry(Arc::clone(&server.label)).or_default();
                sharing.push(Rc::clone(pool));
            }
        }
        Rc::new(Self {
            pools,
            dynamic: Dynamic::default(),
            slotted,
            scripts,
            files: Files::new(
                generation.process.caps.file_cache_bytes,
                generation.room.handles,
            ),
            stderr: StderrShares::new(&shared.complaints),
            generation,
        })
    }

    /// Gives up what the next generation has not taken over.
    pub(super) fn retire(&self, next: &Serving) {
        self.dynamic.retire();
        let kept: HashSet<_> = next.pools.iter().map(Rc::as_ptr).collect();
        for pool in &self.pools {
            if !kept.contains(&Rc::as_ptr(pool)) {
                pool.retire();
            }
        }
    }

    /// A site by its index.
    pub fn site(&self, index: u32) -> Option<&Site> {
        self.generation.sites.get(usize::try_from(index).ok()?)
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        if let Some(scripts) = &self.scripts {
            scripts.release();
        }
    }
}
