//! A comparison as a report.

use super::comparison::{Comparison, Ended, Metric, Side, Weight};
use load::stats::{Interval, Verdict, median};
use report::{
    Along, Column, Document, Line, Lines, Panel, QuantileSeries, Quantiles, Section, Table, Tone,
    units,
};

impl Comparison {
    /// The answer in one sentence.
    pub fn sentence(&self) -> String {
        let verdict = self.judgement.verdict;
        let Some(ratio) = self.judgement.ratio else {
            return format!("B against A: {verdict}");
        };
        format!(
            "B against A: {verdict}; {} {}, {} to {}",
            self.metric.title(),
            change(ratio.estimate),
            change(ratio.low),
            change(ratio.high),
        )
    }

    /// The whole report.
    pub fn document(&self) -> Document {
        let [a, b] = &self.names;
        let mut document = Document::new("Comparison", format!("A is {a}, B is {b}."));
        document.answer = Some((self.tone(), self.sentence()));
        self.facts(&mut document);
        self.figures(document.section("Figures"));
        self.doubts(&mut document);
        if !self.blocks.is_empty() {
            self.charts(document.section("Blocks"));
        }
        document
    }

    fn tone(&self) -> Tone {
        match self.judgement.verdict {
            Verdict::Faster | Verdict::Same { .. } => Tone::Good,
            Verdict::Slower => Tone::Bad,
            Verdict::CannotTell { .. } => Tone::Warn,
        }
    }

    fn facts(&self, document: &mut Document) {
        document.fact("Decided by", self.metric.title());
        let ended = match self.ended {
            Ended::Decided => "until the verdict fell",
            Ended::UsedUp => "all there were to be",
            Ended::Interrupted => "then stopped",
        };
        document.fact(
            "Blocks",
            format!("{} of {}, {ended}", self.blocks.len(), self.blocks_max),
        );
        document.fact("Run again for noise", self.voided_in_words());
        document.fact(
            "Slices",
            format!(
                "{} each, {} connections, A B A in random order",
                units::seconds(self.slice_seconds),
                self.connections
            ),
        );
        if let Some(control) = self.judgement.control {
            document.fact("A against itself", in_words(&control));
        }
        if let Some(detectable) = self.judgement.detectable {
            document.fact(
                "Smallest difference seen 8 times of 10",
                format!("{} with all blocks", units::share(detectable)),
            );
        }
        document.fact(
            "Interval",
            format!(
                "{} at this look, 97 % over all of them; bootstrap over blocks",
                units::share(self.judgement.level)
            ),
        );
        document.fact("Took", units::seconds(self.seconds));
    }

    fn voided_in_words(&self) -> String {
        let reasons: Vec<String> = (self.voided.iter())
            .map(|(reason, count)| format!("{count} {reason}"))
            .collect();
        match reasons.is_empty() {
            true => "none".to_owned(),
            false => format!("{} ({})", self.voided(), reasons.join(", ")),
        }
    }

    fn figures(&self, section: &mut Section) {
        if self.blocks.is_empty() {
            section.text("Not one block was done, so there is nothing to compare.");
            return;
        }
        let mut table = Table::new([
            Column::left("median of slices"),
            Column::right("A"),
            Column::right("A again"),
            Column::right("B"),
            Column::right("B against A"),
        ]);
        for metric in Metric::ALL {
            let middle = |side: Side| {
                let values: Vec<f64> = (self.blocks.iter())
                    .filter_map(|block| block.side(side).of(metric))
                    .collect();
                median(&values).map_or(units::NONE.to_owned(), |value| metric.write(value))
            };
            let ratio = match metric == self.metric {
                true => self.judgement.ratio,
                false => (self.judgement.others.iter())
                    .find(|(other, _)| *other == metric)
                    .map(|(_, interval)| *interval),
            };
            if let Some(ratio) = ratio {
                table.row([
                    metric.title().to_owned(),
                    middle(Side::A),
                    middle(Side::Again),
                    middle(Side::B),
                    in_words(&ratio),
                ]);
            }
        }
        section.table(table);
        section.text(format!(
            "The verdict is about {} alone; it was chosen beforehand. The other intervals are 95 % \
             each and decide nothing.",
            self.metric.title()
        ));
    }

    fn doubts(&self, document: &mut Document) {
        if self.judgement.doubts.is_empty() {
            return;
        }
        let section = document.section("To be read with it");
        for doubt in &self.judgement.doubts {
            let tone = match doubt.weight {
                Weight::Remark => Tone::Plain,
                Weight::Refusal => Tone::Warn,
            };
            section.note(tone, doubt.text.clone());
        }
    }

    fn charts(&self, section: &mut Section) {
        let line = |name: &str, over, under| Line {
            name: name.to_owned(),
            points: (self.blocks.iter().enumerate())
                .filter_map(|(index, block)| {
                    let ratio = block.logarithm(self.metric, over, under)?.exp();
                    Some(((index + 1) as f64, ratio))
                })
                .collect(),
        };
        section.chart(Lines {
            title: format!("{} in each block", self.metric.title()),
            caption: "Block by block, not over time. The second line is A against itself: what \
                      lies within its swing is noise."
                .to_owned(),
            along: Along::Figure(units::Unit::Count),
            panels: vec![Panel {
                title: "Ratio".to_owned(),
                unit: units::Unit::Ratio,
                lines: vec![
                    line("B to A", Side::B, Side::A),
                    line("A again to A", Side::Again, Side::A),
                ],
            }],
            events: Vec::new(),
        });
        let series = ["A", "B"].iter().zip(&self.sides);
        section.chart(Quantiles {
            title: "Response times".to_owned(),
            caption: "All slices together.".to_owned(),
            series: series
                .map(|(name, side)| QuantileSeries {
                    name: (*name).to_owned(),
                    points: side.curve.clone(),
                })
                .collect(),
        });
    }
}

/// `+2.95 %`.
fn change(ratio: f64) -> String {
    let percent = (ratio - 1.0) * 100.0;
    match percent.is_finite() {
        true => format!("{percent:+.2} %"),
        false => units::NONE.to_owned(),
    }
}

/// `+2.95 % (+2.11 % to +3.80 %)`.
fn in_words(ratio: &Interval) -> String {
    format!(
        "{} ({} to {})",
        change(ratio.estimate),
        change(ratio.low),
        change(ratio.high)
    )
}
