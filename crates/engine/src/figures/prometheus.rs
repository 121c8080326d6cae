//! Figures in the text format Prometheus reads (version 0.0.4).

use std::fmt::{Display, Write as _};

use control::{
    Limit, Map, Programs, Replies, Scripts, Status, Stragglers, Times, Upstream, Worker,
};

use super::groups::{FIGURES, Unit};
use super::shed;
use crate::stats::BOUNDS_US;

/// Puts figures into samples, each family with its help and type before it.
pub(crate) fn prometheus(figures: &Status) -> String {
    let mut text = Text {
        out: String::with_capacity(8192 + 800 * figures.sites.len()),
    };
    process(figures, &mut text);
    workers(figures, &mut text);
    programs(&figures.programs, &mut text);
    stragglers(&figures.stragglers, &mut text);
    scripts(&figures.scripts, &mut text);
    sites(figures, &mut text);
    upstreams(figures, &mut text);
    maps(&figures.maps, &mut text);
    limits(&figures.limits, &mut text);
    sensors(figures, &mut text);
    shed::prometheus(figures, &mut text);
    groups(figures, &mut text);
    text.family(
        "request_seconds",
        "histogram",
        "Time from a request's head to its reply's end.",
    );
    text.histogram("request_seconds", &figures.time.total);
    text.family("upstream_seconds", "histogram", "Time spent on upstreams.");
    text.histogram("upstream_seconds", &figures.time.upstream);
    text.out
}

fn process(figures: &Status, text: &mut Text) {
    text.family("info", "gauge", "Always 1; says the version.");
    text.sample("info", &[("version", figures.version)], 1);
    for (name, kind, help, value) in [
        (
            "uptime_seconds",
            "gauge",
            "Time since the server started.",
            figures.uptime_s,
        ),
        (
            "generation",
            "gauge",
            "Number of the configuration that serves.",
            figures.generation,
        ),
        (
            "reloads_total",
            "counter",
            "Configurations taken over after the first.",
            figures.reloads,
        ),
        (
            "reloads_refused_total",
            "counter",
            "Reloads that changed nothing.",
            figures.reloads_refused,
        ),
        (
            "restarts_total",
            "counter",
            "Servers started again after an unwanted end.",
            figures.restarts,
        ),
        (
            "access_records_lost_total",
            "counter",
            "Access records that could not be written.",
            figures.access_records_lost,
        ),
        (
            "error_lines_lost_total",
            "counter",
            "Lines of the error log that could not be written.",
            figures.error_lines_lost,
        ),
    ] {
        text.family(name, kind, help);
        text.sample(name, &[], value);
    }
}

fn programs(programs: &Programs, text: &mut Text) {
    for (name, kind, help, value) in [
        (
            "programs_running",
            "gauge",
            "Programs that run.",
            programs.running as u64,
        ),
        (
            "programs_started_total",
            "counter",
            "Programs that ran.",
            programs.started,
        ),
        (
            "programs_failed_total",
            "counter",
            "Programs that could not be started.",
            programs.failed,
        ),
    ] {
        text.family(name, kind, help);
        text.sample(name, &[], value);
    }
    let name = "programs_killed_total";
    text.family(name, "counter", "Programs killed, by reason.");
    for (reason, count) in programs.killed.iter() {
        text.sample(name, &[("reason", reason)], count);
    }
}

fn stragglers(stragglers: &Stragglers, text: &mut Text) {
    text.family(
        "stragglers",
        "gauge",
        "Servers and programs at work for clients that have gone, with permits of limits.",
    );
    text.sample("stragglers", &[], stragglers.now);
    let name = "stragglers_ended_total";
    text.family(name, "counter", "Such work that ended, by how.");
    for (end, count) in stragglers.ended.iter() {
        text.sample(name, &[("end", end)], count);
    }
}

