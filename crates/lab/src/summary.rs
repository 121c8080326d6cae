//! What is kept of a run beside the code: `summary.jsonl`, small enough for a repository.
//!
//! The idea: reports, pictures and comparisons are made of a figure's value in each block, and of
//! five response times a variant. So these are kept, a line for each row and variant, and a clone
//! draws and compares what another machine measured. Blocks that count for nothing, figures no
//! report shows and the response times of single slices stay in `data.jsonl`, where it was run.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize, Serializer};

use super::judge;
use super::record::{Arm, Line, Record, Slice, text};
use load::Error;
use report::{QuantileSeries, TOLD};

/// Figures that no report shows, unless a row asks for them.
const LEFT_OUT: [&str; 10] = [
    "admitted_p50_us",
    "admitted_p99_us",
    "first_byte_p50_us",
    "first_byte_p99_us",
    "goodput",
    "max_us",
    "mean_us",
    "p90_us",
    "p999_us",
    "server_busy",
];

/// Whole numbers below are exact.
const WHOLE_MAX: f64 = 9e15;

/// Slices of one variant in one row, figure by figure.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Series {
    row: String,
    variant: String,
    arm: Arm,
    /// The blocks that count.
    blocks: Vec<usize>,
    /// A value for each of them, in their order; none where the slice has no such figure.
    #[serde(serialize_with = "short_figures")]
    figures: BTreeMap<String, Vec<Option<f64>>>,
}

/// Response times of one variant in one row, all blocks together.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Curve {
    pub(crate) row: String,
    pub(crate) variant: String,
    /// Quantile from 0 to below 1, and microseconds.
    #[serde(serialize_with = "short_points")]
    pub(crate) points: Vec<(f64, f64)>,
}

/// A figure, written without a point where it is whole, as most are.
struct Short(f64);

impl Serialize for Short {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        // Cut off where it is not within the range, and then another.
        let whole = self.0 as i64;
        match (whole as f64).to_bits() == self.0.to_bits() && self.0.abs() < WHOLE_MAX {
            true => to.serialize_i64(whole),
            false => to.serialize_f64(self.0),
        }
    }
}

fn short_figures<S: Serializer>(
    figures: &BTreeMap<String, Vec<Option<f64>>>,
    to: S,
) -> Result<S::Ok, S::Error> {
    let short = |values: &Vec<Option<f64>>| -> Vec<Option<Short>> {
        values.iter().map(|value| value.map(Short)).collect()
    };
    to.collect_map(figures.iter().map(|(name, values)| (name, short(values))))
}

fn short_points<S: Serializer>(points: &[(f64, f64)], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(points.iter().map(|(at, us)| (Short(*at), Short(*us))))
}

impl Series {
    /// The slices it was made of, without their places in the block and their response times.
    pub(crate) fn slices(self) -> impl Iterator<Item = Slice> {
        self.blocks.into_iter().enumerate().map(move |(at, block)| {
            let value = |(name, values): (&String, &Vec<Option<f64>>)| {
                Some((name.clone(), values.get(at).copied().flatten()?))
            };
            Slice {
                row: self.row.clone(),
                variant: self.variant.clone(),
                arm: self.arm,
                block,
                figures: self.figures.iter().filter_map(value).collect(),
                ..Slice::default()
            }
        })
    }
}

/// The lines of a record's summary.
pub(crate) fn summary(record: &Record) -> Result<String, Error> {
    let named = named(record);
    let is_kept = |name: &str| !LEFT_OUT.contains(&name) || named.contains(name);
    let mut series: Vec<Line> = Vec::new();
    let mut curves: Vec<Line> = Vec::new();
    for row in &record.head.rows {
        for variant in &row.variants {
            for arm in [Arm::Variant, Arm::Control, Arm::Wrk] {
                let slices = record.slices.iter().filter(|slice| {
                    slice.row == row.name
                        && slice.variant == *variant
                        && slice.arm == arm
                        && slice.void.is_none()
                });
                let slices: Vec<&Slice> = slices.collect();
                if !slices.is_empty() {
                    series.push(Line::Series(of(&slices, is_kept)));
                }
            }
            let curve = curve(record, &row.name, variant);
            curves.extend(curve.map(|curve| Line::Curve(told(&row.name, curve))));
        }
    }
    let head = Line::Head(Box::new(record.head.clone()));
    let notes = record.notes.iter().cloned().map(Line::Note);
    text(
        std::iter::once(head)
            .chain(series)
            .chain(curves)
            .chain(notes),
    )
}

