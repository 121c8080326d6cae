//! What a chart shows; how it is drawn is the renderers' business.
//!
//! Values that are no number, or infinite, are left out by every renderer.

use hdrhistogram::Histogram;

use super::units::Unit;

/// Points of a latency curve taken from a histogram.
const CURVE_POINTS: u32 = 120;

/// A chart.
#[derive(Debug, Clone, PartialEq)]
pub enum Chart {
    /// Figures side by side, each with its interval.
    Bars(Bars),
    /// Figures over time.
    Lines(Lines),
    /// Latency by percentile.
    Quantiles(Quantiles),
}

/// Figures side by side, each with its interval.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Bars {
    /// What is shown, with its unit in words: `Requests per second of server CPU time`.
    pub title: String,
    /// A sentence on how to read it; may be empty.
    pub caption: String,
    /// How the values are written.
    pub unit: Unit,
    /// Rows of bars that are compared with each other.
    pub groups: Vec<BarGroup>,
    /// A line across all groups: a target, or 1 where ratios are shown.
    pub reference: Option<Marker>,
}

/// Bars that are compared with each other.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct BarGroup {
    /// What they have in common; empty where there is one group.
    pub label: String,
    /// The bars. Bars of the same name have the same colour in all groups.
    pub bars: Vec<Bar>,
    /// A line across this group alone: the figure somebody reported.
    pub marker: Option<Marker>,
}

/// A bar.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Bar {
    /// Whose figure it is.
    pub name: String,
    /// The figure.
    pub value: f64,
    /// Its 95 % interval, low and high.
    pub interval: Option<(f64, f64)>,
    /// The figure somebody reported of this one.
    pub reported: Option<f64>,
}

/// A line at a value.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Marker {
    /// Where.
    pub value: f64,
    /// What it is.
    pub label: String,
}

/// What runs from left to right.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Along {
    /// Seconds since the start.
    #[default]
    Time,
    /// A figure in this unit.
    Figure(Unit),
    /// Days after the first of 1970.
    Day,
}

/// Figures over time, or over another figure.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Lines {
    /// What is shown.
    pub title: String,
    /// A sentence on how to read it; may be empty.
    pub caption: String,
    /// What runs from left to right.
    pub along: Along,
    /// One under the other on the same axis; figures of different units never share one.
    pub panels: Vec<Panel>,
    /// Instants worth a vertical line: the load ends.
    pub events: Vec<Event>,
}

/// Lines with one unit.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Panel {
    /// What is shown, with its unit in words: `Response time`.
    pub title: String,
    /// How the values are written.
    pub unit: Unit,
    /// At most four are drawn.
    pub lines: Vec<Line>,
}

/// A line.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Line {
    /// What it shows.
    pub name: String,
    /// Seconds since the start, and the value. A value that is no number leaves a gap.
    pub points: Vec<(f64, f64)>,
}

/// An instant worth a line.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Event {
    /// Seconds since the start.
    pub at: f64,
    /// What happened.
    pub label: String,
}

/// Latency by percentile.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Quantiles {
    /// What is shown.
    pub title: String,
    /// A sentence on how to read it; may be empty.
    pub caption: String,
    /// One curve each.
    pub series: Vec<QuantileSeries>,
}

/// A latency curve.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct QuantileSeries {
    /// Whose.
    pub name: String,
    /// Quantile from 0 to below 1, and microseconds.
    pub points: Vec<(f64, f64)>,
}

impl QuantileSeries {
    /// The curve of a histogram of microseconds, as far out as it has requests to say.
    pub fn of(name: impl Into<String>, histogram: &Histogram<u64>) -> QuantileSeries {
        QuantileSeries::asked(name, histogram.len(), |quantile| {
            histogram.value_at_quantile(quantile)
        })
    }

    /// The curve of so many times, asked for one quantile after another, as far out as they say
    /// something.
    pub fn asked(
        name: impl Into<String>,
        count: u64,
        micros_at: impl Fn(f64) -> u64,
    ) -> QuantileSeries {
        // Even steps on the scale the chart has: from the 0th to the 99.999th of a hundred. The
        // median lies between two of them, and is told.
        let steps = (0..=CURVE_POINTS).map(|step| f64::from(step) / f64::from(CURVE_POINTS));
        let mut quantiles: Vec<f64> = steps.map(|step| 1.0 - 10f64.powf(-5.0 * step)).collect();
        quantiles.push(0.5);
        quantiles.sort_by(f64::total_cmp);
        let told = |quantile: &f64| (1.0 - quantile) * count as f64 >= 1.0;
        QuantileSeries {
            name: name.into(),
            points: quantiles
                .into_iter()
                .take_while(told)
                .map(|quantile| (quantile, micros_at(quantile) as f64))
                .collect(),
        }
    }

    /// Returns the first point of the curve at this quantile or above, if it goes so far.
    pub fn at_least(&self, wanted: f64) -> Option<(f64, f64)> {
        let mut points = self.points.iter().copied();
        points.find(|(quantile, _)| *quantile >= wanted - 1e-9)
    }
}

impl Chart {
    /// What is shown.
    pub fn title(&self) -> &str {
        match self {
            Chart::Bars(bars) => &bars.title,
            Chart::Lines(lines) => &lines.title,
            Chart::Quantiles(quantiles) => &quantiles.title,
        }
    }

    /// How to read it.
    pub fn caption(&self) -> &str {
        match self {
            Chart::Bars(bars) => &bars.caption,
            Chart::Lines(lines) => &lines.caption,
            Chart::Quantiles(quantiles) => &quantiles.caption,
        }
    }
}

impl From<Bars> for Chart {
    fn from(bars: Bars) -> Chart {
        Chart::Bars(bars)
    }
}

impl From<Lines> for Chart {
    fn from(lines: Lines) -> Chart {
        Chart::Lines(lines)
    }
}

impl From<Quantiles> for Chart {
    fn from(quantiles: Quantiles) -> Chart {
        Chart::Quantiles(quantiles)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Language;

    #[test]
    fn a_curve_tells_each_percentile_exactly_and_none_without_samples() {
        let times: Vec<u64> = (1..=1000).collect();
        let at = |quantile: f64| times[((quantile * 1000.0).ceil() as usize).max(1) - 1];
        let chart = Chart::from(Quantiles {
            series: vec![QuantileSeries::asked("a", 1000, at)],
            ..Quantiles::default()
        });
        let row: Vec<String> = chart.table(Language::English).rows[0]
            .iter()
            .map(|cell| cell.text.clone())
            .collect();
        assert_eq!(row, ["a", "500 µs", "900 µs", "990 µs", "999 µs", "–"]);
        let none = QuantileSeries::asked("none", 0, |_| 7);
        assert!(none.points.is_empty());
    }
}
