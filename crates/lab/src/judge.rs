//! From slices to what a reader wants to know: medians, ratios with intervals, verdicts, targets.
//!
//! Everything is computed from the record alone, with seeds of its own: the same record always
//! says the same.

use std::collections::{BTreeMap, BTreeSet};

use super::figures::{self, Figure};
use super::model::{Target, Than};
use super::record::{Arm, Record, RowHead};
use load::stats::{self, Better, Interval, Summary, Verdict};

/// Nothing smaller is called a difference.
const MARGIN_MIN: f64 = 0.01;
/// Generators may differ by so much in what they see.
pub(crate) const CROSS_MARGIN: f64 = 0.03;
/// Seed of resamples.
const SEED: u64 = 0x6c61_6221;

/// One figure of a row, for all its variants.
#[derive(Debug, Clone)]
pub(crate) struct Judged<'a> {
    pub(crate) row: &'a RowHead,
    pub(crate) name: String,
    pub(crate) figure: Figure,
    /// In the order of the row; variants without the figure are left out.
    pub(crate) variants: Vec<Variant>,
    /// The control over the first variant.
    pub(crate) control: Option<Interval>,
}

/// A variant's figure.
#[derive(Debug, Clone)]
pub(crate) struct Variant {
    pub(crate) name: String,
    pub(crate) summary: Summary,
    /// Of the figure itself.
    pub(crate) interval: Option<Interval>,
    /// The first variant's figure over this one's, and what that says of the first.
    pub(crate) beside: Option<(Interval, Option<Verdict>)>,
}

/// A target and what became of it.
#[derive(Debug, Clone)]
pub(crate) struct Aim<'a> {
    pub(crate) row: &'a RowHead,
    pub(crate) target: &'a Target,
    /// The ratio, the difference or the figure.
    pub(crate) got: f64,
    pub(crate) is_met: bool,
}

/// Every figure that rows are compared by, row by row.
pub(crate) fn all(record: &Record) -> Vec<Judged<'_>> {
    let rows = record.head.rows.iter();
    let each = rows.flat_map(|row| row.figures.iter().map(move |name| judge(record, row, name)));
    each.filter(|judged| !judged.variants.is_empty()).collect()
}

/// One figure of a row.
pub(crate) fn judge<'a>(record: &Record, row: &'a RowHead, name: &str) -> Judged<'a> {
    let mut figure = figures::figure(name);
    if row.figures.first().is_some_and(|first| first == name) {
        figure.better = match row.more_is_better {
            Some(true) => Better::Higher,
            Some(false) => Better::Lower,
            None => figure.better,
        };
    }
    let blocks = |variant: &str, arm| record.by_block(&row.name, variant, arm, name);
    let first = row.variants.first().cloned().unwrap_or_default();
    let ours = blocks(&first, Arm::Variant);
    let control = ratio(&blocks(&first, Arm::Control), &ours);
    let floor = control.map_or(0.0, |control| (control.estimate - 1.0).abs());
    let margin = floor.max(MARGIN_MIN);
    let variant = |(index, variant): (usize, &String)| {
        let theirs = blocks(variant, Arm::Variant);
        let values: Vec<f64> = theirs.values().copied().collect();
        let compared = if index == 0 {
            None
        } else {
            ratio(&ours, &theirs)
        };
        let pairs = ours
            .keys()
            .filter(|block| theirs.contains_key(block))
            .count();
        Some(Variant {
            name: variant.clone(),
            summary: stats::summary(&values)?,
            interval: stats::paired_ratio(&values, &vec![1.0; values.len()], SEED),
            beside: compared.map(|ratio| {
                let enough = pairs >= stats::BLOCKS_LEAST;
                let verdict = stats::verdict(&ratio, pairs, margin, figure.better);
                (ratio, enough.then_some(verdict))
            }),
        })
    };
    Judged {
        row,
        name: name.to_owned(),
        variants: row
            .variants
            .iter()
            .enumerate()
            .filter_map(variant)
            .collect(),
        figure,
        control,
    }
}

