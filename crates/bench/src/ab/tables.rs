//! The report as HTML tables, `-w`: fewer rows, and attributes as given.
//!
//! Values a server chose are escaped, which ApacheBench leaves out.

use std::fmt::Write as _;

use super::figures::{Row, ms};
use super::flags::Attributes;
use super::report::Told;

/// What stands in place of the banner; as many lines.
pub(crate) fn banner() -> String {
    format!(
        "<p>\n This is ab of Nagaya {}, with the flags and the report of ApacheBench 2.3<br>\n \
         What it does otherwise, and why: docs/guide/ab.md<br>\n \
         To compare two servers: nagaya bench URL --vs URL<br>\n</p>\n<p>\n",
        env!("CARGO_PKG_VERSION")
    )
}

/// The table.
pub(crate) fn text(told: Told<'_>, attributes: &Attributes) -> String {
    let mut table = HtmlTable {
        out: format!("\n\n<table {}>\n", attributes.table),
        attributes,
    };
    server(told, &mut table);
    counts(told, &mut table);
    rates(told, &mut table);
    if told.figures.done > 0 {
        times(told, &mut table);
    }
    table.out.push_str("</table>\n");
    table.out
}

struct HtmlTable<'a> {
    out: String,
    attributes: &'a Attributes,
}

impl HtmlTable<'_> {
    fn row(&mut self, label: &str, value: &str) {
        let Attributes { row, cell, .. } = self.attributes;
        // Writing to memory does not fail, here and below.
        let _ = writeln!(
            self.out,
            "<tr {row}><th colspan=2 {cell}>{label}</th><td colspan=2 {cell}>{}</td></tr>",
            escaped(value)
        );
    }

    fn row_without_label(&mut self, value: &str) {
        let Attributes { row, cell, .. } = self.attributes;
        let _ = writeln!(
            self.out,
            "<tr {row}><td colspan=2 {cell}>&nbsp;</td><td colspan=2 {cell}>{value}</td></tr>"
        );
    }

    fn times(&mut self, label: &str, [min, mean, max]: [i128; 3]) {
        let Attributes { row, cell, .. } = self.attributes;
        let _ = writeln!(
            self.out,
            "<tr {row}><th {cell}>{label}</th><td {cell}>{min:5}</td><td {cell}>{mean:5}</td>\
             <td {cell}>{max:5}</td></tr>"
        );
    }
}

fn server(told: Told<'_>, table: &mut HtmlTable<'_>) {
    table.row("Server Software:", told.software());
    table.row("Server Hostname:", &told.target.host);
    table.row("Server Port:", &told.target.port.to_string());
    table.row("Document Path:", &told.target.path);
    table.row("Document Length:", &told.length());
}

fn counts(told: Told<'_>, table: &mut HtmlTable<'_>) {
    let figures = told.figures;
    let failed = figures.failed;
    table.row("Concurrency Level:", &told.flags.connections.to_string());
    table.row(
        "Time taken for tests:",
        &format!("{:.3} seconds", figures.seconds),
    );
    table.row("Complete requests:", &figures.done.to_string());
    table.row("Failed requests:", &failed.total().to_string());
    if failed.total() > 0 {
        let Attributes { row, cell, .. } = table.attributes;
        let _ = writeln!(
            table.out,
            "<tr {row}><td colspan=4 {cell} >   (Connect: {}, Length: {}, Exceptions: {})</td></tr>",
            failed.connect,
            failed.length,
            failed.receive + failed.exceptions
        );
    }
    if figures.outside_2xx > 0 {
        table.row("Non-2xx responses:", &figures.outside_2xx.to_string());
    }
    if told.flags.keep_alive {
        table.row("Keep-Alive requests:", &figures.kept.to_string());
    }
    table.row(
        "Total transferred:",
        &format!("{} bytes", figures.received_bytes),
    );
    if told.sends_body() {
        table.row("Total body sent:", &figures.sent_bytes.to_string());
    }
    table.row(
        "HTML transferred:",
        &format!("{} bytes", figures.body_bytes),
    );
}

fn rates(told: Told<'_>, table: &mut HtmlTable<'_>) {
    let figures = told.figures;
    if figures.seconds <= 0.0 {
        return;
    }
    let per_second = |bytes: u64| bytes as f64 / 1024.0 / figures.seconds;
    let (received, sent) = (figures.received_bytes, figures.sent_bytes);
    let rate = figures.done as f64 / figures.seconds;
    table.row("Requests per second:", &format!("{rate:.2}"));
    table.row(
        "Transfer rate:",
        &format!("{:.2} kb/s received", per_second(received)),
    );
    if told.sends_body() {
        table.row_without_label(&format!("{:.2} kb/s sent", per_second(sent)));
        let both = per_second(received.saturating_add(sent));
        table.row_without_label(&format!("{both:.2} kb/s total"));
    }
}

fn times(told: Told<'_>, table: &mut HtmlTable<'_>) {
    let Attributes { row, cell, .. } = table.attributes;
    let _ = writeln!(
        table.out,
        "<tr {row}><th {cell} colspan=4>Connection Times (ms)</th></tr>\n\
         <tr {row}><th {cell}>&nbsp;</th> <th {cell}>min</th>   <th {cell}>avg</th>   \
         <th {cell}>max</th></tr>"
    );
    let shown = |row: &Row| [row.min_us, row.mean_us, row.max_us].map(|us| i128::from(ms(us)));
    let (connect, total) = (shown(&told.figures.connect), shown(&told.figures.total));
    // Differences of rounded figures, as there; so they may even be below nothing.
    let between = [0, 1, 2].map(|at: usize| total[at] - connect[at]);
    table.times("Connect:", connect);
    table.times("Processing:", between);
    table.times("Total:", total);
}

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            _ => out.push(letter),
        }
    }
    out
}
