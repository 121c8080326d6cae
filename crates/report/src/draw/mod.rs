//! Charts as SVG.
//!
//! Each chart is drawn twice for a page, for wide and for narrow screens, since text in a picture
//! shrinks with the picture. A chart without a single number becomes a sentence.

mod axis;
mod bars;
mod canvas;
mod lines;
mod measure;
mod quantiles;
mod span;

use super::chart::{Along, Chart};
use super::document::Picture;
use super::html::escaped;
pub(crate) use canvas::{CHART_STYLE, DARK, LIGHT};
use canvas::{Canvas, Ink, Place, Side};

/// Size of words.
const TEXT: f64 = 13.0;
/// Size of labels on axes.
const SMALL: f64 = 12.0;
/// Points of a line, at most.
const POINTS_MAX: usize = 600;
/// What stands where there is nothing to draw.
pub(crate) const NOTHING: &str = "Nothing was measured here.";
/// Width and height of a trend.
const TREND: (f64, f64) = (112.0, 24.0);

/// What screen a chart is drawn for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Screen {
    /// A page on a desk.
    Wide,
    /// A telephone.
    Narrow,
}

impl Screen {
    /// Width of its charts in pixels.
    fn width(self) -> f64 {
        match self {
            Screen::Wide => 820.0,
            Screen::Narrow => 358.0,
        }
    }
}

impl Picture {
    /// As a picture in a line of text, told by the text beside it.
    pub(crate) fn to_inline_svg(&self) -> String {
        let mut canvas = Canvas::default();
        let (class, (width, height)) = match self {
            Picture::Trend(values) => {
                let (width, height) = TREND;
                let high = values.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
                let step = width / values.len().saturating_sub(1).max(1) as f64;
                let place = |(at, value): Place| {
                    let up = (value / high).clamp(0.0, 1.0) * (height - 4.0);
                    ((at * step).clamp(1.0, width - 1.0), height - 2.0 - up)
                };
                let points = values.iter().enumerate();
                let points: Vec<Place> = points.map(|(at, value)| (at as f64, *value)).collect();
                trace(&mut canvas, &points, place, Ink::Series(0));
                ("trend", TREND)
            }
            Picture::Share(share) => {
                let width = if share.is_finite() {
                    share.clamp(0.0, 1.0) * 100.0
                } else {
                    0.0
                };
                canvas.area((0.0, 0.0), (100.0, 6.0), Ink::Grid);
                canvas.area((0.0, 0.0), (width, 6.0), Ink::Series(0));
                ("share", (100.0, 6.0))
            }
        };
        format!(
            "<svg class=\"{class}\" viewBox=\"0 0 {width} {height}\" aria-hidden=\"true\">{}</svg>",
            canvas.into_svg()
        )
    }
}

impl Chart {
    /// As a picture that stands alone, its title and caption inside, in the colours of the reader's
    /// system.
    pub fn to_svg(&self) -> String {
        const SIDE: f64 = 24.0;
        let nothing = || {
            let text =
                format!("<text class=\"f-muted\" y=\"20\" font-size=\"{TEXT}\">{NOTHING}</text>");
            (40.0, text)
        };
        let (height, inner) = self.drawing(Screen::Wide).unwrap_or_else(nothing);
        let inside = Screen::Wide.width();
        let caption = measure::lines(self.caption(), TEXT, inside);
        let top = 58.0 + caption.len() as f64 * 19.0;
        let (width, height) = (inside + 2.0 * SIDE, (height + top + SIDE).ceil());
        let title = measure::fitted(self.title(), 16.0 * measure::BOLD, inside);
        let mut words = format!(
            "<text class=\"f-text\" x=\"{SIDE}\" y=\"36\" font-size=\"16\" font-weight=\"600\">{}</text>\n",
            escaped(&title)
        );
        for (index, line) in caption.iter().enumerate() {
            let (y, line) = (58.0 + index as f64 * 19.0, escaped(line));
            words += &format!(
                "<text class=\"f-muted\" x=\"{SIDE}\" y=\"{y}\" font-size=\"{TEXT}\">{line}</text>\n"
            );
        }
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" role=\"img\" aria-labelledby=\"title description\">\n\
             <title id=\"title\">{}</title>\n<desc id=\"description\">{}</desc>\n\
             <style>svg{{{LIGHT}}}@media(prefers-color-scheme:dark){{svg{{{DARK}}}}}{CHART_STYLE}.card{{fill:var(--card);stroke:var(--faint);rx:12px}}</style>\n\
             <rect class=\"card\" x=\"0.5\" y=\"0.5\" width=\"{}\" height=\"{}\"/>\n{words}\
             <g transform=\"translate({SIDE} {top})\">{inner}</g>\n</svg>\n",
            escaped(self.title()),
            escaped(&self.description()),
            width - 1.0,
            height - 1.0,
        )
    }

    /// As part of a page that has the style; `id` is unique in it. `None` where nothing is to see.
    pub(crate) fn to_inline_svg(&self, screen: Screen, id: &str) -> Option<String> {
        let (height, inner) = self.drawing(screen)?;
        let width = screen.width();
        let class = match screen {
            Screen::Wide => "wide",
            Screen::Narrow => "narrow",
        };
        Some(format!(
            "<svg class=\"{class}\" viewBox=\"0 0 {width} {height}\" role=\"img\" aria-labelledby=\"{id}-title {id}-description\">\
             <title id=\"{id}-title\">{}</title><desc id=\"{id}-description\">{}</desc>{inner}</svg>",
            escaped(self.title()),
            escaped(&self.description()),
        ))
    }

    /// One sentence for who cannot see it.
    fn description(&self) -> String {
        let kind = match self {
            Chart::Bars(_) => "Bars with 95 % intervals",
            Chart::Lines(lines) => match lines.along {
                Along::Time | Along::Day => "Lines over time",
                Along::Figure(_) => "Lines",
            },
            Chart::Quantiles(_) => "Response time by percentile",
        };
        format!(
            "{kind}. {} The numbers stand in the table of this chart.",
            self.caption()
        )
    }

    /// Height and content.
    fn drawing(&self, screen: Screen) -> Option<(f64, String)> {
        match self {
            Chart::Bars(chart) => bars::drawing(chart, screen),
            Chart::Lines(chart) => lines::drawing(chart, screen),
            Chart::Quantiles(chart) => quantiles::drawing(chart, screen),
        }
    }
}

