//! The report: Markdown that reads well as text, misses included.

use std::fmt::Write;
use std::path::Path;

use crate::bed::Log;
use crate::idle::Idle;
use crate::latency::{Latency, LatencyRow};
use crate::options::Options;
use crate::peer::{self, Peer};
use crate::sites::Sites;
use crate::stats::{Summary, ratios, summary};
use crate::throughput::Row;
use crate::workers::Workers;

const OURS: &str = "nagaya";
/// Latency at half load may be this much above the best peer's.
const LATENCY_RATIO_MAX: f64 = 1.1;
/// Memory of an idle connection.
const IDLE_BYTES_MAX: f64 = 3.0 * 1024.0;
/// CPU per request of two workers over one's.
const WORKER_COST_MAX: f64 = 1.05;
/// Share of connections one of two workers may hold.
const WORKER_SHARE_MAX: f64 = 0.60;
/// Check or reload of ten thousand sites.
const SITES_SECONDS_MAX: f64 = 1.0;
/// Memory of one site.
const SITE_BYTES_MAX: f64 = 2.0 * 1024.0;

/// Grows section by section.
#[derive(Debug)]
pub(crate) struct Report {
    text: String,
}

impl Report {
    /// Begins with what was measured, on what, and how.
    pub(crate) fn new(options: &Options, peers: &[Peer], missing: Vec<String>) -> Report {
        let mut text = String::from("# Figures\n\n");
        let versions: Vec<String> = peers.iter().map(|peer| peer.version.clone()).collect();
        let generator = peer::on_path("wrk")
            .and_then(|wrk| peer::version(&wrk, "-v"))
            .unwrap_or_default();
        let _ = writeln!(text, "Servers: {}.", versions.join(" · "));
        if !missing.is_empty() {
            let _ = writeln!(text, "Not found, so not measured: {}.", missing.join(", "));
        }
        let _ = writeln!(text, "Generator: {generator}.\nMachine: {}.\n", machine());
        let _ = writeln!(
            text,
            "One worker each on core 0; generator ({} connections) and back end on core 1. {} rounds of {} s, servers in turn.\n\
             The figure is requests per second of server CPU time, the median of the rounds; a ratio is ours over theirs,\n\
             round by round: median (least–most). Rate, p50 and p99 are the generator's, with both sides going flat out.\n",
            options.connections, options.rounds, options.seconds
        );
        Report { text }
    }

    /// The main table.
    pub(crate) fn throughput(&mut self, log: Log, table: &[Row]) {
        if table.is_empty() {
            return;
        }
        self.heading(match log {
            Log::Off => "Requests per CPU second, no access log",
            Log::On => "Requests per CPU second, access log in the combined format",
        });
        self.line("| work | server | req/CPU-s | ours ÷ theirs | wanted | req/s | p50 | p99 |");
        self.line("|---|---|--:|--:|:-:|--:|--:|--:|");
        for row in table {
            for (server, slices) in &row.slices {
                let name = server.name();
                let median = |figure: Vec<f64>| summary(&figure).map_or(f64::NAN, |s| s.median);
                let ratio = if name == OURS {
                    None
                } else {
                    ratios(
                        &row.figures(OURS, |s| s.per_cpu_second),
                        &row.figures(name, |s| s.per_cpu_second),
                    )
                };
                let target = row
                    .work
                    .targets
                    .iter()
                    .find(|(peer, _)| *peer == name)
                    .map(|(_, least)| *least);
                let failed: u64 = slices.iter().map(|slice| slice.failed).sum();
                let note = if failed > 0 {
                    format!(" ({failed} failed)")
                } else {
                    String::new()
                };
                self.line(&format!(
                    "| {} | {name}{note} | {} | {} | {} | {} | {} | {} |",
                    row.work.name,
                    thousands(median(row.figures(name, |s| s.per_cpu_second))),
                    ratio.map_or(String::new(), spread),
                    verdict(
                        ratio.map(|r| r.median),
                        target,
                        |got, least| got >= least,
                        "≥"
                    ),
                    thousands(median(row.figures(name, |s| s.per_second))),
                    time(median(row.figures(name, |s| s.p50_us))),
                    time(median(row.figures(name, |s| s.p99_us))),
                ));
            }
        }
    }

