//! Bars lie down, so that long names can be read and a telephone has room for them.
//!
//! Every bar has its name on the left and its figure on the right: no legend to look things up in.
//! Groups whose figures are far apart have scales of their own, for a bar is compared within its
//! group.

use plotters::prelude::*;

use super::axis::Axis;
use super::ink::Ink;
use super::measure;
use super::{Area, Drawn, SMALL, Screen, Side, TEXT, filled, picture, stroke, style, units, write};
use crate::report::chart::{Bar, BarGroup, Bars, Marker};

/// Groups whose largest figures are further apart than this get scales of their own.
const SHARED_SCALE_MAX: f64 = 8.0;
/// An interval may stretch the scale to so many times the largest figure, not further.
const STRETCH_MAX: f64 = 2.5;
/// Height of a group's label.
const LABEL: f64 = 26.0;
/// Space between groups.
const GAP: f64 = 14.0;
/// Height of the axis.
const AXIS: f64 = 26.0;

/// Where things are, in pixels.
struct Layout {
    width: f64,
    gutter: f64,
    figures: f64,
    row: f64,
    /// `None` where each group has its own.
    shared: Option<(f64, f64)>,
}

pub(super) fn drawing(chart: &Bars, screen: Screen) -> Option<(f64, String)> {
    let all = || chart.groups.iter().flat_map(|group| &group.bars);
    if !all().any(|bar| bar.value.is_finite()) {
        return None;
    }
    let layout = Layout::new(chart, screen);
    let keys = keys(chart, &layout);
    let mut height = chart
        .groups
        .iter()
        .map(|group| layout.height(group))
        .sum::<f64>();
    height += GAP * chart.groups.len().saturating_sub(1) as f64;
    let axis = if layout.shared.is_some() { AXIS } else { 4.0 };
    let total = height + axis + keys.len() as f64 * 22.0;
    Some(picture(layout.width, total, |area| {
        let mut top = 0.0;
        for group in &chart.groups {
            group_drawn(area, chart, group, &layout, top)?;
            top += layout.height(group) + GAP;
        }
        if let Some((low, high)) = layout.shared {
            axis_drawn(area, chart, &layout, low, high, height)?;
        }
        for (index, (text, kind)) in keys.iter().enumerate() {
            let y = height + axis + index as f64 * 22.0 + 12.0;
            key_drawn(area, text, *kind, layout.gutter, y, &layout)?;
        }
        Ok(())
    }))
}

impl Layout {
    fn new(chart: &Bars, screen: Screen) -> Layout {
        let width = screen.width();
        let bars = || chart.groups.iter().flat_map(|group| &group.bars);
        let widest = |texts: &mut dyn Iterator<Item = String>| {
            texts
                .map(|text| measure::width(&text, TEXT))
                .fold(0.0, f64::max)
        };
        let names = widest(&mut bars().map(|bar| bar.name.clone()));
        let figures = widest(&mut bars().map(|bar| chart.unit.write(bar.value)));
        let share = match screen {
            Screen::Wide => 0.30,
            Screen::Narrow => 0.34,
        };
        let extents: Vec<(f64, f64)> = chart
            .groups
            .iter()
            .filter_map(|group| extent(group, chart.reference.as_ref()))
            .collect();
        let largest = extents.iter().map(|(_, high)| *high).fold(0.0, f64::max);
        let smallest = extents
            .iter()
            .map(|(_, high)| *high)
            .fold(f64::INFINITY, f64::min);
        let low = extents.iter().map(|(low, _)| *low).fold(0.0, f64::min);
        Layout {
            width,
            gutter: (names + 12.0).clamp(24.0, width * share),
            figures: figures + 10.0,
            row: if bars().count() > 16 { 22.0 } else { 27.0 },
            shared: (largest <= smallest * SHARED_SCALE_MAX || low < 0.0).then_some((low, largest)),
        }
    }

    fn height(&self, group: &BarGroup) -> f64 {
        self.label(group) + group.bars.len() as f64 * self.row
    }

    fn label(&self, group: &BarGroup) -> f64 {
        if group.label.is_empty() { 0.0 } else { LABEL }
    }

    /// Width between names and figures.
    fn plot(&self) -> f64 {
        self.width - self.gutter - self.figures
    }
}

