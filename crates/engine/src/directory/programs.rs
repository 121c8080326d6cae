//! Programs of rows: what the spawner is told of a row, and its pool as workers know it, made with its site.
//!
//! The idea: a worker says the row's columns, and the spawner makes site and pool of them; both call the pool the
//! same. What is heard of it all workers know, as of any pool.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use config::model::{self, Model};
use ipc::directory::Row;
use ipc::rows::{RowOrder, pool_group, pool_id};

use crate::programs::pools::{AllPools, PoolTimes, ProgramPool, fixed_by};

/// What programs of a site's rows have in common.
#[derive(Debug)]
pub(crate) struct RowProgramTerms {
    site: u32,
    name: Box<str>,
    has_pools: bool,
    php_column: Option<Box<str>>,
    versions: Box<[Box<str>]>,
    directory: PathBuf,
    times: PoolTimes,
    /// The same by the tenant's plan.
    plan_times: Box<[(Box<str>, PoolTimes)]>,
    /// Settings of PHP that no file of a tenant changes.
    pub(crate) fixed: BTreeSet<Box<str>>,
}

/// Whose programs they are.
#[derive(Debug, Clone, Copy)]
pub(super) struct RowOwner<'a> {
    pub(super) host: &'a str,
    pub(super) row: &'a Row,
    pub(super) tenant: &'a str,
    pub(super) plan: Option<&'a str>,
    pub(super) root: &'a Path,
}

/// Those of a generation's sites whose rows have programs.
pub(crate) fn compile(model: &Model) -> HashMap<u32, RowProgramTerms> {
    let sites = (0..).zip(&model.sites);
    let sites = sites.filter(|(_, site)| site.has_programs_of_rows());
    let terms =
        sites.filter_map(|(index, site)| Some((index, RowProgramTerms::of(model, index, site)?)));
    terms.collect()
}

impl RowProgramTerms {
    fn of(model: &Model, index: u32, site: &model::Site) -> Option<Self> {
        site.rows.as_ref()?.root.as_ref()?;
        let (pool, terms) = (&site.pool, &model.pool_terms);
        let column = pool.php_column();
        let is_meant = |version: &str| column.is_some() || pool.php.as_deref() == Some(version);
        let phps = || model.php.iter().filter(|php| is_meant(&php.version));
        let settings = phps().flat_map(|php| &php.ini).chain(&pool.admin);
        let plan_times = model.plans.iter().map(|plan| {
            let time_ms = plan.pool.time_ms.unwrap_or(pool.time_ms);
            let processes = plan.pool.processes.unwrap_or(pool.processes);
            let times = PoolTimes::new(terms.idle_ms, time_ms, processes);
            (Box::from(&*plan.name), times)
        });
        Some(Self {
            site: index,
            name: site.name().into(),
            has_pools: site.has_pools_of_rows(),
            php_column: column.map(Box::from),
            versions: phps().map(|php| Box::from(&*php.version)).collect(),
            directory: terms.directory.clone(),
            times: PoolTimes::new(terms.idle_ms, pool.time_ms, pool.processes),
            plan_times: plan_times.collect(),
            fixed: fixed_by(&pool.admin, settings),
        })
    }

    /// What the spawner is told of a row.
    pub(super) fn order(&self, generation: u64, owner: RowOwner<'_>) -> RowOrder {
        RowOrder {
            generation,
            site: self.site,
            host: owner.host.to_owned(),
            columns: owner.row.columns.clone(),
            seal: owner.row.seal,
        }
    }

    /// The pool of a row; `None` where it says no PHP, or none is wanted.
    ///
    /// # Errors
    /// It names a PHP that there is not.
    pub(super) fn pool(
        &self,
        pools: &AllPools,
        order: &RowOrder,
        owner: RowOwner<'_>,
    ) -> Result<Option<Arc<ProgramPool>>, String> {
        if !self.has_pools {
            return Ok(None);
        }
        let said = self.php_column.as_deref();
        let said = said.map(|column| owner.row.column(column).unwrap_or_default());
        let version = match said {
            Some("") => return Ok(None),
            Some(version) => version,
            None => self.versions.first().map_or("", |version| version),
        };
        if !self.versions.iter().any(|known| **known == *version) {
            return Err(format!("there is no PHP {version:.80?}"));
        }
        let user = owner.row.column("user").unwrap_or_default();
        let words = [owner.tenant, user, version, owner.plan.unwrap_or("")];
        let id = pool_id(&self.name, words, [&self.directory, owner.root]);
        let socket = self.directory.join(format!("{id}.sock"));
        let name = format!("php {version} of {}", owner.tenant);
        let group = pool_group(owner.tenant, owner.plan, &id);
        let words = (&*id, &*name, owner.tenant, group);
        let times = self.plan_times.iter();
        let mut times = times.filter(|(name, _)| owner.plan == Some(&**name));
        let times = times.next().map_or(self.times, |(_, times)| *times);
        let pool = pools.of_row(words, order, &socket, times);
        Ok(Some(pool))
    }
}