/// Ours over theirs, block by block. Of fewer than two blocks the ratio alone.
fn ratio(ours: &BTreeMap<usize, f64>, theirs: &BTreeMap<usize, f64>) -> Option<Interval> {
    let pairs = ours
        .iter()
        .filter_map(|(block, ours)| Some((*ours, *theirs.get(block)?)));
    let (ours, theirs): (Vec<f64>, Vec<f64>) = pairs.unzip();
    let single = || {
        let ratio = ours.first()? / theirs.first()?;
        (ratio.is_finite() && ratio > 0.0).then_some(Interval {
            low: ratio,
            estimate: ratio,
            high: ratio,
        })
    };
    stats::paired_ratio(&ours, &theirs, SEED).or_else(single)
}

/// What became of every target that there are figures for.
pub(crate) fn aims(record: &Record) -> Vec<Aim<'_>> {
    let rows = record.head.rows.iter();
    rows.flat_map(|row| row.targets.iter().map(move |target| (row, target)))
        .filter(|(row, target)| is_there(record, row, target))
        .filter_map(|(row, target)| {
            let got = got(record, row, target)?;
            Some(Aim {
                row,
                target,
                got,
                is_met: holds(target, got),
            })
        })
        .collect()
}

/// A target beside somebody who was not there says nothing.
fn is_there(record: &Record, row: &RowHead, target: &Target) -> bool {
    let has = |name: &String| row.variants.contains(name);
    let other = match &target.than {
        Some(Than::Variant(name)) => has(name),
        Some(Than::Best) => row.variants.len() > 1,
        Some(Than::Row(name)) => record.head.rows.iter().any(|row| row.name == *name),
        None => true,
    };
    has(&target.variant) && other
}

fn holds(target: &Target, got: f64) -> bool {
    target.at_least.is_none_or(|least| got >= least)
        && target.at_most.is_none_or(|most| got <= most)
        && target.more_at_most.is_none_or(|most| got <= most)
}

fn got(record: &Record, row: &RowHead, target: &Target) -> Option<f64> {
    let blocks = |name: &str| record.by_block(&row.name, name, Arm::Variant, &target.of);
    let ours = blocks(&target.variant);
    let own = || median(record, &row.name, &target.variant, &target.of);
    let in_row = |other: &str| median(record, other, &target.variant, &target.of);
    if target.more_at_most.is_some() {
        let other = match target.than.as_ref()? {
            Than::Row(other) => in_row(other),
            Than::Variant(name) => median(record, &row.name, name, &target.of),
            Than::Best => None,
        };
        return Some(own()? - other?);
    }
    let over = |name: &str| ratio(&ours, &blocks(name)).map(|ratio| ratio.estimate);
    match &target.than {
        None => own(),
        Some(Than::Variant(name)) => over(name),
        // Blocks of another row are no pairs of these.
        Some(Than::Row(other)) => Some(own()? / in_row(other)?).filter(|ratio| ratio.is_finite()),
        Some(Than::Best) => {
            let others = row.variants.iter().filter(|name| **name != target.variant);
            let ratios = others.filter_map(|name| over(name));
            // The best one makes ours look worst.
            match figures::figure(&target.of).better {
                Better::Higher => ratios.reduce(f64::min),
                Better::Lower => ratios.reduce(f64::max),
            }
        }
    }
}

/// What wrk saw beside us, where a row has it: figure, ours over wrk's.
pub(crate) fn crossed<'a>(
    record: &Record,
    row: &'a RowHead,
) -> Vec<(&'a str, &'static str, Interval)> {
    let Some(first) = row.variants.first() else {
        return Vec::new();
    };
    let compared = |name: &'static str| {
        let blocks = |arm| record.by_block(&row.name, first, arm, name);
        Some((
            first.as_str(),
            name,
            ratio(&blocks(Arm::Variant), &blocks(Arm::Wrk))?,
        ))
    };
    ["per_cpu_second", "per_second"]
        .into_iter()
        .filter_map(compared)
        .collect()
}

