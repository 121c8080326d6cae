//! Programs that ran into the bounds of their groups: whose they were, and which.
//!
//! The idea: how a CGI program ended its worker hears, and writes down here. Of a pool's processes nobody
//! says it but the kernel, which counts for each group: so many of these are looked at a second, one after
//! the other, so that thousands of pools cost no more than a few. A pool's limits are those of the groups
//! it is in; kernels since 6.11 count a process that was refused where the limit is, of CGI programs, too:
//! as many as were told of these are not told of the group again.

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
/// Files of a site that are told of by name.
const FILES_MAX: usize = 4;
/// Groups looked at in one go.
const LOOKED_AT_ONCE: usize = 64;
/// Groups that are no more, of which it is still known what they counted.
const STALE_MAX: usize = 1_024;
/// Sites of which it is known how often a process was refused to their programs.
const REFUSED_MAX: usize = 4_096;
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
    /// What ran into which bound, and how often.
    hits: Vec<(String, u64)>,
    /// How often others did.
    more: u64,
    /// How often a process was refused.
    refused: u64,
}

/// What ran into bounds since somebody asked last.
#[derive(Debug, Default)]
pub(super) struct HitSince {
    pub(super) bounced: Vec<Bounced>,
    pub(super) refused: Vec<RefusedPrograms>,
}

/// How often it was told that a process was refused to programs of a site.
#[derive(Debug)]
pub(super) struct RefusedPrograms {
    tenant: Box<str>,
    site: Box<str>,
    times: u64,
    /// The look it was told in.
    look: u64,
}

impl HitPrograms {
    /// One of this site and tenant's, by its file below the root.
    pub(crate) fn note(&self, (site, tenant): (&str, &str), killed: Killed, file: &[u8]) {
        let name = String::from_utf8_lossy(file);
        let name: String = name.chars().take(NAME_CHARS_MAX).collect();
        let why = format!("{}: {name}", killed.word());
        let mut sites = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let refused = u64::from(killed == Killed::Pids);
        if let Some(site) = sites.get_mut(site) {
            site.refused += refused;
            let is_full = site.hits.len() >= FILES_MAX;
            match site.hits.iter_mut().find(|(known, _)| *known == why) {
                Some((_, times)) => *times += 1,
                None if is_full => site.more += 1,
                None => site.hits.push((why, 1)),
            }
            return;
        }
        let own = || sites.values().filter(|hit| *hit.tenant == *tenant).count();
        let has_room =
            sites.len() < SITES_MAX / 2 || (sites.len() < SITES_MAX && own() < OF_TENANT_MAX);
        if has_room {
            let hit = HitSite {
                tenant: tenant.into(),
                hits: vec![(why, 1)],
                more: 0,
                refused,
            };
            sites.insert(site.into(), hit);
        }
    }

    /// Those since this was asked last.
    pub(super) fn take(&self) -> HitSince {
        let mut sites = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut since = HitSince::default();
        for (site, hit) in std::mem::take(&mut *sites) {
            if hit.refused > 0 {
                since.refused.push(RefusedPrograms {
                    tenant: hit.tenant,
                    site: site.clone(),
                    times: hit.refused,
                    look: 0,
                });
            }
            let more = (hit.more > 0).then(|| ("other files".to_owned(), hit.more));
            let hits = hit.hits.into_iter().chain(more);
            let hits = hits.map(|(why, times)| (format!("site {site}"), times, why));
            since.bounced.extend(hits);
        }
        since
    }
}

/// What the groups of pools, and those around them, had counted when each was looked at.
#[derive(Debug, Default)]
pub(super) struct PoolGroups {
    /// By a hash of the group's path, with the number of the look: there may be as many as pools.
    before: HashMap<u64, (Hits, u64)>,
    hasher: RandomState,
    /// Which is looked at next.
    next: usize,
    looks: u64,
    /// What was told of programs within the last round, less what groups counted of it.
    refused: Vec<RefusedPrograms>,
}

impl PoolGroups {
    /// Looks at the next of them and of these pools of rows, and tells what ran into bounds since each was
    /// looked at; what was refused to these programs is told.
    pub(super) fn look(
        &mut self,
        generation: Option<Arc<Generation>>,
        rows: &[Arc<ProgramPool>],
        refused: Vec<RefusedPrograms>,
    ) -> Vec<Bounced> {
        let Some(generation) = generation else {
            return Vec::new();
        };
        let written = generation.groups_of_pools();
        let count = written + 2 * rows.len();
        self.note_refused(refused, count);
        self.look_at(&generation.layout, count, |place| {
            match place.checked_sub(written) {
                None => generation.group_of_pool(place),
                Some(place) => of_row(rows.get(place / 2)?, place % 2 == 0),
            }
        })
    }

    /// Remembers what was refused to programs, until each of so many groups was looked at.
    fn note_refused(&mut self, refused: Vec<RefusedPrograms>, count: usize) {
        let round = count.div_ceil(LOOKED_AT_ONCE) as u64;
        self.looks += 1;
        let look = self.looks;
        self.refused
            .retain(|it| it.times > 0 && it.look + round >= look);
        let room = REFUSED_MAX.saturating_sub(self.refused.len());
        let told = refused.into_iter().take(room);
        self.refused
            .extend(told.map(|it| RefusedPrograms { look, ..it }));
    }

