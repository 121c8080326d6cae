//! Bars lie down, so that long names can be read and a telephone has room for them.
//!
//! Every bar has its name on the left and its figure on the right: no legend to look things up in.
//! Groups whose figures are far apart have scales of their own, for a bar is compared within its
//! group. Ratios beside a reference are dots: what matters is on which side of it they are, and a
//! bar from 0 would squeeze that.

use plotters::prelude::*;

use super::axis::Axis;
use super::ink::{Ink, SERIES_COLOURS};
use super::measure::BOLD;
use super::span::{self, Mark};
use super::{
    Area, Drawn, SMALL, Screen, Side, TEXT, filled, measure, picture, stroke, strong, style, units,
    write,
};
use crate::chart::{Bar, BarGroup, Bars, Marker};

/// Height of a group's label.
const LABEL: f64 = 26.0;
/// Space between groups.
const GAP: f64 = 14.0;
/// Height of the axis.
const AXIS: f64 = 26.0;
/// Height of a line that explains a mark.
const KEY: f64 = 22.0;
/// Marks explained, at most.
const KEYS_MAX: usize = 8;

type Plot<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<Axis, Axis>>;

/// A chart and where things are in it, in pixels.
struct Layout<'a> {
    chart: &'a Bars,
    names: Vec<&'a str>,
    width: f64,
    gutter: f64,
    figures: f64,
    row: f64,
    mark: Mark,
    /// Low and high; `None` where each group has its own.
    shared: Option<(f64, f64)>,
}

pub(super) fn drawing(chart: &Bars, screen: Screen) -> Option<(f64, String)> {
    let mut bars = chart.groups.iter().flat_map(|group| &group.bars);
    if !bars.any(|bar| bar.value.is_finite()) {
        return None;
    }
    let layout = Layout::new(chart, screen);
    let keys = layout.keys();
    let groups: f64 = chart
        .groups
        .iter()
        .map(|group| layout.height(group) + GAP)
        .sum();
    let foot = groups - GAP + if layout.shared.is_some() { AXIS } else { 6.0 };
    let height = foot + keys.len() as f64 * KEY;
    Some(picture(layout.width, height, |area| {
        let mut top = 0.0;
        for group in &chart.groups {
            layout.group_drawn(area, group, top)?;
            top += layout.height(group) + GAP;
        }
        if let Some((low, high)) = layout.shared {
            layout.axis_drawn(area, low, high, groups - GAP)?;
        }
        for (index, (text, key)) in keys.iter().enumerate() {
            let y = foot + (index as f64 + 0.5) * KEY;
            layout.key_drawn(area, text, *key, y)?;
        }
        Ok(())
    }))
}

