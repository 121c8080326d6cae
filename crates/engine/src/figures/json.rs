//! Figures as JSON.

use std::fmt::Write as _;

use super::groups::{FIGURES, GroupFigures, Unit};
use super::shed;
use super::{
    Figures, MapFigures, ProgramFigures, ReplyFigures, ScriptFigures, StragglerFigures, Times,
};
use crate::permits::questions::row_json;
use crate::stats::BOUNDS_US;

/// Puts figures into one JSON object and a line feed.
pub fn json(figures: &Figures) -> String {
    let mut out = String::with_capacity(4096 + 160 * figures.sites.len());
    // Writing to memory does not fail, here and below.
    let _ = write!(
        out,
        "{{\"version\":\"{}\",\"pid\":{},\"generation\":{},\"uptime_s\":{},\"reloads\":{},\
         \"reloads_refused\":{},\"restarts\":{},\"access_records_lost\":{},\"error_lines_lost\":{},\"sites_configured\":{}",
        env!("CARGO_PKG_VERSION"),
        figures.pid,
        figures.generation,
        figures.uptime.as_secs(),
        figures.reloads,
        figures.reloads_refused,
        figures.restarts,
        figures.records_lost,
        figures.lines_lost,
        figures.sites_configured
    );
    let _ = write!(out, ",\"time\":{{\"bounds_us\":{BOUNDS_US:?}");
    times("total", &figures.total_time, &mut out);
    times("upstream", &figures.upstream_time, &mut out);
    out.push('}');
    workers(figures, &mut out);
    programs(&figures.programs, &mut out);
    stragglers(&figures.stragglers, &mut out);
    scripts(&figures.scripts, &mut out);
    out.push_str(",\"without_site\":{");
    replies(&figures.without_site, &mut out);
    out.push('}');
    list("sites", &figures.sites, &mut out, |(name, figures), out| {
        let _ = write!(out, "\"site\":{},", text(name));
        replies(figures, out);
    });
    list(
        "upstreams",
        &figures.upstreams,
        &mut out,
        |((upstream, server), figures), out| {
            let _ = write!(
                out,
                "\"upstream\":{},\"server\":{},\"requests\":{},\"failures\":{},\"in_flight\":{},\
             \"oldest_s\":{},\"timeouts\":{},\"fails_in_row\":{},\"workers\":{},\"workers_out\":{},\"workers_failing\":{},\
             \"agent_weight\":{},\"drain\":{}",
                text(upstream),
                text(server),
                figures.requests,
                figures.failures,
                figures.in_flight,
                number(figures.oldest.map(|oldest| oldest.as_secs_f64())),
                figures.timeouts,
                figures.fails_in_row,
                figures.workers,
                figures.workers_out,
                figures.workers_failing,
                number(figures.agent_weight()),
                figures.drains()
            );
        },
    );
    list("maps", &figures.maps, &mut out, map);
    list("limits", &figures.limits, &mut out, row_json);
    sensors(figures, &mut out);
    shed::json(&figures.shed, &mut out);
    groups(&figures.groups, &mut out);
    out.push_str("}\n");
    out
}

/// What is not known is `null`.
fn sensors(figures: &Figures, out: &mut String) {
    out.push_str(",\"sensors\":{");
    for (at, (gauge, value)) in figures.sensors.iter().enumerate() {
        let (comma, name) = (if at == 0 { "" } else { "," }, gauge.name());
        let _ = write!(out, "{comma}\"{name}\":{}", number(*value));
    }
    let lags: Vec<_> = figures.lags_s.iter().map(|lag_s| number(*lag_s)).collect();
    let _ = write!(out, "}},\"loop_lag_s\":[{}]", lags.join(","));
}

fn map(map: &MapFigures, out: &mut String) {
    let _ = write!(
        out,
        "\"map\":{},\"questions\":{},\"cached\":{},\"errors\":{},\"restarts\":{}",
        text(&map.name),
        map.questions,
        map.cached,
        map.errors,
        map.restarts
    );
    if let Some((running, processes)) = map.processes {
        let _ = write!(out, ",\"running\":{running},\"processes\":{processes}");
    }
}

