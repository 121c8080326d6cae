//! A report as one page that needs no network: style and charts are inside.

use std::fmt::Write;

use super::document::{Align, Block, Document, Table, Tone};

impl Document {
    /// One file, readable by itself.
    pub fn to_html(&self) -> String {
        let mut out = format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>{title}</title>\n</head>\n<body>\n<h1>{title}</h1>\n<p>{}</p>\n",
            escaped(&self.subtitle),
            title = escaped(&self.title),
        );
        for section in &self.sections {
            let _ = writeln!(out, "<h2>{}</h2>", escaped(&section.heading));
            for block in &section.blocks {
                block_html(&mut out, block);
            }
        }
        out.push_str("</body>\n</html>\n");
        out
    }
}

fn block_html(out: &mut String, block: &Block) {
    match block {
        Block::Text(text) => {
            let _ = writeln!(out, "<p>{}</p>", escaped(text));
        }
        Block::Note(tone, text) => {
            let _ = writeln!(
                out,
                "<p class=\"note {}\">{}</p>",
                class(*tone),
                escaped(text)
            );
        }
        Block::Table(table) => table_html(out, table),
        Block::Chart(chart) => table_html(out, &chart.table()),
        Block::Listing(listing) => {
            let _ = writeln!(out, "<pre>{}</pre>", escaped(&listing.text));
        }
    }
}

fn table_html(out: &mut String, table: &Table) {
    out.push_str("<table>\n<tr>");
    for column in &table.columns {
        let _ = write!(out, "<th>{}</th>", escaped(&column.title));
    }
    out.push_str("</tr>\n");
    for row in &table.rows {
        out.push_str("<tr>");
        for (column, cell) in table.columns.iter().zip(row) {
            let align = match column.align {
                Align::Left => "left",
                Align::Right => "right",
                Align::Center => "center",
            };
            let _ = write!(
                out,
                "<td class=\"{align} {}\">{}</td>",
                class(cell.tone),
                escaped(&cell.text)
            );
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</table>\n");
}

fn class(tone: Tone) -> &'static str {
    match tone {
        Tone::Plain => "plain",
        Tone::Good => "good",
        Tone::Warn => "warn",
        Tone::Bad => "bad",
    }
}

/// Without meaning to HTML, in text and between quotes.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c if c.is_control() && c != '\n' && c != '\t' => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}
