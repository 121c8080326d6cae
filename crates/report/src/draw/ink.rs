//! Colours that follow the reader's theme, and the SVG they are written into.
//!
//! The drawing library knows fixed colours only. So it is handed one colour per role, and its
//! output is gone through once: a role's colour becomes a class that the style sheet colours, and
//! tenths of a pixel become pixels. Text cannot be mistaken for attributes in that, for the
//! library writes no quotation mark into text.

use plotters::style::RGBColor;

/// Pixels of the library to one of ours: it knows whole ones only.
pub(super) const SCALE: i32 = 10;

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
    /// The colour that stands for it in the library.
    pub(super) fn colour(self) -> RGBColor {
        let number = match self {
            Ink::Text => 0,
            Ink::Muted => 1,
            Ink::Grid => 2,
            Ink::Base => 3,
            Ink::Whisker => 4,
            Ink::Marker => 5,
            Ink::Halo => 6,
            Ink::Series(index) => 16 + (index % SERIES_COLOURS) as u8,
        };
        RGBColor(0xFE, 0x01, number)
    }
}

/// The class of a role's colour, for lines or areas.
fn class(attribute: &str, colour: &str) -> Option<String> {
    let number = u8::from_str_radix(colour.strip_prefix("#FE01")?, 16).ok()?;
    let name = match number {
        0 => "text".to_owned(),
        1 => "muted".to_owned(),
        2 => "grid".to_owned(),
        3 => "base".to_owned(),
        4 => "whisker".to_owned(),
        5 => "marker".to_owned(),
        6 => "halo".to_owned(),
        number => format!("{}", number.saturating_sub(15)),
    };
    Some(format!(
        "{}-{name}",
        if attribute == "fill" { "f" } else { "s" }
    ))
}

/// The library's output between its outermost tags, in pixels and classes.
pub(super) fn rewritten(svg: &str) -> String {
    let inner = svg.find('>').map_or("", |at| &svg[at + 1..]);
    let inner = inner.trim_end().strip_suffix("</svg>").unwrap_or(inner);
    let mut out = String::with_capacity(inner.len());
    let mut pieces = inner.split('"');
    // Outside and inside of quotation marks in turn.
    while let Some(outside) = pieces.next() {
        let Some(value) = pieces.next() else {
            out.push_str(outside);
            break;
        };
        let (before, name) = outside.rsplit_once(' ').unwrap_or((outside, ""));
        out.push_str(before);
        attribute(&mut out, name.trim_end_matches('='), value);
    }
    out.replace("\n</text>", "</text>")
        .replace(">\n", ">")
        .trim()
        .to_owned()
}

fn attribute(out: &mut String, name: &str, value: &str) {
    match name {
        "font-family" => {}
        "opacity" if value == "1" => {}
        "stroke" if value == "none" => {}
        "fill" | "stroke" if class(name, value).is_some() => {
            let class = class(name, value).unwrap_or_default();
            put(out, "class", &class);
        }
        "dy" if value == "0.5ex" => put(out, name, "0.35em"),
        "x" | "y" | "x1" | "y1" | "x2" | "y2" | "cx" | "cy" | "r" | "width" | "height"
        | "font-size" | "stroke-width" => put(out, name, &pixels(value)),
        "points" => {
            let points: Vec<String> = value
                .split_whitespace()
                .map(|point| {
                    let (x, y) = point.split_once(',').unwrap_or((point, "0"));
                    format!("{},{}", pixels(x), pixels(y))
                })
                .collect();
            put(out, name, &points.join(" "));
        }
        _ => put(out, name, value),
    }
}

fn put(out: &mut String, name: &str, value: &str) {
    out.push_str(&format!(" {name}=\"{value}\""));
}

fn pixels(value: &str) -> String {
    let value = value.parse::<f64>().unwrap_or(0.0) / f64::from(SCALE);
    let text = format!("{value:.1}");
    text.strip_suffix(".0").unwrap_or(&text).to_owned()
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
.s-1{stroke:var(--c1)}.s-2{stroke:var(--c2)}.s-3{stroke:var(--c3)}.s-4{stroke:var(--c4)}.s-5{stroke:var(--c5)}.s-6{stroke:var(--c6)}";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_s_output_becomes_classes_and_pixels() {
        let svg = "<svg width=\"100\" height=\"100\">\n\
            <rect x=\"15\" y=\"20\" width=\"100\" height=\"5\" opacity=\"1\" fill=\"#FE0110\" stroke=\"none\"/>\n\
            <polyline fill=\"none\" opacity=\"0.5\" stroke=\"#FE0111\" stroke-width=\"15\" points=\"10,20 31,40 \"/>\n\
            <text x=\"5\" y=\"5\" dy=\"0.5ex\" text-anchor=\"end\" font-family=\"sans-serif\" font-size=\"130.00000001\" opacity=\"1\" fill=\"#FE0100\">\n\
            fill=&quot;#FE0101&quot;\n</text>\n</svg>\n";
        assert_eq!(
            rewritten(svg),
            "<rect x=\"1.5\" y=\"2\" width=\"10\" height=\"0.5\" class=\"f-1\"/>\
             <polyline fill=\"none\" opacity=\"0.5\" class=\"s-2\" stroke-width=\"1.5\" points=\"1,2 3.1,4\"/>\
             <text x=\"0.5\" y=\"0.5\" dy=\"0.35em\" text-anchor=\"end\" font-size=\"13\" class=\"f-text\">fill=&quot;#FE0101&quot;</text>"
        );
    }
}
