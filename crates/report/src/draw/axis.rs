//! Axes: where a value stands, and which values are worth a label.
//!
//! Ticks are round in the unit people read: 1, 2 or 5 for numbers, powers of two for sizes, minutes
//! for time. Every list of ticks has a bound, whatever the range.

use super::canvas::{Canvas, Ink, Side};
use super::{SMALL, measure};
use crate::units::{self, Unit};

/// Ticks of an axis, at most.
const TICKS_MAX: usize = 24;
/// Days between dates worth a label.
const DAY_STEPS: [f64; 7] = [1.0, 2.0, 7.0, 14.0, 28.0, 91.0, 182.0];
/// Below this a range is taken for a single value.
const SPAN_MIN: f64 = 1e-12;
/// Beyond this a value stands at the edge.
const VALUE_MAX: f64 = 1e18;
/// Quantiles worth a label.
const QUANTILES: [(f64, &str); 7] = [
    (0.0, "p0"),
    (0.5, "p50"),
    (0.9, "p90"),
    (0.99, "p99"),
    (0.999, "p99.9"),
    (0.9999, "p99.99"),
    (0.99999, "p99.999"),
];

/// How values are spread over an axis.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Scale {
    /// Evenly.
    Linear,
    /// By magnitude.
    Log,
    /// By what lies beyond a quantile: as far from 99 to 99.9 as from 90 to 99.
    Tail,
}

/// An axis.
#[derive(Debug, Clone)]
pub(super) struct Axis {
    scale: Scale,
    low: f64,
    high: f64,
    ticks: Vec<(f64, String)>,
}

impl Axis {
    /// From `low` to `high`, with about so many ticks.
    pub(super) fn linear(low: f64, high: f64, unit: Unit, about: usize) -> Axis {
        let (low, high) = spanned(low, high);
        let ticks = multiples(low, high, step(low, high, unit, about));
        Axis {
            scale: Scale::Linear,
            low,
            high,
            ticks: labelled(ticks, |value| unit.tick(value)),
        }
    }

    /// Like `linear`, but ends at a tick, so that the highest point has one above it.
    pub(super) fn rounded(low: f64, high: f64, unit: Unit, about: usize) -> Axis {
        let (low, high) = spanned(low, high);
        let step = step(low, high, unit, about);
        let (low, high) = ((low / step).floor() * step, (high / step).ceil() * step);
        Axis::linear(low, high, unit, about)
    }

    /// Seconds since the start.
    pub(super) fn time(low: f64, high: f64, about: usize) -> Axis {
        let (low, high) = spanned(low, high);
        let step = clock_step((high - low) / about.max(1) as f64);
        let label = |value: f64| match step {
            _ if value == 0.0 => "0".to_owned(),
            step if step >= 3600.0 => format!("{} h", units::figure(value / 3600.0)),
            step if step >= 60.0 => format!("{} min", units::figure(value / 60.0)),
            _ => Unit::Seconds.tick(value),
        };
        Axis {
            scale: Scale::Linear,
            low,
            high,
            ticks: labelled(multiples(low, high, step), label),
        }
    }

    /// Days after the first of 1970, as dates.
    pub(super) fn days(low: f64, high: f64, about: usize) -> Axis {
        // What is of one day is within that.
        let (low, high) = match (high - low).abs() < 1.0 {
            true => (low.floor(), low.floor() + 0.999),
            false => (low, high),
        };
        let (low, high) = spanned(low, high);
        let raw = (high - low) / about.max(1) as f64;
        let step = DAY_STEPS.into_iter().find(|step| *step >= raw);
        let step = step.unwrap_or_else(|| (raw / 365.0).ceil() * 365.0);
        let label = |value: f64| match units::date(value) {
            date if step >= 28.0 => date,
            date => date.get(5..).map_or(date.clone(), str::to_owned),
        };
        // Labels end with the last day, which is the one that is looked for.
        let back = (0..TICKS_MAX).map(|index| high.floor() - index as f64 * step);
        let mut ticks: Vec<f64> = back.take_while(|at| *at >= low).collect();
        ticks.reverse();
        Axis {
            scale: Scale::Linear,
            low,
            high,
            ticks: labelled(ticks, label),
        }
    }

    /// By magnitude; both ends are above zero.
    pub(super) fn log(low: f64, high: f64, unit: Unit) -> Axis {
        let sound = |value: f64| if value.is_nan() { SPAN_MIN } else { value };
        let low = sound(low).clamp(SPAN_MIN, VALUE_MAX);
        let high = sound(high).clamp(low * 4.0, VALUE_MAX * 4.0);
        let decades = (high / low).log10();
        let within: &[f64] = match decades {
            d if d <= 2.2 => &[1.0, 2.0, 5.0],
            d if d <= 4.0 => &[1.0, 3.0],
            _ => &[1.0],
        };
        let every = (decades / 8.0).ceil().max(1.0) as i32;
        let mut ticks = Vec::new();
        for power in low.log10().floor() as i32..=high.log10().ceil() as i32 {
            for factor in within {
                let value = factor * 10f64.powi(power);
                if power % every == 0 && value >= low * 0.999 && value <= high * 1.001 {
                    ticks.push(value);
                }
            }
        }
        Axis {
            scale: Scale::Log,
            low,
            high,
            ticks: labelled(ticks, |value| unit.tick(value)),
        }
    }