impl<'a> Layout<'a> {
    fn new(chart: &'a Bars, screen: Screen) -> Layout<'a> {
        let bars = || chart.groups.iter().flat_map(|group| &group.bars);
        let mut names: Vec<&str> = Vec::new();
        for bar in bars() {
            if !names.contains(&bar.name.as_str()) {
                names.push(&bar.name);
            }
        }
        let widest = names
            .iter()
            .map(|name| measure::width(name, TEXT))
            .fold(0.0, f64::max);
        let figures = bars().map(|bar| measure::width(&chart.unit.write(bar.value), TEXT));
        let share = match screen {
            Screen::Wide => 0.30,
            Screen::Narrow => 0.38,
        };
        let (width, mark) = (screen.width(), Mark::of(chart));
        Layout {
            chart,
            width,
            gutter: (widest + 12.0).clamp(24.0, width * share),
            figures: figures.fold(0.0, f64::max) + 12.0,
            row: if bars().count() > 16 { 22.0 } else { 27.0 },
            mark,
            shared: span::shared(chart, mark),
            names,
        }
    }

    /// The colour of a name: the same in all groups. Where there are more names than colours,
    /// names that begin alike share one: a server and the same server with its log.
    fn ink(&self, name: &str) -> Ink {
        let colours: Vec<&str> = match self.names.len() {
            0..=SERIES_COLOURS => self.names.clone(),
            _ => {
                let mut families: Vec<&str> = Vec::new();
                for family in self.names.iter().map(|name| family(name)) {
                    if !families.contains(&family) {
                        families.push(family);
                    }
                }
                families
            }
        };
        let place = |wanted| colours.iter().position(|known| *known == wanted);
        Ink::Series(place(name).or_else(|| place(family(name))).unwrap_or(0))
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

    fn axis(&self, low: f64, high: f64) -> Axis {
        let about = if self.plot() > 400.0 { 6 } else { 3 };
        Axis::linear(low, high, self.chart.unit, about)
    }

    fn group_drawn(&self, area: &Area<'_>, group: &BarGroup, top: f64) -> Drawn {
        self.label_drawn(area, group, top + LABEL / 2.0 - 2.0)?;
        let top = top + self.label(group);
        for (index, bar) in group.bars.iter().enumerate() {
            let y = top + (index as f64 + 0.5) * self.row;
            let name = measure::fitted(&bar.name, TEXT, self.gutter - 10.0);
            let figure = self.chart.unit.write(bar.value);
            write(
                area,
                &name,
                &style(Ink::Text, TEXT, Side::End),
                self.gutter - 10.0,
                y,
            )?;
            write(
                area,
                &figure,
                &style(Ink::Text, TEXT, Side::End),
                self.width,
                y,
            )?;
        }
        let own = || span::of_group(group, self.chart.reference.as_ref(), self.mark);
        let Some((low, high)) = self.shared.or_else(own).filter(|_| !group.bars.is_empty()) else {
            return Ok(());
        };
        let place = (units(self.gutter), units(top));
        let size = (
            units(self.plot()),
            units(group.bars.len() as f64 * self.row),
        );
        let part = area.clone().shrink(place, size);
        let rows = Axis::rows(group.bars.len());
        let mut plot = ChartBuilder::on(&part).build_cartesian_2d(self.axis(low, high), rows)?;
        if self.shared.is_some() {
            let mut mesh = plot.configure_mesh();
            mesh.disable_y_mesh().disable_axes();
            mesh.bold_line_style(stroke(Ink::Grid, 1.0))
                .light_line_style(TRANSPARENT);
            mesh.draw()?;
        }
        match self.mark {
            Mark::Bar => self.bars_drawn(&mut plot, group)?,
            Mark::Dot => self.dots_drawn(&mut plot, group)?,
        }
        markers_drawn(&mut plot, group, self.chart.reference.as_ref())
    }

    /// The group's name, and at its right what its marker is, where there is room.
    fn label_drawn(&self, area: &Area<'_>, group: &BarGroup, y: f64) -> Drawn {
        if group.label.is_empty() {
            return Ok(());
        }
        let label = measure::fitted(&group.label, TEXT * BOLD, self.width);
        write(area, &label, &strong(Ink::Text, TEXT), 0.0, y)?;
        if let Some(marker) = group
            .marker
            .as_ref()
            .filter(|marker| self.fits(group, marker))
        {
            let text = self.told(marker);
            let left = self.width - measure::width(&text, SMALL) - 8.0;
            area.draw(&upright(left, y))?;
            write(
                area,
                &text,
                &style(Ink::Muted, SMALL, Side::End),
                self.width,
                y,
            )?;
        }
        Ok(())
    }

    /// What a marker says.
    fn told(&self, marker: &Marker) -> String {
        let value = self.chart.unit.write_reported(marker.value);
        if marker.label.is_empty() {
            value
        } else {
            format!("{} {value}", marker.label)
        }
    }

    fn fits(&self, group: &BarGroup, marker: &Marker) -> bool {
        let label = measure::width(&group.label, TEXT * BOLD);
        let told = measure::width(&self.told(marker), SMALL);
        marker.value.is_finite() && !group.label.is_empty() && label + told + 40.0 <= self.width
    }

    fn bars_drawn(&self, plot: &mut Plot<'_, '_>, group: &BarGroup) -> Drawn {
        for (index, bar) in group.bars.iter().enumerate() {
            if bar.value.is_finite() {
                let y = index as f64;
                let ends = [(bar.value.min(0.0), y + 0.2), (bar.value.max(0.0), y + 0.8)];
                let ink = filled(self.ink(&bar.name));
                plot.draw_series(std::iter::once(Rectangle::new(ends, ink)))?;
                interval_drawn(plot, bar, Ink::Whisker, y + 0.5)?;
            }
        }
        let foot = vec![(0.0, 0.0), (0.0, group.bars.len() as f64)];
        plot.draw_series(std::iter::once(PathElement::new(
            foot,
            stroke(Ink::Base, 1.0),
        )))?;
        Ok(())
    }

    fn dots_drawn(&self, plot: &mut Plot<'_, '_>, group: &BarGroup) -> Drawn {
        for (index, bar) in group.bars.iter().enumerate() {
            if bar.value.is_finite() {
                let (y, ink) = (index as f64 + 0.5, self.ink(&bar.name));
                interval_drawn(plot, bar, ink, y)?;
                let dot = Circle::new((bar.value, y), units(5.0), filled(ink));
                plot.draw_series(std::iter::once(dot))?;
            }
        }
        Ok(())
    }

    fn axis_drawn(&self, area: &Area<'_>, low: f64, high: f64, top: f64) -> Drawn {
        let axis = self.axis(low, high);
        for (value, label) in axis.ticks() {
            let half = measure::width(label, SMALL) / 2.0;
            let x = self.gutter + self.plot() * axis.position(*value);
            let x = x.min(self.width - half);
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

    /// What the marks mean, one to a row.
    fn keys(&self) -> Vec<(String, Key)> {
        let mut keys = Vec::new();
        let bars = || self.chart.groups.iter().flat_map(|group| &group.bars);
        if bars().any(|bar| bar.interval.is_some()) {
            keys.push(("95 % interval".to_owned(), Key::Interval));
        }
        if bars().any(|bar| bar.reported.is_some()) {
            keys.push(("as reported".to_owned(), Key::Diamond));
        }
        let untold = self.chart.groups.iter().filter_map(|group| {
            let marker = group.marker.as_ref()?;
            (!self.fits(group, marker)).then_some(marker)
        });
        for marker in untold.chain(self.chart.reference.as_ref()) {
            let key = (self.told(marker), Key::Line);
            if marker.value.is_finite() && !keys.contains(&key) && keys.len() < KEYS_MAX {
                keys.push(key);
            }
        }
        if self.shared.is_none() {
            keys.push(("Each group has a scale of its own.".to_owned(), Key::Words));
        }
        keys
    }

    fn key_drawn(&self, area: &Area<'_>, text: &str, key: Key, y: f64) -> Drawn {
        let x = self.gutter;
        match key {
            Key::Interval => {
                let line = |ends: [(f64, f64); 2]| {
                    let ends = ends.map(|(x, y)| (units(x), units(y)));
                    PathElement::new(ends, stroke(Ink::Muted, 1.5))
                };
                area.draw(&line([(x, y), (x + 14.0, y)]))?;
                area.draw(&line([(x, y - 4.0), (x, y + 4.0)]))?;
                area.draw(&line([(x + 14.0, y - 4.0), (x + 14.0, y + 4.0)]))?;
            }
            Key::Diamond => area.draw(&diamond(x + 7.0, y))?,
            Key::Line => area.draw(&upright(x + 7.0, y))?,
            Key::Words => {}
        }
        let left = if key == Key::Words { x } else { x + 22.0 };
        let text = measure::fitted(text, SMALL, self.width - left);
        write(area, &text, &style(Ink::Muted, SMALL, Side::Start), left, y)
    }
}

/// The first word of a name.
fn family(name: &str) -> &str {
    let end = name.find([' ', ',']).unwrap_or(name.len());
    &name[..end]
}

/// What a mark is explained beside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Key {
    Interval,
    Diamond,
    Line,
    Words,
}

fn interval_drawn(plot: &mut Plot<'_, '_>, bar: &Bar, ink: Ink, y: f64) -> Drawn {
    let sound = |(low, high): &(f64, f64)| low.is_finite() && high.is_finite() && low <= high;
    let Some((low, high)) = bar.interval.filter(sound) else {
        return Ok(());
    };
    let axis = plot.plotting_area().as_coord_spec().x_spec();
    let (first, last) = (axis.low(), axis.high());
    let mut lines = vec![[(low, y), (high, y)]];
    // An end beyond the edge has no cap: it goes on.
    for end in [low, high]
        .into_iter()
        .filter(|end| (first..=last).contains(end))
    {
        lines.push([(end, y - 0.15), (end, y + 0.15)]);
    }
    let width = if ink == Ink::Whisker { 1.5 } else { 2.5 };
    for style in [stroke(Ink::Halo, width + 2.0), stroke(ink, width)] {
        plot.draw_series(lines.iter().map(|ends| PathElement::new(*ends, style)))?;
    }
    Ok(())
}

fn markers_drawn(plot: &mut Plot<'_, '_>, group: &BarGroup, reference: Option<&Marker>) -> Drawn {
    let rows = group.bars.len() as f64;
    for marker in [group.marker.as_ref(), reference].into_iter().flatten() {
        if marker.value.is_finite() {
            let ends = [(marker.value, 0.0), (marker.value, rows)];
            for style in [stroke(Ink::Halo, 3.5), stroke(Ink::Marker, 1.5)] {
                plot.draw_series(std::iter::once(PathElement::new(ends, style)))?;
            }
        }
    }
    for (index, bar) in group.bars.iter().enumerate() {
        if let Some(value) = bar.reported.filter(|value| value.is_finite()) {
            let place = EmptyElement::at((value, index as f64 + 0.5));
            plot.draw_series(std::iter::once(place + diamond(0.0, 0.0)))?;
        }
    }
    Ok(())
}

/// A diamond around a place.
fn diamond(x: f64, y: f64) -> Polygon<(i32, i32)> {
    let size = 6.0;
    let corners = [(x, y - size), (x + size, y), (x, y + size), (x - size, y)];
    let corners = corners.map(|(x, y)| (units(x), units(y)));
    Polygon::new(corners.to_vec(), filled(Ink::Marker))
}

/// A piece of a marker's line.
fn upright(x: f64, y: f64) -> PathElement<(i32, i32)> {
    let ends = [(units(x), units(y - 8.0)), (units(x), units(y + 8.0))];
    PathElement::new(ends, stroke(Ink::Marker, 1.5))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(names: &[&str]) -> Bars {
        let bars = names.iter().map(|name| Bar {
            name: (*name).to_owned(),
            value: 1.0,
            ..Bar::default()
        });
        Bars {
            groups: vec![BarGroup {
                bars: bars.collect(),
                ..BarGroup::default()
            }],
            ..Bars::default()
        }
    }

    #[test]
    fn names_share_a_colour_only_where_colours_run_out() {
        let few = chart(&["nagaya", "nagaya log", "nginx"]);
        let layout = Layout::new(&few, Screen::Wide);
        assert_ne!(layout.ink("nagaya"), layout.ink("nagaya log"));
        let many = chart(&[
            "nagaya",
            "nginx",
            "h2o",
            "apache",
            "nagaya log",
            "nginx log",
            "h2o log",
        ]);
        let layout = Layout::new(&many, Screen::Wide);
        assert_eq!(layout.ink("nagaya"), layout.ink("nagaya log"));
        assert_eq!(layout.ink("h2o"), layout.ink("h2o log"));
        assert_ne!(layout.ink("nagaya"), layout.ink("nginx log"));
    }
}
