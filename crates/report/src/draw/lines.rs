//! Figures over time or over another figure: panels under each other on one axis, each with its own
//! unit.

use plotters::prelude::*;

use super::axis::Axis;
use super::ink::Ink;
use super::measure;
use super::{
    Area, Drawn, Legend, NOTHING, SMALL, Screen, Side, TEXT, picture, stroke, style, thinned,
    trace, units, write,
};
use crate::chart::{Along, Event, Line, Lines, Panel};

/// Lines of a panel, at most: more cannot be told apart.
const LINES_MAX: usize = 4;
/// Panels, at most.
const PANELS_MAX: usize = 8;
/// Events, at most.
const EVENTS_MAX: usize = 12;
/// Height of a panel's title.
const TITLE: f64 = 24.0;
/// Space between panels.
const GAP: f64 = 18.0;
/// Height of the axis they share.
const AXIS: f64 = 24.0;
/// Height of a row of events' labels.
const EVENT: f64 = 18.0;

pub(super) fn drawing(chart: &Lines, screen: Screen) -> Option<(f64, String)> {
    let (low, high) = extent(chart)?;
    let width = screen.width();
    let plot = match screen {
        Screen::Wide => 170.0,
        Screen::Narrow => 150.0,
    };
    let ticks = if width > 500.0 { 8 } else { 4 };
    let along = match chart.along {
        Along::Time => Axis::time(low, high, ticks),
        Along::Figure(unit) => Axis::linear(low, high, unit, ticks),
    };
    let panels: Vec<Drawing<'_>> = chart
        .panels
        .iter()
        .take(PANELS_MAX)
        .map(|panel| Drawing::new(panel, width))
        .collect();
    let gutter = panels.iter().map(Drawing::gutter).fold(0.0, f64::max);
    let events = events(chart, low, high);
    let labels = if events.is_empty() { 0.0 } else { EVENT };
    let heads = panels.iter().map(|panel| panel.head()).sum::<f64>();
    let height = heads + (plot + GAP) * panels.len() as f64 - GAP + AXIS + labels;
    Some(picture(width, height, |area| {
        let mut top = 0.0;
        for (index, panel) in panels.iter().enumerate() {
            let labels = if index == 0 { labels } else { 0.0 };
            panel.head_drawn(area, top)?;
            top += panel.head() + labels;
            let frame = Frame {
                gutter,
                top,
                width,
                height: plot,
            };
            frame.events_drawn(area, &events, &along, labels)?;
            panel.drawn(area, &frame, &along)?;
            top += plot + GAP;
        }
        along_drawn(area, &along, gutter, width, top - GAP)
    }))
}

/// From where to where there are values.
fn extent(chart: &Lines) -> Option<(f64, f64)> {
    let panels = chart.panels.iter().take(PANELS_MAX);
    let lines = panels.flat_map(|panel| panel.lines.iter().take(LINES_MAX));
    let instants = || {
        lines
            .clone()
            .flat_map(|line| &line.points)
            .filter(|(at, value)| at.is_finite() && value.is_finite())
            .map(|(at, _)| *at)
    };
    Some((
        instants().reduce(f64::min)?.min(0.0),
        instants().reduce(f64::max)?,
    ))
}

fn events(chart: &Lines, low: f64, high: f64) -> Vec<&Event> {
    let within = chart
        .events
        .iter()
        .filter(|event| event.at >= low && event.at <= high);
    within.take(EVENTS_MAX).collect()
}

/// Where a panel's plot is, in pixels.
struct Frame {
    gutter: f64,
    top: f64,
    width: f64,
    height: f64,
}

/// A panel with its scale.
struct Drawing<'a> {
    panel: &'a Panel,
    legend: Legend,
    axis: Option<Axis>,
}

