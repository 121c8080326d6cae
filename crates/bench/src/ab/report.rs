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
    // Writing to memory does not fail, here and below.
    let _ = server(told, &mut out).and_then(|()| {
        counts(told, &mut out)?;
        rates(told, &mut out)?;
        if told.figures.done == 0 {
            return Ok(());
        }
        times(told, &mut out)?;
        if told.flags.percentages && told.figures.done > 1 {
            percentages(told.figures, &mut out)?;
        }
        Ok(())
    });
    out
}

fn server(told: Told<'_>, out: &mut String) -> std::fmt::Result {
    let Target {
        host, port, path, ..
    } = told.target;
    writeln!(out, "Server Software:        {}", told.software())?;
    writeln!(out, "Server Hostname:        {host}")?;
    writeln!(out, "Server Port:            {port}")?;
    if let Some(facts) = told.tls() {
        writeln!(out, "SSL/TLS Protocol:       {}", tls::shown(facts))?;
        if let Some(key) = &facts.temporary_key {
            writeln!(out, "Server Temp Key:        {key}")?;
        }
    }
    if let Some(name) = told.tls_name {
        writeln!(out, "TLS Server Name:        {name}")?;
    }
    writeln!(out, "\nDocument Path:          {path}")?;
    writeln!(out, "Document Length:        {}\n", told.length())
}

fn counts(told: Told<'_>, out: &mut String) -> std::fmt::Result {
    let figures = told.figures;
    let failed = figures.failed;
    writeln!(out, "Concurrency Level:      {}", told.flags.connections)?;
    writeln!(
        out,
        "Time taken for tests:   {:.3} seconds",
        figures.seconds
    )?;
    writeln!(out, "Complete requests:      {}", figures.done)?;
    writeln!(out, "Failed requests:        {}", failed.total())?;
    if failed.total() > 0 {
        writeln!(
            out,
            "   (Connect: {}, Receive: {}, Length: {}, Exceptions: {})",
            failed.connect, failed.receive, failed.length, failed.exceptions
        )?;
    }
    if figures.write_errors > 0 {
        writeln!(out, "Write errors:           {}", figures.write_errors)?;
    }
    if figures.outside_2xx > 0 {
        writeln!(out, "Non-2xx responses:      {}", figures.outside_2xx)?;
    }
    if told.flags.keep_alive {
        writeln!(out, "Keep-Alive requests:    {}", figures.kept)?;
    }
    writeln!(
        out,
        "Total transferred:      {} bytes",
        figures.received_bytes
    )?;
    if told.sends_body() {
        writeln!(out, "Total body sent:        {}", figures.sent_bytes)?;
    }
    writeln!(out, "HTML transferred:       {} bytes", figures.body_bytes)
}

fn rates(told: Told<'_>, out: &mut String) -> std::fmt::Result {
    let Figures { done, seconds, .. } = *told.figures;
    if done == 0 || seconds <= 0.0 {
        return Ok(());
    }
    let each_ms = seconds * 1000.0 / done as f64;
    let per_second = |bytes: u64| bytes as f64 / 1024.0 / seconds;
    let received = told.figures.received_bytes;
    writeln!(
        out,
        "Requests per second:    {:.2} [#/sec] (mean)",
        done as f64 / seconds
    )?;
    writeln!(
        out,
        "Time per request:       {:.3} [ms] (mean)",
        told.flags.connections as f64 * each_ms
    )?;
    writeln!(
        out,
        "Time per request:       {each_ms:.3} [ms] (mean, across all concurrent requests)"
    )?;
    writeln!(
        out,
        "Transfer rate:          {:.2} [Kbytes/sec] received",
        per_second(received)
    )?;
    if told.sends_body() {
        let sent = told.figures.sent_bytes;
        writeln!(
            out,
            "                        {:.2} kb/s sent",
            per_second(sent)
        )?;
        writeln!(
            out,
            "                        {:.2} kb/s total",
            per_second(received.saturating_add(sent))
        )?;
    }
    Ok(())
}

fn times(told: Told<'_>, out: &mut String) -> std::fmt::Result {
    let figures = told.figures;
    let rows = [
        ("Connect:", "the initial connection time", figures.connect),
        ("Processing:", "the processing time", figures.processing),
        ("Waiting:", "the waiting time", figures.waiting),
        ("Total:", "the total time", figures.total),
    ];
    writeln!(out, "\nConnection Times (ms)")?;
    if !told.flags.confidence {
        writeln!(out, "              min   avg   max")?;
        for (label, _, row) in rows {
            let (min, mean, max) = (ms(row.min_us), ms(row.mean_us), ms(row.max_us));
            writeln!(out, "{label:<12}{min:5} {mean:5}{max:5}")?;
        }
        return Ok(());
    }
    writeln!(out, "              min  mean[+/-sd] median   max")?;
    for (label, _, row) in rows {
        writeln!(
            out,
            "{label:<12}{:5} {:4} {:5.1} {:6} {:7}",
            ms(row.min_us),
            ms(row.mean_us),
            row.deviation_us / 1000.0,
            ms(row.median_us),
            ms(row.max_us)
        )?;
    }
    for (_, what, row) in rows {
        doubt(what, &row, out)?;
    }
    Ok(())
}

/// Says so where median and mean lie far apart, in milliseconds as shown.
fn doubt(what: &str, row: &Row, out: &mut String) -> std::fmt::Result {
    let apart = ms(row.mean_us).abs_diff(ms(row.median_us)) as f64;
    let deviation = row.deviation_us / 1000.0;
    if apart > 2.0 * deviation {
        writeln!(
            out,
            "ERROR: The median and mean for {what} are more than twice the standard\n       \
             deviation apart. These results are NOT reliable."
        )
    } else if apart > deviation {
        writeln!(
            out,
            "WARNING: The median and mean for {what} are not within a normal deviation\n        \
             These results are probably not that reliable."
        )
    } else {
        Ok(())
    }
}

fn percentages(figures: &Figures<'_>, out: &mut String) -> std::fmt::Result {
    writeln!(
        out,
        "\nPercentage of the requests served within a certain time (ms)"
    )?;
    for percentage in PERCENTAGES {
        let time = ms(figures.percentage_us(percentage));
        match percentage {
            100.. => writeln!(out, " 100%  {time:5} (longest request)")?,
            _ => writeln!(out, "  {percentage}%  {time:5}")?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
