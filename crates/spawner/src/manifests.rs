//! The manifests of the last generations, as the spawner looks things up in them.
//!
//! The idea: requests that are under way belong to the generation they began in, so a few manifests
//! are kept. A manifest for a number that is known replaces it: the first was never in force. What one
//! says of a pool stays as it came until that starts, and is kept once where the next says the same.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::{BTreeMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;

use config::reason;
use ipc::codec::Packed;
use ipc::manifest::{Manifest, MapManifest, NamedProgram, RuleManifest, SiteManifest};
use ipc::order::{Failure, Run, RunMap};
use ipc::pools::{PoolManifest, Seen};
use ipc::rows::{RowOrder, RowUsers, RowsManifest};
use os::cgroup::{Group, Limits};
use os::user::User;

use super::Refusal;

/// Manifests kept.
const MANIFESTS_MAX: usize = 4;

/// The manifests of the last generations.
#[derive(Debug, Default)]
pub(super) struct Manifests {
    /// The latest last.
    kept: Vec<Rc<Known>>,
}

/// A manifest, with what was looked up for it.
#[derive(Debug)]
pub(super) struct Known {
    /// Without groups, pools and what pools see.
    pub(super) manifest: Manifest,
    /// What every pool with walls sees: that of thousands of rows is one.
    pub(super) sees: Rc<[Seen]>,
    /// Its groups.
    pub(super) groups: Rc<[Group]>,
    pools: Vec<Rc<Packed<PoolManifest>>>,
    /// Users by name, looked up when they are first wanted.
    users: RefCell<BTreeMap<String, Arc<User>>>,
}

/// What a manifest says of an order.
#[derive(Debug)]
pub(super) struct Authority<'a> {
    pub(super) known: Rc<Known>,
    pub(super) site: Cow<'a, SiteManifest>,
    pub(super) rule: Cow<'a, RuleManifest>,
    /// Whom the program may run as, where a row says that.
    pub(super) users: Option<&'a RowUsers>,
}

impl Manifests {
    /// Takes a manifest; the oldest ones are forgotten.
    pub(super) fn take(&mut self, mut manifest: Manifest, groups: Rc<[Group]>) {
        let before = self.kept.last().map(Rc::clone);
        self.kept
            .retain(|known| known.manifest.generation != manifest.generation);
        let before = before.iter().flat_map(|known| &known.pools);
        let before: HashSet<Rc<Packed<PoolManifest>>> = before.cloned().collect();
        let pools = std::mem::take(&mut manifest.pools).into_iter();
        let pools = pools.map(|pool| match before.get(&pool) {
            Some(same) => Rc::clone(same),
            None => Rc::new(pool),
        });
        manifest.groups = Packed::default();
        self.kept.push(Rc::new(Known {
            sees: std::mem::take(&mut manifest.sees).into(),
            pools: pools.collect(),
            manifest,
            groups,
            users: RefCell::default(),
        }));
        let surplus = self.kept.len().saturating_sub(MANIFESTS_MAX);
        self.kept.drain(..surplus);
    }

    /// Groups, which are kept once where the latest manifest has the same.
    pub(super) fn groups(&self, groups: Vec<Group>) -> Rc<[Group]> {
        match self.kept.last() {
            Some(known) if *known.groups == *groups => Rc::clone(&known.groups),
            _ => groups.into(),
        }
    }

    /// Those that are kept, the latest last.
    pub(super) fn kept(&self) -> &[Rc<Known>] {
        &self.kept
    }

    /// How many programs may run at once.
    pub(super) fn programs_max(&self) -> usize {
        let latest = self.kept.last();
        latest.map_or(0, |known| {
            usize::try_from(known.manifest.programs_max).unwrap_or(usize::MAX)
        })
    }

