//! The report: Markdown that reads well as text, misses included.

use std::fmt::{self, Write};
use std::path::Path;

use super::bed::Log;
use super::idle::Idle;
use super::latency::LatencyRow;
use super::options::Options;
use super::peer::{self, Peer};
use super::sites::Sites;
use super::stats::{Summary, summary};
use super::throughput::{Row, Slice};
use super::workers::Workers;

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
    /// What was measured, on what, and how.
    setting: String,
    text: String,
    /// The main table in short.
    digest: String,
    misses: Vec<String>,
}

impl Report {
    /// Begins with what is measured, on what, and how.
    pub(crate) fn new(options: &Options, peers: &[Peer], missing: &[String]) -> Report {
        let versions: Vec<&str> = peers.iter().map(|peer| peer.version.as_str()).collect();
        let generator = peer::on_path("wrk").and_then(|wrk| peer::version(&wrk, "-v"));
        let mut setting = format!("Servers: {}.\n", versions.join(" · "));
        if !missing.is_empty() {
            let _ = writeln!(
                setting,
                "Not found, so not measured: {}.",
                missing.join(", ")
            );
        }
        let _ = writeln!(
            setting,
            "Generator: {}.\nMachine: {}.\n\n\
             One worker each on core 0; generator ({} connections) and back end on core 1; {} rounds of {} s, servers in turn.\n\
             The figure is requests per second of server CPU time, the median of the rounds. A ratio is ours over theirs, round by round.",
            generator.unwrap_or_default(),
            machine(),
            options.connections,
            options.rounds,
            options.seconds
        );
        Report {
            setting,
            text: String::new(),
            digest: String::new(),
            misses: Vec::new(),
        }
    }

    /// The main table.
    pub(crate) fn throughput(&mut self, log: Log, table: &[Row]) {
        if table.is_empty() {
            return;
        }
        let setting = match log {
            Log::Off => "no access log",
            Log::On => "access log in the combined format",
        };
        self.heading(&format!("Requests per CPU second, {setting}"));
        self.line("Rates and times beside the figure are the generator's, going flat out.\n");
        self.line("| work | server | req/CPU-s | ours ÷ theirs | wanted | req/s | p50 | p99 |");
        self.line("|---|---|--:|--:|:-:|--:|--:|--:|");
        for row in table {
            for (server, slices) in &row.slices {
                let failed = slices.iter().map(|slice| slice.failed).sum();
                let unlogged = slices.iter().map(|slice| slice.unlogged).sum();
                let notes = note(failed, "failed") + &note(unlogged, "not logged");
                self.throughput_line(row, server.name(), &notes, setting);
            }
        }
        if log == Log::Off {
            self.digest = digest(table);
        }
    }

    fn throughput_line(&mut self, row: &Row, name: &str, notes: &str, setting: &str) {
        let median = |figure: fn(&Slice) -> f64| {
            summary(&row.figures(name, figure)).map_or(f64::NAN, |s| s.median)
        };
        let ratio = row.ratio(name);
        let target = row.work.targets.iter().find(|(peer, _)| *peer == name);
        let wanted = match (ratio, target) {
            (Some(ratio), Some((_, least))) => {
                let what = format!("{} beside {name}, {setting}", row.work.name);
                self.judge(&what, ratio.median, Bound::AtLeast(*least))
            }
            _ => String::new(),
        };
        self.line(&format!(
            "| {} | {name}{notes} | {} | {} | {wanted} | {} | {} | {} |",
            row.work.name,
            thousands(median(|s| s.per_cpu_second)),
            ratio.map_or(String::new(), spread),
            thousands(median(|s| s.per_second)),
            time(median(|s| s.p50_us)),
            time(median(|s| s.p99_us)),
        ));
    }

