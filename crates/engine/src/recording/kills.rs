//! Programs that ran into the bounds of their groups: whose they were, and which.
//!
//! The idea: how a CGI program ended its worker hears, and writes down here. Of a pool's processes nobody
//! says it but the kernel, which counts for each group: so many of these are looked at a second, one after
//! the other, so that thousands of pools cost no more than a few. A pool's limits are those of the groups
//! it is in; kernels since 6.11 count a process that was refused where the limit is.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, PoisonError};

use ipc::groups::Owner;
use os::cgroup::{Hits, Layout};

use crate::generation::{Generation, OwnedGroup};
use crate::programs::pools::ProgramPool;
use crate::stats::Killed;

/// Sites of which it is written down, and those of one tenant where half of all are; of others it is only counted.
const SITES_MAX: usize = 256;
const OF_TENANT_MAX: usize = 16;
/// Groups looked at in one go.
const LOOKED_AT_ONCE: usize = 64;
/// Groups that are no more, of which it is still known what they counted.
const STALE_MAX: usize = 1_024;
/// Letters of a program's name that are kept.
const NAME_CHARS_MAX: usize = 200;

/// What ran into bounds: whose it is, as states of limits are named; how often; why.
pub(super) type Bounced = (String, u64, String);

/// CGI programs that ran into bounds since somebody looked, by site.
#[derive(Debug, Default)]
pub(crate) struct HitPrograms(Mutex<BTreeMap<Box<str>, HitSite>>);

/// What of a site ran into bounds.
#[derive(Debug)]
struct HitSite {
    tenant: Box<str>,
    times: u64,
    why: String,
}

impl HitPrograms {
    /// One of this site and tenant's, by its file below the root.
    pub(crate) fn note(&self, (site, tenant): (&str, &str), killed: Killed, file: &[u8]) {
        let mut sites = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(hit) = sites.get_mut(site) {
            hit.times += 1;
            return;
        }
        let own = || sites.values().filter(|hit| *hit.tenant == *tenant).count();
        let has_room =
            sites.len() < SITES_MAX / 2 || (sites.len() < SITES_MAX && own() < OF_TENANT_MAX);
        if has_room {
            let name = String::from_utf8_lossy(file);
            let name: String = name.chars().take(NAME_CHARS_MAX).collect();
            let why = format!("{}: {name}", killed.word());
            let hit = HitSite {
                tenant: tenant.into(),
                times: 1,
                why,
            };
            sites.insert(site.into(), hit);
        }
    }

    /// Those since this was asked last.
    pub(super) fn take(&self) -> impl Iterator<Item = Bounced> {
        let mut sites = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = std::mem::take(&mut *sites).into_iter();
        taken.map(|(site, hit)| (format!("site {site}"), hit.times, hit.why))
    }
}

/// What the groups of pools, and those around them, had counted when each was looked at.
#[derive(Debug, Default)]
pub(super) struct PoolGroups {
    /// By a hash of the group's path: there may be as many as pools.
    before: HashMap<u64, Hits>,
    hasher: RandomState,
    /// Which is looked at next.
    next: usize,
}

impl PoolGroups {
    /// Looks at the next of them and of these pools of rows, and tells what ran into bounds since each was looked at.
    pub(super) fn look(
        &mut self,
        generation: Option<Arc<Generation>>,
        rows: &[Arc<ProgramPool>],
    ) -> Vec<Bounced> {
        let Some(generation) = generation else {
            return Vec::new();
        };
        let written = match generation.program_pools.is_empty() {
            true => 0,
            false => generation.groups_count(),
        };
        let count = written + 2 * rows.len();
        self.look_at(&generation.layout, count, |place| {
            match place.checked_sub(written) {
                None => generation.group_at(place),
                Some(place) => of_row(rows.get(place / 2)?, place % 2 == 0),
            }
        })
    }

