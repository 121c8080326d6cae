//! Figures for a person at a terminal: `nagaya status`.

use std::cmp::Reverse;
use std::fmt::Write as _;
use std::time::Duration;

use control::{
    Group, Limit, Map, Pool, Programs, RefusedReload, Replies, Scripts, Site, Status, Stragglers,
    Times, Upstream, Worker,
};
use ipc::groups::Owner;

use super::{certificates, fleet, handshakes, recorder, shed, tenant, tried};
use crate::stats::BOUNDS_US;

/// Sites shown, the busiest first.
const SITES_MAX: usize = 30;
/// Files set aside that are shown.
const SET_ASIDE_MAX: usize = 10;
/// Limits shown.
const LIMITS_MAX: usize = 30;
/// Maps shown.
const MAPS_MAX: usize = 30;
/// Pools shown.
const POOLS_MAX: usize = 30;
/// The state of a server that answers.
const UP: &str = "up";
/// Groups shown, those that used most processor time first.
const GROUPS_MAX: usize = 30;

/// Puts figures into a page of aligned lines.
pub(crate) fn table(figures: &Status) -> String {
    let mut out = String::new();
    let replies = replies(figures);
    // Writing to memory does not fail, here and below.
    let _ = writeln!(
        out,
        "nagaya {} · pid {} · generation {} · up {} · {} · {}\n",
        figures.version,
        figures.pid,
        figures.generation,
        duration(figures.uptime_s),
        plural(figures.workers.len(), "worker"),
        plural(figures.sites_configured, "site"),
    );
    let mut line = |name: &str, text: String| {
        let _ = writeln!(out, "{name:<13}{text}");
    };
    line("connections", connections(figures));
    let in_flight = count(sum(figures, |worker| worker.in_flight));
    let ended = count(sum(figures, |worker| worker.ended));
    line(
        "requests",
        format!(
            "{in_flight} in flight · {ended} answered{}",
            classes(&replies)
        ),
    );
    let (bytes_in, bytes_out) = (bytes(replies.bytes_in), bytes(replies.bytes_out));
    line("bodies", format!("{bytes_in} in · {bytes_out} out"));
    line("time", quantiles(&figures.time.total));
    if figures.time.upstream.count() > 0 {
        line("upstreams", quantiles(&figures.time.upstream));
    }
    let of = &figures.programs;
    if of.started + of.failed > 0 || of.running > 0 {
        line("programs", programs(of));
    }
    let of = &figures.stragglers;
    if of.now > 0 || of.ended.iter().any(|(_, count)| *count > 0) {
        line("stragglers", stragglers(of));
    }
    let of = &figures.scripts;
    if of.vms > 0 || of.phases.iter().any(|(_, it)| it.ended + it.failed > 0) {
        line("scripts", scripts(of));
    }
    if let Some(known) = figures.htaccess_cached_bytes {
        line("htaccess", format!("{} known", bytes(known as u64)));
    }
    if let Some(of) = &figures.handshakes {
        line("handshakes", handshakes::line(of));
    }
    for (name, text) in certificates::lines(figures).chain(fleet::line(figures)) {
        line(name, text);
    }
    if let Some(of) = &figures.recorder {
        line("recorder", recorder::line(of));
    }
    line("life", life(figures));
    tenant::line(&figures.suspended, &mut out);
    refused(figures, &mut out);
    set_aside(figures, &mut out);
    held(figures, &mut out);
    workers(figures, &mut out);
    upstreams(figures, &mut out);
    sites(figures, &mut out);
    maps(&figures.maps, &mut out);
    pools(&figures.pools, &mut out);
    limits(&figures.limits, &mut out);
    shed::table(figures, &mut out);
    tried::table(figures, &mut out);
    groups(figures, &mut out);
    out
}