    /// What the manifest that an order names says of a map.
    pub(super) fn find_map(&self, run: &RunMap) -> Result<&MapManifest, Refusal> {
        let is_meant = |known: &&Rc<Known>| known.manifest.generation == run.generation;
        let found = self.kept.iter().rfind(is_meant).and_then(|known| {
            let maps = &known.manifest.maps;
            let at = maps.binary_search_by_key(&run.map, |map| map.index);
            maps.get(at.ok()?)
        });
        found.ok_or_else(|| {
            let (generation, map) = (run.generation, run.map);
            let what = format!("no manifest for generation {generation}, map {map}");
            Refusal::new(Failure::UnknownRule, what)
        })
    }

    /// How many programs of maps may run at once: those of an earlier generation end when the
    /// next one's have begun.
    pub(super) fn map_processes_max(&self) -> usize {
        let maps = self.kept.iter().flat_map(|known| &known.manifest.maps);
        maps.map(|map| map.processes as usize).sum()
    }

    /// What the manifest that an order names says of it.
    pub(super) fn find(&self, run: &Run) -> Result<Authority<'_>, Refusal> {
        if let Some(row) = &run.row {
            return self.find_row(run, row);
        }
        let is_meant = |known: &&Rc<Known>| known.manifest.generation == run.generation;
        let found = self.kept.iter().rfind(is_meant).and_then(|known| {
            let sites = &known.manifest.sites;
            let at = sites.binary_search_by_key(&run.site, |site| site.index);
            let site = sites.get(at.ok()?)?;
            let rules = &site.rules;
            let at = rules.binary_search_by_key(&run.rule, |rule| rule.index);
            let rule = rules.get(at.ok()?)?;
            Some(Authority {
                known: Rc::clone(known),
                site: Cow::Borrowed(site),
                rule: Cow::Borrowed(rule),
                users: None,
            })
        });
        found.ok_or_else(|| {
            let (generation, site, rule) = (run.generation, run.site, run.rule);
            let what = format!("no manifest for generation {generation}, site {site}, rule {rule}");
            Refusal::new(Failure::UnknownRule, what)
        })
    }

    /// What the manifest says of the rows that a worker means, of one that the directory has sealed, and what the
    /// latest manifest says of them.
    pub(super) fn rows(&self, row: &RowOrder) -> Result<[(&Rc<Known>, &RowsManifest); 2], Refusal> {
        let unknown = |what: &str| Refusal::new(Failure::UnknownRule, what.to_owned());
        let is_meant = |known: &&Rc<Known>| known.manifest.generation == row.generation;
        let meant = self.kept.iter().rfind(is_meant).and_then(|known| {
            let mut rows = known.manifest.rows.iter();
            Some((known, rows.find(|rows| rows.site == row.site)?))
        });
        let meant = meant.ok_or_else(|| unknown("no manifest has these rows"))?;
        let seal = meant.0.manifest.row_key;
        if seal.seal(&meant.1.directory, &row.host, &row.columns) != row.seal {
            return Err(unknown("the directory has not said that there is this row"));
        }
        let latest = self.kept.last().and_then(|known| {
            let mut rows = known.manifest.rows.iter();
            Some((known, rows.find(|rows| rows.name == meant.1.name)?))
        });
        Ok([meant, latest.unwrap_or(meant)])
    }

    /// As [`Self::find`], of a row's site.
    fn find_row(&self, run: &Run, row: &RowOrder) -> Result<Authority<'_>, Refusal> {
        let [(known, rows), (latest, of_latest)] = self.rows(row)?;
        let at = rows
            .rules
            .binary_search_by_key(&run.rule, |rule| rule.index);
        let rule = at.ok().and_then(|at| rows.rules.get(at)).ok_or_else(|| {
            let what = format!("no manifest has rule {} for rows", run.rule);
            Refusal::new(Failure::UnknownRule, what)
        })?;
        let wrong = |why| Refusal::new(Failure::OutsideRoot, why);
        let site = rows.site(row).map_err(wrong)?;
        latest.check_tenant(&site.tenant)?;
        // A plan that is none any more has the limits it had.
        let group = of_latest.group(row).or_else(|_| rows.group(row));
        let group = group.map_err(wrong)?;
        let is_bound = group.limits != Limits::default();
        Ok(Authority {
            known: Rc::new(known.with_groups([group].into())),
            site: Cow::Owned(site),
            rule: Cow::Owned(RuleManifest {
                group: is_bound.then_some(0),
                ..rule.clone()
            }),
            users: Some(&of_latest.users),
        })
    }
}

