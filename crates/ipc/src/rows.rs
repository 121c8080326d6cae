//! Programs of sites that rows make: what the spawner is told of all of them, what a worker says of one, and what of
//! both becomes that one's site and pool.
//!
//! The idea: a worker hands on a row that the directory process has sealed, and no more than that counts. Tenant, plan,
//! paths, user, program and group are made of it here, by the spawner, as the configuration has it, and judged as if
//! anybody had written them.

use std::fmt;
use std::hash::Hasher;
use std::path::{Path, PathBuf};

use config::model::row_pool_id;
use os::cgroup::{Group, Limits, directory_name};
use os::file::Symlinks;
use serde::{Deserialize, Serialize};
use siphasher::sip128::{Hasher128, SipHasher24};

use crate::codec::path;
use crate::manifest::{RuleManifest, SiteManifest};
use crate::pools::{PoolManifest, PoolProgramManifest, PoolSite, Seen};

/// Longest name of a file.
const COMPONENT_BYTES_MAX: usize = 255;
/// Longest name of a tenant: it stands in the name of a group, with a plan's, and never as a checksum.
const TENANT_BYTES_MAX: usize = 128;
/// The kind of directory that groups of tenants of rows are: no written tenant has one of it.
const TENANT_OF_ROWS: &str = "row";
/// The column that says whom programs run as.
const USER: &str = "user";

/// A site that stands for all rows of a directory, whose programs are started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RowsManifest {
    /// Its index in the model.
    pub site: u32,
    /// Its name.
    pub name: String,
    /// The directory's name.
    pub directory: String,
    /// Whose each is.
    pub tenant: Vec<PathPart>,
    /// The name of each one's plan; `None`: they have none.
    pub plan: Option<Vec<PathPart>>,
    /// The root of each.
    pub root: Vec<PathPart>,
    /// The directory nothing leads out of.
    pub within: Vec<PathPart>,
    /// Whom a row may name as its user.
    pub users: RowUsers,
    /// The column that says which PHP; `None`: it is the first of these.
    pub php_column: Option<String>,
    /// The PHPs that there are for them; none where they have no pools.
    pub phps: Vec<RowPhp>,
    /// What is done with symbolic links.
    pub symlinks: Symlinks,
    /// Its rules that run programs, by rising index.
    pub rules: Vec<RuleManifest>,
    /// What every pool of theirs has in common.
    pub pool: PoolManifest,
    /// What its tenant's plan says, by the plan's index in the model.
    pub plans: Vec<RowPlan>,
}

/// A piece of a path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum PathPart {
    /// As it stands.
    Text(String),
    /// The host.
    Host,
    /// What the row says in this column.
    Column(String),
}

/// Whom a row may name as its user.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RowUsers {
    /// The least uid.
    pub least: u32,
    /// Uids that are the gateway's own, or written sites'.
    pub own: Vec<u32>,
}

/// A PHP that a row may have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RowPhp {
    /// Its version, as rows name it.
    pub version: String,
    /// `php-fpm`.
    #[serde(with = "path")]
    pub program: PathBuf,
    /// Settings of the whole process.
    pub ini: Vec<(String, String)>,
    /// What a pool with walls sees of the machine for its sake.
    pub sees: Vec<Seen>,
}

/// What a plan says of its tenants' programs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RowPlan {
    /// Its name.
    pub name: String,
    /// A tenant's share of starts.
    pub weight: u32,
    /// The limits of each tenant's group.
    pub limits: Limits,
    /// Children of a pool with PHP, pages of each, and how long a page may take; `None`: as all rows have it.
    pub processes: Option<u32>,
    /// As above.
    pub requests: Option<u32>,
    /// As above.
    pub time_ms: Option<u64>,
}

/// A row, as a worker tells of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RowOrder {
    /// The generation whose manifest is meant.
    pub generation: u64,
    /// The site that stands for all rows of its directory.
    pub site: u32,
    /// The host.
    pub host: String,
    /// All columns of its row.
    pub columns: Vec<(String, String)>,
    /// Says that the directory has this row for this host.
    pub seal: u128,
}

/// What rows are sealed with: the directory process and the spawner have it, and no worker.
#[derive(Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RowKey(pub [u8; 16]);

impl fmt::Debug for RowKey {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("RowKey")
    }
}

