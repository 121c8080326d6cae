//! A report for a terminal: as wide as that is, coloured only where that was asked for.
//!
//! Bytes from elsewhere cannot steer the terminal: control characters become dots.

use super::chart::{Bar, Bars, Chart};
use super::document::{Align, Block, Cell, Document, Table, Tone};
use super::language::Language;
use super::units;

/// Longest bar.
const BAR_MAX: usize = 60;
/// Narrower than this nothing can be set.
const WIDTH_MIN: usize = 40;
/// Longest line of a sentence.
const SENTENCE: usize = 96;
/// Words are broken to no less than this; a table with less room for them is told row by row.
const LAST_COLUMN_MIN: usize = 24;

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
        heading(&mut out, &self.title, width, paint);
        paragraph(&mut out, &self.subtitle, width);
        if let Some((tone, answer)) = &self.answer {
            out.push('\n');
            out.push_str(&toned(&sentence(answer, width), *tone, paint));
            out.push('\n');
        }
        if !self.facts.is_empty() {
            out.push('\n');
        }
        let names = self.facts.iter().map(|(name, _)| columns(name)).max();
        let names = names.unwrap_or(0);
        for (name, value) in &self.facts {
            let name = harmless(name);
            let mut value = harmless(value);
            if names + 2 + columns(&value) > width {
                let indented = format!("\n{:names$}  ", "");
                value = wrapped(&value, width.saturating_sub(names + 2)).replace('\n', &indented);
            }
            out.push_str(&format!("{name:names$}  {value}\n"));
        }
        for section in self
            .sections
            .iter()
            .filter(|section| !section.blocks.is_empty())
        {
            if !section.heading.is_empty() {
                out.push('\n');
                heading(&mut out, &section.heading, width, paint);
            }
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
            out.push_str(&toned(&sentence(text, width), *tone, paint));
            out.push('\n');
        }
        Block::Table(table) => out.push_str(&table.within(width, paint)),
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
        let widths = self.widths();
        let mut out = String::new();
        if self.columns.iter().any(|column| !column.title.is_empty()) {
            let titles = self
                .columns
                .iter()
                .map(|column| Cell::from(column.title.as_str()));
            self.line(&mut out, &titles.collect::<Vec<_>>(), &widths, paint);
            let across = widths.iter().sum::<usize>() + 2 * widths.len().saturating_sub(1);
            out.push_str(&format!("{}\n", "─".repeat(across)));
        }
        for row in &self.rows {
            self.line(&mut out, row, &widths, paint);
        }
        out
    }

    /// Widths of its columns.
    fn widths(&self) -> Vec<usize> {
        let columns_of = self.columns.iter().enumerate();
        columns_of
            .map(|(at, column)| {
                let cells = self.rows.iter().filter_map(|row| row.get(at));
                let widest = cells.map(|cell| columns(&cell.text)).max().unwrap_or(0);
                widest.max(columns(&column.title))
            })
            .collect()
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

impl Table {
    /// As `to_text` where that fits, with the words of the last column broken if need be; else row
    /// by row, a line for each cell.
    pub fn within(&self, width: usize, paint: Paint) -> String {
        let widths = self.widths();
        let all = widths.iter().sum::<usize>() + 2 * widths.len().saturating_sub(1);
        if all <= width {
            return self.to_text(paint);
        }
        let last = widths.last().copied().unwrap_or(0);
        let room = (width + last).saturating_sub(all);
        let is_words = self
            .columns
            .last()
            .is_some_and(|column| column.align == Align::Left);
        match is_words && room >= LAST_COLUMN_MIN {
            true => self.broken(room).to_text(paint),
            false => self.row_by_row(paint),
        }
    }

    /// The words of the last column broken to so many columns, each line a row.
    fn broken(&self, room: usize) -> Table {
        let mut table = Table::new(self.columns.clone());
        let at = self.columns.len().saturating_sub(1);
        for row in &self.rows {
            let Some(cell) = row.get(at) else {
                table.rows.push(row.clone());
                continue;
            };
            let text = wrapped(&harmless(&cell.text), room);
            let mut before = row.get(..at).unwrap_or_default().to_vec();
            for line in text.split('\n') {
                let line = Cell::toned(cell.tone, line);
                table.row(before.iter().cloned().chain([line]));
                before.fill(Cell::default());
            }
        }
        table
    }

    fn row_by_row(&self, paint: Paint) -> String {
        let widest = self
            .columns
            .iter()
            .map(|column| columns(&column.title))
            .max()
            .unwrap_or(0);
        let mut out = String::new();
        for row in &self.rows {
            for (column, cell) in self
                .columns
                .iter()
                .zip(row)
                .filter(|(_, cell)| !cell.text.is_empty())
            {
                let title = harmless(&column.title);
                let gap = " ".repeat(widest - columns(&title));
                let text = toned(&harmless(&cell.text), cell.tone, paint);
                out.push_str(&format!("{title}{gap}  {text}\n"));
            }
            out.push('\n');
        }
        out.truncate(out.trim_end().len());
        out.push('\n');
        out
    }
}

impl Chart {
    /// Bars as such, of everything else the numbers.
    pub fn to_text(&self, width: usize, paint: Paint) -> String {
        let mut out = String::new();
        heading(&mut out, self.title(), width, paint);
        match self {
            Chart::Bars(bars) if can_be_bars(bars) => bars_text(&mut out, bars, width),
            _ => out.push_str(&self.table(Language::English).within(width, paint)),
        }
        out
    }
}

/// From zero on, with nothing else to be compared with.
fn can_be_bars(chart: &Bars) -> bool {
    let mut bars = chart.groups.iter().flat_map(|group| &group.bars);
    chart.reference.is_none() && !bars.any(|bar| bar.value < 0.0)
}

fn bars_text(out: &mut String, chart: &Bars, width: usize) {
    let bars = || chart.groups.iter().flat_map(|group| &group.bars);
    let figure = |bar: &Bar| match bar.interval {
        Some((low, high)) if low.is_finite() && high.is_finite() => {
            units::with_interval(chart.unit, bar.value, low, high)
        }
        _ => chart.unit.write(bar.value),
    };
    let names = bars()
        .map(|bar| columns(&bar.name))
        .max()
        .unwrap_or(0)
        .min(width / 3);
    let figures = bars().map(|bar| columns(&figure(bar))).max().unwrap_or(0);
    let room = width.saturating_sub(names + figures + 4).clamp(4, BAR_MAX);
    for group in &chart.groups {
        let values = group
            .bars
            .iter()
            .map(|bar| bar.value)
            .filter(|value| value.is_finite());
        let most = values.fold(0.0, f64::max);
        if !group.label.is_empty() {
            out.push_str(&format!("{}\n", harmless(&group.label)));
        }
        for bar in &group.bars {
            let name: String = harmless(&bar.name).chars().take(names).collect();
            let (drawn, figure) = (blocks(bar.value / most, room), figure(bar));
            out.push_str(&format!("{name:names$}  {drawn:room$}  {figure}\n"));
        }
    }
}

/// A bar of eighths of characters.
fn blocks(share: f64, room: usize) -> String {
    const EIGHTHS: [char; 8] = ['▏', '▎', '▍', '▌', '▋', '▊', '▉', '█'];
    if !share.is_finite() {
        return String::new();
    }
    let eighths = (share.clamp(0.0, 1.0) * room as f64 * 8.0).round() as usize;
    let mut out = "█".repeat(eighths / 8);
    if !eighths.is_multiple_of(8) {
        out.push(EIGHTHS[eighths % 8 - 1]);
    }
    out
}

fn paragraph(out: &mut String, text: &str, width: usize) {
    if !text.is_empty() {
        out.push_str(&sentence(text, width));
        out.push('\n');
    }
}

fn sentence(text: &str, width: usize) -> String {
    wrapped(&harmless(text), width.min(SENTENCE))
}

fn heading(out: &mut String, text: &str, width: usize, paint: Paint) {
    let text = wrapped(&harmless(text), width);
    match paint {
        Paint::Never => out.push_str(&text),
        Paint::Colours => out.push_str(&format!("\x1b[1m{text}\x1b[0m")),
    }
    out.push('\n');
}

/// Columns of the terminal that standard output is; `None` where it is none.
pub fn terminal_width() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok()?;
    // A terminal that was never told its size has none.
    (size.ws_col > 0).then_some(usize::from(size.ws_col))
}