/// The response times of a variant: as its slices have them, or as a summary has kept them.
pub(crate) fn curve(record: &Record, row: &str, variant: &str) -> Option<QuantileSeries> {
    if let Some(times) = judge::times(record, row, variant) {
        return Some(QuantileSeries::of(variant, &times));
    }
    let mut kept = record.curves.iter();
    let kept = kept.find(|curve| curve.row == row && curve.variant == variant)?;
    Some(QuantileSeries {
        name: kept.variant.clone(),
        points: kept.points.clone(),
    })
}

/// Rounds a figure to eight digits, more than any two runs have in common.
pub(crate) fn rounded(value: f64) -> f64 {
    format!("{value:.7e}").parse().unwrap_or(value)
}

/// The figures that rows ask for, or are held against.
fn named(record: &Record) -> BTreeSet<&str> {
    let rows = record.head.rows.iter();
    rows.flat_map(|row| {
        let figures = row.figures.iter();
        let targets = row.targets.iter().map(|target| &target.of);
        let reported = row.reported.iter().map(|reported| &reported.of);
        figures.chain(targets).chain(reported).map(String::as_str)
    })
    .collect()
}

fn of(slices: &[&Slice], is_kept: impl Fn(&str) -> bool) -> Series {
    let names = slices.iter().flat_map(|slice| slice.figures.keys());
    let names: BTreeSet<&String> = names.filter(|name| is_kept(name)).collect();
    let values = |name: &String| {
        let values = slices.iter().map(|slice| slice.figures.get(name));
        values.map(|value| value.copied().map(rounded)).collect()
    };
    Series {
        row: slices[0].row.clone(),
        variant: slices[0].variant.clone(),
        arm: slices[0].arm,
        blocks: slices.iter().map(|slice| slice.block).collect(),
        figures: names
            .into_iter()
            .map(|name| (name.clone(), values(name)))
            .collect(),
    }
}

/// The points of a curve that a report tells in words.
fn told(row: &str, curve: QuantileSeries) -> Curve {
    let point = |(wanted, _): (f64, &str)| curve.at_least(wanted);
    Curve {
        row: row.to_owned(),
        points: TOLD.into_iter().filter_map(point).collect(),
        variant: curve.name,
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::example;
    use super::super::{compare, draw};
    use super::*;

    #[test]
    fn what_is_drawn_of_a_summary_is_what_is_drawn_of_the_data() {
        let whole = example();
        let kept = Record::of_text(&summary(&whole).expect("written")).expect("read");
        let shown = |record: &Record| draw::document(record).to_markdown();
        assert_eq!(shown(&kept), shown(&whole));
        assert!(shown(&kept).contains("## Response times"));
        let compared = |new: &Record| compare::compare(&whole, new).document.to_markdown();
        assert_eq!(compared(&kept), compared(&whole));
        let again = summary(&kept).expect("written");
        assert_eq!(again, summary(&whole).expect("written"), "nothing is lost");
        assert_eq!(Record::of_text(&again).expect("read"), kept);
    }

    #[test]
    fn figures_no_report_shows_are_left_out_unless_a_row_asks_for_them() {
        let mut record = example();
        for slice in &mut record.slices {
            slice.figures.insert("max_us".into(), 1.0);
            slice.figures.insert("by_a_command".into(), 123_456.789_4);
        }
        let text = summary(&record).expect("written");
        assert!(!text.contains("max_us"), "{text}");
        assert!(text.contains("123456.79"), "eight digits: {text}");
        record.head.rows[0].figures.push("max_us".into());
        assert!(summary(&record).expect("written").contains("max_us"));
    }

    #[test]
    fn whole_figures_are_written_without_a_point_and_read_as_they_were() {
        for (value, written) in [
            (197_000.0, "197000"),
            (0.0, "0"),
            (-0.0, "-0.0"),
            (0.5, "0.5"),
            (1e300, "1e+300"),
            (f64::NAN, "null"),
        ] {
            let text = serde_json::to_string(&Short(value)).expect("written");
            assert_eq!(text, written);
            if value.is_finite() {
                let read: f64 = serde_json::from_str(&text).expect("read");
                assert_eq!(read.to_bits(), value.to_bits());
            }
        }
    }

    #[test]
    fn rounding_keeps_what_is_no_number_of_digits() {
        for (value, wanted) in [
            (0.0, 0.0),
            (-1.5, -1.5),
            (f64::MAX, 1.797_693_1e308),
            (f64::INFINITY, f64::INFINITY),
            (1.234_567_891, 1.234_567_9),
        ] {
            assert_eq!(rounded(value), wanted);
        }
        assert!(rounded(f64::NAN).is_nan());
    }
}