/// Response times of a variant, all blocks that count together.
pub(crate) fn times(
    record: &Record,
    row: &str,
    variant: &str,
) -> Option<hdrhistogram::Histogram<u64>> {
    let mut merged = hdrhistogram::Histogram::<u64>::new(3).ok()?;
    let slices = record.slices.iter().filter(|slice| {
        slice.row == row
            && slice.variant == variant
            && slice.arm == Arm::Variant
            && slice.void.is_none()
    });
    for (us, count) in slices.flat_map(|slice| &slice.times) {
        let _ = merged.record_n((*us).max(1), *count);
    }
    (!merged.is_empty()).then_some(merged)
}

/// Names of all figures that a row's slices have.
pub(crate) fn names(record: &Record, row: &str) -> BTreeSet<String> {
    let slices = record.slices.iter().filter(|slice| slice.row == row);
    slices
        .flat_map(|slice| slice.figures.keys().cloned())
        .collect()
}

/// The median of a variant's figure.
pub(crate) fn median(record: &Record, row: &str, variant: &str, figure: &str) -> Option<f64> {
    let values = record.by_block(row, variant, Arm::Variant, figure);
    stats::median(&values.into_values().collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::super::record::example;
    use super::*;

    #[test]
    fn ratios_verdicts_and_targets_come_from_blocks() {
        let record = example();
        let judged = all(&record);
        assert_eq!(judged.len(), 1);
        let two = &judged[0].variants[1];
        let (ratio, verdict) = two.beside.expect("two variants");
        assert!((ratio.estimate - 1.25).abs() < 1e-6, "{ratio:?}");
        assert_eq!(verdict, Some(Verdict::Faster));
        assert_eq!(two.summary.count, 12);
        let control = judged[0].control.expect("a control");
        assert!((control.estimate - 1.002).abs() < 1e-6);
        let aims = aims(&record);
        assert!(aims[0].is_met && (aims[0].got - 1.25).abs() < 1e-6);
    }

    #[test]
    fn the_best_of_the_others_is_what_ours_looks_worst_beside() {
        let mut record = example();
        let row = &mut record.head.rows[0];
        row.targets[0].than = Some(Than::Best);
        row.targets[0].at_least = Some(1.3);
        assert!(!aims(&record)[0].is_met);
        record.head.rows[0].variants.truncate(1);
        assert!(aims(&record).is_empty(), "nobody is there to compare with");
    }

    #[test]
    fn a_target_may_lean_on_another_row_and_bound_a_difference() {
        let mut record = example();
        let mut other = record.slices.clone();
        for slice in &mut other {
            slice.row = "other".into();
            for value in slice.figures.values_mut() {
                *value *= 2.0;
            }
        }
        record.slices.extend(other);
        record.head.rows.push(RowHead {
            name: "other".into(),
            ..record.head.rows[0].clone()
        });
        let mut seen = |target: &dyn Fn(&mut Target)| {
            target(&mut record.head.rows[0].targets[0]);
            let aims = aims(&record);
            (aims[0].got, aims[0].is_met)
        };
        let (ratio, is_met) = seen(&|target| target.than = Some(Than::Row("other".into())));
        assert!((ratio - 0.5).abs() < 1e-9 && !is_met, "{ratio}");
        let (difference, is_met) = seen(&|target| {
            (target.at_least, target.more_at_most) = (None, Some(1.0));
        });
        assert!(difference < 0.0 && is_met, "{difference}");
        let (difference, is_met) = seen(&|target| target.than = Some(Than::Variant("two".into())));
        assert!(difference > 1.0 && !is_met, "{difference}");
        let (_, is_met) = seen(&|target| target.than = Some(Than::Row("nobody".into())));
        assert!(
            is_met,
            "the other row's own target, for this one leans on nobody"
        );
    }

    #[test]
    fn few_blocks_make_no_verdict() {
        let mut record = example();
        record.slices.retain(|slice| slice.block < 5);
        let judged = all(&record);
        let (_, verdict) = judged[0].variants[1].beside.expect("a ratio all the same");
        assert_eq!(verdict, None);
        record.slices.retain(|slice| slice.block < 1);
        let judged = all(&record);
        let (ratio, _) = judged[0].variants[1].beside.expect("one block has a ratio");
        assert!((ratio.low - ratio.high).abs() < 1e-12);
    }
}