    /// How many of these refusals were not told of programs since a group was looked at. What is told of them is
    /// counted in one group, and so it is taken off once.
    fn untold(&mut self, owner: &Owner, looked: u64, mut refused: u64) -> u64 {
        for told in &mut self.refused {
            if refused == 0 || owner.pool.is_some() {
                break;
            }
            let site = owner.site.as_ref();
            let is_its_own = *told.tenant == *owner.tenant
                && site.is_none_or(|site| *told.site == **site)
                && told.look > looked;
            if is_its_own {
                let same = told.times.min(refused);
                told.times -= same;
                refused -= same;
            }
        }
        refused
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
            let Some((path, owner)) = group_at(self.next) else {
                continue;
            };
            let now = (hits(layout, &path, &owner), self.looks);
            // Nobody is told of what was before.
            let key = self.hasher.hash_one(&path);
            let (before, looked) = self.before.insert(key, now).unwrap_or(now);
            let since = now.0.since(before);
            let refused = self.untold(&owner, looked, since.pids);
            let counts = [(Killed::Memory, since.oom_kills), (Killed::Pids, refused)];
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
        None => Hits::of_limit(layout, path),
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
    fn a_process_that_is_refused_is_told_once_whichever_kernel_counts() {
        let directory = testkit::TempDir::new();
        let (directory, layout) = (directory.path(), layout(directory.path()));
        let mut watched = PoolGroups::default();
        // A tenant with a site with a pool, all of which count since Linux 6.11 what the innermost refuses.
        let site = Owner {
            tenant: "t0".into(),
            site: Some("a".into()),
            ..Owner::default()
        };
        let [own, of_pool] = groups(1).try_into().expect("two");
        let of_site = vec!["t0".to_owned(), "site".to_owned()];
        let of_pool = ([&*of_site, &["pool".to_owned()]].concat(), of_pool.1);
        let groups = [own, (of_site, site), of_pool];
        let refuse = |counted: [u32; 3], own: [u32; 3]| {
            for (group, counts) in ["t0", "t0/site", "t0/site/pool"]
                .into_iter()
                .zip(counted.into_iter().zip(own))
            {
                count(
                    directory,
                    group,
                    "pids.events",
                    &format!("max {}\n", counts.0),
                );
                count(
                    directory,
                    group,
                    "pids.events.local",
                    &format!("max {}\n", counts.1),
                );
            }
        };
        let mut look = |refused: &[(&str, &str, u64)]| {
            let refused = refused.iter().map(|(tenant, site, times)| RefusedPrograms {
                tenant: (*tenant).into(),
                site: (*site).into(),
                times: *times,
                look: 0,
            });
            watched.note_refused(refused.collect(), groups.len());
            watched.look_at(&layout, groups.len(), |place| groups.get(place).cloned())
        };
        refuse([0; 3], [0; 3]);
        assert_eq!(look(&[]), []);
        refuse([2, 2, 0], [0, 2, 0]);
        let told = |times| ("site a".to_owned(), times, "pids_limit: site a".to_owned());
        assert_eq!(look(&[]), [told(2)]);
        // Refused to a CGI program, whose site says so.
        refuse([3, 3, 0], [0, 3, 0]);
        assert_eq!(look(&[("t0", "a", 1)]), []);
        refuse([4, 4, 0], [0, 4, 0]);
        assert_eq!(look(&[("t1", "a", 1), ("t0", "b", 1)]), [told(1)]);
        assert_eq!(look(&[]), []);
        // A program is refused one of many that processes of a pool beside it are.
        refuse([14, 14, 0], [0, 14, 0]);
        assert_eq!(look(&[("t0", "a", 1)]), [told(9)]);
        // Each is taken off once, whichever of its groups refused it.
        refuse([20, 16, 0], [4, 16, 0]);
        let why = "pids_limit: tenant t0".to_owned();
        assert_eq!(look(&[("t0", "a", 3)]), [("tenant t0".to_owned(), 3, why)]);
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
        let HitSince {
            bounced: taken,
            refused,
        } = hit.take();
        assert_eq!(taken.len(), SITES_MAX);
        let was_refused = |tenant: &str| refused.iter().any(|it| *it.tenant == *tenant);
        assert!(!was_refused("anna") && was_refused("t7"));
        let greedy = "memory_limit: /cgi/greedy.cgi".to_owned();
        assert!(taken.contains(&("site a.example".to_owned(), 3, greedy)));
        assert_eq!(hit.take().bounced, []);
    }

    #[test]
    fn each_file_that_runs_into_a_bound_has_its_own_count() {
        let hit = HitPrograms::default();
        for file in ["/a", "/b", "/a", "/c", "/d", "/e", "/f"] {
            hit.note(("a.example", "a"), Killed::Pids, file.as_bytes());
        }
        let taken: Vec<_> = hit
            .take()
            .bounced
            .into_iter()
            .map(|(_, times, why)| (times, why))
            .collect();
        let word = Killed::Pids.word();
        assert_eq!(
            taken[..2],
            [(2, format!("{word}: /a")), (1, format!("{word}: /b"))]
        );
        assert_eq!(taken.last(), Some(&(2, "other files".to_owned())));
    }

    #[test]
    fn a_tenant_with_many_sites_that_run_into_bounds_hides_no_others() {
        let hit = HitPrograms::default();
        for number in 0..2 * SITES_MAX {
            hit.note((&format!("{number}.example"), "many"), Killed::Pids, b"/x");
        }
        hit.note(("a.example", "anna"), Killed::Pids, b"/x");
        let taken = hit.take().bounced;
        assert!(taken.iter().any(|(site, ..)| site == "site a.example"));
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