/// From the least to the most that is to be seen in a group.
fn extent(group: &BarGroup, reference: Option<&Marker>) -> Option<(f64, f64)> {
    let values = || {
        group
            .bars
            .iter()
            .map(|bar| bar.value)
            .filter(|value| value.is_finite())
    };
    let most = values().reduce(f64::max)?;
    let least = values().fold(0.0, f64::min);
    let room = most.max(0.0) * STRETCH_MAX;
    let intervals = group
        .bars
        .iter()
        .filter_map(|bar| bar.interval)
        .map(|(_, high)| high.min(room));
    let reported = group.bars.iter().filter_map(|bar| bar.reported);
    let marks = [group.marker.as_ref(), reference];
    let marks = marks.into_iter().flatten().map(|marker| marker.value);
    let beyond = intervals
        .chain(reported)
        .chain(marks)
        .filter(|value| value.is_finite());
    let high = beyond.fold(most.max(0.0), f64::max);
    Some((least, if high > least { high } else { least + 1.0 }))
}

/// The colour of a name: the same in all groups.
fn ink(chart: &Bars, name: &str) -> Ink {
    let mut names: Vec<&str> = Vec::new();
    for bar in chart.groups.iter().flat_map(|group| &group.bars) {
        if bar.name == name {
            break;
        }
        if !names.contains(&bar.name.as_str()) {
            names.push(&bar.name);
        }
    }
    Ink::Series(names.len())
}

fn group_drawn(
    area: &Area<'_>,
    chart: &Bars,
    group: &BarGroup,
    layout: &Layout,
    top: f64,
) -> Drawn {
    let label = measure::fitted(&group.label, TEXT, layout.width);
    if !label.is_empty() {
        write(
            area,
            &label,
            &super::strong(Ink::Text, TEXT),
            0.0,
            top + LABEL / 2.0 - 2.0,
        )?;
    }
    let top = top + layout.label(group);
    for (index, bar) in group.bars.iter().enumerate() {
        let y = top + (index as f64 + 0.5) * layout.row;
        let name = measure::fitted(&bar.name, TEXT, layout.gutter - 10.0);
        let figure = chart.unit.write(bar.value);
        write(
            area,
            &name,
            &style(Ink::Text, TEXT, Side::End),
            layout.gutter - 10.0,
            y,
        )?;
        write(
            area,
            &figure,
            &style(Ink::Text, TEXT, Side::End),
            layout.width,
            y,
        )?;
    }
    let extent = layout
        .shared
        .or_else(|| extent(group, chart.reference.as_ref()));
    let Some((low, high)) = extent.filter(|_| !group.bars.is_empty()) else {
        return Ok(());
    };
    let height = group.bars.len() as f64 * layout.row;
    let part = area.clone().shrink(
        (units(layout.gutter), units(top)),
        (units(layout.plot()), units(height)),
    );
    let about = if layout.plot() > 400.0 { 6 } else { 3 };
    let values = Axis::linear(low, high, chart.unit, about);
    let mut plot =
        ChartBuilder::on(&part).build_cartesian_2d(values, Axis::rows(group.bars.len()))?;
    if layout.shared.is_some() {
        let mut mesh = plot.configure_mesh();
        mesh.disable_y_mesh().disable_axes();
        mesh.bold_line_style(stroke(Ink::Grid, 1.0))
            .light_line_style(TRANSPARENT);
        mesh.draw()?;
    }
    bars_drawn(&mut plot, chart, group)?;
    markers_drawn(&mut plot, chart, group, high)
}

type Plot<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<Axis, Axis>>;

fn bars_drawn(plot: &mut Plot<'_, '_>, chart: &Bars, group: &BarGroup) -> Drawn {
    let base = plot.plotting_area().as_coord_spec().x_spec().low().max(0.0);
    for (index, bar) in group.bars.iter().enumerate() {
        if bar.value.is_finite() {
            let y = index as f64;
            let ends = [
                (base.min(bar.value), y + 0.2),
                (base.max(bar.value), y + 0.8),
            ];
            let ink = filled(ink(chart, &bar.name));
            plot.draw_series(std::iter::once(Rectangle::new(ends, ink)))?;
            interval_drawn(plot, bar, y + 0.5)?;
        }
    }
    let foot = vec![(base, 0.0), (base, group.bars.len() as f64)];
    plot.draw_series(std::iter::once(PathElement::new(
        foot,
        stroke(Ink::Base, 1.0),
    )))?;
    Ok(())
}