    /// Latency at half load.
    pub(crate) fn latency(&mut self, rows: &[LatencyRow]) {
        if rows.is_empty() {
            return;
        }
        self.heading("Latency at half load");
        self.line("The same rate for all, half of the slowest server's; measured from the instant a request was due.\n");
        self.line("| work | rate | server | p50 | p99 | wanted |");
        self.line("|---|--:|---|--:|--:|:-:|");
        for row in rows {
            for (server, latency) in &row.servers {
                let name = server.name();
                let note = if latency.failed > 0 {
                    format!(" ({} failed)", latency.failed)
                } else {
                    String::new()
                };
                let wanted = if name == OURS {
                    latency_verdict(latency, row)
                } else {
                    String::new()
                };
                self.line(&format!(
                    "| {} | {}/s | {name}{note} | {} | {} | {wanted} |",
                    row.work.name,
                    thousands(row.per_second),
                    time(latency.p50_us),
                    time(latency.p99_us)
                ));
            }
        }
    }

    /// Memory of idle connections.
    pub(crate) fn idle(&mut self, rows: &[Idle]) {
        self.heading("Idle keep-alive connections");
        self.line("| server | connections | resident each | process alone | wanted |");
        self.line("|---|--:|--:|--:|:-:|");
        for row in rows {
            let wanted = ours(row.name, || {
                verdict(
                    Some(row.bytes_each),
                    Some(IDLE_BYTES_MAX),
                    |got, most| got <= most,
                    "≤",
                )
            });
            self.line(&format!(
                "| {} | {} | {:.0} B | {:.1} MiB | {wanted} |",
                row.name,
                thousands(row.connections as f64),
                row.bytes_each,
                row.bytes_alone as f64 / 1048576.0
            ));
        }
    }

    /// Two workers.
    pub(crate) fn workers(&mut self, rows: &[Workers]) {
        self.heading("Two workers");
        self.line("| server | CPU per request ÷ one worker's | wanted | largest share of 200 connections | wanted |");
        self.line("|---|--:|:-:|--:|:-:|");
        for row in rows {
            let cost = ours(row.name, || {
                verdict(
                    Some(row.cost.median),
                    Some(WORKER_COST_MAX),
                    |got, most| got <= most,
                    "≤",
                )
            });
            let share = ours(row.name, || {
                verdict(
                    Some(row.largest_share),
                    Some(WORKER_SHARE_MAX),
                    |got, most| got <= most,
                    "≤",
                )
            });
            self.line(&format!(
                "| {} | {} | {cost} | {:.0} % | {share} |",
                row.name,
                spread(row.cost),
                row.largest_share * 100.0
            ));
        }
    }

    /// Ten thousand sites.
    pub(crate) fn sites(&mut self, rows: &[Sites]) {
        self.heading("Ten thousand sites");
        self.line("| server | check | reload, signal to first reply | resident each | wanted |");
        self.line("|---|--:|--:|--:|:-:|");
        for row in rows {
            let slowest = row.check.max(row.reload).as_secs_f64();
            let met = slowest < SITES_SECONDS_MAX && row.bytes_each <= SITE_BYTES_MAX;
            let wanted = ours(row.name, || format!("{} < 1 s, ≤ 2 KiB", mark(met)));
            self.line(&format!(
                "| {} | {:.0} ms | {:.0} ms | {:.0} B | {wanted} |",
                row.name,
                row.check.as_secs_f64() * 1e3,
                row.reload.as_secs_f64() * 1e3,
                row.bytes_each
            ));
        }
    }

    /// The whole text.
    pub(crate) fn finish(self) -> String {
        self.text
    }