impl RowKey {
    /// The seal of a host's row.
    #[must_use]
    pub fn seal(&self, directory: &str, host: &str, columns: &[(String, String)]) -> u128 {
        let columns = columns.iter().flat_map(|(name, text)| [&**name, &**text]);
        let mut hasher = SipHasher24::new_with_key(&self.0);
        for text in [directory, host].into_iter().chain(columns) {
            hasher.write_u64(text.len() as u64);
            hasher.write(text.as_bytes());
        }
        hasher.finish128().as_u128()
    }
}

impl RowUsers {
    /// Whether a row's user may have this uid.
    #[must_use]
    pub fn may_be(&self, uid: u32) -> bool {
        uid != 0 && uid >= self.least && !self.own.contains(&uid)
    }
}

impl RowOrder {
    fn column(&self, name: &str) -> &str {
        let found = self.columns.iter().find(|(known, _)| known == name);
        found.map_or("", |(_, text)| text)
    }
}

impl RowsManifest {
    /// The pool of a row, and the groups around it, the innermost last and its own.
    ///
    /// # Errors
    /// What is wrong with the row.
    pub fn pool(&self, order: &RowOrder) -> Result<(PoolManifest, Vec<Group>), String> {
        let SiteManifest {
            tenant,
            user,
            root,
            within,
            ..
        } = self.site(order)?;
        let (tenant, user) = (tenant.as_str(), user.as_deref().unwrap_or_default());
        let php = self.php(order)?;
        let all = &self.pool.directory;
        let plan = self.plan(order)?;
        let of_plan = plan.map_or("", |plan| &plan.name);
        let words = [tenant, user, &php.version, of_plan];
        let id = pool_id(&self.name, words, [all, &root]);
        let mut pool = PoolManifest {
            directory: all.join(&id),
            socket: all.join(format!("{id}.sock")),
            name: format!("php {} of {tenant}", php.version),
            tenant: tenant.to_owned(),
            weight: plan.map_or(1, |plan| plan.weight),
            user: Some(user.to_owned()),
            users: Some(self.users.clone()),
            ..self.pool.clone()
        };
        if let PoolProgramManifest::Php {
            program,
            ini,
            sites,
            processes,
            requests,
            time_ms,
            ..
        } = &mut pool.program
        {
            if let Some(plan) = plan {
                *processes = plan.processes.unwrap_or(*processes);
                *requests = plan.requests.unwrap_or(*requests);
                *time_ms = plan.time_ms.unwrap_or(*time_ms);
            }
            (*program, *ini) = (php.program.clone(), php.ini.clone());
            *sites = vec![PoolSite {
                name: tenant.to_owned(),
                root,
            }];
        }
        if let Some(walls) = &mut pool.walls {
            let own = [(within, true), (pool.directory.clone(), false)];
            let own = own.map(|(path, is_optional)| Seen {
                path,
                is_writable: true,
                is_optional,
            });
            let mut sees: Vec<Seen> = own.into_iter().chain(php.sees.iter().cloned()).collect();
            sees.sort_by(|one, other| one.path.cmp(&other.path));
            walls.sees = sees;
        }
        let outer = group(tenant, plan);
        let inner = Group {
            path: pool_group(tenant, plan.map(|plan| &*plan.name), &id).into(),
            limits: Limits::default(),
        };
        pool.id = id;
        Ok((pool, vec![outer, inner]))
    }

    /// The site of a row, and where its programs are.
    ///
    /// # Errors
    /// What is wrong with the row.
    pub fn site(&self, order: &RowOrder) -> Result<SiteManifest, String> {
        let tenant = text_of(&self.tenant, order);
        let user = component(USER, order.column(USER))?;
        let (root, within) = (filled(&self.root, order)?, filled(&self.within, order)?);
        if !root.starts_with(&within) {
            return Err(format!("{root:?} does not lie beneath {within:?}"));
        }
        Ok(SiteManifest {
            index: self.site,
            name: component("host", &order.host)?.to_owned(),
            tenant: self::tenant(&tenant)?.to_owned(),
            root,
            within,
            symlinks: self.symlinks,
            user: Some(user.to_owned()),
            rules: Vec::new(),
        })
    }

