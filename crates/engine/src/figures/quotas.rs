//! How long the kernel keeps programs and pools from processors, since a quota of theirs has run out.
//!
//! The idea: the kernel counts it for each group that has a quota by itself, so that these add up to what a
//! tenant and a site were kept from. It is told in processors: where one had to stand still all the time it
//! is one. Of a quota that never ran out nothing is told.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use ipc::groups::Owner;
use os::cgroup::{Controller, Layout, Usage};

use crate::directory::tenants::RowTenant;
use crate::generation::{Generation, OwnedGroup};

/// Groups that are read, beside those of tenants that an alert is about, and that are looked for.
const GROUPS_MAX: usize = 4_096;
const LOOKED_FOR_MAX: usize = 16_384;

/// What was counted of each group, by its path.
#[derive(Debug, Default)]
pub(super) struct Quotas(HashMap<Vec<String>, u64>);

/// Processors that programs and pools were kept from, of whom a quota has ever run out.
#[derive(Debug, Default)]
pub(super) struct KeptFrom {
    tenants: BTreeMap<String, f64>,
    sites: BTreeMap<String, f64>,
}

impl Quotas {
    /// What there was in the seconds that have passed since it was looked last.
    pub(super) fn look(
        &mut self,
        generation: &Generation,
        rows: &[Arc<RowTenant>],
        passed_s: Option<f64>,
    ) -> KeptFrom {
        let has_rows = !generation.row_programs.is_empty();
        let plans = generation.plans.iter().filter(|it| it.has_cpu_quota);
        let plans: HashSet<&str> = plans.map(|it| &*it.name).collect();
        let has_quota =
            |it: &&Arc<RowTenant>| it.plan.as_deref().is_some_and(|it| plans.contains(it));
        let rows = rows
            .iter()
            .filter(|it| has_rows && has_quota(it))
            .map(|tenant| {
                let owner = Owner {
                    tenant: tenant.name.to_string(),
                    ..Owner::default()
                };
                (tenant.group.to_vec(), owner)
            });
        let groups = generation.groups_with_cpu_quota().chain(rows);
        let watched = &generation.watched_tenants;
        self.compare(&generation.layout, groups, watched, passed_s)
    }

    fn compare(
        &mut self,
        layout: &Layout,
        groups: impl Iterator<Item = OwnedGroup>,
        watched: &BTreeSet<Box<str>>,
        passed_s: Option<f64>,
    ) -> KeptFrom {
        let (mut now, mut kept) = (HashMap::new(), KeptFrom::default());
        for (place, (path, owner)) in groups.enumerate() {
            let has_room = now.len() < GROUPS_MAX && place < LOOKED_FOR_MAX;
            if !has_room && !watched.contains(&*owner.tenant) {
                continue;
            }
            let Some(us) = Usage::by(Controller::Cpu, layout, &path).throttled_us else {
                continue;
            };
            // Of a group that was not looked at before nobody knows since when it counts.
            let before = self.0.get(&path).copied().unwrap_or(us);
            now.insert(path, us);
            if let Some(passed_s) = passed_s.filter(|_| us > 0) {
                // One that was made anew counts from nothing.
                let more = us.checked_sub(before).unwrap_or(us);
                let cores = more as f64 / 1e6 / passed_s;
                kept.add(owner, cores);
            }
        }
        self.0 = now;
        kept
    }
}

impl KeptFrom {
    fn add(&mut self, owner: Owner, cores: f64) {
        *self.tenants.entry(owner.tenant).or_default() += cores;
        if let Some(site) = owner.site {
            *self.sites.entry(site).or_default() += cores;
        }
    }

    /// What all groups of a tenant were kept from.
    pub(super) fn of_tenant(&self, tenant: &str) -> Option<f64> {
        self.tenants.get(tenant).copied()
    }

    /// What groups of sites by themselves were.
    pub(super) fn of_sites(&self) -> impl Iterator<Item = (&str, f64)> {
        let sites = self.sites.iter();
        sites.map(|(site, cores)| (&**site, *cores))
    }
}

