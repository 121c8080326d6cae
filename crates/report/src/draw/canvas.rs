//! A picture as SVG: lines, areas and words, in classes that the style sheet colours, so that a chart
//! follows its reader's theme.

use std::fmt::Write;

use super::{SMALL, TEXT};
use crate::html::escaped;

/// Colours of series before they begin again.
pub(super) const SERIES_COLOURS: usize = 6;

/// What something is drawn for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ink {
    /// Words to be read.
    Text,
    /// Words beside them.
    Muted,
    /// Lines of the grid.
    Grid,
    /// The line figures stand on.
    Base,
    /// An interval.
    Whisker,
    /// A figure from elsewhere, an event.
    Marker,
    /// Around a line that crosses an area.
    Halo,
    /// The series of this number.
    Series(usize),
}

impl Ink {
    fn name(self) -> String {
        match self {
            Ink::Series(index) => (index % SERIES_COLOURS + 1).to_string(),
            other => format!("{other:?}").to_lowercase(),
        }
    }
}

/// Where a text stands to its point; vertically in its middle.
#[derive(Debug, Clone, Copy)]
pub(super) enum Side {
    /// The point is at its start.
    Start,
    /// At its end.
    End,
    /// At its middle.
    Middle,
}

impl Side {
    fn anchor(self) -> &'static str {
        match self {
            Side::Start => "start",
            Side::End => "end",
            Side::Middle => "middle",
        }
    }
}

/// A place in pixels, from the left and from the top.
pub(super) type Place = (f64, f64);

/// What is drawn.
#[derive(Debug, Default)]
pub(super) struct Canvas {
    svg: String,
}

impl Canvas {
    /// What was drawn, between the tags of a picture.
    pub(super) fn into_svg(self) -> String {
        self.svg
    }

    pub(super) fn line(&mut self, from: Place, to: Place, ink: Ink, width: f64) {
        let (ink, [x1, y1, x2, y2]) = (ink.name(), [from.0, from.1, to.0, to.1].map(pixels));
        self.put(format_args!(
            "<line class=\"s-{ink}\" x1=\"{x1}\" y1=\"{y1}\" x2=\"{x2}\" y2=\"{y2}\" stroke-width=\"{width}\"/>"
        ));
    }

    /// A line through places.
    pub(super) fn polyline(&mut self, places: impl Iterator<Item = Place>, ink: Ink) {
        let (ink, points) = (ink.name(), points(places));
        self.put(format_args!(
            "<polyline class=\"s-{ink}\" stroke-width=\"2\" points=\"{points}\"/>"
        ));
    }

    /// An area between opposite corners.
    pub(super) fn area(&mut self, corner: Place, opposite: Place, ink: Ink) {
        let (ink, [x, y]) = (ink.name(), [corner.0, corner.1].map(pixels));
        let [width, height] = [opposite.0 - corner.0, opposite.1 - corner.1].map(pixels);
        self.put(format_args!(
            "<rect class=\"f-{ink}\" x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\"/>"
        ));
    }

    pub(super) fn dot(&mut self, at: Place, radius: f64, ink: Ink) {
        let (ink, [x, y]) = (ink.name(), [at.0, at.1].map(pixels));
        self.put(format_args!(
            "<circle class=\"f-{ink}\" cx=\"{x}\" cy=\"{y}\" r=\"{radius}\"/>"
        ));
    }

    /// What stands for a figure from elsewhere.
    pub(super) fn diamond(&mut self, (x, y): Place) {
        let size = 6.0;
        let corners = [(x, y - size), (x + size, y), (x, y + size), (x - size, y)];
        let points = points(corners.into_iter());
        self.put(format_args!(
            "<polygon class=\"f-marker\" points=\"{points}\"/>"
        ));
    }

    /// Words of ordinary size.
    pub(super) fn text(&mut self, text: &str, at: Place, side: Side, ink: Ink) {
        self.words(text, at, side, ink, TEXT, "");
    }

    /// Words beside the others.
    pub(super) fn label(&mut self, text: &str, at: Place, side: Side, ink: Ink) {
        self.words(text, at, side, ink, SMALL, "");
    }