impl<'a> Drawing<'a> {
    fn new(panel: &'a Panel, width: f64) -> Drawing<'a> {
        let shown = || panel.lines.iter().take(LINES_MAX);
        let named = shown()
            .enumerate()
            .filter(|(_, line)| !line.name.is_empty());
        let names = named.map(|(index, line)| (Ink::Series(index), line.name.clone()));
        let values = || {
            shown()
                .flat_map(|line| &line.points)
                .filter(|(at, value)| at.is_finite() && value.is_finite())
                .map(|(_, value)| *value)
        };
        let high = values().reduce(f64::max);
        Drawing {
            panel,
            legend: Legend::new(names, width),
            axis: high.map(|high| {
                let low = values().fold(0.0, f64::min);
                Axis::rounded(low, high.max(0.0), panel.unit, 4)
            }),
        }
    }

    fn head(&self) -> f64 {
        TITLE + self.legend.height() + 10.0
    }

    fn gutter(&self) -> f64 {
        let labels = self.axis.iter().flat_map(Axis::labels);
        labels
            .map(|label| measure::width(label, SMALL) + 12.0)
            .fold(28.0, f64::max)
    }

    fn head_drawn(&self, area: &Area<'_>, top: f64) -> Drawn {
        let room = f64::from(area.dim_in_pixel().0) / f64::from(super::SCALE);
        let title = measure::fitted(&self.panel.title, TEXT * measure::BOLD, room);
        write(
            area,
            &title,
            &super::strong(Ink::Text, TEXT),
            0.0,
            top + TITLE / 2.0,
        )?;
        self.legend.draw(area, 0.0, top + TITLE)
    }

    fn drawn(&self, area: &Area<'_>, frame: &Frame, along: &Axis) -> Drawn {
        let Some(axis) = &self.axis else {
            let y = frame.top + frame.height / 2.0;
            let middle = style(Ink::Muted, TEXT, Side::Middle);
            return write(area, NOTHING, &middle, frame.width / 2.0, y);
        };
        let part = area.clone().shrink(
            (0, units(frame.top)),
            (units(frame.width), units(frame.height)),
        );
        let mut plot = ChartBuilder::on(&part)
            .set_label_area_size(LabelAreaPosition::Left, units(frame.gutter))
            .build_cartesian_2d(along.clone(), axis.clone())?;
        let mut mesh = plot.configure_mesh();
        mesh.disable_x_mesh()
            .disable_x_axis()
            .axis_style(TRANSPARENT);
        mesh.bold_line_style(stroke(Ink::Grid, 1.0))
            .light_line_style(TRANSPARENT);
        mesh.y_label_style(style(Ink::Muted, SMALL, Side::End));
        mesh.set_all_tick_mark_size(units(4.0));
        mesh.draw()?;
        for (index, line) in self.panel.lines.iter().take(LINES_MAX).enumerate() {
            self.line_drawn(&mut plot, index, line)?;
        }
        Ok(())
    }

    fn line_drawn(
        &self,
        plot: &mut ChartContext<'_, SVGBackend<'_>, Cartesian2d<Axis, Axis>>,
        index: usize,
        line: &Line,
    ) -> Drawn {
        trace(plot, &thinned(&line.points), Ink::Series(index))
    }
}

impl Frame {
    fn events_drawn(&self, area: &Area<'_>, events: &[&Event], along: &Axis, labels: f64) -> Drawn {
        let mut free = f64::NEG_INFINITY;
        for event in events {
            let x = self.gutter + (self.width - self.gutter) * along.position(event.at);
            let ends = [
                (units(x), units(self.top)),
                (units(x), units(self.top + self.height)),
            ];
            area.draw(&PathElement::new(ends, stroke(Ink::Marker, 1.0)))?;
            let label = measure::fitted(&event.label, SMALL, self.width - self.gutter);
            let half = measure::width(&label, SMALL) / 2.0;
            let middle = x.clamp(
                self.gutter + half,
                (self.width - half).max(self.gutter + half),
            );
            // A label that would run into the one before it is left out; the line stays.
            if labels > 0.0 && middle - half >= free {
                let y = self.top - labels / 2.0;
                write(
                    area,
                    &label,
                    &style(Ink::Muted, SMALL, Side::Middle),
                    middle,
                    y,
                )?;
                free = middle + half + 8.0;
            }
        }
        Ok(())
    }
}

fn along_drawn(area: &Area<'_>, along: &Axis, gutter: f64, width: f64, top: f64) -> Drawn {
    for (value, label) in along.ticks() {
        let half = measure::width(label, SMALL) / 2.0;
        let x = gutter + (width - gutter) * along.position(*value);
        let x = x.min(width - half);
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