#[cfg(test)]
mod tests {
    use os::cgroup::{Controllers, Hierarchy, Version};

    use super::*;

    /// Groups with processors' quotas below this directory.
    fn layout(directory: &std::path::Path) -> Layout {
        Layout {
            hierarchies: vec![Hierarchy {
                version: Version::V2,
                controllers: Controllers::from_iter([Controller::Cpu]),
                directory: directory.to_owned(),
            }],
        }
    }

    #[test]
    fn what_groups_were_kept_from_adds_up_and_what_was_before_does_not_count() {
        let directory = testkit::TempDir::new();
        let layout = layout(directory.path());
        let owner = |site: Option<&str>| Owner {
            tenant: "shop".into(),
            site: site.map(Into::into),
            ..Owner::default()
        };
        let groups = [
            (vec!["shop".to_owned()], owner(None)),
            (vec!["shop".to_owned(), "a".to_owned()], owner(Some("a"))),
            (vec!["idle".to_owned()], Owner::default()),
        ];
        let count = |group: &str, us: u64| {
            let group = directory.path().join(group);
            std::fs::create_dir_all(&group).expect("a directory");
            let text = format!("usage_usec 1\nnr_periods 9\nthrottled_usec {us}\n");
            std::fs::write(group.join("cpu.stat"), text).expect("written");
        };
        let mut quotas = Quotas::default();
        let mut look = |passed_s| {
            let watched = BTreeSet::new();
            let kept = quotas.compare(&layout, groups.iter().cloned(), &watched, passed_s);
            let of_sites = kept
                .of_sites()
                .map(|(site, cores)| (site.to_owned(), cores));
            (
                kept.of_tenant("shop"),
                kept.of_tenant(""),
                of_sites.collect::<Vec<_>>(),
            )
        };
        count("shop", 5_000_000);
        count("idle", 0);
        assert_eq!(look(None), (None, None, vec![]));
        count("shop", 9_000_000);
        count("shop/a", 2_000_000);
        // The site's was not there before.
        let a = |cores| vec![("a".to_owned(), cores)];
        assert_eq!(look(Some(8.0)), (Some(0.5), None, a(0.0)));
        count("shop/a", 18_000_000);
        assert_eq!(look(Some(8.0)), (Some(2.0), None, a(2.0)));
        // One that was made anew counts from nothing.
        count("shop", 4_000_000);
        assert_eq!(look(Some(8.0)), (Some(0.5), None, a(0.0)));
    }

    #[test]
    fn groups_that_are_not_there_take_no_place_and_who_is_watched_has_one() {
        let directory = testkit::TempDir::new();
        let layout = layout(directory.path());
        let of = |tenant: &str| {
            let tenant = tenant.to_owned();
            let path = vec![tenant.clone()];
            let owner = Owner {
                tenant,
                ..Owner::default()
            };
            (path, owner)
        };
        let absent = (0..LOOKED_FOR_MAX).map(|number| of(&format!("t{number}")));
        let late = [GROUPS_MAX + 1, LOOKED_FOR_MAX + 1].map(|place| format!("late{place}"));
        let mut groups: Vec<_> = absent.collect();
        groups.insert(GROUPS_MAX + 1, of(&late[0]));
        groups.extend([of(&late[1]), of("watched")]);
        let watched = BTreeSet::from(["watched".into()]);
        let mut quotas = Quotas::default();
        for us in [1_000_000, 3_000_000] {
            for tenant in late.iter().map(String::as_str).chain(["watched"]) {
                let group = directory.path().join(tenant);
                std::fs::create_dir_all(&group).expect("a directory");
                let text = format!("usage_usec 1\nthrottled_usec {us}\n");
                std::fs::write(group.join("cpu.stat"), text).expect("written");
            }
            let kept = quotas.compare(&layout, groups.iter().cloned(), &watched, Some(1.0));
            let expected = (us > 1_000_000).then_some(2.0).or(Some(0.0));
            assert_eq!(kept.of_tenant("watched"), expected);
            assert_eq!(kept.of_tenant(&late[0]), expected);
            assert_eq!(kept.of_tenant(&late[1]), None);
        }
    }
}
