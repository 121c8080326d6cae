//! A report as Markdown that reads well as text: what is kept beside the code.

use std::fmt::Write;

use super::document::{Align, Block, Document, Table};

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
                block_markdown(&mut out, block);
            }
        }
        out
    }
}

fn block_markdown(out: &mut String, block: &Block) {
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
            out.push_str(&chart.table().to_markdown());
        }
        Block::Listing(listing) => {
            let _ = writeln!(out, "{}:\n", inline(&listing.title));
            for line in listing.text.lines() {
                let _ = writeln!(out, "    {line}");
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
                Align::Center => ":-:|",
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
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' | '*' | '[' | ']' | '|' => {
                out.push('\\');
                out.push(c);
            }
            '<' => out.push_str("&lt;"),
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}