fn interval_drawn(plot: &mut Plot<'_, '_>, bar: &Bar, y: f64) -> Drawn {
    let Some((low, high)) = bar
        .interval
        .filter(|(low, high)| low.is_finite() && high.is_finite() && low <= high)
    else {
        return Ok(());
    };
    let edge = plot.plotting_area().as_coord_spec().x_spec().high();
    let line = |ends: [(f64, f64); 2]| PathElement::new(ends, stroke(Ink::Whisker, 1.5));
    let mut lines = vec![
        line([(low, y), (high, y)]),
        line([(low, y - 0.14), (low, y + 0.14)]),
    ];
    // An end beyond the edge has no cap: it goes on.
    if high <= edge {
        lines.push(line([(high, y - 0.14), (high, y + 0.14)]));
    }
    plot.draw_series(lines)?;
    Ok(())
}

fn markers_drawn(plot: &mut Plot<'_, '_>, chart: &Bars, group: &BarGroup, high: f64) -> Drawn {
    let rows = group.bars.len() as f64;
    let lines = [group.marker.as_ref(), chart.reference.as_ref()];
    for marker in lines.into_iter().flatten() {
        if marker.value.is_finite() && marker.value <= high {
            let ends = [(marker.value, 0.0), (marker.value, rows)];
            plot.draw_series(std::iter::once(PathElement::new(
                ends,
                stroke(Ink::Marker, 1.5),
            )))?;
        }
    }
    for (index, bar) in group.bars.iter().enumerate() {
        if let Some(value) = bar.reported.filter(|value| value.is_finite()) {
            let middle = (value, index as f64 + 0.5);
            let diamond = EmptyElement::at(middle) + diamond(0.0, 0.0);
            plot.draw_series(std::iter::once(diamond))?;
        }
    }
    Ok(())
}

/// A diamond around a place.
fn diamond(x: f64, y: f64) -> Polygon<(i32, i32)> {
    let size = 6.0;
    let corners = [(x, y - size), (x + size, y), (x, y + size), (x - size, y)];
    Polygon::new(
        corners.map(|(x, y)| (units(x), units(y))).to_vec(),
        filled(Ink::Marker),
    )
}

fn axis_drawn(
    area: &Area<'_>,
    chart: &Bars,
    layout: &Layout,
    low: f64,
    high: f64,
    top: f64,
) -> Drawn {
    let about = if layout.plot() > 400.0 { 6 } else { 3 };
    let axis = Axis::linear(low, high, chart.unit, about);
    for (value, label) in axis.ticks() {
        let half = measure::width(label, SMALL) / 2.0;
        let x = layout.gutter + layout.plot() * axis.position(*value);
        let x = x.min(layout.width - half);
        write(
            area,
            label,
            &style(Ink::Muted, SMALL, Side::Middle),
            x,
            top + 14.0,
        )?;
    }
    Ok(())
}

/// What a mark means.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Key {
    Diamond,
    Line,
    Words,
}

/// What the marks mean, one to a row.
fn keys(chart: &Bars, layout: &Layout) -> Vec<(String, Key)> {
    let mut keys = Vec::new();
    let bars = || chart.groups.iter().flat_map(|group| &group.bars);
    if bars().any(|bar| bar.interval.is_some()) {
        keys.push(("95 % interval".to_owned(), Key::Words));
    }
    if bars().any(|bar| bar.reported.is_some()) {
        keys.push(("reported elsewhere".to_owned(), Key::Diamond));
    }
    let markers = chart
        .groups
        .iter()
        .filter_map(|group| group.marker.as_ref());
    for marker in markers.chain(chart.reference.as_ref()) {
        let key = (
            format!("{} ({})", marker.label, chart.unit.write(marker.value)),
            Key::Line,
        );
        if !keys.contains(&key) && keys.len() < 8 {
            keys.push(key);
        }
    }
    if layout.shared.is_none() {
        keys.push(("Each group has its own scale.".to_owned(), Key::Words));
    }
    keys
}

fn key_drawn(area: &Area<'_>, text: &str, key: Key, x: f64, y: f64, layout: &Layout) -> Drawn {
    let text = measure::fitted(text, SMALL, layout.width - x - 24.0);
    match key {
        Key::Diamond => area.draw(&diamond(x + 7.0, y))?,
        Key::Line => {
            let ends = [
                (units(x + 7.0), units(y - 8.0)),
                (units(x + 7.0), units(y + 8.0)),
            ];
            area.draw(&PathElement::new(ends, stroke(Ink::Marker, 1.5)))?;
        }
        Key::Words => {}
    }
    let indent = if key == Key::Words { 0.0 } else { 20.0 };
    write(
        area,
        &text,
        &style(Ink::Muted, SMALL, Side::Start),
        x + indent,
        y,
    )
}
