//! Whose sites there are, those of rows among them, for the recorder and for who looks at what goes on now.
//!
//! The idea: a written site is whose the configuration says; of rows it is known for hosts that were asked for, and so many
//! of these are told.

use std::collections::{BTreeMap, HashMap};

use ipc::console::{LimitOwner, TenantSites};

use crate::directory::eyes;
use crate::generation::Generation;
use crate::worker::Shared;

/// Hosts of rows that are told of.
const HOSTS_MAX: usize = 20_000;

/// Whose sites there are, of those that are recorded.
pub(super) fn owners(shared: &Shared, generation: &Generation) -> Vec<TenantSites> {
    let mut owners = BTreeMap::<String, Vec<String>>::new();
    if !generation.row_sites.is_empty() {
        owners = shared.rows.hosts.all(HOSTS_MAX);
    }
    // The site of all rows is nobody's: their hosts are.
    let sites = generation.sites.iter();
    for site in sites.filter(|site| site.is_recorded && site.rows.is_none()) {
        let sites = owners.entry(site.tenant_name.to_string()).or_default();
        sites.push(site.name.to_string());
    }
    let owners = owners.into_iter();
    owners
        .map(|(tenant, sites)| TenantSites { tenant, sites })
        .collect()
}

/// Whose sites are, for limits of some tenants.
#[derive(Debug, Default)]
pub(super) struct SiteOwners(HashMap<String, String>);

impl SiteOwners {
    /// Of written sites, and of hosts of these tenants; nobody's where nobody looks.
    pub(super) fn of(shared: &Shared, generation: &Generation, looked_at: &[String]) -> SiteOwners {
        let mut owners = HashMap::new();
        if looked_at.is_empty() {
            return SiteOwners(owners);
        }
        let sites = generation.sites.iter();
        owners.extend(sites.map(|site| (site.name.to_string(), site.tenant_name.to_string())));
        if !generation.row_sites.is_empty() {
            for tenant in looked_at {
                let hosts = eyes::hosts_of(shared, generation, tenant);
                let hosts = hosts.seen.iter();
                owners.extend(hosts.map(|host| (host.clone(), tenant.clone())));
            }
        }
        SiteOwners(owners)
    }

    /// The tenant that a limit is of, by what its state is kept by.
    pub(super) fn of_limit<'a>(&'a self, limit: &'a str) -> Option<&'a str> {
        match LimitOwner::of(limit)? {
            LimitOwner::Tenant(name) => Some(name),
            LimitOwner::Site(site) => self.0.get(site).map(String::as_str),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_its_tenants_or_that_of_its_site() {
        let owners = HashMap::from([("a.example".to_owned(), "late".to_owned())]);
        let owners = SiteOwners(owners);
        for (limit, owner) in [
            ("tenant late/1", Some("late")),
            ("site a.example/1", Some("late")),
            ("rule a.example/2/1", Some("late")),
            ("site directory:d/1\ta.example", Some("late")),
            ("plan small/1\tlate", Some("late")),
            ("plan small/1", None),
            ("site b.example/1", None),
            ("process", None),
        ] {
            assert_eq!(owners.of_limit(limit), owner, "{limit}");
        }
    }
}
