//! `nagaya-lab compare OLD NEW`: two stored runs, row by row.
//!
//! The idea: blocks of two runs do not belong together, so nothing is paired here. Mann and
//! Whitney say whether the two sets of blocks differ, and a bootstrap of both how much. Where a
//! row has a first variant and others, its ratio to them is compared as well: that is what the
//! machine of the day does not move. All lines are judged together (Holm), so that a long table
//! does not call something different by its length alone.

use super::judge;
use super::record::{Arm, Record, RowHead};
use load::stats::{self, Better, Interval, Verdict};
use report::{Cell, Column, Document, Table, Tone, units};

/// Resamples of one interval.
const RESAMPLES: usize = 4000;
const SEED: u64 = 0x6c61_6222;
/// Nothing smaller is called a difference.
const MARGIN: f64 = 0.01;
/// Chance below which a whole comparison calls anything different where nothing is.
const ERROR: f64 = 0.05;
/// Blocks of each run below which nothing is said.
const BLOCKS_LEAST: usize = 5;

/// What the comparison came to.
#[derive(Debug)]
pub(crate) struct Comparison {
    pub(crate) document: Document,
    /// Rows in which the new run is worse.
    pub(crate) worse: usize,
}

/// Compares two runs of one experiment.
pub(crate) fn compare(old: &Record, new: &Record) -> Comparison {
    let mut document = Document::new(
        format!("{}: old and new", new.head.title),
        "Medians of the blocks; new over old with its 95 % interval.",
    );
    for (name, record) in [("Old", old), ("New", new)] {
        let versions: Vec<&str> = record
            .head
            .versions
            .iter()
            .map(|(_, version)| version.as_str())
            .collect();
        document.fact(
            name,
            format!(
                "{} · {}",
                units::instant(record.head.began()),
                versions.join(" · ")
            ),
        );
    }
    let section = document.section("Row by row");
    for warning in warnings(old, new) {
        section.note(Tone::Warn, warning);
    }
    let mut table = Table::new([
        Column::left("work"),
        Column::left("variant"),
        Column::left("figure"),
        Column::right("old"),
        Column::right("new"),
        Column::right("new ÷ old"),
        Column::left("new is"),
    ]);
    let mut found = Vec::new();
    for row in &new.head.rows {
        let Some(before) = old.head.rows.iter().find(|before| before.name == row.name) else {
            section.note(Tone::Plain, format!("{} is new.", row.name));
            continue;
        };
        found.extend(lines(old, new, before, row));
    }
    let gone = old
        .head
        .rows
        .iter()
        .filter(|row| new.head.rows.iter().all(|other| other.name != row.name));
    for row in gone {
        section.note(Tone::Plain, format!("{} is not there any more.", row.name));
    }
    let chances: Vec<f64> = found.iter().map(|line| line.chance).collect();
    let judged = found.into_iter().zip(stats::holm(&chances));
    table.rows = judged.map(|(line, chance)| line.judged(chance)).collect();
    let is_worse = |row: &&Vec<Cell>| row.last().is_some_and(|cell| cell.tone == Tone::Bad);
    let worse = table.rows.iter().filter(is_worse).count();
    section.table(table);
    Comparison { document, worse }
}

/// One thing in both runs, not judged yet.
struct Line {
    cells: Vec<Cell>,
    /// New over old.
    ratio: Option<Interval>,
    /// Of the run that has fewer.
    blocks: usize,
    better: Better,
    /// Chance of so large a difference where there is none (Mann and Whitney).
    chance: f64,
}

fn warnings(old: &Record, new: &Record) -> Vec<String> {
    let mut found = Vec::new();
    if old.head.name != new.head.name {
        found.push(format!(
            "These are different experiments: {} and {}.",
            old.head.name, new.head.name
        ));
    }
    let (a, b) = (&old.head.machine, &new.head.machine);
    if a != b {
        let shown = |m: &super::record::Machine| {
            format!(
                "{}, {} cores, {}, Linux {}",
                m.processor,
                m.cores,
                units::bytes(m.memory_bytes as f64),
                m.kernel
            )
        };
        found.push(format!(
            "They come from different machines ({} / {}): figures do not compare, ratios between variants may.",
            shown(a),
            shown(b)
        ));
    }
    let other_load = |row: &&RowHead| {
        let before = old.head.rows.iter().find(|before| before.name == row.name);
        before.is_some_and(|before| before.load != row.load)
    };
    let changed: Vec<&str> = new
        .head
        .rows
        .iter()
        .filter(other_load)
        .map(|row| row.name.as_str())
        .collect();
    if !changed.is_empty() {
        found.push(format!("The load was another for {}.", changed.join(", ")));
    }
    found
}