/// A figure that the machine does not have is left out.
fn groups(figures: &GroupFigures, out: &mut String) {
    list("groups", &figures.groups, out, |(owner, usage), out| {
        let _ = write!(out, "\"tenant\":{}", text(&owner.tenant));
        let levels = [
            ("site", &owner.site),
            ("rule", &owner.rule),
            ("script", &owner.script),
        ];
        for (level, name) in levels {
            if let Some(name) = name {
                let _ = write!(out, ",\"{level}\":{}", text(name));
            }
        }
        for figure in FIGURES {
            if let Some(value) = (figure.of)(usage) {
                let unit = if figure.unit == Unit::Time { "_us" } else { "" };
                let _ = write!(out, ",\"{}{unit}\":{value}", figure.name);
            }
        }
    });
    let _ = write!(out, ",\"groups_left_out\":{}", figures.left_out);
}

fn workers(figures: &Figures, out: &mut String) {
    list("workers", &figures.workers, out, |worker, out| {
        let _ = write!(
            out,
            "\"connections\":{},\"accepted\":{},\"refused\":{},\"handed_over\":{},\
             \"in_flight\":{},\"ended\":{},\"panics\":{}",
            worker.connections,
            worker.accepted,
            worker.refused,
            worker.handed_over,
            worker.in_flight,
            worker.ended,
            worker.panics
        );
    });
}

fn programs(programs: &ProgramFigures, out: &mut String) {
    let _ = write!(
        out,
        ",\"programs\":{{\"running\":{},\"started\":{},\"failed\":{},\"killed\":{{",
        programs.running, programs.started, programs.failed
    );
    for (at, (word, count)) in programs.killed().enumerate() {
        let comma = if at == 0 { "" } else { "," };
        let _ = write!(out, "{comma}\"{word}\":{count}");
    }
    out.push_str("}}");
}

fn stragglers(stragglers: &StragglerFigures, out: &mut String) {
    let _ = write!(out, ",\"stragglers\":{{\"now\":{}", stragglers.now);
    for (word, count) in stragglers.ended() {
        let _ = write!(out, ",\"{word}\":{count}");
    }
    out.push('}');
}

fn scripts(scripts: &ScriptFigures, out: &mut String) {
    let _ = write!(
        out,
        ",\"scripts\":{{\"vms\":{},\"memory_bytes\":{},\"parked\":{},\"phases\":{{",
        scripts.vms, scripts.memory_bytes, scripts.parked
    );
    for (at, (phase, runs, failures)) in scripts.phases().enumerate() {
        let comma = if at == 0 { "" } else { "," };
        let _ = write!(
            out,
            "{comma}\"{phase}\":{{\"ended\":{runs},\"failed\":{failures}}}"
        );
    }
    out.push_str("}}");
}

pub(super) fn list<T>(
    name: &str,
    items: impl IntoIterator<Item = T>,
    out: &mut String,
    item: impl Fn(T, &mut String),
) {
    let _ = write!(out, ",\"{name}\":[");
    for (at, each) in items.into_iter().enumerate() {
        out.push_str(if at == 0 { "{" } else { ",{" });
        item(each, out);
        out.push('}');
    }
    out.push(']');
}

fn replies(figures: &ReplyFigures, out: &mut String) {
    for (class, count) in (1..).zip(figures.by_class) {
        let _ = write!(out, "\"{class}xx\":{count},");
    }
    let (bytes_in, bytes_out) = (figures.bytes_in, figures.bytes_out);
    let _ = write!(out, "\"bytes_in\":{bytes_in},\"bytes_out\":{bytes_out}");
}

fn times(name: &str, times: &Times, out: &mut String) {
    let (counts, sum_us) = (times.counts, times.sum_us);
    let _ = write!(
        out,
        ",\"{name}\":{{\"counts\":{counts:?},\"sum_us\":{sum_us}}}"
    );
}

/// A quoted string. Names come from the configuration and are text.
pub(crate) fn text(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for character in text.chars() {
        match character {
            '"' | '\\' => out.extend(['\\', character]),
            control if control.is_control() => {
                let _ = write!(out, "\\u{:04x}", u32::from(control));
            }
            plain => out.push(plain),
        }
    }
    out.push('"');
    out
}

/// A number as JSON has it.
pub(crate) fn number(value: Option<f64>) -> String {
    value.map_or_else(|| "null".to_owned(), |value| value.to_string())
}
