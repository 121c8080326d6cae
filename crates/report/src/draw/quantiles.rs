//! Latency by percentile: the tail gets as much room as the middle, on both axes.

use plotters::prelude::*;

use super::axis::Axis;
use super::ink::{Ink, SERIES_COLOURS};
use super::measure;
use super::{
    Drawn, Legend, SMALL, Screen, Side, picture, stroke, style, thinned, trace, units, write,
};
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
    let labels = time.labels().map(|label| measure::width(label, SMALL));
    let gutter = labels.fold(28.0, f64::max) + 12.0;
    Some(picture(width, head + plot + AXIS, |area| {
        legend.draw(area, 0.0, 0.0)?;
        let part = area
            .clone()
            .shrink((0, units(head)), (units(width), units(plot)));
        let mut context = ChartBuilder::on(&part)
            .set_label_area_size(LabelAreaPosition::Left, units(gutter))
            .build_cartesian_2d(tail.clone(), time.clone())?;
        let mut mesh = context.configure_mesh();
        mesh.disable_x_axis().axis_style(TRANSPARENT);
        mesh.bold_line_style(stroke(Ink::Grid, 1.0))
            .light_line_style(TRANSPARENT);
        mesh.y_label_style(style(Ink::Muted, SMALL, Side::End));
        mesh.set_all_tick_mark_size(units(4.0));
        mesh.draw()?;
        for (index, curve) in curves.iter().enumerate() {
            trace(&mut context, &thinned(curve), Ink::Series(index))?;
        }
        percentiles_drawn(area, &tail, gutter, width, head + plot)
    }))
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

fn percentiles_drawn(
    area: &super::Area<'_>,
    tail: &Axis,
    gutter: f64,
    width: f64,
    top: f64,
) -> Drawn {
    let mut free = 0.0;
    for (quantile, label) in tail.ticks() {
        let half = measure::width(label, SMALL) / 2.0;
        let x = gutter + (width - gutter) * tail.position(*quantile);
        let x = x.min(width - half);
        if x - half >= free {
            write(
                area,
                label,
                &style(Ink::Muted, SMALL, Side::Middle),
                x,
                top + 14.0,
            )?;
            free = x + half + 6.0;
        }
    }
    Ok(())
}
