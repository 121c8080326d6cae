//! A report as one page that needs no network: style and charts are inside, scripts are none.
//!
//! Nothing that was measured is trusted: all text is escaped, and should that ever fail, the page's
//! policy lets nothing run and nothing load.

use std::fmt::Write;

use super::chart::Chart;
use super::document::{Align, Block, Cell, Document, Listing, Section, Table, Tone};
use super::draw::{CHART_STYLE, DARK, LIGHT, Screen};

/// Reports with at least so many sections begin with a list of them.
const CONTENTS_FROM: usize = 5;
/// A fact longer than this gets a row of its own.
const FACT_CHARACTERS_MAX: usize = 90;
/// A cell up to this long is not broken.
const CELL_CHARACTERS_MAX: usize = 24;
/// Styles stand in the page; everything else is forbidden.
const POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";
const STYLE: &str = include_str!("style.css");

impl Document {
    /// One file, readable by itself, in the colours of the reader's system.
    pub fn to_html(&self) -> String {
        let mut out = format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta name=\"color-scheme\" content=\"light dark\">\n\
             <title>{title}</title>\n<style>\n:root{{{LIGHT}}}\n\
             @media screen and (prefers-color-scheme:dark){{:root{{{DARK}}}}}\n\
             {STYLE}{CHART_STYLE}\n</style>\n</head>\n<body>\n<main>\n",
            title = escaped(&self.title),
        );
        self.head(&mut out);
        let mut charts = 0;
        for (index, section) in self.sections.iter().enumerate() {
            section_html(&mut out, index, section, &mut charts);
        }
        out.push_str("</main>\n</body>\n</html>\n");
        out
    }

    /// Question, answer, facts.
    fn head(&self, out: &mut String) {
        let _ = writeln!(out, "<header>\n<h1>{}</h1>", marked(&self.title));
        if !self.subtitle.is_empty() {
            let _ = writeln!(out, "<p class=\"question\">{}</p>", marked(&self.subtitle));
        }
        if let Some((tone, answer)) = &self.answer {
            let _ = writeln!(
                out,
                "<p class=\"answer {}\">{}</p>",
                class(*tone),
                marked(answer)
            );
        }
        if !self.facts.is_empty() {
            out.push_str("<dl>\n");
            for (name, value) in &self.facts {
                let is_long = value.chars().count() > FACT_CHARACTERS_MAX;
                let class = if is_long { " class=\"long\"" } else { "" };
                let (name, value) = (marked(name), marked(value));
                let _ = writeln!(out, "<div{class}><dt>{name}</dt><dd>{value}</dd></div>");
            }
            out.push_str("</dl>\n");
        }
        if self.sections.len() >= CONTENTS_FROM {
            out.push_str("<nav aria-label=\"Sections\">\n<ul>\n");
            for (index, section) in self.sections.iter().enumerate() {
                let heading = marked(&section.heading);
                let _ = writeln!(out, "<li><a href=\"#section-{index}\">{heading}</a></li>");
            }
            out.push_str("</ul>\n</nav>\n");
        }
        out.push_str("</header>\n");
    }
}

fn section_html(out: &mut String, index: usize, section: &Section, charts: &mut usize) {
    let _ = writeln!(out, "<section id=\"section-{index}\">");
    if !section.heading.is_empty() {
        let _ = writeln!(out, "<h2>{}</h2>", marked(&section.heading));
    }
    for block in &section.blocks {
        match block {
            Block::Text(text) => {
                let _ = writeln!(out, "<p>{}</p>", marked(text));
            }
            Block::Note(tone, text) => {
                let _ = writeln!(
                    out,
                    "<p class=\"note {}\">{}</p>",
                    class(*tone),
                    marked(text)
                );
            }
            Block::Table(table) => table_html(out, table),
            Block::Chart(chart) => {
                *charts += 1;
                chart_html(out, *charts, chart);
            }
            Block::Listing(listing) => listing_html(out, listing),
        }
    }
    out.push_str("</section>\n");
}

