//! The report: ApacheBench's labels, order, units, widths and formats.
//!
//! What scripts read is kept to the byte; what is ours stands after it (`notes`).

use std::fmt::Write as _;

use super::figures::{Figures, PERCENTAGES, Row, ms};
use super::flags::Flags;
use super::target::Target;
use super::tls;
use load::client::{FirstReply, TlsFacts};

/// What a report tells of.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Told<'a> {
    pub(crate) flags: &'a Flags,
    pub(crate) target: &'a Target,
    pub(crate) first: Option<&'a FirstReply>,
    /// The name sent in TLS.
    pub(crate) tls_name: Option<&'a str>,
    pub(crate) figures: &'a Figures<'a>,
}

impl Told<'_> {
    /// `Server` of the first reply, up to its first space.
    pub(crate) fn software(&self) -> &str {
        let software = self.first.map_or("", |first| first.server.as_str());
        let end = software.find(|c: char| c <= ' ').unwrap_or(software.len());
        software.split_at(end).0
    }

    /// The length all bodies should have.
    pub(crate) fn length(&self) -> String {
        match (self.flags.any_length, self.first) {
            (true, _) => "Variable".into(),
            (false, first) => format!("{} bytes", first.map_or(0, |first| first.body_bytes)),
        }
    }

    fn tls(&self) -> Option<&TlsFacts> {
        self.first.and_then(|first| first.tls.as_ref())
    }

    /// Whether a body was sent, which adds lines.
    pub(crate) fn sends_body(&self) -> bool {
        self.flags.body.is_some()
    }
}

/// Three lines and an empty one, as many as ApacheBench's.
pub(crate) fn banner() -> String {
    format!(
        "This is ab of Nagaya {}, with the flags and the report of ApacheBench 2.3\n\
         What it does otherwise, and why: docs/guide/ab.md\n\
         To compare two servers: nagaya bench URL --vs URL\n\n",
        env!("CARGO_PKG_VERSION")
    )
}

/// All of it, from `Server Software` to the longest request.
pub(crate) fn text(told: Told<'_>) -> String {
    let mut out = String::from("\n\n");
    server(told, &mut out);
    counts(told, &mut out);
    rates(told, &mut out);
    if told.figures.done > 0 {
        times(told, &mut out);
        if told.flags.percentages && told.figures.done > 1 {
            percentages(told.figures, &mut out);
        }
    }
    out
}

/// A line that scripts look for by its label.
fn line(out: &mut String, label: &str, value: impl std::fmt::Display) {
    // Writing to memory does not fail, here and below.
    let _ = writeln!(out, "{label:<24}{value}");
}

fn server(told: Told<'_>, out: &mut String) {
    line(out, "Server Software:", told.software());
    line(out, "Server Hostname:", &told.target.host);
    line(out, "Server Port:", told.target.port);
    if let Some(facts) = told.tls() {
        line(out, "SSL/TLS Protocol:", tls::shown(facts));
        if let Some(key) = &facts.temporary_key {
            line(out, "Server Temp Key:", key);
        }
    }
    if let Some(name) = told.tls_name {
        line(out, "TLS Server Name:", name);
    }
    out.push('\n');
    line(out, "Document Path:", &told.target.path);
    line(out, "Document Length:", told.length());
    out.push('\n');
}

fn counts(told: Told<'_>, out: &mut String) {
    let figures = told.figures;
    let failed = figures.failed;
    line(out, "Concurrency Level:", told.flags.connections);
    let seconds = figures.seconds;
    line(
        out,
        "Time taken for tests:",
        format_args!("{seconds:.3} seconds"),
    );
    line(out, "Complete requests:", figures.done);
    line(out, "Failed requests:", failed.total());
    if failed.total() > 0 {
        let _ = writeln!(
            out,
            "   (Connect: {}, Receive: {}, Length: {}, Exceptions: {})",
            failed.connect, failed.receive, failed.length, failed.exceptions
        );
    }
    if figures.write_errors > 0 {
        line(out, "Write errors:", figures.write_errors);
    }
    if figures.outside_2xx > 0 {
        line(out, "Non-2xx responses:", figures.outside_2xx);
    }
    if told.flags.keep_alive {
        line(out, "Keep-Alive requests:", figures.kept);
    }
    let (received, bodies) = (figures.received_bytes, figures.body_bytes);
    line(out, "Total transferred:", format_args!("{received} bytes"));
    if told.sends_body() {
        line(out, "Total body sent:", figures.sent_bytes);
    }
    line(out, "HTML transferred:", format_args!("{bodies} bytes"));
}

