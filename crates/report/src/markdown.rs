//! A report as Markdown that reads well as text: what is kept beside the code.

use std::fmt::Write;

use super::document::{Align, Block, Document, Table};
use super::language::Language;

impl Document {
    /// As Markdown. Charts become tables of their numbers.
    pub fn to_markdown(&self) -> String {
        let mut out = format!("# {}\n", inline(&self.title));
        if !self.subtitle.is_empty() {
            let _ = write!(out, "\n{}\n", inline(&self.subtitle));
        }
        if let Some((_, answer)) = &self.answer {
            let _ = write!(out, "\n**{}**\n", inline(answer));
        }
        if !self.facts.is_empty() {
            out.push('\n');
        }
        for (name, value) in &self.facts {
            let _ = writeln!(out, "- {}: {}", inline(name), inline(value));
        }
        for section in &self.sections {
            let _ = write!(out, "\n## {}\n", inline(&section.heading));
            for block in &section.blocks {
                out.push('\n');
                block_markdown(&mut out, block, self.language);
            }
        }
        out
    }
}

fn block_markdown(out: &mut String, block: &Block, language: Language) {
    match block {
        Block::Text(text) => {
            let _ = writeln!(out, "{}", inline(text));
        }
        Block::Note(_, text) => {
            let _ = writeln!(out, "**{}**", inline(text));
        }
        Block::Table(table) => out.push_str(&table.to_markdown()),
        Block::Chart(chart) => {
            let _ = writeln!(out, "{}\n", inline(chart.title()));
            out.push_str(&chart.table(language).to_markdown());
        }
        Block::Listing(listing) => {
            let _ = writeln!(out, "{}:\n", inline(&listing.title));
            for line in listing.text.lines() {
                let _ = writeln!(out, "    {}", harmless(line));
            }
        }
    }
}

impl Table {
    /// As a Markdown table.
    pub fn to_markdown(&self) -> String {
        let mut out = String::from("|");
        for column in &self.columns {
            let _ = write!(out, " {} |", inline(&column.title));
        }
        out.push_str("\n|");
        for column in &self.columns {
            out.push_str(match column.align {
                Align::Left => "---|",
                Align::Right => "--:|",
            });
        }
        out.push('\n');
        for row in &self.rows {
            out.push('|');
            for at in 0..self.columns.len() {
                let text = row.get(at).map_or("", |cell| cell.text.as_str());
                let _ = write!(out, " {} |", inline(text));
            }
            out.push('\n');
        }
        out
    }
}

/// Escaped, on one line; code between backticks stays code.
fn inline(text: &str) -> String {
    let pieces: Vec<&str> = text.split('`').collect();
    if pieces.len().is_multiple_of(2) {
        // A backtick without its partner is one.
        return escaped(text);
    }
    let mut out = String::with_capacity(text.len());
    for (index, piece) in pieces.iter().enumerate() {
        if index.is_multiple_of(2) {
            out.push_str(&escaped(piece));
        } else {
            // A table's cell ends at a bar even within code.
            let code = piece.replace('|', "\\|");
            let _ = write!(out, "`{}`", harmless(&code));
        }
    }
    out
}

/// Without characters that steer a terminal, should somebody print the file.
fn harmless(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() && c != '\t' { ' ' } else { c })
        .collect()
}

/// Without meaning to Markdown or HTML.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for (at, c) in text.char_indices() {
        match c {
            '\\' | '*' | '[' | ']' | '|' | '~' | '`' => {
                out.push('\\');
                out.push(c);
            }
            // What would begin a heading, a list or a quotation.
            '#' | '+' | '>' | '-' if at == 0 => {
                out.push('\\');
                out.push(c);
            }
            '<' => out.push_str("&lt;"),
            '&' if text[at + 1..].starts_with(|next: char| next == '#' || next.is_alphabetic()) => {
                out.push_str("&amp;");
            }
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cell, Column, Tone};

    #[test]
    fn a_document_reads_well_as_text() {
        let mut document = Document::new("Figures", "Which is cheaper?");
        document.answer = Some((Tone::Good, "A, by 1.10 ×.".to_owned()));
        document.fact("Machine", "two cores");
        let section = document.section("Requests per CPU second");
        section.text("Medians of `20` blocks.");
        let mut table = Table::new([
            Column::left("server"),
            Column::right("figure"),
            Column::left("wanted"),
        ]);
        table.row([
            Cell::from("nagaya"),
            Cell::from("51,300"),
            Cell::toned(Tone::Good, "✓"),
        ]);
        table.row(["nginx"]);
        section.table(table);
        section.note(Tone::Warn, "One slice was voided.");
        section.listing("a.toml", "[x]\ny = 1\u{1b}");
        assert_eq!(
            document.to_markdown(),
            "# Figures\n\nWhich is cheaper?\n\n**A, by 1.10 ×.**\n\n- Machine: two cores\n\n\
             ## Requests per CPU second\n\nMedians of `20` blocks.\n\n\
             | server | figure | wanted |\n|---|--:|---|\n| nagaya | 51,300 | ✓ |\n| nginx |  |  |\n\n\
             **One slice was voided.**\n\na.toml:\n\n    [x]\n    y = 1 \n"
        );
    }

    #[test]
    fn nothing_from_outside_becomes_markup() {
        for (text, wanted) in [
            ("a|b", "a\\|b"),
            ("<script>", "&lt;script>"),
            ("[x](y)", "\\[x\\](y)"),
            ("**b** ~~c~~", "\\*\\*b\\*\\* \\~\\~c\\~\\~"),
            ("# x", "\\# x"),
            ("a # b - c", "a # b - c"),
            ("one\ntwo", "one two"),
            ("`a|*`", "`a\\|*`"),
            ("un`paired", "un\\`paired"),
            ("&lt; & co", "&amp;lt; & co"),
            ("per_cpu_second", "per_cpu_second"),
        ] {
            assert_eq!(inline(text), wanted, "{text}");
        }
    }
}
