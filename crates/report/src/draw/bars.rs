//! Bars lie down, so that long names can be read and a telephone has room for them.
//!
//! Every bar has its name on the left and its figure on the right: no legend to look things up in.
//! Groups whose figures are far apart have scales of their own, for a bar is compared within its
//! group. Ratios beside a reference are dots: what matters is on which side of it they are, and a
//! bar from 0 would squeeze that.

use super::axis::Axis;
use super::canvas::{Canvas, Ink, Place, SERIES_COLOURS, Side};
use super::measure::BOLD;
use super::span::{self, Mark};
use super::{SMALL, Screen, TEXT, measure};
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
    let mut canvas = Canvas::default();
    let mut top = 0.0;
    for group in &chart.groups {
        layout.group_drawn(&mut canvas, group, top);
        top += layout.height(group) + GAP;
    }
    if let Some((low, high)) = layout.shared {
        let (axis, top) = (layout.axis(low, high), groups - GAP);
        axis.draw_below(&mut canvas, layout.gutter, layout.plot(), layout.width, top);
    }
    for (index, (text, key)) in keys.iter().enumerate() {
        let y = foot + (index as f64 + 0.5) * KEY;
        layout.key_drawn(&mut canvas, text, *key, y);
    }
    Some((height, canvas.into_svg()))
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

    fn group_drawn(&self, canvas: &mut Canvas, group: &BarGroup, top: f64) {
        self.label_drawn(canvas, group, top + LABEL / 2.0 - 2.0);
        let top = top + self.label(group);
        let rows = || {
            (0..)
                .map(|index| top + (f64::from(index) + 0.5) * self.row)
                .zip(&group.bars)
        };
        for (y, bar) in rows() {
            let name = measure::fitted(&bar.name, TEXT, self.gutter - 10.0);
            let figure = self.chart.unit.write(bar.value);
            canvas.text(&name, (self.gutter - 10.0, y), Side::End, Ink::Text);
            canvas.text(&figure, (self.width, y), Side::End, Ink::Text);
        }
        let own = || span::of_group(group, self.chart.reference.as_ref(), self.mark);
        let Some((low, high)) = self.shared.or_else(own).filter(|_| !group.bars.is_empty()) else {
            return;
        };
        let (axis, foot) = (
            self.axis(low, high),
            top + group.bars.len() as f64 * self.row,
        );
        let x = |value: f64| self.gutter + self.plot() * axis.position(value);
        if self.shared.is_some() {
            for tick in axis.ticks() {
                let x = self.gutter + self.plot() * tick;
                canvas.line((x, top), (x, foot), Ink::Grid, 1.0);
            }
        }
        for (y, bar) in rows().filter(|(_, bar)| bar.value.is_finite()) {
            let (ink, half) = (self.ink(&bar.name), self.row * 0.3);
            match self.mark {
                Mark::Bar => {
                    let (low, high) = (x(bar.value.min(0.0)), x(bar.value.max(0.0)));
                    canvas.area((low, y - half), (high, y + half), ink);
                    interval_drawn(canvas, &axis, x, bar, Ink::Whisker, y);
                }
                Mark::Dot => {
                    interval_drawn(canvas, &axis, x, bar, ink, y);
                    canvas.dot((x(bar.value), y), 5.0, ink);
                }
            }
        }
        if self.mark == Mark::Bar {
            canvas.line((x(0.0), top), (x(0.0), foot), Ink::Base, 1.0);
        }
        let markers = [group.marker.as_ref(), self.chart.reference.as_ref()];
        for marker in markers
            .into_iter()
            .flatten()
            .filter(|marker| marker.value.is_finite())
        {
            let x = x(marker.value);
            canvas.line((x, top), (x, foot), Ink::Halo, 3.5);
            canvas.line((x, top), (x, foot), Ink::Marker, 1.5);
        }
        for (y, bar) in rows() {
            if let Some(value) = bar.reported.filter(|value| value.is_finite()) {
                canvas.diamond((x(value), y));
            }
        }
    }

    /// The group's name, and at its right what its marker is, where there is room.
    fn label_drawn(&self, canvas: &mut Canvas, group: &BarGroup, y: f64) {
        if group.label.is_empty() {
            return;
        }
        let label = measure::fitted(&group.label, TEXT * BOLD, self.width);
        canvas.heading(&label, (0.0, y));
        let marker = group.marker.as_ref();
        if let Some(marker) = marker.filter(|marker| self.fits(group, marker)) {
            let text = self.told(marker);
            upright(canvas, (self.width - measure::width(&text, SMALL) - 8.0, y));
            canvas.label(&text, (self.width, y), Side::End, Ink::Muted);
        }
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

    fn key_drawn(&self, canvas: &mut Canvas, text: &str, key: Key, y: f64) {
        let x = self.gutter;
        match key {
            Key::Interval => {
                canvas.line((x, y), (x + 14.0, y), Ink::Muted, 1.5);
                for x in [x, x + 14.0] {
                    canvas.line((x, y - 4.0), (x, y + 4.0), Ink::Muted, 1.5);
                }
            }
            Key::Diamond => canvas.diamond((x + 7.0, y)),
            Key::Line => upright(canvas, (x + 7.0, y)),
            Key::Words => {}
        }
        let left = if key == Key::Words { x } else { x + 22.0 };
        let text = measure::fitted(text, SMALL, self.width - left);
        canvas.label(&text, (left, y), Side::Start, Ink::Muted);
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

/// An end beyond the edge has no cap: it goes on.
fn interval_drawn(
    canvas: &mut Canvas,
    axis: &Axis,
    x: impl Fn(f64) -> f64,
    bar: &Bar,
    ink: Ink,
    y: f64,
) {
    let sound = |(low, high): &(f64, f64)| low.is_finite() && high.is_finite() && low <= high;
    let Some((low, high)) = bar.interval.filter(sound) else {
        return;
    };
    let width = if ink == Ink::Whisker { 1.5 } else { 2.5 };
    for (ink, width) in [(Ink::Halo, width + 2.0), (ink, width)] {
        canvas.line((x(low), y), (x(high), y), ink, width);
        for end in [low, high].into_iter().filter(|end| axis.holds(*end)) {
            canvas.line((x(end), y - 4.0), (x(end), y + 4.0), ink, width);
        }
    }
}

/// A piece of a marker's line.
fn upright(canvas: &mut Canvas, (x, y): Place) {
    canvas.line((x, y - 8.0), (x, y + 8.0), Ink::Marker, 1.5);
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