impl Known {
    /// Refuses a row the tenant of a written site.
    pub(super) fn check_tenant(&self, tenant: &str) -> Result<(), Refusal> {
        let written = &self.manifest.written_tenants;
        match written.binary_search_by(|it| it.as_str().cmp(tenant)) {
            Ok(_) => {
                let what = format!("tenant {tenant} is one of the configuration's");
                Err(Refusal::new(Failure::OutsideRoot, what))
            }
            Err(_) => Ok(()),
        }
    }

    /// What it says, made into something that is of one row's pool alone.
    pub(super) fn with_pool(
        &self,
        pool: &PoolManifest,
        groups: Vec<Group>,
    ) -> std::io::Result<Self> {
        let manifest = &self.manifest;
        Ok(Self {
            manifest: Manifest {
                generation: manifest.generation,
                layout: manifest.layout.clone(),
                cache_bytes: manifest.cache_bytes,
                mail: manifest.mail.clone(),
                ..Manifest::default()
            },
            sees: Rc::clone(&self.sees),
            pools: vec![Rc::new(Packed::of(pool)?)],
            ..self.with_groups(groups.into())
        })
    }

    /// Groups alone, in the same places.
    fn with_groups(&self, groups: Rc<[Group]>) -> Self {
        Self {
            manifest: Manifest {
                generation: self.manifest.generation,
                layout: self.manifest.layout.clone(),
                ..Manifest::default()
            },
            sees: Rc::default(),
            groups,
            pools: Vec::new(),
            users: RefCell::default(),
        }
    }

    /// What it says of a pool, by its index.
    pub(super) fn pool(&self, at: usize) -> Option<PoolManifest> {
        self.pools.get(at)?.open().ok()
    }

    /// What it says of all of them.
    pub(super) fn pools(&self) -> impl Iterator<Item = PoolManifest> {
        // All that came can be read.
        self.pools.iter().filter_map(|pool| pool.open().ok())
    }
}

impl Authority<'_> {
    /// Who the program runs as, where that was looked up for this manifest.
    pub(super) fn known_user(&self) -> Option<Arc<User>> {
        let users = self.known.users.borrow();
        users.get(name_of_user(&self.site)).map(Arc::clone)
    }

    /// Keeps what was looked up.
    pub(super) fn keep_user(&self, user: &Arc<User>) {
        let mut users = self.known.users.borrow_mut();
        if !users.contains_key(name_of_user(&self.site)) {
            users.insert(name_of_user(&self.site).to_owned(), Arc::clone(user));
        }
    }
}

/// Who a site's programs run as. May wait for the user database.
pub(super) fn look_up_user(site: &SiteManifest) -> Result<Arc<User>, Refusal> {
    look_up(name_of_user(site), &format!("site {}", site.name))
}

/// Who a program runs as that the configuration names. May wait likewise.
pub(super) fn look_up_user_of(program: &NamedProgram) -> Result<Arc<User>, Refusal> {
    look_up(program.user.as_deref().unwrap_or_default(), &program.whose)
}

fn look_up(name: &str, whose: &str) -> Result<Arc<User>, Refusal> {
    let user = match name {
        "" => User::this_process(),
        name => User::look_up(name),
    };
    user.map(Arc::new).map_err(|error| {
        let what = format!("user {name} of {whose}: {}", reason(&error));
        Refusal::new(Failure::UserUnknown, what)
    })
}