    fn heading(&mut self, text: &str) {
        let _ = writeln!(self.text, "\n## {text}\n");
    }

    fn line(&mut self, text: &str) {
        self.text.push_str(text);
        self.text.push('\n');
    }
}

fn latency_verdict(ours: &Latency, row: &LatencyRow) -> String {
    let peers = || {
        row.servers
            .iter()
            .filter(|(server, _)| server.name() != OURS)
            .map(|(_, latency)| latency)
    };
    let best = |figure: fn(&Latency) -> f64| peers().map(figure).fold(f64::INFINITY, f64::min);
    let (p50, p99) = (
        ours.p50_us / best(|l| l.p50_us),
        ours.p99_us / best(|l| l.p99_us),
    );
    if !(p50 + p99).is_normal() {
        return String::new();
    }
    format!(
        "{} {p50:.2} and {p99:.2} of the best peer's (≤ {LATENCY_RATIO_MAX})",
        mark(p50.max(p99) <= LATENCY_RATIO_MAX)
    )
}

fn verdict(
    got: Option<f64>,
    target: Option<f64>,
    met: impl Fn(f64, f64) -> bool,
    sign: &str,
) -> String {
    match (got, target) {
        (Some(got), Some(target)) => format!("{} {sign} {}", mark(met(got, target)), trim(target)),
        _ => String::new(),
    }
}

fn ours(name: &str, text: impl Fn() -> String) -> String {
    if name == OURS { text() } else { String::new() }
}

fn mark(met: bool) -> &'static str {
    if met { "✓" } else { "✗" }
}

fn spread(ratio: Summary) -> String {
    format!("{:.2} ({:.2}–{:.2})", ratio.median, ratio.least, ratio.most)
}

fn trim(number: f64) -> String {
    if number >= 100.0 {
        format!("{number:.0} B")
    } else {
        format!("{number:.2}")
    }
}

/// Three figures mean something; more would be noise.
fn thousands(number: f64) -> String {
    if !number.is_finite() {
        return "–".to_owned();
    }
    let step = 10f64
        .powf(number.abs().max(1.0).log10().floor() - 2.0)
        .max(1.0);
    let digits = format!("{:.0}", (number / step).round() * step);
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

fn time(us: f64) -> String {
    match us {
        us if !us.is_finite() => "–".to_owned(),
        us if us < 1000.0 => format!("{us:.0} µs"),
        us => format!("{:.2} ms", us / 1e3),
    }
}

fn machine() -> String {
    let read = |path: &str| std::fs::read_to_string(Path::new(path)).unwrap_or_default();
    let cpus = read("/proc/cpuinfo");
    let model = cpus
        .lines()
        .find_map(|line| line.strip_prefix("model name"))
        .and_then(|rest| rest.split_once(':'));
    let model = model.map_or("unknown processor", |(_, name)| name.trim());
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    format!(
        "{model}, {cores} cores, Linux {}",
        read("/proc/sys/kernel/osrelease").trim()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_rounded_to_what_they_mean() {
        for (number, text) in [
            (40_412.0, "40,400"),
            (999.6, "1,000"),
            (1_234_567.0, "1,230,000"),
            (7.4, "7"),
            (f64::NAN, "–"),
        ] {
            assert_eq!(thousands(number), text);
        }
        for (us, text) in [(61.7, "62 µs"), (1500.0, "1.50 ms"), (f64::INFINITY, "–")] {
            assert_eq!(time(us), text);
        }
    }

    #[test]
    fn a_miss_is_marked_as_one() {
        assert_eq!(
            verdict(Some(1.12), Some(1.10), |got, least| got >= least, "≥"),
            "✓ ≥ 1.10"
        );
        assert_eq!(
            verdict(Some(1.09), Some(1.10), |got, least| got >= least, "≥"),
            "✗ ≥ 1.10"
        );
        assert_eq!(
            verdict(None, Some(1.10), |got, least| got >= least, "≥"),
            ""
        );
    }
}