    /// The group of a row's tenant.
    ///
    /// # Errors
    /// What is wrong with the row.
    pub fn group(&self, order: &RowOrder) -> Result<Group, String> {
        let tenant = text_of(&self.tenant, order);
        Ok(group(self::tenant(&tenant)?, self.plan(order)?))
    }

    /// Has the groups of a pool, whichever manifest made it, bind its tenant as this one says.
    pub fn bind(&self, order: &RowOrder, groups: &mut [Group]) {
        if let (Some(own), Ok(latest)) = (groups.first_mut(), self.group(order))
            && own.path == latest.path
        {
            own.limits = latest.limits;
        }
    }

    /// The groups that a tenant may have.
    pub fn groups_of(&self, tenant: &str) -> impl Iterator<Item = Vec<String>> {
        let plans = std::iter::once(None).chain(self.plans.iter().map(Some));
        plans.map(move |plan| group(tenant, plan).path)
    }

    fn plan(&self, order: &RowOrder) -> Result<Option<&RowPlan>, String> {
        let name = self.plan.as_ref().map(|parts| text_of(parts, order));
        let Some(name) = name.filter(|name| !name.is_empty()) else {
            return Ok(None);
        };
        let found = self.plans.iter().find(|plan| plan.name == name);
        found
            .map(Some)
            .ok_or_else(|| format!("there is no plan {name:.80?}"))
    }

    fn php(&self, order: &RowOrder) -> Result<&RowPhp, String> {
        let Some(column) = &self.php_column else {
            return self
                .phps
                .first()
                .ok_or_else(|| "there is no PHP".to_owned());
        };
        let version = order.column(column);
        let found = self.phps.iter().find(|php| php.version == version);
        found.ok_or_else(|| format!("column `{column}`: there is no PHP {version:.80?}"))
    }
}

/// The group of a tenant's rows of one plan: a tenant with two has two, and neither has the other's limits.
fn group(tenant: &str, plan: Option<&RowPlan>) -> Group {
    Group {
        path: vec![group_name(tenant, plan.map(|plan| &*plan.name))],
        limits: plan.map(|plan| plan.limits.clone()).unwrap_or_default(),
    }
}

/// What that is called.
#[must_use]
pub fn group_name(tenant: &str, plan: Option<&str>) -> String {
    let name = plan.map(|plan| format!("{tenant} {plan}"));
    directory_name(TENANT_OF_ROWS, name.as_deref().unwrap_or(tenant))
}

/// The path of the group of a row's pool, within that of its tenant and plan.
#[must_use]
pub fn pool_group(tenant: &str, plan: Option<&str>, id: &str) -> [String; 2] {
    [group_name(tenant, plan), directory_name("pool", id)]
}

/// What names the pool of a row: whose it is, as whom it runs, which PHP, by which plan, the directory of pools and
/// the root.
#[must_use]
pub fn pool_id(
    site: &str,
    [tenant, user, version, plan]: [&str; 4],
    [all, root]: [&Path; 2],
) -> String {
    let [all, root] = [all, root].map(Path::to_string_lossy);
    row_pool_id(&[site, tenant, user, version, plan, &all, &root])
}

/// A text that is one name of a file.
///
/// # Errors
/// It is not.
pub fn component<'t>(name: &str, text: &'t str) -> Result<&'t str, String> {
    let is_one = !text.is_empty()
        && text.len() <= COMPONENT_BYTES_MAX
        && !text.starts_with('.')
        && !text.chars().any(|c| c == '/' || c.is_control());
    match is_one {
        true => Ok(text),
        false => Err(format!(
            "column `{name}`: {text:.80?} is no name of one directory"
        )),
    }
}

/// A text that may be the name of a row's tenant.
///
/// # Errors
/// It may not.
pub fn tenant(text: &str) -> Result<&str, String> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    match !text.is_empty() && text.len() <= TENANT_BYTES_MAX && text.bytes().all(fits) {
        true => Ok(text),
        false => Err(format!("{text:.80?} cannot be a tenant's name")),
    }
}

fn filled(parts: &[PathPart], order: &RowOrder) -> Result<PathBuf, String> {
    for part in parts {
        match part {
            PathPart::Text(_) => {}
            PathPart::Host => drop(component("host", &order.host)?),
            PathPart::Column(name) => drop(component(name, order.column(name))?),
        }
    }
    Ok(text_of(parts, order).into())
}