/// Names beside their colours, in as many rows as they need.
struct Legend {
    rows: Vec<Vec<(Ink, String)>>,
}

impl Legend {
    const ROW: f64 = 22.0;
    const SWATCH: f64 = 20.0;
    const GAP: f64 = 18.0;

    fn new(names: impl IntoIterator<Item = (Ink, String)>, room: f64) -> Legend {
        let mut rows: Vec<Vec<(Ink, String)>> = Vec::new();
        let mut used = f64::INFINITY;
        for (ink, name) in names {
            let name = measure::fitted(&name, SMALL, room - Legend::SWATCH);
            let width = Legend::SWATCH + measure::width(&name, SMALL) + Legend::GAP;
            if used + width - Legend::GAP > room {
                rows.push(Vec::new());
                used = 0.0;
            }
            used += width;
            if let Some(row) = rows.last_mut() {
                row.push((ink, name));
            }
        }
        Legend { rows }
    }

    fn height(&self) -> f64 {
        self.rows.len() as f64 * Legend::ROW
    }

    fn draw(&self, canvas: &mut Canvas, left: f64, top: f64) {
        for (index, row) in self.rows.iter().enumerate() {
            let y = top + (index as f64 + 0.5) * Legend::ROW;
            let mut x = left;
            for (ink, name) in row {
                canvas.line((x, y), (x + 13.0, y), *ink, 3.0);
                canvas.label(name, (x + Legend::SWATCH, y), Side::Start, Ink::Text);
                x += Legend::SWATCH + measure::width(name, SMALL) + Legend::GAP;
            }
        }
    }
}

/// At most so many points, the least and the most of each stretch kept, so that no spike is lost.
/// Values that are no number stay where a whole stretch has none.
fn thinned(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let mut points: Vec<(f64, f64)> = points
        .iter()
        .copied()
        .filter(|(at, _)| at.is_finite())
        .collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    if points.len() <= POINTS_MAX {
        return points;
    }
    let stretch = points.len().div_ceil(POINTS_MAX / 2);
    let mut out = Vec::with_capacity(POINTS_MAX);
    for chunk in points.chunks(stretch) {
        let finite = || chunk.iter().filter(|(_, value)| value.is_finite());
        let least = finite().min_by(|a, b| a.1.total_cmp(&b.1));
        let most = finite().max_by(|a, b| a.1.total_cmp(&b.1));
        match (least, most) {
            (Some(least), Some(most)) if least.0 <= most.0 => out.extend([*least, *most]),
            (Some(least), Some(most)) => out.extend([*most, *least]),
            _ => out.push((chunk[0].0, f64::NAN)),
        }
    }
    out
}

/// A line through points, with a dot where a point has no neighbour. A value that is no number is a
/// gap.
fn trace(canvas: &mut Canvas, points: &[(f64, f64)], place: impl Fn(Place) -> Place, ink: Ink) {
    let points = thinned(points);
    for stretch in points.split(|(_, value)| !value.is_finite()) {
        match stretch {
            [] => {}
            [only] => canvas.dot(place(*only), 2.5, ink),
            _ => canvas.polyline(stretch.iter().map(|point| place(*point)), ink),
        }
    }
}