    /// Quantiles from 0 to `high`.
    pub(super) fn tail(high: f64) -> Axis {
        let sound = if high.is_nan() { 0.5 } else { high };
        let high = sound.clamp(0.5, 0.999_999);
        Axis {
            scale: Scale::Tail,
            low: 0.0,
            high,
            ticks: QUANTILES
                .iter()
                .filter(|(quantile, _)| *quantile > 0.0 && *quantile <= high)
                .map(|(quantile, name)| (*quantile, (*name).to_owned()))
                .collect(),
        }
    }

    /// Width of its widest label.
    pub(super) fn label_width(&self) -> f64 {
        let widths = self
            .ticks
            .iter()
            .map(|(_, label)| measure::width(label, SMALL));
        widths.fold(0.0, f64::max)
    }

    /// Whether a value lies between its ends.
    pub(super) fn holds(&self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }

    /// Where each tick is, from 0 to 1.
    pub(super) fn ticks(&self) -> impl Iterator<Item = f64> {
        self.ticks.iter().map(|(value, _)| self.position(*value))
    }

    /// Draws its labels in a row that begins at `left`; a label that would run into the one before
    /// it, or over the picture's edge at `end`, makes way.
    pub(super) fn draw_below(
        &self,
        canvas: &mut Canvas,
        left: f64,
        width: f64,
        end: f64,
        top: f64,
    ) {
        let mut free = 0.0;
        for (value, label) in &self.ticks {
            let half = measure::width(label, SMALL) / 2.0;
            let x = (left + width * self.position(*value)).min(end - half);
            if x - half >= free {
                canvas.label(label, (x, top + 14.0), Side::Middle, Ink::Muted);
                free = x + half + 6.0;
            }
        }
    }

    /// Draws its labels from the bottom up, each with a line across the plot at its right.
    pub(super) fn draw_beside(&self, canvas: &mut Canvas, plot: &Plot) {
        for (value, label) in &self.ticks {
            let y = plot.top + plot.height * (1.0 - self.position(*value));
            let (left, right) = (plot.left, plot.left + plot.width);
            canvas.line((left, y), (right, y), Ink::Grid, 1.0);
            canvas.label(label, (left - 8.0, y), Side::End, Ink::Muted);
        }
    }

    /// From 0 to 1; values beyond the ends stand at the ends.
    pub(super) fn position(&self, value: f64) -> f64 {
        let place = |value: f64| match self.scale {
            Scale::Linear => value,
            Scale::Log => value.max(SPAN_MIN).ln(),
            Scale::Tail => -(1.0 - value.clamp(0.0, 0.999_999_9)).log10(),
        };
        let (low, high) = (place(self.low), place(self.high));
        let share = (place(value) - low) / (high - low);
        if share.is_finite() {
            share.clamp(0.0, 1.0)
        } else {
            0.0
        }
    }
}

/// Where lines are drawn, in pixels.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plot {
    pub(super) left: f64,
    pub(super) top: f64,
    pub(super) width: f64,
    pub(super) height: f64,
}

impl Plot {
    /// Where a point stands between two axes.
    pub(super) fn place(&self, across: &Axis, up: &Axis, (x, y): (f64, f64)) -> (f64, f64) {
        (
            self.left + self.width * across.position(x),
            self.top + self.height * (1.0 - up.position(y)),
        )
    }
}

/// Finite, in order, and not one value alone.
fn spanned(low: f64, high: f64) -> (f64, f64) {
    let finite = |value: f64| {
        if value.is_nan() {
            0.0
        } else {
            value.clamp(-VALUE_MAX, VALUE_MAX)
        }
    };
    let (low, high) = (finite(low), finite(high));
    let least = SPAN_MIN.max(low.abs() * 1e-6);
    if high - low >= least {
        (low, high)
    } else if low == 0.0 {
        (0.0, 1.0)
    } else {
        (low, low + low.abs())
    }
}

/// What lies between two ticks.
fn step(low: f64, high: f64, unit: Unit, about: usize) -> f64 {
    let raw = (high - low) / about.max(1) as f64;
    match unit {
        Unit::Bytes => binary_step(raw),
        _ => decimal_step(raw),
    }
}

/// A round number not much less than `raw`: 1, 2 or 5 times a power of ten.
fn decimal_step(raw: f64) -> f64 {
    let power = 10f64.powf(raw.max(SPAN_MIN).log10().floor());
    let factor = [1.0, 2.0, 5.0]
        .into_iter()
        .find(|factor| factor * power >= raw * 0.8);
    factor.unwrap_or(10.0) * power
}

