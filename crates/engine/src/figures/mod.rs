//! The process's own figures: collected when somebody asks, and put into words.
//!
//! The idea: there is one list of them, the answer to `status`, whose JSON is made of its type;
//! metrics and table are made of the same. Nothing here runs on the way of a request. Sites without
//! a single exchange are left out, so that ten thousand sites of which ten are busy make ten lines.

mod certificates;
pub(crate) mod certs;
mod classes;
mod directories;
mod exposition;
pub(crate) mod fleet;
pub(crate) mod followed;
mod fpm_status;
mod groups;
mod handshakes;
pub(crate) mod hosts;
mod limit_counts;
pub(crate) mod machines;
mod maps;
mod owners;
mod pools;
mod printable;
mod prometheus;
mod quotas;
mod recorder;
#[cfg(test)]
pub(crate) mod sample_tests;
mod shed;
pub(crate) mod standing;
mod table;
mod taken;
pub(crate) mod tenant;
#[cfg(test)]
mod tests;
pub(crate) mod top;
mod tried;
pub(crate) mod workers;

pub(crate) use handshakes::why as why_tls;
pub(crate) use prometheus::prometheus;
pub(crate) use table::table;
pub(crate) use table::{bytes, count, grid};

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use config::model::sensor::{Gauge, Sensor};
use control::{RefusedReload, SetAside, Site, Status, Suspended, Upstream};
use ipc::server::{LastReload, ReloadOutcome, SetAsideFile};

use crate::agents::Agents;
use crate::permits::questions::{listed, moment};
use crate::permits::rows::{self, Row};
use crate::shedding;
use crate::worker::Shared;

/// Characters of a refused reload's problem.
const PROBLEM_CHARS_MAX: usize = 1_024;
/// Suspended tenants that are named.
const SUSPENDED_MAX: usize = 100;

/// Collects everything.
pub(crate) fn collect(shared: &Shared) -> Status {
    collect_first(shared, &[])
}

/// Collects everything; where there are too many rows, those of these tenants come first.
fn collect_first(shared: &Shared, first: &[String]) -> Status {
    // First: a reload that is counted is in force.
    let tally = shared.process.tally();
    let (process, generation) = (&shared.process, shared.generation());
    let uptime = process.started.elapsed();
    let sensors = &shared.sensors;
    let value = |gauge: Gauge| (gauge.name(), sensors.value(&Sensor::Here(gauge)));
    let limits = rows::collect(shared).into_iter().filter(Row::is_in_use);
    let (shedding, shed_by_tenant) = shedding::rows::collect(shared);
    let mut status = Status {
        generation: process.generation.load(Relaxed),
        pid: std::os::unix::process::parent_id(),
        uptime_s: uptime.as_secs(),
        reloads: tally.reloads,
        reloads_refused: tally.reloads_refused,
        reload_refused: refused(&tally.last_reload),
        restarts: tally.restarts,
        config_files_set_aside: tally.files_set_aside,
        set_aside: tally.set_aside.into_iter().map(set_aside).collect(),
        held: tally.held,
        access_records_lost: shared.access_log.dropped(),
        error_lines_lost: error_log::dropped(),
        limits: limits.map(|row| listed(&row)).collect(),
        sensors: Gauge::ALL.into_iter().map(value).collect(),
        loop_lag_s: sensors.lags_s().collect(),
        shedding,
        shed_by_tenant,
        handshakes: handshakes::collect(shared),
        certificates: certificates::collect(shared),
        keeper: certificates::keeper(shared),
        acme: certificates::acme(shared),
        recorder: recorder::collect(shared),
        fleet: fleet::collect(shared),
        directories: directories::collect(shared),
        ..workers::counted(&shared.stats, uptime)
    };
    status.programs.running = shared.programs_running.load(Relaxed);
    let suspended = shared.suspension.tenants();
    status.suspended = Suspended {
        count: suspended.len(),
        tenants: suspended.into_iter().take(SUSPENDED_MAX).collect(),
        refused: shared.suspension.refused(),
    };
    for (index, worker) in status.workers.iter_mut().enumerate() {
        worker.connections = shared.loads.connections(index);
    }
    add_agents(&sensors.agents, &mut status);
    if let Some(generation) = generation {
        status.sites_configured = generation.sites.len();
        let mut sites = generation.sites.iter();
        let has_files = sites.any(|site| site.htaccess.is_some());
        status.htaccess_cached_bytes = has_files.then(|| shared.htaccess.bytes());
        (status.groups, status.groups_left_out) = groups::collect(&generation, first);
        status.maps = maps::collect(&generation);
        status.pools = pools::collect(&generation);
        status.classes = classes::collect(&generation, first);
        if let Some(plan) = &generation.scripts {
            status.scripts_in_shadow = tried::collect(&plan.in_shadow, &shared.tried);
        }
        let sites = generation.sites.iter().map(|site| Site {
            site: site.name.to_string(),
            replies: workers::replies(site.stats.of_workers()),
        });
        status.sites = sites.filter(|site| site.replies.count() > 0).collect();
    }
    status
}

/// Says of the last reload what an operator has to mend, if anything.
fn refused(reload: &LastReload) -> Option<RefusedReload> {
    let outcome = match reload.outcome {
        ReloadOutcome::Taken => return None,
        ReloadOutcome::Wrong | ReloadOutcome::Failed => reload.outcome.word().into(),
    };
    let ago_us = os::cpu::monotonic_us().saturating_sub(reload.begun_us);
    let begun = SystemTime::now().checked_sub(Duration::from_micros(ago_us));
    let since_1970 = begun.and_then(|begun| begun.duration_since(UNIX_EPOCH).ok());
    let mut lines = reload.told.lines();
    let first = lines.next().unwrap_or_default();
    let first = first.strip_prefix("error: ").unwrap_or(first);
    let place = lines
        .next()
        .and_then(|line| line.trim_start().strip_prefix("--> "));
    let problem = match place {
        Some(place) => format!("{place}: {first}"),
        None => first.to_owned(),
    };
    Some(RefusedReload {
        at: moment(since_1970.unwrap_or_default()),
        outcome,
        problem: problem.chars().take(PROBLEM_CHARS_MAX).collect(),
    })
}

fn set_aside(file: SetAsideFile) -> SetAside {
    SetAside {
        file: file.file,
        since: file.since,
        verdict: file.verdict,
        problem: file.problem,
    }
}

/// A server no worker knows (yet) is not shown because of its agent.
fn add_agents(agents: &Agents, status: &mut Status) {
    for ((upstream, server), percent) in agents.percents() {
        let order = |it: &Upstream| (&*it.upstream, &*it.server).cmp(&(&*upstream, &*server));
        let found = status.upstreams.binary_search_by(order).ok();
        if let Some(it) = found.and_then(|at| status.upstreams.get_mut(at)) {
            tell_weight(it, percent);
        }
    }
}

/// Says what a server is up to, in percent of its weight; 0 is to be left alone.
fn tell_weight(server: &mut Upstream, percent: u32) {
    server.agent_weight = Some(f64::from(percent) / 100.0);
    server.drain = percent == 0;
}