/// Those that failed most first, then those that were asked most.
fn maps(figures: &[Map], out: &mut String) {
    let mut busiest: Vec<_> = figures.iter().collect();
    busiest.sort_by_key(|map| Reverse((map.errors, map.questions)));
    let rows = busiest.iter().take(MAPS_MAX).map(|map| {
        let running = match map.running.zip(map.processes) {
            None => "file".to_owned(),
            Some((running, all)) => format!("{running} of {all}"),
        };
        vec![
            map.map.clone(),
            running,
            count(map.questions),
            count(map.cached),
            count(map.errors),
            count(map.restarts),
        ]
    });
    let heads = [
        "map",
        "running",
        "questions",
        "from memory",
        "errors",
        "restarts",
    ];
    grid(&heads, rows.collect(), out);
    if let more @ 1.. = busiest.len().saturating_sub(MAPS_MAX) {
        let _ = writeln!(out, "and {more} more: nagaya status --json");
    }
}

/// Those that most wait for first, then those that were refused for most.
fn pools(pools: &[Pool], out: &mut String) {
    let refused = |pool: &Pool| pool.refused.iter().map(|(_, count)| *count).sum::<u64>();
    let mut busiest: Vec<_> = pools.iter().collect();
    busiest.sort_by_key(|pool| Reverse((pool.waiting, refused(pool), pool.starts)));
    let rows = busiest.iter().take(POOLS_MAX).map(|pool| {
        let mean_us = pool.waited_us.checked_div(pool.waited);
        vec![
            pool.name.clone(),
            pool.state.to_string(),
            count(pool.waiting),
            count(pool.starts),
            count(pool.failures),
            mean_us.map_or("-".to_owned(), micros),
            count(refused(pool)),
        ]
    });
    let heads = [
        "pool", "state", "waiting", "starts", "failed", "wait", "refused",
    ];
    grid(&heads, rows.collect(), out);
    if let more @ 1.. = busiest.len().saturating_sub(POOLS_MAX) {
        let _ = writeln!(out, "and {more} more: nagaya status --json");
    }
}

/// Those at which most wait first, then those that refused most.
fn limits(rows: &[Limit], out: &mut String) {
    let mut busiest: Vec<_> = rows.iter().collect();
    busiest.sort_by_key(|row| Reverse((row.queued, row.refused_total(), row.in_flight)));
    let cells = busiest.iter().take(LIMITS_MAX).map(|row| {
        vec![
            row.limit.clone(),
            count(row.keys),
            count(row.in_flight),
            count(row.queued),
            count(row.refused_total()),
            count(row.shadow_refused),
        ]
    });
    let heads = [
        "limit",
        "keys",
        "in flight",
        "waiting",
        "refused",
        "would be refused",
    ];
    grid(&heads, cells.collect(), out);
    if let more @ 1.. = busiest.len().saturating_sub(LIMITS_MAX) {
        let _ = writeln!(out, "and {more} more: nagaya limits list");
    }
}

/// Those that used most first; a figure that the machine does not have is a dash.
fn groups(figures: &Status, out: &mut String) {
    let mut busiest: Vec<_> = figures.groups.iter().collect();
    busiest.sort_by_key(|group| Reverse(group.used.get("cpu_us")));
    let or_dash = |value: Option<&u64>, spell: fn(u64) -> String| {
        value.map_or("-".into(), |value| spell(*value))
    };
    let rows = busiest.iter().take(GROUPS_MAX).map(|group| {
        let used = |name| group.used.get(name);
        vec![
            describe(group),
            or_dash(used("cpu_us"), micros),
            or_dash(used("throttled_us"), micros),
            or_dash(used("memory_bytes"), bytes),
            or_dash(used("memory_peak_bytes"), bytes),
            or_dash(used("oom_kills"), count),
            or_dash(used("pids"), count),
            or_dash(used("pids_refused"), count),
        ]
    });
    let heads = [
        "group",
        "cpu",
        "throttled",
        "memory",
        "peak",
        "oom kills",
        "pids",
        "refused",
    ];
    grid(&heads, rows.collect(), out);
    if let more @ 1.. = busiest.len().saturating_sub(GROUPS_MAX) + figures.groups_left_out {
        let least = if figures.groups_left_out > 0 {
            "at least "
        } else {
            ""
        };
        let _ = writeln!(out, "and {least}{more} more");
    }
}

fn describe(group: &Group) -> String {
    let owner = Owner {
        tenant: group.tenant.clone(),
        site: group.site.clone(),
        rule: group.rule.clone(),
        script: group.script.clone(),
        pool: group.pool.clone(),
    };
    owner.describe()
}

