//! A report for a terminal: as wide as that is, coloured only where that was asked for.
//!
//! Bytes from elsewhere cannot steer the terminal: control characters become dots.

use super::chart::Chart;
use super::document::{Align, Block, Cell, Document, Table, Tone};

/// Narrower than this nothing can be set.
const WIDTH_MIN: usize = 40;

/// Whether tones become colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Paint {
    /// Plain text: for files and pipes.
    Never,
    /// With the terminal's colours.
    Colours,
}

impl Document {
    /// For a terminal of so many columns.
    pub fn to_text(&self, width: usize, paint: Paint) -> String {
        let width = width.max(WIDTH_MIN);
        let mut out = String::new();
        paragraph(&mut out, &strong(&self.title, paint), width);
        paragraph(&mut out, &self.subtitle, width);
        if let Some((tone, answer)) = &self.answer {
            out.push('\n');
            paragraph(
                &mut out,
                &toned(&wrapped(&harmless(answer), width), *tone, paint),
                usize::MAX,
            );
        }
        if !self.facts.is_empty() {
            out.push('\n');
        }
        let names = self.facts.iter().map(|(name, _)| columns(name)).max();
        for (name, value) in &self.facts {
            let gap = names.unwrap_or(0).saturating_sub(columns(name));
            out.push_str(&format!(
                "{}{}  {}\n",
                harmless(name),
                " ".repeat(gap),
                harmless(value)
            ));
        }
        for section in &self.sections {
            out.push('\n');
            paragraph(&mut out, &strong(&section.heading, paint), width);
            for block in &section.blocks {
                out.push('\n');
                block_text(&mut out, block, width, paint);
            }
        }
        out
    }
}

fn block_text(out: &mut String, block: &Block, width: usize, paint: Paint) {
    match block {
        Block::Text(text) => paragraph(out, text, width),
        Block::Note(tone, text) => {
            let text = wrapped(&harmless(text), width);
            out.push_str(&toned(&text, *tone, paint));
            out.push('\n');
        }
        Block::Table(table) => out.push_str(&table.to_text(paint)),
        Block::Chart(chart) => out.push_str(&chart.to_text(width, paint)),
        Block::Listing(listing) => {
            out.push_str(&format!("{}:\n", harmless(&listing.title)));
            for line in listing.text.lines() {
                out.push_str(&format!("    {}\n", harmless(line)));
            }
        }
    }
}

impl Table {
    /// Columns lined up, two spaces between them.
    pub fn to_text(&self, paint: Paint) -> String {
        let widths: Vec<usize> = self
            .columns
            .iter()
            .enumerate()
            .map(|(at, column)| {
                let cells = self.rows.iter().filter_map(|row| row.get(at));
                let widest = cells.map(|cell| columns(&cell.text)).max().unwrap_or(0);
                widest.max(columns(&column.title))
            })
            .collect();
        let mut out = String::new();
        let titles = self
            .columns
            .iter()
            .map(|column| Cell::from(column.title.as_str()));
        self.line(&mut out, &titles.collect::<Vec<_>>(), &widths, paint);
        out.push_str(
            &"─".repeat(widths.iter().sum::<usize>() + 2 * widths.len().saturating_sub(1)),
        );
        out.push('\n');
        for row in &self.rows {
            self.line(&mut out, row, &widths, paint);
        }
        out
    }

    fn line(&self, out: &mut String, cells: &[Cell], widths: &[usize], paint: Paint) {
        let mut line = String::new();
        for (at, (column, width)) in self.columns.iter().zip(widths).enumerate() {
            let cell = cells.get(at).cloned().unwrap_or_default();
            let text = harmless(&cell.text);
            let gap = width.saturating_sub(columns(&text));
            let before = match column.align {
                Align::Left => 0,
                Align::Right => gap,
                Align::Center => gap / 2,
            };
            if at > 0 {
                line.push_str("  ");
            }
            line.push_str(&" ".repeat(before));
            line.push_str(&toned(&text, cell.tone, paint));
            line.push_str(&" ".repeat(gap - before));
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
}

impl Chart {
    /// The chart's numbers, for where nothing can be drawn.
    pub fn to_text(&self, width: usize, paint: Paint) -> String {
        let mut out = String::new();
        paragraph(&mut out, self.title(), width);
        out.push_str(&self.table().to_text(paint));
        out
    }
}

fn paragraph(out: &mut String, text: &str, width: usize) {
    if !text.is_empty() {
        out.push_str(&wrapped(text, width));
        out.push('\n');
    }
}

/// Broken at spaces; a word longer than a line gets one of its own.
fn wrapped(text: &str, width: usize) -> String {
    let mut out = String::new();
    let mut used = 0usize;
    for word in text.split_whitespace() {
        let length = columns(word);
        if used > 0 && used + 1 + length > width {
            out.push('\n');
            used = 0;
        }
        if used > 0 {
            out.push(' ');
            used += 1;
        }
        out.push_str(word);
        used += length;
    }
    out
}

fn strong(text: &str, paint: Paint) -> String {
    match paint {
        Paint::Never => harmless(text),
        Paint::Colours => format!("\x1b[1m{}\x1b[0m", harmless(text)),
    }
}

fn toned(text: &str, tone: Tone, paint: Paint) -> String {
    let code = match (paint, tone) {
        (Paint::Never, _) | (_, Tone::Plain) => return text.to_owned(),
        (_, Tone::Good) => 32,
        (_, Tone::Warn) => 33,
        (_, Tone::Bad) => 31,
    };
    format!("\x1b[{code}m{text}\x1b[0m")
}

/// Without characters that steer a terminal.
fn harmless(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { '·' } else { c })
        .collect()
}

/// Characters, which is close enough to columns for what stands in reports.
fn columns(text: &str) -> usize {
    text.chars().count()
}
