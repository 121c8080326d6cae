//! What operators have done to all that runs of a tenant: pools, and programs of requests.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use ipc::pools::PoolAnswer;

use super::Pools;
use crate::Spawner;

/// How long what is killed in a tenant's groups may take to end before anything else has its turn.
const KILL_MAX: Duration = Duration::from_millis(50);

impl Pools {
    /// Whether nothing of a tenant is to run.
    pub(crate) fn is_suspended(&self, tenant: &str) -> bool {
        self.machine.suspended().contains(tenant)
    }
}

impl Spawner {
    /// Of these tenants nothing is to run from now on, and of others what is wanted.
    pub(crate) fn suspend(&mut self, suspended: BTreeSet<String>) -> PoolAnswer {
        let pools = self.pools.machine.suspend(suspended, Instant::now());
        let suspended = self.pools.machine.suspended();
        let programs = self.programs.kill_of(|tenant| suspended.contains(tenant));
        told(pools, programs)
    }

    /// Takes a tenant among those that are suspended, or out of them.
    pub(super) fn suspend_one(&mut self, tenant: String, is_suspended: bool) -> PoolAnswer {
        let mut suspended = self.pools.machine.suspended().clone();
        match is_suspended {
            true => suspended.insert(tenant),
            false => suspended.remove(&tenant),
        };
        self.suspend(suspended)
    }

    /// Kills all that runs of a tenant, and what has left its session within its groups.
    pub(super) fn kill_tenant(&mut self, tenant: &str) -> PoolAnswer {
        let pools = self.pools.machine.kill_tenant(tenant, Instant::now());
        let programs = self.programs.kill_of(|of| of == tenant);
        for directory in self.directories_of(tenant) {
            if !os::cgroup::kill_all(&directory, KILL_MAX) {
                let group = directory.display().to_string();
                tracing::warn!(tenant, group, "some of what was killed has not ended yet");
            }
        }
        told(pools, programs)
    }

    /// The outermost groups that are the tenant's, its sites', rules' or pools': one directory in each
    /// hierarchy.
    fn directories_of(&self, tenant: &str) -> BTreeSet<PathBuf> {
        let mut directories = BTreeSet::new();
        for known in self.manifests.kept() {
            let manifest = &known.manifest;
            let sites = manifest.sites.iter().filter(|site| site.tenant == tenant);
            let rules = sites.flat_map(|site| &site.rules).map(|rule| rule.group);
            let pools = manifest.pools.iter().filter(|pool| pool.tenant == tenant);
            for group in rules.chain(pools.map(|pool| pool.group)).flatten() {
                let group = manifest.groups.get(group as usize);
                let outermost = group.and_then(|group| group.path.get(..1));
                let hierarchies = manifest.layout.hierarchies.iter();
                let of_group = hierarchies.filter_map(|it| Some(it.group(outermost?)));
                directories.extend(of_group.filter(|directory| directory.is_dir()));
            }
        }
        directories
    }
}

fn told(pools: usize, programs: usize) -> PoolAnswer {
    let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    PoolAnswer::Tenant {
        pools: count(pools),
        programs: count(programs),
    }
}