    /// Words above what follows.
    pub(super) fn heading(&mut self, text: &str, at: Place) {
        let bold = " font-weight=\"bold\"";
        self.words(text, at, Side::Start, Ink::Text, TEXT, bold);
    }

    fn words(&mut self, text: &str, at: Place, side: Side, ink: Ink, size: f64, more: &str) {
        let (ink, [x, y], anchor) = (ink.name(), [at.0, at.1].map(pixels), side.anchor());
        let text = escaped(text);
        self.put(format_args!(
            "<text class=\"f-{ink}\" x=\"{x}\" y=\"{y}\" dy=\"0.35em\" text-anchor=\"{anchor}\" font-size=\"{size}\"{more}>{text}</text>"
        ));
    }

    fn put(&mut self, mark: std::fmt::Arguments<'_>) {
        let _ = self.svg.write_fmt(mark);
    }
}

fn points(places: impl Iterator<Item = Place>) -> String {
    let points = places.map(|(x, y)| format!("{},{}", pixels(x), pixels(y)));
    points.collect::<Vec<_>>().join(" ")
}

/// To a tenth; adding zero turns -0 into 0.
fn pixels(value: f64) -> f64 {
    (value * 10.0).round() / 10.0 + 0.0
}

/// Colours of the light theme, as properties. Those of series were searched for: each stands out
/// from the page, and any two stay apart for eyes without one kind of cone.
pub(crate) const LIGHT: &str = "\
--page:#fcfcfb;--card:#fff;--text:#1c1e21;--muted:#5f656d;--faint:#e6e7e4;--base:#9aa0a6;\
--accent:#0b5cad;--good:#136c38;--warn:#855300;--bad:#b3261e;\
--good-bg:#e9f5ed;--warn-bg:#fdf3df;--bad-bg:#fcebe9;--plain-bg:#f2f3f1;\
--c1:#135fc3;--c2:#a63705;--c3:#24a385;--c4:#82237b;--c5:#a3830e;--c6:#6c7785;";

/// Colours of the dark theme.
pub(crate) const DARK: &str = "\
--page:#131517;--card:#1a1d20;--text:#e7e9ea;--muted:#9ba3ab;--faint:#2b2f34;--base:#5f666e;\
--accent:#79b8f5;--good:#6fd195;--warn:#e9b85c;--bad:#f28b82;\
--good-bg:#15301f;--warn-bg:#33280f;--bad-bg:#391b19;--plain-bg:#202428;\
--c1:#1292f0;--c2:#ed915e;--c3:#48d9b2;--c4:#dea3e6;--c5:#d9ba49;--c6:#9aa6b3;";

/// How the classes of a chart look.
pub(crate) const CHART_STYLE: &str = "\
svg text{font-family:system-ui,-apple-system,\"Segoe UI\",Roboto,\"Noto Sans\",\"Liberation Sans\",sans-serif;\
font-variant-numeric:tabular-nums}\
.f-text{fill:var(--text)}.f-muted{fill:var(--muted)}.f-marker{fill:var(--text);stroke:var(--card);stroke-width:1.5;paint-order:stroke}\
.s-muted{stroke:var(--muted)}.s-halo{stroke:var(--card)}.s-grid{stroke:var(--faint)}.s-base{stroke:var(--base)}.s-whisker{stroke:var(--text)}\
.s-marker{stroke:var(--text);stroke-dasharray:3 3}\
polyline{fill:none;stroke-linejoin:round;stroke-linecap:round}rect{rx:2px}\
.f-1{fill:var(--c1)}.f-2{fill:var(--c2)}.f-3{fill:var(--c3)}.f-4{fill:var(--c4)}.f-5{fill:var(--c5)}.f-6{fill:var(--c6)}\
.f-grid{fill:var(--faint)}\
.s-1{stroke:var(--c1)}.s-2{stroke:var(--c2)}.s-3{stroke:var(--c3)}.s-4{stroke:var(--c4)}.s-5{stroke:var(--c5)}.s-6{stroke:var(--c6)}";
