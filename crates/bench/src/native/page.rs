//! The report as a document with charts, for a page.

use load::server::Sample;
use report::{
    Along, Column, Document, Event, Line, Lines, Panel, QuantileSeries, Quantiles, Section, Table,
    Tone,
    units::{self, Unit},
};

use super::notes;
use super::record::{PaceWord, Report};
use super::series::SeriesRecord;
use super::watch::{self, ServerRecord};
use super::{tables, text, timeline};

/// Points of a line over time.
const POINTS_MAX: usize = 300;

/// The document of a report.
pub(crate) fn document(report: &Report) -> Document {
    let title = match report.asked.urls.as_slice() {
        [one] => one.url.clone(),
        several => format!("{} URLs", several.len()),
    };
    let mut document = Document::new(title, text::load(&report.asked));
    document.answer = Some((tone(report), answer(report)));
    document.facts = text::facts(report);
    let measured = format!("{} by {}", report.started, report.generator);
    document.fact("Measured", measured);
    let overview = document.section("What to know");
    for (tone, note) in notes::notes(report) {
        overview.note(tone, note);
    }
    latencies(document.section("Latency"), report);
    course(&mut document, report);
    replies(document.section("Replies"), report);
    if let Some(table) = tables::urls(report) {
        document.section("By URL").table(table);
    }
    if let Some(server) = &report.server {
        spent(document.section("What it cost the server"), server);
    }
    document
}

fn tone(report: &Report) -> Tone {
    if report.completed == 0 || report.is_all_refused() || report.own.bound {
        Tone::Bad
    } else if report.failed > 0 || has_warnings(report) {
        Tone::Warn
    } else {
        Tone::Plain
    }
}

fn has_warnings(report: &Report) -> bool {
    let notes = notes::notes(report);
    notes.iter().any(|(tone, _)| *tone == Tone::Warn)
}

fn answer(report: &Report) -> String {
    let mut answer = notes::headline(report);
    let times = &report.times.response;
    let quantiles = [("median", 0.5), ("99th of a hundred", 0.99)];
    for (name, quantile) in quantiles {
        if times.is_enough_for(quantile) {
            let time = units::micros(times.quantile_us(quantile) as f64);
            answer.push_str(&format!(", {name} {time}"));
        }
    }
    let attempts = report.attempts().max(1) as f64;
    match report.failed {
        0 => answer.push_str(", none failed"),
        failed => answer.push_str(&format!(
            ", {} failed",
            units::share(failed as f64 / attempts)
        )),
    }
    answer
}

fn latencies(section: &mut Section, report: &Report) {
    section.table(tables::latencies(report));
    if let Some(note) = tables::too_few(report) {
        section.text(note);
    }
    let mut series = vec![curve("service", &report.times.service)];
    if report.asked.pace == PaceWord::Open {
        series.insert(0, curve("response", &report.times.response));
    }
    series.push(curve("first byte", &report.times.waiting));
    section.chart(Quantiles {
        title: "Latency by percentile".to_owned(),
        caption: "How many requests of a hundred took at most so long; to the right the slowest."
            .to_owned(),
        series,
    });
}

fn curve(name: &str, series: &SeriesRecord) -> QuantileSeries {
    QuantileSeries::asked(name, series.count, |quantile| series.quantile_us(quantile))
}

/// Rate, failures and latency over time.
fn course(document: &mut Document, report: &Report) {
    let steps = timeline::steps(&report.timeline, POINTS_MAX);
    if steps.is_empty() {
        return;
    }
    let line = |name: &str, of: fn(&timeline::TimelineStep) -> f64| Line {
        name: name.to_owned(),
        points: steps.iter().map(|step| (step.end_s, of(step))).collect(),
    };
    // Where no reply came there is no time to show, least of all a short one.
    let times = |name: &str, of: fn(&timeline::TimelineStep) -> f64| Line {
        name: name.to_owned(),
        points: steps
            .iter()
            .filter(|step| step.per_second > 0.0)
            .map(|step| (step.end_s, of(step)))
            .collect(),
    };
    let mut rates = vec![line("replies", |step| step.per_second)];
    if report.failed > 0 {
        rates.push(line("failures", |step| step.failed_per_second));
    }
    document.section("Over time").chart(Lines {
        title: "Rate and latency over time".to_owned(),
        caption: format!(
            "From the end of the warm-up; each point stands for {}.",
            units::seconds(steps.first().map_or(0.0, |step| step.end_s))
        ),
        along: Along::Time,
        panels: vec![
            Panel {
                title: "Requests per second".to_owned(),
                unit: Unit::PerSecond,
                lines: rates,
            },
            Panel {
                title: "Response time".to_owned(),
                unit: Unit::Micros,
                lines: vec![
                    times("median", |step| step.p50_us),
                    times("p99", |step| step.p99_us),
                    times("longest", |step| step.max_us),
                ],
            },
        ],
        events: Vec::new(),
    });
}