/// What of a site is to be known to find its programs.
pub(super) fn without_rules(site: &SiteManifest) -> SiteManifest {
    SiteManifest {
        index: site.index,
        name: site.name.clone(),
        tenant: site.tenant.clone(),
        root: site.root.clone(),
        within: site.within.clone(),
        symlinks: site.symlinks,
        user: site.user.clone(),
        rules: Vec::new(),
    }
}

/// Empty for this process's own.
fn name_of_user(site: &SiteManifest) -> &str {
    site.user.as_deref().unwrap_or_default()
}

#[cfg(test)]
pub(crate) mod tests {
    use ipc::pools::PoolProgramManifest;
    use ipc::rows::{PathPart, RowKey};

    use super::*;

    fn manifest(generation: u64, programs_max: u64) -> Manifest {
        let rule = |index| RuleManifest {
            index,
            ..RuleManifest::default()
        };
        let site = |index| SiteManifest {
            index,
            name: format!("{generation}-{index}"),
            tenant: String::new(),
            root: "/srv".into(),
            within: "/srv".into(),
            symlinks: os::file::Symlinks::Deny,
            user: None,
            rules: vec![rule(2), rule(5)],
        };
        Manifest {
            generation,
            programs_max,
            sites: vec![site(1), site(4)],
            ..Manifest::default()
        }
    }

    fn found(manifests: &Manifests, generation: u64, site: u32, rule: u32) -> Option<String> {
        let memory = || os::file::memfd("test", b"").unwrap();
        let run = Run {
            id: 1,
            generation,
            site,
            rule,
            row: None,
            group: None,
            script: Vec::new(),
            says_start: false,
            environment: Vec::new(),
            stdin: memory(),
            stdout: memory(),
            stderr: memory(),
        };
        let entry = manifests.find(&run).ok()?;
        Some(format!("{}-{}", entry.site.name, entry.rule.index))
    }

    #[test]
    fn the_last_manifests_are_known_and_nothing_else() {
        let mut manifests = Manifests::default();
        assert_eq!(
            (manifests.programs_max(), found(&manifests, 1, 1, 2)),
            (0, None)
        );
        for generation in 1..=6 {
            manifests.take(manifest(generation, generation), Rc::default());
        }
        assert_eq!(found(&manifests, 6, 4, 5).unwrap(), "6-4-5");
        assert_eq!(found(&manifests, 3, 1, 2).unwrap(), "3-1-2");
        for (generation, site, rule) in [(2, 1, 2), (7, 1, 2), (6, 0, 2), (6, 1, 3), (6, 9, 9)] {
            assert_eq!(found(&manifests, generation, site, rule), None);
        }
        // A generation that was not taken gives its number to the next.
        manifests.take(manifest(6, 99), Rc::default());
        assert_eq!((manifests.programs_max(), manifests.kept.len()), (99, 4));
        manifests.take(manifest(5, 7), Rc::default());
        assert_eq!(manifests.programs_max(), 7, "the one told last is in force");
        assert_eq!(found(&manifests, 6, 1, 2).unwrap(), "6-1-2");
    }

    /// A manifest with rows of tenants, whose users have at least this uid.
    fn with_rows(generation: u64, least: u32) -> Manifest {
        let column = |name: &str| vec![PathPart::Column(name.to_owned())];
        let rows = RowsManifest {
            site: 0,
            name: "directory:d".into(),
            directory: "d".into(),
            tenant: column("tenant"),
            plan: None,
            root: vec![PathPart::Text("/srv".into())],
            within: vec![PathPart::Text("/srv".into())],
            users: RowUsers {
                least,
                own: Vec::new(),
            },
            php_column: None,
            phps: Vec::new(),
            symlinks: os::file::Symlinks::Deny,
            rules: vec![RuleManifest::default()],
            pool: pool_named("rows"),
            plans: Vec::new(),
        };
        Manifest {
            rows: vec![rows],
            row_key: RowKey([7; 16]),
            written_tenants: vec!["own".into()],
            ..manifest(generation, 1)
        }
    }

