//! What one more of something costs, where rows stand on a scale: 0, 10, 100 and 1,000 conditions.

use super::record::{Arm, Record, RowHead};
use load::stats::{self, Interval};
use report::units::Unit;
use report::{Bar, BarGroup, Bars, Column, Document, Table};

/// The figure whose rise is told.
const FIGURE: &str = "cpu_us";
/// Seed of resamples.
const SEED: u64 = 0x7363_616c;

/// A section for each scale that has rows with at least two different counts. Returns the first in
/// a sentence.
pub(super) fn sections(document: &mut Document, record: &Record) -> Option<String> {
    let rows = record.head.rows.iter();
    let mut scales: Vec<&str> = Vec::new();
    for step in rows.filter_map(|row| row.scale.as_ref()) {
        if !scales.contains(&step.of.as_str()) {
            scales.push(&step.of);
        }
    }
    let mut told = None;
    for of in scales {
        told = told.or(section(document, record, of));
    }
    told
}

fn section(document: &mut Document, record: &Record, of: &str) -> Option<String> {
    let rows: Vec<(f64, &RowHead)> = record
        .head
        .rows
        .iter()
        .filter_map(|row| Some((row.scale.as_ref().filter(|step| step.of == of)?.count, row)))
        .collect();
    let (_, first) = rows.first()?;
    let rises: Vec<(&str, Interval)> = first
        .variants
        .iter()
        .filter_map(|variant| Some((variant.as_str(), rise(record, &rows, variant)?)))
        .collect();
    if rises.is_empty() {
        return None;
    }
    let costs = rises.iter().map(|(variant, rise)| {
        let cost = Unit::Micros.write(rise.estimate);
        format!("{cost} with {variant}")
    });
    let costs = costs.collect::<Vec<_>>().join(", ");
    let told = format!("One more {of} costs a request {costs}.");
    let title = format!("What one more {of} costs");
    let section = document.section(&title);
    section.text(format!(
        "How much the CPU time of a request rises with each {of}: the slope of the straight line \
         that is nearest to the rows, and its 95 % interval."
    ));
    let mut table = Table::new([
        Column::left("variant"),
        Column::right(format!("CPU time per {of}")),
        Column::right("95 % interval"),
    ]);
    for (variant, rise) in &rises {
        let ends = format!(
            "{} – {}",
            Unit::Micros.write(rise.low),
            Unit::Micros.write(rise.high)
        );
        table.row([*variant, &Unit::Micros.write(rise.estimate), &ends]);
    }
    section.table(table);
    let bar = |(variant, rise): &(&str, Interval)| Bar {
        name: (*variant).to_owned(),
        value: rise.estimate,
        interval: Some((rise.low, rise.high)),
        reported: None,
    };
    section.chart(Bars {
        title,
        caption: "Less is better.".into(),
        unit: Unit::Micros,
        groups: vec![BarGroup {
            bars: rises.iter().map(bar).collect(),
            ..BarGroup::default()
        }],
        reference: None,
    });
    Some(told)
}

/// The slope of a variant over the rows that have it.
fn rise(record: &Record, rows: &[(f64, &RowHead)], variant: &str) -> Option<Interval> {
    let point = |(count, row): &(f64, &RowHead)| {
        let values = record.by_block(&row.name, variant, Arm::Variant, FIGURE);
        (*count, values.into_values().collect())
    };
    let points: Vec<(f64, Vec<f64>)> = rows.iter().map(point).collect();
    stats::slope(&points, SEED)
}

#[cfg(test)]
mod tests {
    use super::super::model::Step;
    use super::super::record::{Head, Slice};
    use super::*;

    #[test]
    fn what_one_more_costs_is_told_for_each_variant() {
        let row = |count: f64| RowHead {
            name: format!("{count} conditions"),
            variants: vec!["map".into(), "never run".into()],
            figures: vec!["per_cpu_second".into()],
            scale: Some(Step {
                of: "condition".into(),
                count,
            }),
            ..RowHead::default()
        };
        let slice = |count: f64, block: usize| Slice {
            row: format!("{count} conditions"),
            variant: "map".into(),
            block,
            figures: [(FIGURE.to_owned(), 10.0 + 0.13 * count)].into(),
            ..Slice::default()
        };
        let counts = [0.0, 100.0, 1000.0];
        let record = Record {
            head: Head {
                rows: counts.map(row).into(),
                ..Head::default()
            },
            slices: counts
                .iter()
                .flat_map(|count| (0..6).map(|block| slice(*count, block)))
                .collect(),
            ..Record::default()
        };
        let mut document = Document::new("t", "q");
        let told = sections(&mut document, &record).unwrap_or_default();
        assert!(
            told.contains("One more condition costs") && told.contains("130 ns"),
            "{told}"
        );
        let text = document.to_markdown();
        assert!(text.contains("What one more condition costs"), "{text}");
        assert!(text.contains("130 ns"), "{text}");
        assert!(!text.contains("never run"), "{text}");
    }

    #[test]
    fn without_a_scale_nothing_is_said() {
        let mut document = Document::new("t", "q");
        sections(&mut document, &Record::default());
        assert!(document.sections.is_empty());
    }
}