fn rates(told: Told<'_>, out: &mut String) {
    let Figures { done, seconds, .. } = *told.figures;
    if done == 0 || seconds <= 0.0 {
        return;
    }
    let (rate, each_ms) = (done as f64 / seconds, seconds * 1000.0 / done as f64);
    let all_ms = told.flags.connections as f64 * each_ms;
    let per_second = |bytes: u64| bytes as f64 / 1024.0 / seconds;
    let received = per_second(told.figures.received_bytes);
    let each = format!("{each_ms:.3} [ms] (mean, across all concurrent requests)");
    line(
        out,
        "Requests per second:",
        format_args!("{rate:.2} [#/sec] (mean)"),
    );
    line(
        out,
        "Time per request:",
        format_args!("{all_ms:.3} [ms] (mean)"),
    );
    line(out, "Time per request:", each);
    line(
        out,
        "Transfer rate:",
        format_args!("{received:.2} [Kbytes/sec] received"),
    );
    if told.sends_body() {
        let sent = told.figures.sent_bytes;
        let both = per_second(told.figures.received_bytes.saturating_add(sent));
        let sent = per_second(sent);
        line(out, "", format_args!("{sent:.2} kb/s sent"));
        line(out, "", format_args!("{both:.2} kb/s total"));
    }
}

fn times(told: Told<'_>, out: &mut String) {
    let figures = told.figures;
    let rows = [
        ("Connect:", "the initial connection time", figures.connect),
        ("Processing:", "the processing time", figures.processing),
        ("Waiting:", "the waiting time", figures.waiting),
        ("Total:", "the total time", figures.total),
    ];
    out.push_str("\nConnection Times (ms)\n");
    if !told.flags.confidence {
        out.push_str("              min   avg   max\n");
        for (label, _, row) in rows {
            let (min, mean, max) = (ms(row.min_us), ms(row.mean_us), ms(row.max_us));
            let _ = writeln!(out, "{label:<12}{min:5} {mean:5}{max:5}");
        }
        return;
    }
    out.push_str("              min  mean[+/-sd] median   max\n");
    for (label, _, row) in rows {
        let _ = writeln!(
            out,
            "{label:<12}{:5} {:4} {:5.1} {:6} {:7}",
            ms(row.min_us),
            ms(row.mean_us),
            row.deviation_us / 1000.0,
            ms(row.median_us),
            ms(row.max_us)
        );
    }
    for (_, what, row) in rows {
        out.push_str(&doubt(what, &row));
    }
}

/// Says so where median and mean lie far apart, in milliseconds as shown.
fn doubt(what: &str, row: &Row) -> String {
    let apart = ms(row.mean_us).abs_diff(ms(row.median_us)) as f64;
    let deviation = row.deviation_us / 1000.0;
    if apart > 2.0 * deviation {
        format!(
            "ERROR: The median and mean for {what} are more than twice the standard\n       \
             deviation apart. These results are NOT reliable.\n"
        )
    } else if apart > deviation {
        format!(
            "WARNING: The median and mean for {what} are not within a normal deviation\n        \
             These results are probably not that reliable.\n"
        )
    } else {
        String::new()
    }
}

fn percentages(figures: &Figures<'_>, out: &mut String) {
    out.push_str("\nPercentage of the requests served within a certain time (ms)\n");
    for percentage in PERCENTAGES {
        let time = ms(figures.percentage_us(percentage));
        let _ = match percentage {
            100.. => writeln!(out, " 100%  {time:5} (longest request)"),
            _ => writeln!(out, "  {percentage}%  {time:5}"),
        };
    }
}

#[cfg(test)]
mod tests;
