//! Figures over time or over another figure: panels under each other on one axis, each with its own
//! unit.

use super::axis::{Axis, Plot};
use super::canvas::{Canvas, Ink, Side};
use super::{Legend, NOTHING, SMALL, Screen, TEXT, measure, trace};
use crate::chart::{Along, Event, Lines, Panel};

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
        Along::Day => Axis::days(low, high, ticks),
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
    let mut canvas = Canvas::default();
    let mut top = 0.0;
    for (index, panel) in panels.iter().enumerate() {
        let labels = if index == 0 { labels } else { 0.0 };
        panel.head_drawn(&mut canvas, top, width);
        top += panel.head() + labels;
        let plot = Plot {
            left: gutter,
            top,
            width: width - gutter,
            height: plot,
        };
        events_drawn(&mut canvas, &events, &along, &plot, labels);
        panel.drawn(&mut canvas, &plot, &along);
        top += plot.height + GAP;
    }
    along.draw_below(&mut canvas, gutter, width - gutter, width, top - GAP);
    Some((height, canvas.into_svg()))
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
    let first = instants().reduce(f64::min)?;
    let low = match chart.along {
        Along::Day => first,
        Along::Time | Along::Figure(_) => first.min(0.0),
    };
    Some((low, instants().reduce(f64::max)?))
}

fn events(chart: &Lines, low: f64, high: f64) -> Vec<&Event> {
    let within = chart
        .events
        .iter()
        .filter(|event| event.at >= low && event.at <= high);
    within.take(EVENTS_MAX).collect()
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
        self.title_height() + self.legend.height() + 10.0
    }

    fn title_height(&self) -> f64 {
        if self.panel.title.is_empty() {
            return 0.0;
        }
        TITLE
    }

    fn gutter(&self) -> f64 {
        self.axis
            .as_ref()
            .map_or(28.0, |axis| axis.label_width() + 12.0)
            .max(28.0)
    }

    fn head_drawn(&self, canvas: &mut Canvas, top: f64, width: f64) {
        let title = measure::fitted(&self.panel.title, TEXT * measure::BOLD, width);
        canvas.heading(&title, (0.0, top + TITLE / 2.0));
        self.legend.draw(canvas, 0.0, top + self.title_height());
    }

    fn drawn(&self, canvas: &mut Canvas, plot: &Plot, along: &Axis) {
        let Some(axis) = &self.axis else {
            let middle = ((plot.left + plot.width) / 2.0, plot.top + plot.height / 2.0);
            return canvas.text(NOTHING, middle, Side::Middle, Ink::Muted);
        };
        axis.draw_beside(canvas, plot);
        for (index, line) in self.panel.lines.iter().take(LINES_MAX).enumerate() {
            let place = |point| plot.place(along, axis, point);
            trace(canvas, &line.points, place, Ink::Series(index));
        }
    }
}

fn events_drawn(canvas: &mut Canvas, events: &[&Event], along: &Axis, plot: &Plot, labels: f64) {
    let right = plot.left + plot.width;
    let mut free = f64::NEG_INFINITY;
    for event in events {
        let x = plot.left + plot.width * along.position(event.at);
        canvas.line((x, plot.top), (x, plot.top + plot.height), Ink::Marker, 1.0);
        let label = measure::fitted(&event.label, SMALL, plot.width);
        let half = measure::width(&label, SMALL) / 2.0;
        let least = plot.left + half;
        let middle = x.clamp(least, (right - half).max(least));
        // A label that would run into the one before it is left out; the line stays.
        if labels > 0.0 && middle - half >= free {
            let y = plot.top - labels / 2.0;
            canvas.label(&label, (middle, y), Side::Middle, Ink::Muted);
            free = middle + half + 8.0;
        }
    }
}