/// A figure of all workers together.
fn sum(figures: &Status, of: impl Fn(&Worker) -> u64) -> u64 {
    figures.workers.iter().map(of).sum()
}

/// Exchanges of all sites and of none.
fn replies(figures: &Status) -> Replies {
    let mut sum = figures.without_site;
    for site in &figures.sites {
        sum.add(&site.replies);
    }
    sum
}

fn connections(figures: &Status) -> String {
    let open = sum(figures, |worker| worker.connections as u64);
    let mut text = format!("{} open", count(open));
    for (number, what) in [
        (sum(figures, |worker| worker.accepted), "accepted"),
        (sum(figures, |worker| worker.refused), "refused"),
        (sum(figures, |worker| worker.handed_over), "handed over"),
        (sum(figures, |it| it.http2_connections), "of HTTP/2"),
        (sum(figures, |worker| worker.http2_streams), "streams"),
    ] {
        let _ = write!(text, " · {} {what}", count(number));
    }
    text
}

fn classes(replies: &Replies) -> String {
    let mut text = String::new();
    for (class, number) in (1..).zip(replies.by_class) {
        if number > 0 {
            let _ = write!(text, " · {class}xx {}", count(number));
        }
    }
    text
}

fn quantiles(times: &Times) -> String {
    let total = times.count();
    if total == 0 {
        return "nothing yet".to_owned();
    }
    let mean = format!("mean {}", micros(times.sum_us / total));
    let at = |name, thousandths| match quantile_us(times, thousandths) {
        Some(bound_us) => format!(" · {name} ≤ {}", micros(bound_us)),
        None => format!(" · {name} > 60 s"),
    };
    format!(
        "{mean}{}{}{}",
        at("half", 500),
        at("90 %", 900),
        at("99 %", 990)
    )
}

/// The bound that so many thousandths of the durations do not pass; `None` where there are no
/// durations or no bound holds.
pub(super) fn quantile_us(times: &Times, thousandths: u64) -> Option<u64> {
    let wanted = (times.count() * thousandths).div_ceil(1_000).max(1);
    let mut seen = 0;
    let bucket = times.counts.iter().position(|count| {
        seen += count;
        seen >= wanted
    });
    BOUNDS_US.get(bucket?).copied()
}

fn programs(programs: &Programs) -> String {
    let mut text = format!(
        "{} running · {} started",
        count(programs.running as u64),
        count(programs.started)
    );
    if programs.failed > 0 {
        let _ = write!(text, " · {} not started", count(programs.failed));
    }
    for (word, number) in programs.killed.iter().filter(|(_, number)| **number > 0) {
        let _ = write!(text, " · killed: {word} {}", count(*number));
    }
    text
}

fn stragglers(stragglers: &Stragglers) -> String {
    let mut text = format!("{} at work for clients that left", count(stragglers.now));
    for (word, number) in stragglers.ended.iter().filter(|(_, number)| **number > 0) {
        let _ = write!(text, " · {} {word}", count(*number));
    }
    text
}

fn scripts(scripts: &Scripts) -> String {
    let phases = || scripts.phases.iter().map(|(_, phase)| phase);
    let ended = phases().map(|phase| phase.ended).sum();
    let failed = phases().map(|phase| phase.failed).sum();
    let mut text = format!(
        "{} ended · {} failed · {} waiting · {} · {}",
        count(ended),
        count(failed),
        count(scripts.parked),
        plural(scripts.vms, "VM"),
        bytes(scripts.memory_bytes)
    );
    if scripts.tenant_vms_opened + scripts.tenant_vms_failed > 0 {
        let _ = write!(
            text,
            " · {} of tenants ({} opened, {} closed for others)",
            count(scripts.tenant_vms),
            count(scripts.tenant_vms_opened),
            count(scripts.tenant_vms_closed),
        );
    }
    if scripts.tenant_vms_failed > 0 {
        let _ = write!(text, " · {} not opened", count(scripts.tenant_vms_failed));
    }
    text
}

