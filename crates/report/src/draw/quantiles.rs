//! Latency by percentile: the tail gets as much room as the middle, on both axes.

use super::axis::{Axis, Plot};
use super::canvas::{Canvas, Ink, SERIES_COLOURS};
use super::{Legend, Screen, trace};
use crate::chart::Quantiles;
use crate::units::Unit;

/// Height of the percentiles' labels.
const AXIS: f64 = 24.0;

pub(super) fn drawing(chart: &Quantiles, screen: Screen) -> Option<(f64, String)> {
    let curves: Vec<Vec<(f64, f64)>> = chart
        .series
        .iter()
        .take(SERIES_COLOURS)
        .map(|series| sound(&series.points))
        .collect();
    let points = || curves.iter().flatten();
    let last = points().map(|(quantile, _)| *quantile).reduce(f64::max)?;
    let least = points().map(|(_, us)| *us).reduce(f64::min)?;
    let most = points().map(|(_, us)| *us).reduce(f64::max)?;
    let width = screen.width();
    let plot = match screen {
        Screen::Wide => 300.0,
        Screen::Narrow => 250.0,
    };
    let names = chart.series.iter().take(SERIES_COLOURS).enumerate();
    let names = names.map(|(index, series)| (Ink::Series(index), series.name.clone()));
    let legend = Legend::new(names.filter(|(_, name)| !name.is_empty()), width);
    let head = legend.height() + 8.0;
    let (tail, time) = (
        Axis::tail(last),
        Axis::log(least * 0.9, most * 1.1, Unit::Micros),
    );
    let gutter = time.label_width().max(28.0) + 12.0;
    let plot = Plot {
        left: gutter,
        top: head,
        width: width - gutter,
        height: plot,
    };
    let mut canvas = Canvas::default();
    legend.draw(&mut canvas, 0.0, 0.0);
    time.draw_beside(&mut canvas, &plot);
    for tick in tail.ticks() {
        let x = plot.left + plot.width * tick;
        canvas.line((x, head), (x, head + plot.height), Ink::Grid, 1.0);
    }
    for (index, curve) in curves.iter().enumerate() {
        let place = |point| plot.place(&tail, &time, point);
        trace(&mut canvas, curve, place, Ink::Series(index));
    }
    tail.draw_below(
        &mut canvas,
        plot.left,
        plot.width,
        width,
        head + plot.height,
    );
    Some((head + plot.height + AXIS, canvas.into_svg()))
}

/// Points that can be drawn: quantiles below 1, times above 0.
fn sound(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let sound = |(quantile, us): &(f64, f64)| (0.0..1.0).contains(quantile) && us.is_finite();
    // Less than a tenth of a microsecond is not measured; 0 has no place on the scale.
    points
        .iter()
        .copied()
        .filter(sound)
        .map(|(quantile, us)| (quantile, us.max(0.1)))
        .collect()
}