    fn look_at(
        &mut self,
        layout: &Layout,
        count: usize,
        group_at: impl Fn(usize) -> Option<OwnedGroup>,
    ) -> Vec<Bounced> {
        if self.before.len() > count + STALE_MAX {
            self.before.clear();
        }
        let mut bounced = Vec::new();
        for _ in 0..count.min(LOOKED_AT_ONCE) {
            self.next = (self.next + 1) % count;
            // What programs of a rule run into is known.
            let group = group_at(self.next).filter(|(_, owner)| owner.rule.is_none());
            let Some((path, owner)) = group else {
                continue;
            };
            let now = hits(layout, &path, &owner);
            // Nobody is told of what was before.
            let key = self.hasher.hash_one(&path);
            let since = now.since(self.before.insert(key, now).unwrap_or(now));
            let counts = [
                (Killed::Memory, since.oom_kills),
                (Killed::Pids, since.pids),
            ];
            let counts = counts.into_iter().filter(|(_, times)| *times > 0);
            bounced.extend(counts.map(|(killed, times)| {
                let why = format!("{}: {}", killed.word(), owner.describe());
                (cause(&owner), times, why)
            }));
        }
        bounced
    }
}

/// The group of a row's pool, or the one around it, which is its tenant's.
fn of_row(pool: &ProgramPool, is_outer: bool) -> Option<OwnedGroup> {
    let path = pool.group.as_deref()?;
    let owner = Owner {
        tenant: pool.tenant.to_string(),
        pool: (!is_outer).then(|| pool.name.to_string()),
        ..Owner::default()
    };
    let depth = if is_outer { 1 } else { path.len() };
    Some((path.iter().take(depth).cloned().collect(), owner))
}

/// What a group counts that no other of those looked at does.
fn hits(layout: &Layout, path: &[String], owner: &Owner) -> Hits {
    match owner.pool {
        Some(_) => Hits::of_programs(layout, path),
        None => Hits {
            oom_kills: 0,
            ..Hits::of(layout, path)
        },
    }
}