fn chart_html(out: &mut String, number: usize, chart: &Chart) {
    let _ = write!(
        out,
        "<figure>\n<figcaption><strong>{}</strong>",
        marked(chart.title())
    );
    if !chart.caption().is_empty() {
        let _ = write!(out, "<span>{}</span>", marked(chart.caption()));
    }
    out.push_str("</figcaption>\n");
    let wide = chart.to_inline_svg(Screen::Wide, &format!("chart-{number}-wide"));
    let narrow = chart.to_inline_svg(Screen::Narrow, &format!("chart-{number}-narrow"));
    let (Some(wide), Some(narrow)) = (wide, narrow) else {
        out.push_str("<p class=\"nothing\">Nothing was measured here.</p>\n</figure>\n");
        return;
    };
    let _ = writeln!(out, "{wide}\n{narrow}");
    out.push_str("<details>\n<summary>Numbers</summary>\n");
    table_html(out, &chart.table());
    out.push_str("</details>\n</figure>\n");
}

fn listing_html(out: &mut String, listing: &Listing) {
    let (title, text) = (marked(&listing.title), escaped(&listing.text));
    let _ = writeln!(
        out,
        "<details class=\"listing\">\n<summary>{title}</summary>\n<pre>{text}</pre>\n</details>"
    );
}

fn table_html(out: &mut String, table: &Table) {
    // A table wider than the screen is scrolled, also with the keyboard.
    out.push_str("<div class=\"scroll\" tabindex=\"0\">\n<table>\n<thead><tr>");
    for column in &table.columns {
        let (align, title) = (align(column.align), marked(&column.title));
        let _ = write!(out, "<th scope=\"col\"{align}>{title}</th>");
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    let mut before: Option<&Cell> = None;
    for row in &table.rows {
        out.push_str("<tr>");
        let empty = Cell::default();
        for (index, column) in table.columns.iter().enumerate() {
            let cell = row.get(index).unwrap_or(&empty);
            // What all rows of a group begin with is said once, and only repeated in grey.
            let again = index == 0 && before == Some(cell) && !cell.text.is_empty();
            out.push_str(&cell_html(cell, column.align, again));
        }
        before = row.first();
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody>\n</table>\n</div>\n");
}

fn cell_html(cell: &Cell, at: Align, again: bool) -> String {
    let mut classes = Vec::new();
    if at == Align::Right {
        classes.push("r");
    }
    if cell.tone != Tone::Plain {
        classes.push(class(cell.tone));
    }
    if again {
        classes.push("again");
    }
    if at != Align::Right && cell.text.chars().count() <= CELL_CHARACTERS_MAX {
        classes.push("n");
    }
    let text = marked(&cell.text);
    if classes.is_empty() {
        format!("<td>{text}</td>")
    } else {
        format!("<td class=\"{}\">{text}</td>", classes.join(" "))
    }
}

fn align(align: Align) -> &'static str {
    match align {
        Align::Left => "",
        Align::Right => " class=\"r\"",
    }
}

fn class(tone: Tone) -> &'static str {
    match tone {
        Tone::Plain => "plain",
        Tone::Good => "good",
        Tone::Warn => "warn",
        Tone::Bad => "bad",
    }
}

/// Escaped, with code between backticks as such.
fn marked(text: &str) -> String {
    let pieces: Vec<String> = text.split('`').map(escaped).collect();
    if pieces.len().is_multiple_of(2) {
        // A backtick without its partner is one.
        return escaped(text);
    }
    let mut out = String::with_capacity(text.len());
    for (index, piece) in pieces.iter().enumerate() {
        if index % 2 == 1 {
            let _ = write!(out, "<code>{piece}</code>");
        } else {
            out.push_str(piece);
        }
    }
    out
}

/// Without meaning to HTML, in text and between quotes.
pub(super) fn escaped(text: &str) -> String {
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