fn life(figures: &Status) -> String {
    let mut text = format!(
        "{} · {}",
        plural(figures.reloads, "reload"),
        plural(figures.restarts, "restart")
    );
    for (number, what) in [
        (figures.reloads_refused, "reload refused"),
        (sum(figures, |worker| worker.panics), "panic"),
        (figures.access_records_lost, "access record lost"),
        (figures.error_lines_lost, "error line lost"),
    ] {
        if number > 0 {
            let _ = write!(text, " · {}", plural(number, what));
        }
    }
    text
}

/// Whole lines, as for files set aside: who reads of it has to act.
fn refused(figures: &Status, out: &mut String) {
    if let Some(RefusedReload { at, problem, .. }) = &figures.reload_refused {
        let _ = writeln!(
            out,
            "\nthe reload at {at} was refused: {problem}\n  what was in force before serves on: nagaya check"
        );
    }
}

/// Whole lines: who reads of it has to act.
fn set_aside(figures: &Status, out: &mut String) {
    let shown = figures.set_aside.iter().take(SET_ASIDE_MAX);
    for (number, it) in shown.enumerate() {
        let space = if number == 0 { "\n" } else { "" };
        let (file, since, verdict, problem) = (&it.file, &it.since, &it.verdict, &it.problem);
        let _ = writeln!(
            out,
            "{space}{file} is broken since {since}: {problem}\n  {verdict}"
        );
    }
    let more = figures
        .config_files_set_aside
        .saturating_sub(SET_ASIDE_MAX as u64);
    if more > 0 {
        let _ = writeln!(out, "and {more} more files set aside: nagaya check");
    }
}

/// Likewise; who tells of them has counted them.
fn held(figures: &Status, out: &mut String) {
    if !figures.held.is_empty() {
        let _ = writeln!(out, "\n{}", figures.held.join("\n"));
    }
}

fn workers(figures: &Status, out: &mut String) {
    let rows = figures.workers.iter().enumerate().map(|(index, worker)| {
        vec![
            index.to_string(),
            count(worker.connections as u64),
            count(worker.in_flight),
            count(worker.ended),
        ]
    });
    grid(
        &["worker", "connections", "in flight", "answered"],
        rows.collect(),
        out,
    );
}

fn upstreams(figures: &Status, out: &mut String) {
    let rows = figures.upstreams.iter().map(|it| {
        let oldest = it.oldest_s.map(Duration::from_secs_f64);
        vec![
            format!("{}  {}", it.upstream, it.server),
            state(it),
            count(it.in_flight),
            oldest.map_or("-".into(), |oldest| duration(oldest.as_secs())),
            count(it.requests),
            count(it.failures),
            count(it.timeouts),
        ]
    });
    grid(
        &[
            "upstream",
            "state",
            "in flight",
            "oldest",
            "requests",
            "failures",
            "timeouts",
        ],
        rows.collect(),
        out,
    );
}

/// What the workers find, and what its agent says of it beside.
fn state(figures: &Upstream) -> String {
    let health = health(figures);
    match figures.agent_weight {
        // It is not asked while another is left: that it would answer is beside the point.
        Some(_) if figures.drain && health == UP => "drain".to_owned(),
        Some(_) if figures.drain => format!("drain · {health}"),
        Some(weight) if weight < 1.0 => format!("{health} · weight {:.0}%", weight * 100.0),
        _ => health,
    }
}

fn health(figures: &Upstream) -> String {
    let (word, down) = match (figures.workers_out, figures.workers_failing) {
        (0, 0) => return UP.to_owned(),
        (0, failing) => ("failing", failing),
        (out, _) => ("out", out),
    };
    let in_row = figures.fails_in_row;
    if figures.is_up() {
        let workers = plural(figures.workers, "worker");
        format!("{word} for {down} of {workers}, {in_row} in a row")
    } else {
        format!("{word}, {in_row} in a row")
    }
}

