//! `[tenants.NAME]`, and the `tenant` of a site.
//!
//! The idea: any site has a tenant, if only by its first host's name. Once tenants are described,
//! a name that was written by hand must be one of theirs: a typing error would free a site from
//! its tenant's limits.

use std::collections::BTreeMap;

use super::cgroup::{Enforcement, cgroup};
use super::class::classes;
use super::context::{Spot, problem, title_of};
use super::limits::{Level, limits};
use super::plan::{Plans, merged};
use super::script;
use super::table::Table;
use super::value::Value;
use crate::keys;
use crate::model::{PhaseScripts, PlanPool, Tenant};

/// Longest name of a tenant: a host's.
const NAME_BYTES_MAX: usize = 255;

/// The tenants described.
#[derive(Default)]
pub(crate) struct Tenants {
    list: Vec<Described>,
    by_name: BTreeMap<String, (usize, Spot)>,
}

struct Described {
    tenant: Tenant,
    enforcement: Enforcement,
    pool: PlanPool,
}

/// A site's tenant.
pub(crate) struct Found<'a> {
    pub(crate) name: String,
    pub(crate) index: Option<usize>,
    /// What its `cgroup_required`, or the level above, says.
    pub(crate) enforcement: Enforcement,
    /// How many limits it has.
    pub(crate) limits: usize,
    pub(crate) scripts: Option<&'a PhaseScripts>,
    /// What its plan says of pools.
    pub(crate) pool: PlanPool,
}

impl Tenants {
    /// Takes in `[tenants.NAME]`.
    pub(crate) fn define(&mut self, value: &Value<'_>, plans: &Plans, above: Enforcement) {
        let name = value.name;
        if let Some(why) = wrong_name(name) {
            value.report(why);
        }
        let table = value.table(&keys::TENANT);
        let table = table.unwrap_or_else(|| Table::empty(value.context, &keys::TENANT));
        let enforcement = Enforcement::of(&table, above);
        let plan = plans.of_tenant(&table);
        let of_plan = plan.filter(|_| table.get("weight").is_none());
        let own_weight = table.count("weight") as u32;
        let tenant = Tenant {
            name: name.to_owned(),
            weight: of_plan.map_or(own_weight, |plan| plan.weight),
            classes: classes(&table),
            limits: merged(limits(table.get("limits"), Level::Tenant), plan),
            cgroup: cgroup(&table, enforcement).or_else(|| plan?.cgroup.clone()),
            scripts: script::level(table.get("scripts"), script::Level::BeforeRules),
            scripts_vm: table.get("scripts_vm").and_then(|value| value.choice()),
            console: match plan.filter(|_| table.get("console").is_none()) {
                Some(plan) => plan.console,
                None => table.flag("console"),
            },
        };
        if let Some((_, first)) = self.by_name.get(name) {
            let message = format!("tenant `{name}` is described twice");
            value.report_again(message, first.clone());
            return;
        }
        self.by_name
            .insert(name.to_owned(), (self.list.len(), value.spot()));
        self.list.push(Described {
            tenant,
            enforcement,
            pool: plan.map(|plan| plan.pool).unwrap_or_default(),
        });
    }

    /// The tenant of a site that calls it `written`, or has `first_host`.
    pub(crate) fn find(
        &self,
        written: Option<Value<'_>>,
        first_host: &str,
        above: Enforcement,
    ) -> Found<'_> {
        let name = written.and_then(|value| self.checked(&value));
        let name = name.unwrap_or(first_host);
        let index = self.by_name.get(name).map(|(index, _)| *index);
        let described = index.and_then(|index| self.list.get(index));
        Found {
            name: name.to_owned(),
            index,
            enforcement: described.map_or(above, |described| described.enforcement),
            limits: described.map_or(0, |described| described.tenant.limits.len()),
            scripts: described.map(|described| &*described.tenant.scripts),
            pool: described
                .map(|described| described.pool)
                .unwrap_or_default(),
        }
    }

    /// The list that the sites' indices point into.
    pub(crate) fn finish(self) -> Vec<Tenant> {
        self.list
            .into_iter()
            .map(|described| described.tenant)
            .collect()
    }

    fn checked<'a>(&self, value: &Value<'a>) -> Option<&'a str> {
        let name = value.text()?;
        if let Some(why) = wrong_name(name) {
            value.report(why);
        } else if !self.list.is_empty() && !self.by_name.contains_key(name) {
            let finding = problem(value.spot(), format!("there is no tenant `{name}`"));
            let known = self.by_name.keys().map(String::as_str);
            let finding = match keys::nearest(name, known) {
                Some(meant) => finding.meant(Some(meant)),
                None => finding.help(format!("describe it: `{}`", title_of("tenants", name))),
            };
            value.context.report(finding.absence());
        }
        Some(name)
    }
}

fn wrong_name(name: &str) -> Option<String> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.*".contains(&byte);
    let fine = !name.is_empty() && name.len() <= NAME_BYTES_MAX && name.bytes().all(fits);
    (!fine).then(|| {
        format!("`{name}` cannot be a tenant's name: letters, digits, `-`, `_`, `.` and `*` can")
    })
}
