//! A chart's numbers as a table: for readers who see no chart, and for checking it.

use super::chart::{Bars, Chart, Lines, Quantiles};
use super::document::{Cell, Column, Table};
use super::language::{Language, Phrase};
use super::units;

/// Percentiles a latency curve is told by.
pub const TOLD: [(f64, &str); 5] = [
    (0.5, "p50"),
    (0.9, "p90"),
    (0.99, "p99"),
    (0.999, "p99.9"),
    (0.9999, "p99.99"),
];

const FIGURE: Phrase = Phrase::new("figure", "値");
const INTERVAL: Phrase = Phrase::new("95 % interval", "95 % 区間");
const REPORTED: Phrase = Phrase::new("reported", "報告値");
const LINE_FIGURES: [Phrase; 4] = [
    Phrase::new("least", "最小"),
    Phrase::new("median", "中央"),
    Phrase::new("most", "最大"),
    Phrase::new("last", "最後"),
];

impl Chart {
    /// The numbers it shows; of long series, what sums them up.
    pub fn table(&self, language: Language) -> Table {
        match self {
            Chart::Bars(bars) => bars_table(bars, language),
            Chart::Lines(lines) => lines_table(lines, language),
            Chart::Quantiles(quantiles) => quantiles_table(quantiles),
        }
    }
}

fn bars_table(bars: &Bars, language: Language) -> Table {
    let reported = bars
        .groups
        .iter()
        .any(|group| group.marker.is_some() || group.bars.iter().any(|bar| bar.reported.is_some()));
    let mut columns = vec![
        Column::left(""),
        Column::left(""),
        Column::right(FIGURE.said_in(language)),
        Column::right(INTERVAL.said_in(language)),
    ];
    if reported {
        columns.push(Column::right(REPORTED.said_in(language)));
    }
    let mut table = Table::new(columns);
    for group in &bars.groups {
        for bar in &group.bars {
            let interval = bar.interval.map_or(String::new(), |(low, high)| {
                format!("{} – {}", bars.unit.write(low), bars.unit.write(high))
            });
            let told = bar
                .reported
                .or(group.marker.as_ref().map(|marker| marker.value));
            table.row([
                group.label.clone(),
                bar.name.clone(),
                bars.unit.write(bar.value),
                interval,
                told.map_or(String::new(), |value| bars.unit.write_reported(value)),
            ]);
        }
    }
    table
}

fn lines_table(lines: &Lines, language: Language) -> Table {
    let figures = LINE_FIGURES.map(|name| Column::right(name.said_in(language)));
    let names = [Column::left(""), Column::left("")];
    let mut table = Table::new(names.into_iter().chain(figures));
    for panel in &lines.panels {
        for line in &panel.lines {
            let mut values: Vec<f64> = line
                .points
                .iter()
                .map(|(_, value)| *value)
                .filter(|value| value.is_finite())
                .collect();
            let last = values.last().copied().unwrap_or(f64::NAN);
            values.sort_by(f64::total_cmp);
            let at = |index: usize| values.get(index).copied().unwrap_or(f64::NAN);
            let figures = [
                at(0),
                at(values.len() / 2),
                at(values.len().saturating_sub(1)),
                last,
            ];
            let mut row = vec![
                Cell::from(panel.title.clone()),
                Cell::from(line.name.clone()),
            ];
            row.extend(figures.map(|value| Cell::from(panel.unit.write(value))));
            table.row(row);
        }
    }
    table
}

fn quantiles_table(quantiles: &Quantiles) -> Table {
    let mut columns = vec![Column::left("")];
    columns.extend(TOLD.map(|(_, name)| Column::right(name)));
    let mut table = Table::new(columns);
    for series in &quantiles.series {
        let mut row = vec![Cell::from(series.name.clone())];
        row.extend(TOLD.map(|(wanted, _)| {
            let found = series.at_least(wanted);
            Cell::from(found.map_or(units::NONE.to_owned(), |(_, us)| units::micros(us)))
        }));
        table.row(row);
    }
    table
}
