//! What is to be read with the figures: misses, doubts, and what a run said of itself.

use super::draw;
use super::figures;
use super::judge::{self, Aim, CROSS_MARGIN};
use super::record::{Arm, Record, RowHead};
use report::units::Unit;
use report::{Document, Section, Tone};

/// The generator is what limits from here on.
const BUSY_MAX: f64 = 0.9;
/// The share of a variant's requests that may fail without a word.
const FAILED_MAX: f64 = 0.001;

/// Adds the section, if there is anything to be said.
pub(crate) fn section(document: &mut Document, record: &Record, aims: &[Aim<'_>]) {
    let mut section = Section {
        heading: "To be read with it".into(),
        ..Section::default()
    };
    for text in draw::misses(aims) {
        section.note(Tone::Bad, format!("Not reached: {text}."));
    }
    for row in &record.head.rows {
        cross_check(&mut section, record, row);
        busy(&mut section, record, row);
        failures(&mut section, record, row);
    }
    for note in &record.notes {
        let row = note
            .row
            .as_ref()
            .map_or_else(String::new, |row| format!("{row}: "));
        section.note(note.tone, format!("{row}{}.", note.text));
    }
    if !section.blocks.is_empty() {
        document.sections.push(section);
    }
}

fn cross_check(section: &mut Section, record: &Record, row: &RowHead) {
    for (variant, name, ratio) in judge::crossed(record, row) {
        let figure = figures::figure(name);
        let percent = CROSS_MARGIN * 100.0;
        let (least, most) = (1.0 - CROSS_MARGIN, 1.0 + CROSS_MARGIN);
        let (tone, verdict) = if ratio.low > most || ratio.high < least {
            (Tone::Warn, format!("more than {percent:.0} % apart"))
        } else if ratio.low >= least && ratio.high <= most {
            (Tone::Plain, format!("within {percent:.0} %"))
        } else {
            let text = format!("too few blocks to tell it from within {percent:.0} %");
            (Tone::Plain, text)
        };
        section.note(
            tone,
            format!(
                "{}: cross-check with wrk on {variant}, {} of our generator ÷ wrk's {}: {verdict}.",
                row.name,
                figure.title,
                draw::ratio_text(&ratio)
            ),
        );
    }
}

/// Where the generator was the limit, rates are its own. CPU per request stays the server's.
fn busy(section: &mut Section, record: &Record, row: &RowHead) {
    let busy = |variant: &&String| {
        let busy = judge::median(record, &row.name, variant, "generator_busy");
        busy.is_some_and(|busy| busy > BUSY_MAX)
    };
    let names: Vec<&str> = row
        .variants
        .iter()
        .filter(busy)
        .map(String::as_str)
        .collect();
    if !names.is_empty() {
        section.note(
            Tone::Plain,
            format!(
                "{}: the generator's core was busy for more than {:.0} % beside {}: requests per second are its limit there, not the server's.",
                row.name,
                BUSY_MAX * 100.0,
                names.join(", ")
            ),
        );
    }
}

/// Replies that failed are replies all the same, and cheap ones: who refuses much looks fast.
fn failures(section: &mut Section, record: &Record, row: &RowHead) {
    let sum = |variant: &str, figure: &str| -> f64 {
        let values = record.by_block(&row.name, variant, Arm::Variant, figure);
        values.into_values().sum()
    };
    let share = |variant: &String| {
        let share = sum(variant, "failed") / sum(variant, "completed").max(1.0);
        (share > FAILED_MAX).then(|| format!("{} of {variant}", Unit::Share.write(share)))
    };
    let failed: Vec<String> = row.variants.iter().filter_map(share).collect();
    if !failed.is_empty() {
        section.note(
            Tone::Warn,
            format!(
                "{}: requests failed, {}; a reply that says no costs less than one that does the work.",
                row.name,
                failed.join(", ")
            ),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::example;
    use super::*;

    fn document(record: &Record) -> Document {
        draw::document(record)
    }

    #[test]
    fn variants_that_refuse_are_told() {
        let mut record = example();
        let told = |record: &Record| document(record).to_markdown().contains("requests failed");
        for slice in &mut record.slices {
            slice.figures.insert("completed".into(), 1000.0);
            slice.figures.insert("failed".into(), 1.0);
        }
        assert!(!told(&record));
        for slice in record
            .slices
            .iter_mut()
            .filter(|slice| slice.variant == "two")
        {
            slice.figures.insert("failed".into(), 120.0);
        }
        let text = document(&record).to_markdown();
        assert!(
            text.contains("row: requests failed, 12 % of two;"),
            "{text}"
        );
    }

    #[test]
    fn wrk_beside_us_is_told_where_it_was_asked() {
        let mut record = example();
        let mut slices = record.slices.clone();
        slices.retain(|slice| slice.variant == "one" && slice.arm == Arm::Variant);
        for slice in &mut slices {
            slice.arm = Arm::Wrk;
            slice.figures.values_mut().for_each(|value| *value *= 1.1);
        }
        record.slices.extend(slices);
        let text = document(&record).to_markdown();
        assert!(text.contains("cross-check with wrk on one"), "{text}");
        assert!(text.contains("more than 3 % apart"), "{text}");
        // Half the blocks agree, half do not.
        let wrk = record
            .slices
            .iter_mut()
            .filter(|slice| slice.arm == Arm::Wrk);
        for slice in wrk.take(6) {
            slice.figures.values_mut().for_each(|value| *value /= 1.1);
        }
        let text = document(&record).to_markdown();
        assert!(text.contains("too few blocks to tell"), "{text}");
    }
}
