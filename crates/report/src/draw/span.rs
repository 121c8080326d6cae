//! From where to where the scale of a group of bars goes.

use crate::chart::{BarGroup, Bars, Marker};
use crate::units::Unit;

/// Groups whose largest figures are further apart than this get scales of their own.
const SHARED_MAX: f64 = 8.0;
/// An interval may stretch the scale to so many times the largest figure, not further.
const STRETCH_MAX: f64 = 2.5;
/// What dots leave free at both ends.
const MARGIN: f64 = 0.06;

/// How a figure is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mark {
    /// From 0 to the figure.
    Bar,
    /// At the figure.
    Dot,
}

impl Mark {
    /// Ratios with something to be compared with are dots.
    pub(super) fn of(chart: &Bars) -> Mark {
        let reference = chart.reference.as_ref();
        if chart.unit == Unit::Ratio && reference.is_some_and(|marker| marker.value.is_finite()) {
            Mark::Dot
        } else {
            Mark::Bar
        }
    }
}

/// Low and high of all groups together; `None` where each is to have its own.
pub(super) fn shared(chart: &Bars, mark: Mark) -> Option<(f64, f64)> {
    let spans: Vec<(f64, f64)> = chart
        .groups
        .iter()
        .filter_map(|group| of_group(group, chart.reference.as_ref(), mark))
        .collect();
    let low = spans.iter().map(|(low, _)| *low).reduce(f64::min)?;
    let high = spans.iter().map(|(_, high)| *high).reduce(f64::max)?;
    let least_high = spans.iter().map(|(_, high)| *high).reduce(f64::min)?;
    let comparable = mark == Mark::Dot || low < 0.0 || high <= least_high * SHARED_MAX;
    comparable.then_some((low, high))
}

/// Low and high of a group; `None` where it has no figure.
pub(super) fn of_group(
    group: &BarGroup,
    reference: Option<&Marker>,
    mark: Mark,
) -> Option<(f64, f64)> {
    let values = || {
        group
            .bars
            .iter()
            .map(|bar| bar.value)
            .filter(|value| value.is_finite())
    };
    let (least, most) = (values().reduce(f64::min)?, values().reduce(f64::max)?);
    let markers = [group.marker.as_ref(), reference]
        .into_iter()
        .flatten()
        .map(|marker| marker.value);
    let reported = group.bars.iter().filter_map(|bar| bar.reported);
    let seen: Vec<f64> = markers
        .chain(reported)
        .filter(|value| value.is_finite())
        .collect();
    let ends = group.bars.iter().filter_map(|bar| bar.interval);
    let highest = ends
        .clone()
        .map(|(_, high)| high.min(most.max(0.0) * STRETCH_MAX));
    let high = seen
        .iter()
        .copied()
        .chain(highest)
        .filter(|value| value.is_finite())
        .fold(most, f64::max);
    match mark {
        Mark::Bar => {
            let (low, high) = (least.min(0.0), high.max(0.0));
            Some((low, if high > low { high } else { low + 1.0 }))
        }
        Mark::Dot => {
            let lowest = ends.map(|(low, _)| low.max(least / STRETCH_MAX));
            let low = seen
                .iter()
                .copied()
                .chain(lowest)
                .filter(|value| value.is_finite())
                .fold(least, f64::min);
            let margin = ((high - low) * MARGIN).max(0.005);
            Some((low - margin, high + margin))
        }
    }
}