    /// The least uid by which an order for a row is judged.
    fn judged_by(manifests: &Manifests, row: RowOrder) -> Result<u32, Failure> {
        let memory = || os::file::memfd("test", b"").unwrap();
        let run = Run {
            id: 1,
            generation: row.generation,
            site: row.site,
            rule: 0,
            row: Some(Box::new(row)),
            group: None,
            script: Vec::new(),
            says_start: false,
            environment: Vec::new(),
            stdin: memory(),
            stdout: memory(),
            stderr: memory(),
        };
        let found = manifests.find(&run).map_err(|refusal| refusal.failure)?;
        Ok(found.users.map_or(0, |users| users.least))
    }

    #[test]
    fn a_row_counts_where_the_directory_has_sealed_it_and_is_judged_by_the_latest_manifest() {
        let mut manifests = Manifests::default();
        manifests.take(with_rows(1, 1_000), Rc::default());
        manifests.take(with_rows(2, 2_000), Rc::default());
        let order = |tenant: &str, key: u8| {
            let columns = vec![
                ("tenant".to_owned(), tenant.to_owned()),
                ("user".to_owned(), "u1".to_owned()),
            ];
            RowOrder {
                generation: 1,
                site: 0,
                host: "a.example".into(),
                seal: RowKey([key; 16]).seal("d", "a.example", &columns),
                columns,
            }
        };
        assert_eq!(judged_by(&manifests, order("anna", 7)).unwrap(), 2_000);
        let made_up = judged_by(&manifests, order("anna", 8));
        assert_eq!(made_up.unwrap_err(), Failure::UnknownRule);
        let mut moved = order("anna", 7);
        moved.host = "b.example".into();
        assert_eq!(
            judged_by(&manifests, moved).unwrap_err(),
            Failure::UnknownRule
        );
        let written = judged_by(&manifests, order("own", 7));
        assert_eq!(written.unwrap_err(), Failure::OutsideRoot);
    }

    fn pool(name: &str) -> Packed<PoolManifest> {
        Packed::of(&pool_named(name)).unwrap()
    }

    /// A pool of this name and tenant.
    pub(crate) fn pool_named(name: &str) -> PoolManifest {
        PoolManifest {
            id: name.into(),
            name: name.into(),
            tenant: name.into(),
            weight: 1,
            user: None,
            users: None,
            group: None,
            directory: "/pools".into(),
            socket: "/pools/a.sock".into(),
            program: PoolProgramManifest::App {
                command: vec!["/bin/true".into()],
                directory: "/".into(),
                env: Vec::new(),
                instances: 1,
                start_ms: 1,
                stop_ms: 1,
                ready: None,
            },
            walls: None,
            idle_ms: None,
        }
    }

    #[test]
    fn what_two_manifests_say_alike_is_kept_once() {
        let mut manifests = Manifests::default();
        let group = |name: &str| Group {
            path: vec![name.to_owned()],
            limits: os::cgroup::Limits::default(),
        };
        for (generation, pools, group_name) in [
            (1, ["a", "b"], "x"),
            (2, ["c", "a"], "x"),
            (3, ["a", "b"], "y"),
        ] {
            let pools = pools.map(pool).into();
            let manifest = Manifest {
                pools,
                ..manifest(generation, 1)
            };
            let groups = manifests.groups(vec![group(group_name)]);
            manifests.take(manifest, groups);
        }
        let [first, second, third] = manifests.kept() else {
            panic!("three are kept");
        };
        let names = |known: &Known| known.pools().map(|pool| pool.name).collect::<Vec<_>>();
        assert_eq!(names(third), ["a", "b"]);
        assert_eq!(second.pool(1).unwrap().name, "a");
        assert!(third.pool(2).is_none());
        assert!(Rc::ptr_eq(&first.pools[0], &second.pools[1]));
        assert!(Rc::ptr_eq(&second.pools[1], &third.pools[0]));
        assert!(Rc::ptr_eq(&first.groups, &second.groups));
        assert_eq!(*third.groups, [group("y")]);
    }
}