fn lines(old: &Record, new: &Record, before: &RowHead, row: &RowHead) -> Vec<Line> {
    let mut lines = Vec::new();
    let both = |now: &[String], then: &[String]| -> Vec<String> {
        let kept = now.iter().filter(|name| then.contains(name));
        kept.cloned().collect()
    };
    let variants = both(&row.variants, &before.variants);
    let first = row
        .variants
        .first()
        .filter(|_| row.variants.first() == before.variants.first());
    for name in both(&row.figures, &before.figures) {
        let judged = judge::judge(new, row, &name);
        let figure = &judged.figure;
        for variant in &variants {
            let blocks = |record: &Record| record.by_block(&row.name, variant, Arm::Variant, &name);
            let values = |record| blocks(record).into_values().collect();
            let what = [&row.name, variant, &figure.title];
            let compared = (values(old), values(new));
            lines.extend(line(
                what,
                compared,
                |value| figure.write(value),
                figure.better,
            ));
            let Some(first) = first.filter(|first| *first != variant) else {
                continue;
            };
            let over = |record: &Record| {
                let ours = record.by_block(&row.name, first, Arm::Variant, &name);
                let theirs = blocks(record);
                let pairs = ours
                    .iter()
                    .filter_map(|(block, ours)| Some(ours / theirs.get(block)?));
                pairs.filter(|ratio| ratio.is_finite()).collect()
            };
            let label = format!("{first} ÷ {variant}");
            let what = [&row.name, &label, &figure.title];
            lines.extend(line(
                what,
                (over(old), over(new)),
                units::ratio,
                figure.better,
            ));
        }
    }
    lines
}

/// Old and new blocks of one thing; nothing where one of them has none.
fn line(
    what: [&String; 3],
    (old, new): (Vec<f64>, Vec<f64>),
    write: impl Fn(f64) -> String,
    better: Better,
) -> Option<Line> {
    let (from, to) = (stats::median(&old)?, stats::median(&new)?);
    let ratio = ratio(&old, &new);
    let mut cells: Vec<Cell> = what.iter().map(|text| Cell::from(text.as_str())).collect();
    cells.extend([
        Cell::from(write(from)),
        Cell::from(write(to)),
        Cell::from(ratio.map_or_else(String::new, |ratio| super::draw::ratio_text(&ratio))),
    ]);
    Some(Line {
        cells,
        ratio,
        blocks: old.len().min(new.len()),
        better,
        chance: stats::mann_whitney(&old, &new),
    })
}

impl Line {
    /// With its last cell, given the chance as it stands among all the others.
    fn judged(mut self, chance: f64) -> Vec<Cell> {
        let verdict = self.verdict(chance < ERROR);
        self.cells.push(verdict);
        self.cells
    }

    fn verdict(&self, differs: bool) -> Cell {
        let (Some(ratio), true) = (self.ratio, self.blocks >= BLOCKS_LEAST) else {
            return Cell::from("too few blocks to say");
        };
        match stats::verdict(&ratio, self.blocks, MARGIN, self.better) {
            Verdict::Faster if differs => Cell::toned(Tone::Good, "better"),
            Verdict::Slower if differs => Cell::toned(Tone::Bad, "worse"),
            same @ Verdict::Same { .. } => Cell::from(same.to_string()),
            _ => Cell::from("not to be told apart"),
        }
    }
}

/// New over old: the ratio of medians, and its bootstrap over the blocks of both.
fn ratio(old: &[f64], new: &[f64]) -> Option<Interval> {
    let estimate = stats::median(new)? / stats::median(old)?;
    if !estimate.is_finite() || estimate <= 0.0 {
        return None;
    }
    let mut random = fastrand::Rng::with_seed(SEED);
    let mut drawn = Vec::with_capacity(RESAMPLES);
    for _ in 0..RESAMPLES {
        let mut median = |values: &[f64]| {
            let draw = |_| values.get(random.usize(..values.len())).copied();
            let again: Vec<f64> = (0..values.len()).filter_map(draw).collect();
            stats::median(&again)
        };
        let (below, above) = (median(old)?, median(new)?);
        if below > 0.0 {
            drawn.push(above / below);
        }
    }
    Some(Interval {
        low: stats::quantile(&drawn, 0.025)?.min(estimate),
        estimate,
        high: stats::quantile(&drawn, 0.975)?.max(estimate),
    })
}

#[cfg(test)]
mod tests {
    use super::super::record::example;
    use super::*;

    fn scaled(by: f64) -> Record {
        let mut record = example();
        for slice in &mut record.slices {
            slice.figures.values_mut().for_each(|value| *value *= by);
        }
        record
    }

    #[test]
    fn better_worse_and_the_same_are_told() {
        for (by, word, worse) in [
            (1.1, "better", 0),
            (0.9, "worse", 2),
            (1.0, "1.00 (", 0),
            (0.97, "worse", 2),
        ] {
            let compared = compare(&example(), &scaled(by));
            let text = compared.document.to_markdown();
            assert!(text.contains(word), "{by}: {text}");
            assert_eq!(compared.worse, worse, "{by}: {text}");
        }
    }

    #[test]
    fn what_is_slower_beside_others_is_told_whatever_the_machine_does() {
        let mut new = scaled(0.5);
        let ours = new.slices.iter_mut().filter(|slice| slice.variant == "one");
        for slice in ours {
            slice.figures.values_mut().for_each(|value| *value *= 0.9);
        }
        let compared = compare(&example(), &new);
        let text = compared.document.to_markdown();
        assert!(
            text.contains("| one ÷ two | requests per CPU second | 1.25"),
            "{text}"
        );
        assert_eq!(
            compared.worse, 3,
            "both, and the one beside the other: {text}"
        );
    }

    #[test]
    fn different_machines_loads_and_rows_are_told() {
        let mut new = example();
        new.head.machine.kernel = "7.0".into();
        new.head.rows[0].load = "1 connection".into();
        let mut more = new.head.rows[0].clone();
        more.name = "another".into();
        new.head.rows.push(more);
        let text = compare(&example(), &new).document.to_markdown();
        for part in [
            "different machines",
            "The load was another for row",
            "another is new",
        ] {
            assert!(text.contains(part), "{text}");
        }
    }
}