/// Broken at spaces; a word longer than a line gets one of its own.
pub fn wrapped(text: &str, width: usize) -> String {
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
pub fn harmless(text: &str) -> String {
    text.chars()
        .map(|c| if is_harmful(c) { '·' } else { c })
        .collect()
}

/// Whether a character steers a terminal, or turns around what stands behind it.
pub(super) fn is_harmful(c: char) -> bool {
    let turns =
        matches!(c, '\u{200e}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    c.is_control() || turns
}

/// Characters, which is close enough to columns for what stands in reports.
fn columns(text: &str) -> usize {
    text.chars().count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Unit;
    use crate::{BarGroup, Column};

    fn table() -> Table {
        let mut table = Table::new([
            Column::left("server"),
            Column::right("figure"),
            Column::left("met"),
        ]);
        table.row([
            Cell::from("nagaya"),
            Cell::from("51,300"),
            Cell::toned(Tone::Good, "✓"),
        ]);
        table.row(["h2o", "40,900"]);
        table
    }

    #[test]
    fn columns_line_up() {
        assert_eq!(
            table().to_text(Paint::Never),
            "server  figure  met\n───────────────────\nnagaya  51,300  ✓\nh2o     40,900\n"
        );
    }

    #[test]
    fn a_table_too_wide_is_told_row_by_row() {
        assert_eq!(
            table().within(12, Paint::Never),
            "server  nagaya\nfigure  51,300\nmet     ✓\n\nserver  h2o\nfigure  40,900\n"
        );
    }

    #[test]
    fn words_of_the_last_column_are_broken_where_there_is_room_for_some() {
        let mut table = Table::new([Column::left("what"), Column::left("words")]);
        table.row(["one", "a few words that do not fit into a line"]);
        table.row(["two", "short"]);
        assert_eq!(
            table.within(32, Paint::Never),
            "what  words\n─────────────────────────────\none   a few words that do not\n      fit into a line\ntwo   short\n"
        );
        let narrow = table.within(28, Paint::Never);
        assert!(narrow.starts_with("what   one\nwords  a few"), "{narrow}");
    }

    #[test]
    fn colours_come_only_where_asked_for() {
        assert!(!table().to_text(Paint::Never).contains('\x1b'));
        assert!(table().to_text(Paint::Colours).contains("\x1b[32m✓\x1b[0m"));
    }

    #[test]
    fn a_document_is_as_wide_as_the_terminal_and_steers_it_nowhere() {
        let mut document = Document::new("title \x1b[2J", "word \x1b[2J".repeat(60));
        document.answer = Some((Tone::Bad, "word \x07 ".repeat(60)));
        document
            .section("part")
            .note(Tone::Warn, "word ".repeat(60));
        for paint in [Paint::Never, Paint::Colours] {
            let text = document.to_text(60, paint);
            assert!(
                !text.contains("\x1b[2J") && !text.contains('\x07'),
                "{text}"
            );
        }
        let text = document.to_text(60, Paint::Never);
        assert!(text.lines().all(|line| columns(line) <= 60), "{text}");
    }

    #[test]
    fn bars_are_drawn_with_what_a_terminal_has() {
        let bar = |name: &str, value| Bar {
            name: name.to_owned(),
            value,
            interval: Some((value * 0.5, value * 2.0)),
            reported: None,
        };
        let chart = Chart::from(Bars {
            title: "Rate".to_owned(),
            unit: Unit::Count,
            groups: vec![BarGroup {
                label: "static".to_owned(),
                bars: vec![
                    bar("nagaya", 800.0),
                    bar("h2o", 50.0),
                    bar("none", f64::NAN),
                ],
                marker: None,
            }],
            ..Bars::default()
        });
        assert_eq!(
            chart.to_text(40, Paint::Never),
            "Rate\nstatic\nnagaya  █████████████  800 (400 – 1,600)\nh2o     ▉              50 (25 – 100)\nnone                   –\n"
        );
    }
}