fn text_of(parts: &[PathPart], order: &RowOrder) -> String {
    let parts = parts.iter();
    let texts = parts.map(|part| match part {
        PathPart::Text(text) => text,
        PathPart::Host => &*order.host,
        PathPart::Column(name) => order.column(name),
    });
    texts.collect()
}

#[cfg(test)]
mod tests {
    use crate::pools::WallsManifest;

    use super::*;

    fn rows() -> RowsManifest {
        let text = |text: &str| PathPart::Text(text.to_owned());
        let home = [text("/sites/"), PathPart::Column(USER.to_owned())];
        let root = home.clone().into_iter().chain([text("/www")]);
        let php = |version: &str| RowPhp {
            version: version.to_owned(),
            program: format!("/usr/sbin/php-fpm{version}").into(),
            ini: Vec::new(),
            sees: Vec::new(),
        };
        RowsManifest {
            site: 3,
            name: "directory:customers".into(),
            directory: "customers".into(),
            tenant: vec![PathPart::Column("tenant".to_owned())],
            plan: Some(vec![PathPart::Column("plan".to_owned())]),
            root: root.collect(),
            within: home.into(),
            users: RowUsers {
                least: 1_000,
                own: vec![1_005],
            },
            php_column: Some("php".into()),
            phps: vec![php("8.2"), php("8.3")],
            symlinks: Symlinks::Deny,
            rules: Vec::new(),
            pool: PoolManifest {
                id: String::new(),
                name: String::new(),
                tenant: String::new(),
                weight: 1,
                user: None,
                users: None,
                group: None,
                directory: "/pools".into(),
                socket: PathBuf::new(),
                program: PoolProgramManifest::Php {
                    program: PathBuf::new(),
                    processes: 2,
                    requests: 1,
                    time_ms: 1_000,
                    ini: Vec::new(),
                    admin: Vec::new(),
                    sites: Vec::new(),
                },
                walls: Some(WallsManifest::default()),
                idle_ms: Some(1_000),
            },
            plans: vec![RowPlan {
                name: "small".into(),
                weight: 7,
                limits: Limits {
                    pids: Some(9),
                    ..Limits::default()
                },
                processes: Some(1),
                requests: None,
                time_ms: None,
            }],
        }
    }

    fn order(tenant: &str, user: &str, php: &str) -> RowOrder {
        let column = |name: &str, text: &str| (name.to_owned(), text.to_owned());
        RowOrder {
            generation: 1,
            site: 3,
            host: "a.example".into(),
            columns: vec![
                column("tenant", tenant),
                column("user", user),
                column("php", php),
                column("plan", "small"),
            ],
            seal: 0,
        }
    }

    #[test]
    fn a_row_has_a_pool_of_its_own_user_that_sees_its_own_directory() {
        let (pool, groups) = rows().pool(&order("anna", "u1", "8.3")).unwrap();
        assert_eq!((pool.user.as_deref(), pool.weight), (Some("u1"), 7));
        let PoolProgramManifest::Php {
            processes,
            requests,
            ..
        } = pool.program
        else {
            panic!("PHP");
        };
        assert_eq!((processes, requests), (1, 1), "the plan's, and the site's");
        let sees = &pool.walls.as_ref().unwrap().sees;
        let seen: Vec<_> = sees.iter().map(|seen| seen.path.clone()).collect();
        assert_eq!(seen, [pool.directory.clone(), PathBuf::from("/sites/u1")]);
        let PoolProgramManifest::Php { program, sites, .. } = &pool.program else {
            panic!("{pool:?}");
        };
        assert_eq!(program, &PathBuf::from("/usr/sbin/php-fpm8.3"));
        assert_eq!(sites[0].root, PathBuf::from("/sites/u1/www"));
        assert_eq!(groups[0].limits.pids, Some(9));
        assert!(groups[1].path.starts_with(&groups[0].path));
        assert!(config::model::is_row_pool_id(&pool.id));
        assert_eq!(
            pool.socket,
            PathBuf::from(format!("/pools/{}.sock", pool.id))
        );
    }