fn maps(maps: &[Map], text: &mut Text) {
    type Of = fn(&Map) -> u64;
    let counters: [(&str, &str, Of); 4] = [
        ("map_questions_total", "Questions to maps.", |map| {
            map.questions
        }),
        (
            "map_cached_total",
            "Questions to maps that were answered from memory.",
            |map| map.cached,
        ),
        (
            "map_errors_total",
            "Questions to maps that got what on_error says.",
            |map| map.errors,
        ),
        (
            "map_restarts_total",
            "Times that a map's program had to be started again.",
            |map| map.restarts,
        ),
    ];
    for (name, help, of) in counters.into_iter().filter(|_| !maps.is_empty()) {
        text.family(name, "counter", help);
        for map in maps {
            text.sample(name, &[("map", &map.map)], of(map));
        }
    }
    let running = maps.iter().filter_map(|map| Some((map, map.running?)));
    for (at, (map, running)) in running.enumerate() {
        if at == 0 {
            text.family(
                "map_processes",
                "gauge",
                "Processes of a map's program that run.",
            );
        }
        text.sample("map_processes", &[("map", &map.map)], running);
    }
}

fn scripts(scripts: &Scripts, text: &mut Text) {
    for (name, help, value) in [
        ("script_vms", "VMs of scripts.", scripts.vms),
        (
            "script_memory_bytes",
            "What they hold.",
            scripts.memory_bytes,
        ),
        ("scripts_parked", "Scripts that wait.", scripts.parked),
    ] {
        text.family(name, "gauge", help);
        text.sample(name, &[], value);
    }
    let (ended, failed) = ("scripts_ended_total", "scripts_failed_total");
    text.family(
        ended,
        "counter",
        "Scripts that came to their end, by phase.",
    );
    for (phase, it) in scripts.phases.iter() {
        text.sample(ended, &[("phase", phase)], it.ended);
    }
    text.family(failed, "counter", "Scripts that failed, by phase.");
    for (phase, it) in scripts.phases.iter() {
        text.sample(failed, &[("phase", phase)], it.failed);
    }
}

/// One number of several.
type Figure<T> = fn(&T) -> u64;

