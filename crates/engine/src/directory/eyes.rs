//! Whose a host of rows is, and what tenants of rows may see of themselves.
//!
//! The idea: both are said by what is known of rows at this moment, never by what somebody asks for: a host that has gone over to
//! another tenant is that tenant's as soon as this is known here, or within the second that a list of hosts is kept.

use std::sync::Arc;
use std::time::Instant;

use super::entry::{EntryState, HostEntry};
use super::hosts::HostList;
use super::row::{self, RowOutline};
use crate::generation::Generation;
use crate::stage::Routed;
use crate::worker::Shared;

/// What the rows of hosts say of their sites, by what is known here, with one look for each directory.
pub(crate) fn outlines_of(
    shared: &Shared,
    generation: &Generation,
    hosts: &[String],
) -> Option<Vec<Option<RowOutline>>> {
    let now_ms = shared.rows.now_ms(Instant::now());
    let mut looks = Vec::with_capacity(generation.row_sites.len());
    for destination in &generation.row_sites {
        let template = generation.sites.get(destination.site as usize)?;
        let rows = template.rows.as_ref()?;
        let entries = shared.rows.directories.entries(&rows.name, hosts);
        looks.push((rows, entries));
    }
    let outline = |(at, host): (usize, &String)| {
        if !generation.may_be_row(host) {
            return None;
        }
        for (rows, entries) in &looks {
            let entry: &Arc<HostEntry> = entries.get(at)?.as_ref()?;
            match &entry.state {
                // Whose it was is nobody's to see who may not be served by it.
                _ if !entry.serves(now_ms) => return None,
                EntryState::Row(found) => {
                    return row::outline(generation, rows, (host, found)).ok();
                }
                EntryState::Missing => {}
                EntryState::Wrong(_) => return None,
            }
        }
        None
    };
    Some(hosts.iter().enumerate().map(outline).collect())
}

/// The hosts of a tenant of rows that are known, without those whose plans give it no eyes.
pub(crate) fn hosts_of(shared: &Shared, generation: &Generation, tenant: &str) -> Arc<HostList> {
    let rows = &shared.rows;
    let at = (generation.number, rows.now_ms(Instant::now()));
    rows.hosts.list(tenant, at, || {
        let hosts = rows.hosts.of(tenant);
        let outlines = outlines_of(shared, generation, &hosts).unwrap_or_default();
        let mut list = HostList::default();
        for (host, outline) in hosts.into_iter().zip(outlines) {
            let Some(outline) = outline.filter(|it| it.tenant == tenant) else {
                continue;
            };
            list.is_known = true;
            let plan = outline.plan.and_then(|at| generation.plans.get(at));
            if plan.is_none_or(|plan| plan.has_console) {
                list.seen.push(host);
            }
        }
        list
    })
}

/// Whether a tenant may look at its own figures: on the site of a row as that row's plan says, elsewhere as the plan of one of
/// its hosts does. One of which no host is known may where every plan lets its tenants.
pub(crate) fn may_look(routed: Routed<'_>, tenant: &str) -> bool {
    let generation = &routed.serving.generation;
    let mut plans = generation.plans.iter();
    if let Some(row) = &routed.site.row
        && *row.tenant.name == *tenant
    {
        let plan = row.tenant.plan.as_deref();
        return plan.is_none_or(|name| plans.any(|it| *it.name == *name && it.has_console));
    }
    if generation.row_sites.is_empty() || generation.written_tenants.contains(tenant) {
        return !generation.without_console.contains(tenant);
    }
    let hosts = hosts_of(&routed.worker.shared, generation, tenant);
    match hosts.is_known {
        true => !hosts.seen.is_empty(),
        false => plans.all(|plan| plan.has_console),
    }
}