    /// Latency at half load.
    pub(crate) fn latency(&mut self, rows: &[LatencyRow]) {
        if rows.is_empty() {
            return;
        }
        self.heading("Latency at half load");
        self.line("The same rate for all, half of the slowest server's; measured from the instant a request was due.");
        self.line("p50 and p99 are those of the median half-second. Wanted: at most 1.1 times the best peer's.\n");
        self.line("| work | rate | server | p50 | p99 | wanted |");
        self.line("|---|--:|---|--:|--:|:-:|");
        for row in rows {
            for (server, latency) in &row.servers {
                let wanted = match (server.name(), row.beside_best_peer()) {
                    (OURS, Some((p50, p99))) => {
                        let bound = Bound::AtMost(LATENCY_RATIO_MAX);
                        let p50 = self.judge(&format!("p50 of {}", row.work.name), p50, bound);
                        let p99 = self.judge(&format!("p99 of {}", row.work.name), p99, bound);
                        format!("{p50}, {p99}")
                    }
                    _ => String::new(),
                };
                self.line(&format!(
                    "| {} | {}/s | {}{} | {} | {} | {wanted} |",
                    row.work.name,
                    thousands(row.per_second),
                    server.name(),
                    note(latency.failed, "failed"),
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
            let wanted = self.judge_ours(
                row.name,
                "bytes of an idle connection",
                row.bytes_each,
                Bound::AtMost(IDLE_BYTES_MAX),
            );
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
        self.line("Both with the same connections and, on two cores, both on the server's one.\n");
        self.line("| server | CPU per request ÷ one worker's | wanted | largest share of 200 connections | wanted |");
        self.line("|---|--:|:-:|--:|:-:|");
        for row in rows {
            let cost = self.judge_ours(
                row.name,
                "CPU per request of two workers ÷ one",
                row.cost.median,
                Bound::AtMost(WORKER_COST_MAX),
            );
            let share = self.judge_ours(
                row.name,
                "share of one of two workers",
                row.largest_share,
                Bound::AtMost(WORKER_SHARE_MAX),
            );
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
        self.line("| server | check | wanted | reload, signal to first reply | wanted | resident each | wanted |");
        self.line("|---|--:|:-:|--:|:-:|--:|:-:|");
        for row in rows {
            let (check, reload) = (row.check.as_secs_f64(), row.reload.as_secs_f64());
            let second = Bound::AtMost(SITES_SECONDS_MAX);
            let checked = self.judge_ours(row.name, "seconds to check 10,000 sites", check, second);
            let reloaded =
                self.judge_ours(row.name, "seconds to reload 10,000 sites", reload, second);
            let held = self.judge_ours(
                row.name,
                "bytes of a site",
                row.bytes_each,
                Bound::AtMost(SITE_BYTES_MAX),
            );
            self.line(&format!(
                "| {} | {:.0} ms | {checked} | {:.0} ms | {reloaded} | {:.0} B | {held} |",
                row.name,
                check * 1e3,
                reload * 1e3,
                row.bytes_each
            ));
        }
    }

    /// The whole text.
    pub(crate) fn finish(&self) -> String {
        format!(
            "# Figures\n\n{}{}\n{}",
            self.setting,
            self.text,
            self.missed()
        )
    }

    /// The main table in short, for a README; nothing that was missed is left out.
    pub(crate) fn short(&self) -> String {
        format!("{}\n{}{}", self.setting, self.digest, self.missed())
    }

    fn missed(&self) -> String {
        if self.misses.is_empty() {
            return "\nEverything wanted was reached.\n".to_owned();
        }
        format!("\nNot reached:\n\n- {}\n", self.misses.join("\n- "))
    }

    /// Says whether a wish came true, and remembers it if not.
    fn judge(&mut self, what: &str, got: f64, bound: Bound) -> String {
        if bound.holds(got) {
            return format!("✓ {bound}");
        }
        self.misses.push(format!("{what} {} ({bound})", plain(got)));
        format!("✗ {bound}")
    }

    fn judge_ours(&mut self, name: &str, what: &str, got: f64, bound: Bound) -> String {
        if name == OURS {
            self.judge(what, got, bound)
        } else {
            String::new()
        }
    }

    fn heading(&mut self, text: &str) {
        let _ = writeln!(self.text, "\n## {text}\n");
    }

    fn line(&mut self, text: &str) {
        self.text.push_str(text);
        self.text.push('\n');
    }
}

/// What is wanted of a figure.
#[derive(Debug, Clone, Copy)]
enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

impl Bound {
    fn holds(self, got: f64) -> bool {
        match self {
            Bound::AtLeast(least) => got >= least,
            Bound::AtMost(most) => got <= most,
        }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Bound::AtLeast(least) => write!(f, "≥ {}", plain(*least)),
            Bound::AtMost(most) => write!(f, "≤ {}", plain(*most)),
        }
    }
}

/// A line a row, a column a server.
fn digest(table: &[Row]) -> String {
    let mut servers: Vec<&str> = Vec::new();
    for (server, _) in table.iter().flat_map(|row| &row.slices) {
        if !servers.contains(&server.name()) {
            servers.push(server.name());
        }
    }
    let mut text = format!(
        "| requests per CPU second | {} |\n|---|{}\n",
        servers.join(" | "),
        "--:|".repeat(servers.len())
    );
    for row in table {
        let cell = |name: &&str| {
            let Some(figure) = summary(&row.figures(name, |s| s.per_cpu_second)) else {
                return "–".to_owned();
            };
            let ratio = row.ratio(name);
            let ratio = ratio.map_or(String::new(), |r| format!(" ({:.2})", r.median));
            format!("{}{ratio}", thousands(figure.median))
        };
        let cells: Vec<String> = servers.iter().map(cell).collect();
        let _ = writeln!(text, "| {} | {} |", row.work.name, cells.join(" | "));
    }
    text
}

fn note(count: u64, what: &str) -> String {
    match count {
        0 => String::new(),
        count => format!(" ({count} {what})"),
    }
}

fn spread(ratio: Summary) -> String {
    format!("{:.2} ({:.2}–{:.2})", ratio.median, ratio.least, ratio.most)
}

/// Ratios and seconds with their decimals, bytes without.
fn plain(number: f64) -> String {
    if number >= 100.0 {
        format!("{number:.0}")
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
    fn a_miss_is_marked_and_remembered() {
        let mut report = Report::new(&Options::default(), &[], &[]);
        assert_eq!(report.judge("a", 1.12, Bound::AtLeast(1.1)), "✓ ≥ 1.10");
        assert_eq!(report.judge("b", 1.09, Bound::AtLeast(1.1)), "✗ ≥ 1.10");
        assert_eq!(report.judge("c", 4096.0, Bound::AtMost(3072.0)), "✗ ≤ 3072");
        assert_eq!(report.judge("d", f64::NAN, Bound::AtMost(1.0)), "✗ ≤ 1.00");
        assert!(
            report
                .finish()
                .contains("- b 1.09 (≥ 1.10)\n- c 4096 (≤ 3072)\n- d NaN")
        );
    }
}
