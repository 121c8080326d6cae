//! A search as a report.

use super::probe::{Probe, Result as ProbeResult};
use super::{Knee, Search, Step};
use load::stats::median;
use report::{Along, Column, Document, Line, Lines, Panel, Section, Table, Tone, units};

impl Search {
    /// The answer in one sentence.
    pub(crate) fn sentence(&self) -> String {
        let goals = &self.goals;
        match self.knee {
            Knee::Found { holds, fails } => format!(
                "{goals} holds up to {} (and no longer at {})",
                units::per_second(holds),
                units::per_second(fails)
            ),
            Knee::GeneratorBound { holds } if holds > 0.0 => format!(
                "{goals} holds at {}; above it the generator is the limit, so the server's is not \
                 known: give the generator more --threads or cores of its own",
                units::per_second(holds)
            ),
            Knee::GeneratorBound { .. } => {
                "the generator was late at every rate, so nothing is known of the server: give it \
                 cores (--cores) or a machine of its own"
                    .to_owned()
            }
            Knee::Nowhere { tried } => {
                format!("{goals} does not even hold at {}", units::per_second(tried))
            }
            Knee::Everywhere { tried } => format!(
                "{goals} held at {}, the fastest that is tried",
                units::per_second(tried)
            ),
            Knee::Unfinished { holds } if holds > 0.0 => format!(
                "not finished; {goals} held at {}, once",
                units::per_second(holds)
            ),
            Knee::Unfinished { .. } => "not finished; no rate was found".to_owned(),
        }
    }

    /// The whole report.
    pub(crate) fn document(&self) -> Document {
        let subtitle = format!(
            "The highest rate at which {} holds {}.",
            self.name, self.goals
        );
        let mut document = Document::new("Search", subtitle);
        let tone = match self.knee {
            Knee::Found { .. } | Knee::Everywhere { .. } => Tone::Good,
            Knee::Nowhere { .. } => Tone::Bad,
            Knee::GeneratorBound { .. } | Knee::Unfinished { .. } => Tone::Warn,
        };
        document.answer = Some((tone, self.sentence()));
        document.fact("A closed loop came to", units::per_second(self.closed_loop));
        document.fact("Connections", self.connections.to_string());
        document.fact("Probes", self.probes.len().to_string());
        self.fact_of_knee(&mut document);
        document.fact("Took", units::seconds(self.seconds));
        self.notes(document.section("Probes"));
        document
    }

    /// What the server spent at the rate that held.
    fn fact_of_knee(&self, document: &mut Document) {
        let (Knee::Found { holds, .. } | Knee::GeneratorBound { holds }) = self.knee else {
            return;
        };
        let there = || {
            let probes = self.probes.iter().map(|tried| &tried.probe);
            probes.filter(move |probe| probe.offered == holds)
        };
        let middle = |of: &dyn Fn(&Probe) -> Option<f64>| {
            median(&there().filter_map(of).collect::<Vec<f64>>())
        };
        if let Some(p99) = middle(&|probe| Some(probe.p99_us)) {
            document.fact("p99 there", units::micros(p99));
        }
        if let Some(cores) = middle(&|probe| probe.cores_used) {
            document.fact("Cores of the server there", units::figure(cores));
        }
        if let Some(bytes) = middle(&|probe| probe.pss_bytes.map(|bytes| bytes as f64)) {
            document.fact("Memory of the server there", units::bytes(bytes));
        }
    }

    fn notes(&self, section: &mut Section) {
        section.table(self.table());
        let short = (self.probes.iter())
            .filter(|tried| tried.probe.requests < tried.probe.requests_needed)
            .count();
        if short > 0 {
            section.note(
                Tone::Warn,
                format!(
                    "{short} of {} probes had fewer requests than the goals' quantiles need, even \
                     in half a minute: far quantiles are guesses there",
                    self.probes.len()
                ),
            );
        }
        section.text(
            "Requests are sent when due, and response times run from the due instant. A rate holds \
             where the goals do and at least 99 % of the requests due were answered; the last one \
             that held was tried three times more.",
        );
        section.chart(self.chart());
    }

    fn table(&self) -> Table {
        let mut table = Table::new([
            Column::left("step"),
            Column::right("offered"),
            Column::right("achieved"),
            Column::right("p50"),
            Column::right("p99"),
            Column::right("failed"),
            Column::right("requests"),
            Column::right("cores"),
            Column::left(""),
        ]);
        for tried in &self.probes {
            let probe = &tried.probe;
            let step = match tried.step {
                Step::Bracket => "bracket",
                Step::Narrow => "narrow",
                Step::Confirm => "confirm",
            };
            let missed = probe.missed.join(", ");
            let result = match probe.result {
                ProbeResult::Holds => "holds".to_owned(),
                ProbeResult::Fails => missed,
                ProbeResult::GeneratorBound => format!("{missed}; the generator's limit"),
            };
            table.row([
                step.to_owned(),
                units::per_second(probe.offered),
                units::per_second(probe.achieved),
                units::micros(probe.p50_us),
                units::micros(probe.p99_us),
                units::share(probe.failed_share),
                units::count(probe.requests),
                probe
                    .cores_used
                    .map_or(units::NONE.to_owned(), units::figure),
                result,
            ]);
        }
        table
    }

    fn chart(&self) -> Lines {
        let mut by_rate: Vec<&Probe> = self.probes.iter().map(|tried| &tried.probe).collect();
        by_rate.sort_by(|a, b| a.offered.total_cmp(&b.offered));
        let line = |name: &str, of: fn(&Probe) -> f64| Line {
            name: name.to_owned(),
            points: by_rate.iter().map(|p| (p.offered, of(p))).collect(),
        };
        Lines {
            title: "Response times by rate".to_owned(),
            caption: "From left to right: requests per second offered.".to_owned(),
            along: Along::Figure(units::Unit::PerSecond),
            panels: vec![Panel {
                title: "Response time".to_owned(),
                unit: units::Unit::Micros,
                lines: vec![line("p50", |p| p.p50_us), line("p99", |p| p.p99_us)],
            }],
            events: Vec::new(),
        }
    }
}