/// Name, type, help and value of a worker's figure.
type Family = (&'static str, &'static str, &'static str, Figure<Worker>);

const WORKER_FAMILIES: [Family; 6] = [
    (
        "connections",
        "gauge",
        "Client connections open.",
        |worker| worker.connections as u64,
    ),
    (
        "connections_accepted_total",
        "counter",
        "Client connections accepted.",
        |worker| worker.accepted,
    ),
    (
        "connections_refused_total",
        "counter",
        "Client connections closed because of a cap.",
        |worker| worker.refused,
    ),
    (
        "connections_handed_over_total",
        "counter",
        "Client connections given to another worker.",
        |worker| worker.handed_over,
    ),
    (
        "exchanges_in_flight",
        "gauge",
        "Requests being answered.",
        |worker| worker.in_flight,
    ),
    (
        "panics_total",
        "counter",
        "Handlers that panicked.",
        |worker| worker.panics,
    ),
];

fn workers(figures: &Status, text: &mut Text) {
    for (name, kind, help, value) in WORKER_FAMILIES {
        text.family(name, kind, help);
        for (index, worker) in figures.workers.iter().enumerate() {
            text.sample(name, &[("worker", &index.to_string())], value(worker));
        }
    }
}

fn sites(figures: &Status, text: &mut Text) {
    let sites = || {
        let named = figures.sites.iter();
        let named = named.map(|site| (site.site.as_str(), &site.replies));
        named.chain([("", &figures.without_site)])
    };
    text.family(
        "requests_total",
        "counter",
        "Requests answered, by site (empty: none) and hundreds of the status.",
    );
    for (site, replies) in sites() {
        for (class, count) in (1..).zip(replies.by_class) {
            if count > 0 {
                let status = format!("{class}xx");
                text.sample(
                    "requests_total",
                    &[("site", site), ("status", &status)],
                    count,
                );
            }
        }
    }
    let bytes: [(_, _, Figure<Replies>); 2] = [
        (
            "request_body_bytes_total",
            "Bytes of request bodies.",
            |replies| replies.bytes_in,
        ),
        (
            "reply_body_bytes_total",
            "Bytes of reply bodies.",
            |replies| replies.bytes_out,
        ),
    ];
    for (name, help, value) in bytes {
        text.family(name, "counter", help);
        for (site, replies) in sites() {
            text.sample(name, &[("site", site)], value(replies));
        }
    }
}

fn upstreams(figures: &Status, text: &mut Text) {
    let families: [(_, _, _, Figure<Upstream>); 5] = [
        (
            "upstream_requests_total",
            "counter",
            "Requests the server was chosen for.",
            |it| it.requests,
        ),
        (
            "upstream_failures_total",
            "counter",
            "Failures to connect or to answer.",
            |it| it.failures,
        ),
        (
            "upstream_timeouts_total",
            "counter",
            "Requests the server let wait for too long, before or within its reply.",
            |it| it.timeouts,
        ),
        (
            "upstream_in_flight",
            "gauge",
            "Requests the server is answering.",
            |it| it.in_flight,
        ),
        (
            "upstream_up",
            "gauge",
            "0 while the server is out after failures, or is the only one and fails; else 1.",
            |it| u64::from(it.is_up()),
        ),
    ];
    for (name, kind, help, value) in families {
        text.family(name, kind, help);
        for it in &figures.upstreams {
            let labels = [
                ("upstream", it.upstream.as_str()),
                ("server", it.server.as_str()),
            ];
            text.sample(name, &labels, value(it));
        }
    }
    let name = "upstream_oldest_seconds";
    text.family(name, "gauge", "How long the oldest request in flight is.");
    for it in &figures.upstreams {
        let labels = [
            ("upstream", it.upstream.as_str()),
            ("server", it.server.as_str()),
        ];
        text.sample(name, &labels, it.oldest_s.unwrap_or_default());
    }
    let name = "upstream_agent_weight";
    text.family(
        name,
        "gauge",
        "Part of the server's weight that counts, as its agent says: 1 all of it, 0 while it drains.",
    );
    for it in &figures.upstreams {
        if let Some(weight) = it.agent_weight {
            let labels = [
                ("upstream", it.upstream.as_str()),
                ("server", it.server.as_str()),
            ];
            text.sample(name, &labels, weight);
        }
    }
}

/// All keys of a limit together; what is a total counts those too that are forgotten by now.
fn limits(rows: &[Limit], text: &mut Text) {
    let families: [(_, _, _, Figure<Limit>); 8] = [
        (
            "limit_in_flight",
            "gauge",
            "Requests that hold a permit.",
            |row| row.in_flight,
        ),
        (
            "limit_in_flight_most",
            "gauge",
            "Requests that hold a permit of the key that has most of them.",
            |row| row.in_flight_most,
        ),
        (
            "limit_shadow",
            "gauge",
            "1 where the limit is in shadow and refuses nobody.",
            |row| u64::from(row.mode == "shadow"),
        ),
        (
            "limit_queued",
            "gauge",
            "Requests that wait for a permit.",
            |row| row.queued,
        ),
        ("limit_keys", "gauge", "Keys in use.", |row| row.keys),
        (
            "limit_admitted_total",
            "counter",
            "Requests admitted.",
            |row| row.admitted,
        ),
        (
            "limit_waited_total",
            "counter",
            "Requests that waited, whatever came of it.",
            |row| row.waited,
        ),
        (
            "limit_shadow_refused_total",
            "counter",
            "Requests the limit would have refused, were it not in shadow.",
            |row| row.shadow_refused,
        ),
    ];
    for (name, kind, help, value) in families {
        text.family(name, kind, help);
        for row in rows {
            text.sample(name, &[("limit", &row.limit)], value(row));
        }
    }
    permits(rows, text);
    refusals(rows, text);
}

fn permits(rows: &[Limit], text: &mut Text) {
    let name = "limit_concurrent";
    text.family(name, "gauge", "Permits there are for each key.");
    for row in rows {
        if let Some(permits) = row.permits {
            text.sample(name, &[("limit", &row.limit)], permits);
        }
    }
}

fn refusals(rows: &[Limit], text: &mut Text) {
    let name = "limit_refused_total";
    text.family(name, "counter", "Requests refused, by limit and reason.");
    for row in rows {
        for (reason, count) in row.refused.iter() {
            if *count > 0 {
                let labels = [("limit", row.limit.as_str()), ("reason", reason)];
                text.sample(name, &labels, count);
            }
        }
    }
}

/// A sensor that this machine does not have is left out.
fn sensors(figures: &Status, text: &mut Text) {
    text.family(
        "sensor",
        "gauge",
        "What each sensor says: shares from 0 to 1, times in seconds.",
    );
    for (sensor, value) in figures.sensors.iter() {
        if let Some(value) = value {
            text.sample("sensor", &[("sensor", sensor)], value);
        }
    }
    let name = "loop_lag_seconds";
    let help = "How late a worker came to what was ready, at worst in the last second.";
    text.family(name, "gauge", help);
    for (worker, lag_s) in figures.loop_lag_s.iter().enumerate() {
        if let Some(lag_s) = lag_s {
            text.sample(name, &[("worker", &worker.to_string())], lag_s);
        }
    }
}

/// A tenant's group has no site, a site's group no rule, only one that a script made has `script`; what is used in one counts above, too.
fn groups(figures: &Status, text: &mut Text) {
    for figure in FIGURES {
        let kind = match figure.unit {
            Unit::Level => "gauge",
            Unit::Time | Unit::Events => "counter",
        };
        let name = match figure.unit {
            Unit::Time => format!(
                "group_{}_seconds_total",
                figure.name.trim_end_matches("_us")
            ),
            Unit::Events => format!("group_{}_total", figure.name),
            Unit::Level => format!("group_{}", figure.name),
        };
        text.family(&name, kind, figure.help);
        for group in &figures.groups {
            let Some(&value) = group.used.get(figure.name) else {
                continue;
            };
            let mut labels = vec![
                ("tenant", group.tenant.as_str()),
                ("site", group.site.as_deref().unwrap_or_default()),
                ("rule", group.rule.as_deref().unwrap_or_default()),
            ];
            labels.extend(group.script.as_deref().map(|name| ("script", name)));
            match figure.unit {
                Unit::Time => text.sample(&name, &labels, seconds(value)),
                Unit::Events | Unit::Level => text.sample(&name, &labels, value),
            }
        }
    }
    let name = "groups_left_out";
    text.family(
        name,
        "gauge",
        "Groups of programs beyond those shown here, at least.",
    );
    text.sample(name, &[], figures.groups_left_out);
}

/// Samples so far.
pub(super) struct Text {
    out: String,
}

// Writing to memory does not fail.
impl Text {
    pub(super) fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(
            self.out,
            "# HELP nagaya_{name} {help}\n# TYPE nagaya_{name} {kind}"
        );
    }

    pub(super) fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        let _ = write!(self.out, "nagaya_{name}");
        for (at, (label, text)) in labels.iter().enumerate() {
            let _ = write!(self.out, "{}{label}=\"", if at == 0 { '{' } else { ',' });
            self.label(text);
            self.out.push('"');
        }
        let end = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.out, "{end} {value}");
    }

    fn label(&mut self, text: &str) {
        for character in text.chars() {
            match character {
                '\\' | '"' => self.out.extend(['\\', character]),
                '\n' => self.out.push_str("\\n"),
                _ => self.out.push(character),
            }
        }
    }

    fn histogram(&mut self, name: &str, times: &Times) {
        let bucket = format!("{name}_bucket");
        let mut below = 0;
        for (at, count) in times.counts.iter().enumerate() {
            below += count;
            let bound = BOUNDS_US
                .get(at)
                .map_or("+Inf".to_owned(), |bound| seconds(*bound));
            self.sample(&bucket, &[("le", &bound)], below);
        }
        self.sample(&format!("{name}_sum"), &[], seconds(times.sum_us));
        self.sample(&format!("{name}_count"), &[], below);
    }
}

/// Microseconds as seconds, exactly: `0.0025`, `10`.
fn seconds(micros: u64) -> String {
    let text = format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}
