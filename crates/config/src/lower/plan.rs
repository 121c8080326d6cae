//! `[plans.NAME]`: what tenants have in common that are sold the same.
//!
//! The idea: a written tenant with a plan has the plan's limits beside its own, and of all else what it does not say itself; for
//! tenants that rows name the plan stands by itself, and counts each of them apart.

use std::sync::Arc;

use super::cgroup::{Enforcement, cgroup};
use super::context::{problem, title_of};
use super::limits::{Level, limits};
use super::pool;
use super::rows;
use super::table::Table;
use super::tops::{Tops, once_each};
use super::value::Value;
use crate::keys;
use crate::model::{Limit, PLANS_MAX, Plan};

/// Longest name of a plan.
const NAME_BYTES_MAX: usize = 64;

/// The plans described.
#[derive(Default)]
pub(crate) struct Plans {
    list: Vec<Plan>,
}

impl Plans {
    /// Takes in `[plans.NAME]`.
    pub(super) fn define_all(tops: &Tops<'_>, above: Enforcement) -> Plans {
        let mut plans = Plans::default();
        for value in once_each(tops.members("plans"), ("plan", "plans"), PLANS_MAX) {
            plans.list.push(plan(&value, above));
        }
        plans
    }

    /// The plan that a text names.
    pub(super) fn index(&self, value: &Value<'_>, name: &str) -> Option<usize> {
        let found = self.list.iter().position(|plan| plan.name == name);
        if found.is_none() {
            let finding = problem(value.spot(), format!("there is no plan `{name}`"));
            let known = self.list.iter().map(|plan| &*plan.name);
            let finding = match keys::nearest(name, known) {
                Some(meant) => finding.meant(Some(meant)),
                None => finding.help(format!("describe it: `{}`", title_of("plans", name))),
            };
            value.context.report(finding.absence());
        }
        found
    }

    /// The plan of a written tenant.
    pub(super) fn of_tenant(&self, table: &Table<'_>) -> Option<&Plan> {
        let value = table.get("plan")?;
        let index = self.index(&value, value.text()?)?;
        self.list.get(index)
    }

    /// The most limits that one of them has.
    pub(super) fn most_limits(&self) -> usize {
        let counts = self.list.iter().map(|plan| plan.limits.len());
        counts.max().unwrap_or_default()
    }

    /// The list.
    pub(super) fn finish(self) -> Vec<Plan> {
        self.list
    }
}

fn plan(value: &Value<'_>, above: Enforcement) -> Plan {
    let name = value.name;
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.bytes().all(fits) {
        value.report(format!(
            "`{name}` cannot be a plan's name: up to {NAME_BYTES_MAX} letters, digits, `-` and `_` can"
        ));
    }
    let table = value.table(&keys::PLAN);
    let table = table.unwrap_or_else(|| Table::empty(value.context, &keys::PLAN));
    let limits = limits(table.get("limits"), Level::Tenant);
    rows::judge_limits(&table, &limits);
    Plan {
        name: name.to_owned(),
        weight: table.count("weight") as u32,
        limits,
        cgroup: cgroup(&table, Enforcement::of(&table, above)),
        pool: pool::of_plan(&table),
        console: table.flag("console"),
    }
}

/// The limits of a tenant and its plan; where both have one of a name, the tenant's own.
pub(super) fn merged(own: Arc<[Limit]>, plan: Option<&Plan>) -> Arc<[Limit]> {
    let Some(plan) = plan.filter(|plan| !plan.limits.is_empty()) else {
        return own;
    };
    let is_said = |limit: &&Limit| !own.iter().any(|own| own.name == limit.name);
    own.iter()
        .chain(plan.limits.iter().filter(is_said))
        .cloned()
        .collect()
}