fn replies(section: &mut Section, report: &Report) {
    let mut table = Table::new([
        Column::left("status"),
        Column::right("replies"),
        Column::right("share"),
    ]);
    for (status, count) in &report.statuses {
        let share = *count as f64 / report.completed.max(1) as f64;
        table.row([
            status.to_string(),
            units::count(*count),
            units::share(share),
        ]);
    }
    section.table(table);
    match tables::failures(report) {
        Some(table) => section.table(table),
        None => section.text("Nothing failed."),
    }
    for failure in &report.first_failures {
        section.listing(
            format!("First failure of kind {}", failure.kind),
            &failure.text,
        );
    }
}

fn spent(section: &mut Section, server: &ServerRecord) {
    section.table(watch::table(server));
    let ends = server
        .samples
        .last()
        .map_or(0.0, |last| last.at.as_secs_f64());
    let all: Vec<(f64, &Sample)> = server
        .samples
        .iter()
        .map(|sample| (sample.at.as_secs_f64(), sample))
        .chain(
            server
                .cooldown
                .iter()
                .map(|sample| (ends + sample.at.as_secs_f64(), sample)),
        )
        .collect();
    let events = match server.cooldown.is_empty() {
        true => Vec::new(),
        false => vec![Event {
            at: ends,
            label: "load ends".to_owned(),
        }],
    };
    section.chart(Lines {
        title: "The server over time".to_owned(),
        caption:
            "From before the warm-up. Memory is the proportional share (PSS) of all its processes."
                .to_owned(),
        along: Along::Time,
        panels: panels(&all),
        events,
    });
}

fn panels(all: &[(f64, &Sample)]) -> Vec<Panel> {
    let line = |name: &str, of: fn(&Sample) -> Option<f64>| Line {
        name: name.to_owned(),
        points: all
            .iter()
            .filter_map(|(at, sample)| Some((*at, of(sample)?)))
            .collect(),
    };
    let panel = |title: &str, unit: Unit, lines: Vec<Line>| Panel {
        title: title.to_owned(),
        unit,
        lines,
    };
    let mut panels = vec![
        panel(
            "Cores",
            Unit::Cores,
            vec![
                line("busy", |sample| Some(sample.cores_used)),
                line("threads waiting for one", |sample| {
                    Some(sample.waiting_for_core)
                }),
            ],
        ),
        panel(
            "Memory",
            Unit::Bytes,
            vec![line("PSS", |sample| {
                sample.pss_bytes.map(|bytes| bytes as f64)
            })],
        ),
        panel(
            "Processes and sockets",
            Unit::Count,
            vec![
                line("processes", |sample| Some(sample.processes as f64)),
                line("sockets", |sample| {
                    sample.sockets.map(|sockets| sockets as f64)
                }),
            ],
        ),
    ];
    panels.retain(|panel| panel.lines.iter().any(|line| !line.points.is_empty()));
    panels
}

#[cfg(test)]
mod tests {
    use load::client::Interval;

    use super::*;

    #[test]
    fn a_curve_ends_where_its_samples_do() {
        let series = SeriesRecord {
            count: 1000,
            max_us: 900,
            histogram: vec![(100, 990), (900, 10)],
            ..SeriesRecord::default()
        };
        let curve = curve("service", &series);
        let last = curve.points.last().expect("points");
        assert!(last.0 <= 0.999 && last.0 > 0.99, "{last:?}");
        assert_eq!((curve.points[0].1, last.1), (100.0, 900.0));
        assert!(
            self::curve("none", &SeriesRecord::default())
                .points
                .is_empty()
        );
    }

    #[test]
    fn what_is_drawn_together_keeps_its_longest() {
        let timeline: Vec<Interval> = (0..3001u64)
            .map(|at| Interval {
                completed: 1,
                max_us: at,
                ..Interval::default()
            })
            .collect();
        let steps = timeline::steps(&timeline, POINTS_MAX);
        assert_eq!(steps.len(), 300);
        assert_eq!(steps[299].max_us, 2999.0);
    }
}