/// Whose a group is, as states of limits are named.
fn cause(owner: &Owner) -> String {
    let Owner {
        tenant, site, pool, ..
    } = owner;
    match (site, pool) {
        (_, Some(pool)) => format!("tenant {tenant}/pool {pool}"),
        (Some(site), None) => format!("site {site}"),
        (None, None) => format!("tenant {tenant}"),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use os::cgroup::{Controller, Controllers, Hierarchy, Version};

    use super::*;

    fn layout(directory: &Path) -> Layout {
        let controllers = [Controller::Memory, Controller::Pids];
        Layout {
            hierarchies: vec![Hierarchy {
                version: Version::V2,
                controllers: Controllers::from_iter(controllers),
                directory: directory.to_owned(),
            }],
        }
    }

    /// Groups of so many tenants with a pool each.
    fn groups(tenants: usize) -> Vec<(Vec<String>, Owner)> {
        let each = (0..tenants).flat_map(|number| {
            let tenant = format!("t{number}");
            let own = Owner {
                tenant: tenant.clone(),
                ..Owner::default()
            };
            let of_pool = Owner {
                pool: Some("shop".into()),
                ..own.clone()
            };
            [
                (vec![tenant.clone()], own),
                (vec![tenant, "pool".into()], of_pool),
            ]
        });
        each.collect()
    }

    fn count(directory: &Path, group: &str, file: &str, text: &str) {
        let group = directory.join(group);
        fs::create_dir_all(&group).expect("a directory");
        fs::write(group.join(file), text).expect("written");
    }

    #[test]
    fn a_pool_that_runs_into_its_bounds_is_told_by_name_and_what_was_before_is_not() {
        let directory = testkit::TempDir::new();
        let (directory, layout) = (directory.path(), layout(directory.path()));
        let events = |pool: &str, kills: u32| {
            let text = format!("oom 9\noom_kill {kills}\noom_group_kill 0\n");
            count(directory, pool, "memory.events", &text);
        };
        let mut watched = PoolGroups::default();
        let groups = groups(2);
        let mut look = || {
            let mut found =
                watched.look_at(&layout, groups.len(), |place| groups.get(place).cloned());
            found.sort();
            found
        };
        events("t0/pool", 5);
        assert_eq!(look(), []);
        events("t0/pool", 7);
        // It was not there before.
        events("t1/pool", 1);
        let told = |tenant: &str, times| {
            let cause = format!("tenant {tenant}/pool shop");
            (cause, times, "memory_limit: pool shop".to_owned())
        };
        assert_eq!(look(), [told("t0", 2), told("t1", 1)]);
        assert_eq!(look(), []);
        // A group that was made anew counts from nothing.
        events("t0/pool", 0);
        assert_eq!(look(), []);
        events("t0/pool", 1);
        assert_eq!(look(), [told("t0", 1)]);
        count(directory, "t0", "pids.events", "max 3\n");
        let refused = (
            "tenant t0".to_owned(),
            3,
            "pids_limit: tenant t0".to_owned(),
        );
        assert_eq!(look(), [refused]);
    }

    #[test]
    fn thousands_of_pools_are_looked_at_by_and_by() {
        let directory = testkit::TempDir::new();
        let (directory, layout) = (directory.path(), layout(directory.path()));
        let mut watched = PoolGroups::default();
        let groups = groups(1_000);
        let mut look =
            || watched.look_at(&layout, groups.len(), |place| groups.get(place).cloned());
        let rounds = groups.len().div_ceil(LOOKED_AT_ONCE);
        for _ in 0..rounds {
            assert_eq!(look(), []);
        }
        count(directory, "t777/pool/a/run", "pids.events", "max 1\n");
        let found = (0..rounds).flat_map(|_| look());
        let found: Vec<_> = found.map(|(cause, ..)| cause).collect();
        assert_eq!(found, ["tenant t777/pool shop"]);
    }

    #[test]
    fn programs_of_a_site_are_counted_and_the_first_is_named() {
        let hit = HitPrograms::default();
        for _ in 0..3 {
            let whose = ("a.example", "anna");
            hit.note(whose, Killed::Memory, b"/cgi/greedy.cgi");
        }
        for number in 0..2 * SITES_MAX {
            let (site, tenant) = (format!("{number}.example"), format!("t{number}"));
            hit.note((&site, &tenant), Killed::Pids, b"/x");
        }
        let taken: Vec<_> = hit.take().collect();
        assert_eq!(taken.len(), SITES_MAX);
        let greedy = "memory_limit: /cgi/greedy.cgi".to_owned();
        assert!(taken.contains(&("site a.example".to_owned(), 3, greedy)));
        assert_eq!(hit.take().count(), 0);
    }

    #[test]
    fn a_tenant_with_many_sites_that_run_into_bounds_hides_no_others() {
        let hit = HitPrograms::default();
        for number in 0..2 * SITES_MAX {
            hit.note((&format!("{number}.example"), "many"), Killed::Pids, b"/x");
        }
        hit.note(("a.example", "anna"), Killed::Pids, b"/x");
        assert!(hit.take().any(|(site, ..)| site == "site a.example"));
    }

    #[test]
    fn a_rows_pool_is_looked_at_and_the_group_of_its_tenant() {
        let mut pool = ProgramPool::new("row-1", "php 8.3 of anna", "anna");
        assert!(of_row(&pool, true).is_none(), "it is a written one");
        pool.group = Some(Box::new(ipc::rows::pool_group(
            "anna",
            Some("small"),
            "row-1",
        )));
        let (outer, owner) = of_row(&pool, true).expect("a group");
        assert_eq!(outer, ["row-anna%20small"]);
        assert_eq!(cause(&owner), "tenant anna");
        let (inner, owner) = of_row(&pool, false).expect("a group");
        assert!(inner.starts_with(&outer) && inner.len() == 2);
        assert_eq!(cause(&owner), "tenant anna/pool php 8.3 of anna");
    }
}