/// The same in bytes, KiB, MiB and so on: 1, 2, 5, 10 … 500 of them.
fn binary_step(raw: f64) -> f64 {
    let mut unit = 1.0;
    while raw >= unit * 512.0 {
        unit *= 1024.0;
    }
    // A step of less than one byte says nothing.
    decimal_step((raw / unit).max(if unit > 1.0 { 0.5 } else { 1.0 })) * unit
}

/// The same for time: in seconds, minutes, hours.
fn clock_step(raw: f64) -> f64 {
    const STEPS: [f64; 14] = [
        15.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0, 1200.0, 1800.0, 3600.0, 7200.0,
        21_600.0, 43_200.0,
    ];
    if raw <= 10.0 {
        return decimal_step(raw);
    }
    let found = STEPS.into_iter().find(|step| *step >= raw);
    found.unwrap_or_else(|| decimal_step(raw / 86_400.0) * 86_400.0)
}

/// Multiples of a step within a range, ends included.
fn multiples(low: f64, high: f64, step: f64) -> Vec<f64> {
    let first = (low / step - 1e-6).ceil();
    (0..TICKS_MAX)
        .map(|index| (first + index as f64) * step)
        .take_while(|value| *value <= high + step * 1e-6)
        .collect()
}

fn labelled(ticks: Vec<f64>, label: impl Fn(f64) -> String) -> Vec<(f64, String)> {
    ticks
        .into_iter()
        .map(|value| (value, label(value)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(axis: &Axis) -> Vec<String> {
        axis.ticks.iter().map(|(_, label)| label.clone()).collect()
    }

    #[test]
    fn ticks_are_round_in_the_unit_people_read() {
        let check = |axis: Axis, wanted: &[&str]| assert_eq!(labels(&axis), wanted);
        check(
            Axis::linear(0.0, 117_000.0, Unit::Count, 6),
            &["0", "20 k", "40 k", "60 k", "80 k", "100 k"],
        );
        check(
            Axis::linear(0.0, 1_800.0, Unit::Micros, 4),
            &["0", "500 µs", "1 ms", "1.5 ms"],
        );
        check(
            Axis::linear(0.0, 2.5 * 1024.0 * 1024.0, Unit::Bytes, 5),
            &["0", "512 KiB", "1 MiB", "1.5 MiB", "2 MiB", "2.5 MiB"],
        );
        check(
            Axis::linear(0.0, 300.0 * 1048576.0, Unit::Bytes, 4),
            &["0", "100 MiB", "200 MiB", "300 MiB"],
        );
        check(
            Axis::time(0.0, 10.0, 5),
            &["0", "2 s", "4 s", "6 s", "8 s", "10 s"],
        );
        check(
            Axis::time(0.0, 300.0, 6),
            &["0", "1 min", "2 min", "3 min", "4 min", "5 min"],
        );
        check(
            Axis::log(30.0, 2_500.0, Unit::Micros),
            &["50 µs", "100 µs", "200 µs", "500 µs", "1 ms", "2 ms"],
        );
        check(Axis::tail(0.9995), &["p50", "p90", "p99", "p99.9"]);
    }

    #[test]
    fn days_are_dates_that_end_with_the_last() {
        let short = Axis::days(20_757.0, 20_784.9, 8);
        assert_eq!(labels(&short), ["11-06", "11-13", "11-20", "11-27"]);
        for high in [20_784.5, 20_784.8] {
            let one = Axis::days(20_784.5, high, 8);
            assert_eq!(labels(&one), ["11-27"]);
        }
        let long = Axis::days(20_420.0, 20_784.0, 8);
        assert_eq!(long.ticks.len(), 5);
        assert_eq!(labels(&long).last().map(String::as_str), Some("2026-11-27"));
    }

    #[test]
    fn no_range_makes_too_many_ticks_or_none() {
        for low in [0.0, -1e300, 1e-300, 5.0, f64::NAN, f64::NEG_INFINITY] {
            for high in [
                0.0,
                1e300,
                1e-300,
                5.0,
                5.000_000_1,
                f64::NAN,
                f64::INFINITY,
            ] {
                for unit in [Unit::Count, Unit::Bytes, Unit::Micros, Unit::Ratio] {
                    let axes = [
                        Axis::linear(low, high, unit, 5),
                        Axis::rounded(low, high, unit, 5),
                        Axis::time(low, high, 5),
                        Axis::log(low, high, unit),
                        Axis::tail(high),
                    ];
                    for axis in axes {
                        let count = axis.ticks.len();
                        assert!((1..=TICKS_MAX).contains(&count), "{low} {high}: {axis:?}");
                        assert!((0.0..=1.0).contains(&axis.position(high)), "{axis:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_quantile_ten_times_rarer_is_one_step_further() {
        let axis = Axis::tail(0.9999);
        let steps: Vec<f64> = [0.0, 0.9, 0.99, 0.999, 0.9999]
            .into_iter()
            .map(|quantile| (axis.position(quantile) * 4.0 * 1e6).round() / 1e6)
            .collect();
        assert_eq!(steps, [0.0, 1.0, 2.0, 3.0, 4.0]);
    }
}
