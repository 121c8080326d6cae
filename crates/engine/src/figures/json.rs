//! Figures as the answer to `status json`.

use control::{
    Group, Map, Phase, Programs, Replies, Scripts, ShedRule, ShedTenant, Site, Status, Stragglers,
    Time, Upstream, Worker,
};
use os::cgroup::Usage;

use super::groups::{FIGURES, Unit};
use super::{Figures, MapFigures, ReplyFigures, Times, UpstreamFigures, WorkerFigures};
use crate::permits::questions::listed;
use crate::shedding::rows::RuleFigures;
use crate::stats::BOUNDS_US;
use ipc::groups::Owner;

/// Puts figures into one JSON object and a line feed.
pub(crate) fn json(figures: &Figures) -> String {
    control::json(&status(figures))
}

fn status(figures: &Figures) -> Status {
    let sensors = figures.sensors.iter();
    let (groups, shed) = (figures.groups.groups.iter(), &figures.shed);
    Status {
        version: env!("CARGO_PKG_VERSION"),
        pid: figures.pid,
        generation: figures.generation,
        uptime_s: figures.uptime.as_secs(),
        reloads: figures.reloads,
        reloads_refused: figures.reloads_refused,
        restarts: figures.restarts,
        access_records_lost: figures.records_lost,
        error_lines_lost: figures.lines_lost,
        sites_configured: figures.sites_configured,
        time: Time {
            bounds_us: BOUNDS_US.to_vec(),
            total: times(&figures.total_time),
            upstream: times(&figures.upstream_time),
        },
        workers: figures.workers.iter().map(worker).collect(),
        programs: Programs {
            running: figures.programs.running,
            started: figures.programs.started,
            failed: figures.programs.failed,
            killed: figures.programs.killed().collect(),
        },
        stragglers: Stragglers {
            now: figures.stragglers.now,
            ended: figures.stragglers.ended().collect(),
        },
        scripts: scripts(figures),
        without_site: replies(&figures.without_site),
        sites: figures.sites.iter().map(site).collect(),
        upstreams: figures.upstreams.iter().map(upstream).collect(),
        maps: figures.maps.iter().map(map).collect(),
        limits: figures.limits.iter().map(listed).collect(),
        sensors: sensors.map(|(gauge, it)| (gauge.name(), *it)).collect(),
        loop_lag_s: figures.lags_s.clone(),
        shedding: shed.rules.iter().map(shed_rule).collect(),
        shed_by_tenant: shed.tenants.iter().map(shed_tenant).collect(),
        groups: groups.map(|(owner, usage)| group(owner, usage)).collect(),
        groups_left_out: figures.groups.left_out,
    }
}

fn times(times: &Times) -> control::Times {
    control::Times {
        counts: times.counts.to_vec(),
        sum_us: times.sum_us,
    }
}

fn worker(worker: &WorkerFigures) -> Worker {
    Worker {
        connections: worker.connections,
        accepted: worker.accepted,
        refused: worker.refused,
        handed_over: worker.handed_over,
        in_flight: worker.in_flight,
        ended: worker.ended,
        panics: worker.panics,
    }
}

fn scripts(figures: &Figures) -> Scripts {
    let scripts = &figures.scripts;
    let phase = |(name, ended, failed)| (name, Phase { ended, failed });
    Scripts {
        vms: scripts.vms,
        memory_bytes: scripts.memory_bytes,
        parked: scripts.parked,
        phases: scripts.phases().map(phase).collect(),
    }
}

fn replies(figures: &ReplyFigures) -> Replies {
    let classes = (1..).zip(figures.by_class);
    let by_class = classes.map(|(class, count): (u8, u64)| (format!("{class}xx"), count));
    Replies {
        by_class: by_class.collect(),
        bytes_in: figures.bytes_in,
        bytes_out: figures.bytes_out,
    }
}

fn site((name, figures): &(String, ReplyFigures)) -> Site {
    Site {
        site: name.clone(),
        replies: replies(figures),
    }
}

fn upstream(((upstream, server), figures): (&(String, String), &UpstreamFigures)) -> Upstream {
    Upstream {
        upstream: upstream.clone(),
        server: server.clone(),
        requests: figures.requests,
        failures: figures.failures,
        in_flight: figures.in_flight,
        oldest_s: figures.oldest.map(|oldest| oldest.as_secs_f64()),
        timeouts: figures.timeouts,
        fails_in_row: figures.fails_in_row,
        workers: figures.workers,
        workers_out: figures.workers_out,
        workers_failing: figures.workers_failing,
        agent_weight: figures.agent_weight(),
        drain: figures.drains(),
    }
}

fn map(map: &MapFigures) -> Map {
    let (running, processes) = map.processes.unzip();
    Map {
        map: map.name.clone(),
        questions: map.questions,
        cached: map.cached,
        errors: map.errors,
        restarts: map.restarts,
        running,
        processes,
    }
}

fn shed_rule(rule: &RuleFigures) -> ShedRule {
    ShedRule {
        rule: rule.name.to_string(),
        sensor: rule.sensor.name(),
        enter: rule.enter,
        leave: rule.leave,
        state: rule.state.word(),
        since_ms: rule.since.as_millis(),
        admitted_share: rule.share,
        shed: rule.shed,
        value: rule.value,
    }
}

fn shed_tenant((tenant, shed): &(std::sync::Arc<str>, u64)) -> ShedTenant {
    ShedTenant {
        tenant: tenant.to_string(),
        shed: *shed,
    }
}

/// A figure that the machine does not have is left out.
fn group(owner: &Owner, usage: &Usage) -> Group {
    let used = FIGURES.iter().filter_map(|figure| {
        let unit = if figure.unit == Unit::Time { "_us" } else { "" };
        Some((format!("{}{unit}", figure.name), (figure.of)(usage)?))
    });
    Group {
        tenant: owner.tenant.clone(),
        site: owner.site.clone(),
        rule: owner.rule.clone(),
        script: owner.script.clone(),
        used: used.collect(),
    }
}
