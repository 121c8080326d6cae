//! A generation as one worker serves it: its pools of connections, its scripts, what it keeps of files.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;

use super::shared::Shared;
use crate::directory::kept::RowSites;
use crate::generation::Generation;
use crate::htaccess::proofs::Proofs;
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
    /// Its upstreams' pools on this worker. One behind which are processes that the gateway starts is
    /// made for the first request: most of them have none.
    pools: Vec<OnceCell<Rc<Pool>>>,
    /// Whether another generation is in force.
    is_retired: Cell<bool>,
    /// The pools of upstreams that scripts have named.
    pub dynamic: Dynamic,
    /// Those with servers whose processes may be waited for, by such a server's address.
    slotted: RefCell<HashMap<Arc<str>, Vec<Rc<Pool>>>>,
    /// Its scripts on this worker; `None` is none.
    pub(crate) scripts: Option<Rc<Vms>>,
    /// What this worker keeps of the sites' files.
    pub files: Files,
    /// The sites that it has stamped of rows.
    pub(crate) rows: RowSites,
    /// What this worker knows of directories with `.htaccess` files.
    pub(crate) proofs: Proofs,
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
        let upstreams = generation.upstreams.len();
        let serving = Self {
            pools: (0..upstreams).map(|_| OnceCell::new()).collect(),
            is_retired: Cell::new(false),
            dynamic: Dynamic::default(),
            slotted: RefCell::default(),
            scripts,
            files: Files::new(
                generation.process.caps.file_cache_bytes,
                generation.room.handles,
            ),
            rows: RowSites::default(),
            proofs: Proofs::default(),
            stderr: StderrShares::new(&shared.complaints),
            generation,
        };
        let known = before.into_iter().flat_map(Serving::pools);
        let known: HashMap<&str, &Rc<Pool>> = known.map(|pool| (pool.name(), pool)).collect();
        let later = serving.generation.upstreams_of_pools();
        for (index, config) in serving.generation.upstreams.iter().enumerate() {
            match known.get(config.name.as_str()) {
                Some(pool) if pool.suits(config) => {
                    serving.add(index, Rc::clone(pool));
                }
                _ if later.contains(&index) => {}
                _ => {
                    serving.pool(index, stats, shared);
                }
            }
        }
        Rc::new(serving)
    }

    /// The pool of an upstream, by its index.
    pub(crate) fn pool(
        &self,
        index: usize,
        stats: &WorkerStats,
        shared: &Shared,
    ) -> Option<&Rc<Pool>> {
        if let Some(pool) = self.pools.get(index)?.get() {
            return Some(pool);
        }
        let config = self.generation.upstreams.get(index)?;
        let terms = self.generation.server_terms.get(index)?;
        let pool = Pool::new((config, terms), stats, shared);
        if self.is_retired.get() {
            pool.retire();
        }
        self.add(index, Rc::new(pool))
    }

    fn add(&self, index: usize, pool: Rc<Pool>) -> Option<&Rc<Pool>> {
        let pool = self.pools.get(index)?.get_or_init(|| pool);
        let servers = pool.servers().iter();
        for server in servers.filter(|server| server.slots.is_some()) {
            let mut slotted = self.slotted.borrow_mut();
            let sharing = slotted.entry(Arc::clone(&server.label)).or_default();
            sharing.push(Rc::clone(pool));
        }
        Some(pool)
    }

    /// The pools that were made.
    pub fn pools(&self) -> impl Iterator<Item = &Rc<Pool>> {
        self.pools.iter().filter_map(OnceCell::get)
    }

    /// Closes idle connections to a server whose processes are wanted.
    pub(super) fn release(&self, server: &str) {
        for pool in self.slotted.borrow().get(server).into_iter().flatten() {
            pool.release(server);
        }
    }

    /// Gives up what the next generation has not taken over.
    pub(super) fn retire(&self, next: &Serving) {
        self.is_retired.set(true);
        self.dynamic.retire();
        let kept: HashSet<_> = next.pools().map(Rc::as_ptr).collect();
        for pool in self.pools() {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{Fixture, generation_after};

    const CONFIG: &str = r#"
[php."8.2"]
program = "/bin/true"
[upstreams.app]
servers = ["127.0.0.1:9000"]
[[sites]]
hosts = ["a"]
root = "/srv"
user = "nobody"
rules = [{ match = { file = "*.php" }, handler = { php = true } }, { handler = { proxy = "app" } }]
"#;

    fn names(serving: &Serving) -> Vec<&str> {
        serving.pools().map(|pool| pool.name()).collect()
    }

    #[test]
    fn connections_to_processes_of_ours_are_pooled_from_the_first_request_on() {
        let fixture = Fixture::new(CONFIG);
        let worker = &fixture.worker;
        let before = worker.serving();
        assert_eq!(names(&before), ["app"]);
        let upstreams = before.generation.upstreams.iter();
        let mut of_php = upstreams.enumerate().filter(|(_, it)| it.name != "app");
        let (index, _) = of_php.next().expect("one leads to the pool");
        let of = |serving: &Serving| {
            let pool = serving.pool(index, &worker.stats, &worker.shared);
            Rc::clone(pool.expect("it is configured"))
        };
        let pool = of(&before);
        assert!(Rc::ptr_eq(&pool, &of(&before)));
        assert_eq!(names(&before).len(), 2);
        fixture.reload(generation_after(&before.generation, CONFIG));
        assert!(Rc::ptr_eq(&pool, &of(&worker.serving())), "it is kept");
        let address = &pool.servers()[0].label;
        let slotted = |serving: &Serving| serving.slotted.borrow()[address].len();
        assert_eq!((slotted(&before), slotted(&worker.serving())), (1, 1));
    }
}