    #[test]
    fn whichever_manifest_makes_a_pool_the_latest_binds_its_tenant() {
        let order = order("anna", "u1", "8.3");
        let mut latest = rows();
        latest.pool.directory = "/other".into();
        latest.plans[0].limits.pids = Some(5);
        let (_, mut groups) = rows().pool(&order).unwrap();
        let below = groups[1].clone();
        latest.bind(&order, &mut groups);
        assert_eq!(groups[0].limits.pids, Some(5));
        assert_eq!(groups[1], below);
        // Another tenant's group is bound by what was meant.
        latest.plan = None;
        latest.plans[0].limits.pids = None;
        latest.bind(&order, &mut groups);
        assert_eq!(groups[0].limits.pids, Some(5));
    }

    #[test]
    fn pools_of_any_two_rows_that_differ_are_two() {
        let mut ids: Vec<String> = Vec::new();
        for tenant in ["anna", "ben"] {
            for user in ["u1", "u2"] {
                for php in ["8.2", "8.3"] {
                    ids.push(rows().pool(&order(tenant, user, php)).unwrap().0.id);
                }
            }
        }
        let mut moved = rows();
        moved.pool.directory = "/other".into();
        ids.push(moved.pool(&order("anna", "u1", "8.2")).unwrap().0.id);
        let mut without_plan = order("anna", "u1", "8.2");
        without_plan.columns.pop();
        ids.push(rows().pool(&without_plan).unwrap().0.id);
        let count = ids.len();
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), count);
    }

    #[test]
    fn what_a_worker_says_leads_out_of_no_directory_and_to_no_other_program() {
        for user in [
            "",
            ".",
            "..",
            ".ssh",
            "a/b",
            "/etc",
            "a\0b",
            "a\n",
            &"x".repeat(256),
        ] {
            assert!(
                rows().site(&order("anna", user, "8.2")).is_err(),
                "{user:?}"
            );
            assert!(
                rows().pool(&order("anna", user, "8.2")).is_err(),
                "{user:?}"
            );
        }
        for tenant in ["", "a/b", "..\n", "a b", "*"] {
            assert!(
                rows().site(&order(tenant, "u1", "8.2")).is_err(),
                "{tenant:?}"
            );
        }
        for php in ["", "8", "/bin/sh", "8.2/../../bin/sh"] {
            assert!(rows().pool(&order("anna", "u1", php)).is_err(), "{php:?}");
        }
    }

    #[test]
    fn a_row_has_the_limits_of_its_own_plan_in_a_group_of_that() {
        let with = |plan: &str| {
            let mut order = order("anna", "u1", "8.2");
            order.columns.pop();
            order.columns.push(("plan".to_owned(), plan.to_owned()));
            rows().group(&order)
        };
        let (small, none) = (with("small").unwrap(), with("").unwrap());
        assert_eq!((small.limits.pids, none.limits.pids), (Some(9), None));
        assert_ne!(small.path, none.path);
        assert!(with("large").is_err());
        let all: Vec<_> = rows().groups_of("anna").collect();
        assert_eq!(all, [none.path, small.path]);
    }

    #[test]
    fn a_seal_is_that_of_one_host_and_row() {
        let key = RowKey([7; 16]);
        let order = order("anna", "u1", "8.2");
        let seal = key.seal("customers", "a.example", &order.columns);
        assert_eq!(seal, key.seal("customers", "a.example", &order.columns));
        let mut moved = order.columns.clone();
        moved[0] = ("tenantan".into(), "na".into());
        for other in [
            RowKey([8; 16]).seal("customers", "a.example", &order.columns),
            key.seal("others", "a.example", &order.columns),
            key.seal("customers", "b.example", &order.columns),
            key.seal("customers", "a.example", &order.columns[1..]),
            key.seal("customers", "a.example", &moved),
        ] {
            assert_ne!(seal, other);
        }
    }

    #[test]
    fn nobody_below_the_least_none_of_ours_and_never_root_is_a_rows_user() {
        let users = rows().users;
        for (uid, may) in [
            (0, false),
            (999, false),
            (1_000, true),
            (1_005, false),
            (1_006, true),
        ] {
            assert_eq!(users.may_be(uid), may, "{uid}");
        }
        let all = RowUsers {
            least: 0,
            own: Vec::new(),
        };
        assert!(!all.may_be(0));
    }
}
