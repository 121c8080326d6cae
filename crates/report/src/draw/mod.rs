//! Charts as SVG: axes, ticks, grid and marks are laid out by `plotters`; here is what it draws.
//!
//! Each chart is drawn twice for a page, for wide and for narrow screens, since text in a picture
//! shrinks with the picture. A chart without a single number becomes a sentence.

mod axis;
mod bars;
mod ink;
mod lines;
mod measure;
mod quantiles;
mod span;

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::chart::{Along, Chart, Theme};
use super::html::escaped;
pub(crate) use ink::{CHART_STYLE, DARK, LIGHT};
use ink::{Ink, SCALE};

/// Size of words.
const TEXT: f64 = 13.0;
/// Size of labels on axes.
const SMALL: f64 = 12.0;
/// Points of a line, at most.
const POINTS_MAX: usize = 600;
/// What stands where there is nothing to draw.
const NOTHING: &str = "Nothing was measured here.";

/// What screen a chart is drawn for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Screen {
    /// A page on a desk.
    Wide,
    /// A telephone.
    Narrow,
}

/// A part of the picture.
type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;
/// Drawing into a string does not fail; the library's signatures say it might.
type Drawn = Result<(), DrawingAreaErrorKind<std::io::Error>>;

impl Screen {
    /// Width of its charts in pixels.
    fn width(self) -> f64 {
        match self {
            Screen::Wide => 820.0,
            Screen::Narrow => 358.0,
        }
    }
}

impl Chart {
    /// As a picture that stands alone, its title and caption inside.
    pub fn to_svg(&self, theme: Theme) -> String {
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
        let colours = match theme {
            Theme::System => {
                format!("svg{{{LIGHT}}}@media(prefers-color-scheme:dark){{svg{{{DARK}}}}}")
            }
            Theme::Light => format!("svg{{{LIGHT}}}"),
            Theme::Dark => format!("svg{{{DARK}}}"),
        };
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
             <style>{colours}{CHART_STYLE}.card{{fill:var(--card);stroke:var(--faint);rx:12px}}</style>\n\
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
                Along::Time => "Lines over time",
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

/// Runs `draw` on a picture of that size.
fn picture(width: f64, height: f64, draw: impl FnOnce(&Area<'_>) -> Drawn) -> (f64, String) {
    let mut svg = String::new();
    let size = (units(width).unsigned_abs(), units(height).unsigned_abs());
    let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
    // What was drawn until then is shown, should the library ever fail.
    let _ = draw(&root).and_then(|()| root.present());
    drop(root);
    (height, ink::rewritten(&svg))
}

/// Pixels to the library's.
fn units(pixels: f64) -> i32 {
    (pixels * f64::from(SCALE)).round() as i32
}

/// A line of so many pixels.
fn stroke(ink: Ink, pixels: f64) -> ShapeStyle {
    ShapeStyle {
        color: ink.colour().to_rgba(),
        filled: false,
        stroke_width: units(pixels).unsigned_abs(),
    }
}

/// An area.
fn filled(ink: Ink) -> ShapeStyle {
    ShapeStyle {
        color: ink.colour().to_rgba(),
        filled: true,
        stroke_width: 0,
    }
}

/// Where a text stands to its point; vertically in its middle.
#[derive(Debug, Clone, Copy)]
enum Side {
    /// The point is at its start.
    Start,
    /// At its end.
    End,
    /// At its middle.
    Middle,
}

fn style(ink: Ink, size: f64, side: Side) -> TextStyle<'static> {
    let horizontal = match side {
        Side::Start => HPos::Left,
        Side::End => HPos::Right,
        Side::Middle => HPos::Center,
    };
    // The library takes the size for a line's height and divides it again.
    let font = ("sans-serif", size * f64::from(SCALE) * 1.24).into_font();
    let mut style = TextStyle::from(font).pos(Pos::new(horizontal, VPos::Center));
    style.color = ink.colour().to_backend_color();
    style
}

fn strong(ink: Ink, size: f64) -> TextStyle<'static> {
    let mut style = style(ink, size, Side::Start);
    style.font = style.font.style(FontStyle::Bold);
    style
}

/// Puts a text at a place in pixels.
fn write(area: &Area<'_>, text: &str, style: &TextStyle<'_>, x: f64, y: f64) -> Drawn {
    area.draw(&Text::new(
        text.to_owned(),
        (units(x), units(y)),
        style.clone(),
    ))
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

    fn draw(&self, area: &Area<'_>, left: f64, top: f64) -> Drawn {
        for (index, row) in self.rows.iter().enumerate() {
            let y = top + (index as f64 + 0.5) * Legend::ROW;
            let mut x = left;
            for (ink, name) in row {
                let ends = [(units(x), units(y)), (units(x + 13.0), units(y))];
                area.draw(&PathElement::new(ends, stroke(*ink, 3.0)))?;
                write(
                    area,
                    name,
                    &style(Ink::Text, SMALL, Side::Start),
                    x + Legend::SWATCH,
                    y,
                )?;
                x += Legend::SWATCH + measure::width(name, SMALL) + Legend::GAP;
            }
        }
        Ok(())
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

/// Stretches without a gap.
fn unbroken(points: &[(f64, f64)]) -> impl Iterator<Item = &[(f64, f64)]> {
    points
        .split(|(_, value)| !value.is_finite())
        .filter(|stretch| !stretch.is_empty())
}

/// A line through points, with a dot where a point has no neighbour.
fn trace<'a, 'b>(
    chart: &mut ChartContext<'a, SVGBackend<'b>, Cartesian2d<axis::Axis, axis::Axis>>,
    points: &[(f64, f64)],
    ink: Ink,
) -> Drawn {
    for stretch in unbroken(points) {
        if let [only] = stretch {
            let dot = Circle::new(*only, units(2.5), filled(ink));
            chart.draw_series(std::iter::once(dot))?;
        } else {
            chart.draw_series(LineSeries::new(stretch.iter().copied(), stroke(ink, 2.0)))?;
        }
    }
    Ok(())
}
