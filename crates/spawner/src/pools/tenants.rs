//! What operators have done to all that runs of a tenant: pools, and programs of requests.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ipc::pools::PoolAnswer;

use super::Pools;
use super::pool::Terms;
use crate::Spawner;

/// How long what is killed in all of a tenant's groups may take to end before anything else has its
/// turn.
const KILL_MAX: Duration = Duration::from_millis(100);
/// How often what has not ended by then is killed again, and how many times.
const AGAIN: Duration = Duration::from_millis(50);
const TRIES_MAX: u32 = 20;
/// Groups in which something is killed again.
const UNENDED_MAX: usize = 1_024;

/// Groups in which some of what was killed has not ended yet.
#[derive(Debug, Default)]
pub(super) struct Unended {
    /// How many times each has been looked at again.
    tries: BTreeMap<PathBuf, u32>,
    looked: Option<Instant>,
}

impl Unended {
    /// Takes a group in; whether there is room.
    fn add(&mut self, directory: PathBuf, now: Instant) -> bool {
        if self.tries.len() >= UNENDED_MAX && !self.tries.contains_key(&directory) {
            return false;
        }
        self.looked.get_or_insert(now);
        self.tries.insert(directory, 0);
        true
    }

    /// How long until they are to be looked at.
    pub(super) fn patience(&self, now: Instant) -> Option<Duration> {
        let next = self.looked? + AGAIN;
        Some(next.saturating_duration_since(now))
    }

    /// Kills what is in them again if it is time, and gives those back that are given up.
    fn look(&mut self, now: Instant, mut has_ended: impl FnMut(&Path) -> bool) -> Vec<PathBuf> {
        if !self.patience(now).is_some_and(|left| left.is_zero()) {
            return Vec::new();
        }
        let mut given_up = Vec::new();
        self.tries.retain(|directory, tries| {
            *tries += 1;
            let is_left = !has_ended(directory);
            let is_last = *tries >= TRIES_MAX;
            if is_left && is_last {
                given_up.push(directory.clone());
            }
            is_left && !is_last
        });
        self.looked = (!self.tries.is_empty()).then_some(now);
        given_up
    }
}

/// Kills all in a group, and tells whether it is empty or gone.
fn has_ended(directory: &Path, patience: Duration) -> bool {
    !directory.is_dir() || os::cgroup::kill_all(directory, patience)
}

impl Pools {
    /// Whether nothing of a tenant is to run.
    pub(crate) fn is_suspended(&self, tenant: &str) -> bool {
        self.machine.suspended().contains(tenant)
    }

    /// The pools of these tenants.
    fn of_tenants(&self, tenants: &BTreeSet<String>) -> Vec<(String, Terms)> {
        let ids = self.named.keys().filter(|_| !tenants.is_empty());
        let pools = ids.map(|id| (id.clone(), self.terms(id)));
        let is_theirs = |(_, terms): &(String, Terms)| tenants.contains(&terms.tenant);
        pools.filter(is_theirs).collect()
    }

    /// Kills again what had not ended when its tenant's groups were killed.
    pub(crate) fn kill_again(&mut self) {
        let kill = |directory: &Path| has_ended(directory, Duration::ZERO);
        for directory in self.unended.look(Instant::now(), kill) {
            let group = directory.display().to_string();
            tracing::error!(group, "some of what was killed has not ended");
        }
    }
}

impl Spawner {
    /// Of these tenants nothing is to run from now on, and of others what is wanted.
    pub(crate) fn suspend(&mut self, suspended: BTreeSet<String>) -> PoolAnswer {
        let now = Instant::now();
        for (id, terms) in self.pools.of_tenants(&suspended) {
            self.pools.machine.know(id, terms, now);
        }
        let pools = self.pools.machine.suspend(suspended, now);
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
        let until = Instant::now() + KILL_MAX;
        let mut directories = self.directories_of(tenant);
        // All are killed before any is waited for.
        directories.retain(|it| !has_ended(it, Duration::ZERO));
        let left = || until.saturating_duration_since(Instant::now());
        directories.retain(|it| !has_ended(it, left()));
        for directory in directories {
            let group = directory.display().to_string();
            let will_be_killed_again = self.pools.unended.add(directory, Instant::now());
            tracing::warn!(
                tenant,
                group,
                will_be_killed_again,
                "some of what was killed has not ended yet"
            );
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
            let pools = known.pools().filter(|pool| pool.tenant == tenant);
            for group in rules.chain(pools.map(|pool| pool.group)).flatten() {
                let group = known.groups.get(group as usize);
                let outermost = group.and_then(|group| group.path.get(..1));
                let hierarchies = manifest.layout.hierarchies.iter();
                let of_group = hierarchies.filter_map(|it| Some(it.group(outermost?)));
                directories.extend(of_group.filter(|directory| directory.is_dir()));
            }
            for path in manifest.rows.iter().flat_map(|rows| rows.groups_of(tenant)) {
                let hierarchies = manifest.layout.hierarchies.iter();
                let of_rows = hierarchies.map(|it| it.group(&path));
                directories.extend(of_rows.filter(|directory| directory.is_dir()));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_killed_again_until_they_are_empty_or_given_up() {
        let mut unended = Unended::default();
        let mut now = Instant::now();
        assert_eq!(unended.patience(now), None);
        let [ends, stays] = ["ends", "stays"].map(PathBuf::from);
        assert!(unended.add(ends.clone(), now) && unended.add(stays.clone(), now));
        assert_eq!(unended.patience(now), Some(AGAIN));
        let early = unended.look(now, |_| panic!("it is not time"));
        assert!(early.is_empty());
        let (mut looks, mut given_up) = (BTreeMap::new(), Vec::new());
        while let Some(left) = unended.patience(now) {
            now += left;
            given_up.extend(unended.look(now, |directory| {
                let looks = looks.entry(directory.to_owned()).or_insert(0);
                *looks += 1;
                directory == ends && *looks == 3
            }));
        }
        assert_eq!(given_up, std::slice::from_ref(&stays));
        assert_eq!(looks, BTreeMap::from([(ends, 3), (stays, TRIES_MAX)]));
    }

    #[test]
    fn groups_that_are_killed_again_are_so_many() {
        let (mut unended, now) = (Unended::default(), Instant::now());
        let path = |at: usize| PathBuf::from(at.to_string());
        assert!((0..UNENDED_MAX).all(|at| unended.add(path(at), now)));
        assert!(!unended.add(path(UNENDED_MAX), now));
        assert!(unended.add(path(0), now), "one that is there");
    }
}
