//! What the spawner is told of sites whose rows have programs, and the places of their pools.
//!
//! The idea: a row's pool is made of what all have in common and of the row, by the spawner, when it is first
//! wanted; what only this process can make, its directory and socket, the spawner asks for then.

use std::path::PathBuf;
use std::time::Instant;

use config::model::{Isolate, Model, Site, SitePool, Template, TemplatePart};
use ipc::manifest::ToSpawner;
use ipc::pools::{PoolManifest, PoolProgramManifest, WallsManifest};
use ipc::rows::{PathPart, RowPhp, RowPlan, RowsManifest};
use os::cgroup::Limits;

use super::lookups::LookedUp;
use super::walls;
use crate::Supervisor;
use crate::directory::row_users;
use crate::surroundings;

/// Every site whose rows have programs; the problems are what this process cannot do for one.
pub(crate) fn of(model: &Model, plans: &[Limits], problems: &mut Vec<String>) -> Vec<RowsManifest> {
    let sites = (0..).zip(&model.sites);
    let sites = sites.filter(|(_, site)| site.has_programs_of_rows());
    let manifests = sites.filter_map(|(index, site)| {
        problems.extend(surroundings::no_programs_of_rows(site));
        of_site(model, (index, site), plans)
    });
    manifests.collect()
}

fn of_site(model: &Model, (index, site): (u32, &Site), plans: &[Limits]) -> Option<RowsManifest> {
    let rows = site.rows.as_ref()?;
    let root = rows.root.as_ref()?;
    let column = site.pool.php_column();
    let is_meant = |version: &str| column.is_some() || site.pool.php.as_deref() == Some(version);
    let symlinks = crate::manifest::symlinks(root.symlinks);
    let phps = model.php.iter().filter(|php| is_meant(&php.version));
    let phps = phps.map(|php| RowPhp {
        version: php.version.clone(),
        program: php.program.clone(),
        ini: php.ini.clone(),
        sees: walls::of_program(&php.program),
    });
    let plans = model.plans.iter().zip(plans).map(|(plan, limits)| RowPlan {
        name: plan.name.clone(),
        weight: plan.weight,
        limits: limits.clone(),
        processes: plan.pool.processes,
        requests: plan.pool.requests,
        time_ms: plan.pool.time_ms,
    });
    Some(RowsManifest {
        site: index,
        name: site.name(),
        directory: rows.name.clone(),
        tenant: parts(&rows.tenant),
        plan: rows.plan.as_ref().map(parts),
        root: parts(&root.path),
        within: parts(&root.within),
        users: row_users(model, rows.directory),
        php_column: column.map(str::to_owned),
        phps: phps.collect(),
        symlinks,
        rules: crate::manifest::rules(site, |_| None),
        pool: common(model, &site.pool),
        plans: plans.collect(),
    })
}

/// What all pools of a site's rows have in common.
fn common(model: &Model, pool: &SitePool) -> PoolManifest {
    let walls = (pool.isolate == Isolate::Home).then(|| WallsManifest {
        sees: Vec::new(),
        tmp_bytes: walls::TMP_BYTES,
    });
    PoolManifest {
        id: String::new(),
        name: String::new(),
        tenant: String::new(),
        weight: 1,
        user: None,
        users: None,
        group: None,
        directory: model.pool_terms.directory.clone(),
        socket: PathBuf::new(),
        program: PoolProgramManifest::Php {
            program: PathBuf::new(),
            processes: pool.processes,
            requests: pool.requests,
            time_ms: pool.time_ms,
            ini: Vec::new(),
            admin: pool.admin.clone(),
            sites: Vec::new(),
        },
        walls,
        idle_ms: Some(model.pool_terms.idle_ms),
    }
}

fn parts(template: &Template) -> Vec<PathPart> {
    let parts = template.parts.iter();
    let parts = parts.map(|part| match part {
        TemplatePart::Host => PathPart::Host,
        TemplatePart::Row(name) => PathPart::Column(name.clone()),
        TemplatePart::Text(text) => PathPart::Text(text.clone()),
        // Nothing else stands in what is made of rows.
        _ => PathPart::Text("/".to_owned()),
    });
    parts.collect()
}

impl Supervisor {
    /// Makes the place of a row's pool, once its user is known.
    pub(crate) fn want_place_of_row(&mut self, id: &str, user: &str) {
        if let Some(known) = self.row_users.add(id, user, Instant::now()) {
            self.place_pool_of_row(known);
        }
    }

    /// Makes the places of pools whose users are known by now.
    pub(crate) fn mind_places_of_rows(&mut self) {
        for known in self.row_users.take(Instant::now()) {
            self.place_pool_of_row(known);
        }
    }

    /// Makes the place of a row's pool, and tells the spawner.
    fn place_pool_of_row(&mut self, known: LookedUp) {
        let LookedUp { pool, name, user } = known;
        let (id, current) = (pool.as_str(), &mut self.current);
        let users = current.manifest.rows.iter().map(|rows| &rows.users);
        let placed = user.and_then(|user| {
            let wanted = (id, name.as_str(), &user);
            current.places.place_row(wanted, users, &current.user)
        });
        let told = match placed {
            Ok(()) => self.programs.tell_place_of_row(&self.current, id),
            Err(why) => {
                tracing::warn!(pool = id, "no place for the pool of a row: {why}");
                let id = id.to_owned();
                self.programs.say(&ToSpawner::NoPlace { id, why })
            }
        };
        if let Err(problem) = told {
            tracing::error!("{problem}");
        }
    }
}