fn sites(figures: &Status, out: &mut String) {
    let mut busiest: Vec<_> = figures.sites.iter().collect();
    busiest.sort_by_key(|site| (Reverse(site.replies.count()), &site.site));
    let unnamed = Site {
        site: "(no site)".to_owned(),
        replies: figures.without_site,
    };
    if unnamed.replies.count() > 0 {
        busiest.push(&unnamed);
    }
    let rows = busiest.iter().take(SITES_MAX).map(|site| {
        let replies = &site.replies;
        let mut row = vec![site.site.clone(), count(replies.count())];
        row.extend(replies.by_class[1..].iter().map(|number| count(*number)));
        row.push(bytes(replies.bytes_out));
        row
    });
    let heads = ["site", "requests", "2xx", "3xx", "4xx", "5xx", "out"];
    grid(&heads, rows.collect(), out);
    if let more @ 1.. = busiest.len().saturating_sub(SITES_MAX) {
        let _ = writeln!(out, "and {more} more: nagaya status --json");
    }
}

/// Rows in columns as wide as their widest cell: the first to the left, the others to the right.
pub(crate) fn grid(heads: &[&str], mut rows: Vec<Vec<String>>, out: &mut String) {
    if rows.is_empty() {
        return;
    }
    rows.insert(0, heads.iter().map(|head| (*head).to_owned()).collect());
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..heads.len()).map(width).collect();
    out.push('\n');
    for row in &rows {
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let _ = match column {
                0 => write!(out, "{cell:<width$}"),
                _ => write!(out, "  {cell:>width$}"),
            };
        }
        out.push('\n');
    }
}

/// `1,234,567`
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn plural(number: impl TryInto<u64>, what: &str) -> String {
    let number = number.try_into().unwrap_or(u64::MAX);
    let participle = what.find(" lost").or_else(|| what.find(" refused"));
    let (noun, rest) = what.split_at(participle.unwrap_or(what.len()));
    let end = if number == 1 { "" } else { "s" };
    format!("{} {noun}{end}{rest}", count(number))
}

/// `17 B`, `1.2 MiB`
pub(crate) fn bytes(number: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if number < 1024 {
        return format!("{number} B");
    }
    // Tenths, so that no fraction is needed.
    let (mut tenths, mut unit) = (u128::from(number) * 10 / 1024, 0);
    while tenths >= 10_240 && unit + 1 < UNITS.len() {
        tenths /= 1024;
        unit += 1;
    }
    format!("{}.{} {}", tenths / 10, tenths % 10, UNITS[unit])
}

/// `12.5 %`
pub(super) fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// `250 µs`, `2.5 ms`, `30 s`
pub(super) fn micros(micros: u64) -> String {
    let (whole, unit) = match micros {
        0..1_000 => return format!("{micros} µs"),
        1_000..1_000_000 => (1_000, "ms"),
        _ => (1_000_000, "s"),
    };
    match micros % whole * 10 / whole {
        0 => format!("{} {unit}", micros / whole),
        tenth => format!("{}.{tenth} {unit}", micros / whole),
    }
}

/// `12 s`, `3 min 5 s`, `2 h 13 min`, `9 d 4 h`
pub(super) fn duration(seconds: u64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3_600, seconds / 86_400);
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3_600 => format!("{minutes} min {} s", seconds % 60),
        3_600..86_400 => format!("{hours} h {} min", minutes % 60),
        _ => format!("{days} d {} h", hours % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_read_like_a_person_would_write_them() {
        let counts = [0, 999, 1_000, 1_234_567].map(count);
        assert_eq!(counts, ["0", "999", "1,000", "1,234,567"]);
        let sizes = [0, 1_023, 1_024, 1_536, 1 << 20, u64::MAX].map(bytes);
        assert_eq!(
            sizes,
            [
                "0 B",
                "1023 B",
                "1.0 KiB",
                "1.5 KiB",
                "1.0 MiB",
                "16383.9 PiB"
            ]
        );
        let times = [0, 999, 1_000, 2_500, 1_000_000, 30_000_000].map(micros);
        assert_eq!(times, ["0 µs", "999 µs", "1 ms", "2.5 ms", "1 s", "30 s"]);
        let lives = [59, 61, 7_980, 90_000].map(duration);
        assert_eq!(lives, ["59 s", "1 min 1 s", "2 h 13 min", "1 d 1 h"]);
        assert_eq!(plural(1u64, "error line lost"), "1 error line lost");
        assert_eq!(
            plural(2_000u64, "error line lost"),
            "2,000 error lines lost"
        );
    }
}
