//! A record as a report.

use super::caveats;
use super::figures;
use super::judge::{self, Aim, Judged, Variant};
use super::model::Than;
use super::record::{Record, RowHead};
use super::slope;
use super::summary;
use load::stats::{Interval, Verdict};
use report::units;
use report::{
    Bar, BarGroup, Bars, Cell, Column, Document, Marker, QuantileSeries, Quantiles, Table, Tone,
};

/// Heading of the curves.
pub(crate) const CURVES: &str = "Response times";
/// Latency curves of one report.
const CURVES_MAX: usize = 16;
/// Columns of the table of everything else, where there is such a figure.
const BESIDES: [&str; 18] = [
    "per_second",
    "p50_us",
    "p99_us",
    "failed",
    "late_share",
    "unlogged",
    "cpu_us",
    "pss_bytes",
    "peak_bytes",
    "processes",
    "threads",
    "switches",
    "run_queue_share",
    "throttled_share",
    "time_wait",
    "load1",
    "bytes_alone",
    "jain",
];
/// Figures commands and tenants added; more of them than this are left to the data.
const OWN_FIGURES_MAX: usize = 8;
/// As many missed targets are named in the answer.
const MISSES_NAMED_MAX: usize = 3;

/// Draws the report of a run.
pub(crate) fn document(record: &Record) -> Document {
    let head = &record.head;
    let mut document = Document::new(&head.title, one_line(&head.question));
    let aims = judge::aims(record);
    let judged = judge::all(record);
    document.answer = warned(record, answer(&judged, &aims));
    facts(&mut document, record);
    if let Some((source, words)) = &head.report {
        let section = document.section("The question");
        section.text(one_line(&head.question));
        section.text(format!("Field report: {source}. {}", one_line(words)));
    }
    if let Some(told) = slope::sections(&mut document, record).filter(|_| aims.is_empty()) {
        document.answer = warned(record, Some((Tone::Plain, told)));
    }
    for name in figure_names(&judged) {
        let of_name: Vec<&Judged<'_>> =
            judged.iter().filter(|judged| judged.name == name).collect();
        figure_section(&mut document, record, &of_name, &aims);
    }
    reported(&mut document, record);
    besides(&mut document, record);
    curves(&mut document, record);
    caveats::section(&mut document, record, &aims);
    document
}

/// Targets that were missed, in words.
pub(crate) fn misses(aims: &[Aim<'_>]) -> Vec<String> {
    let missed = aims.iter().filter(|aim| !aim.is_met);
    missed
        .map(|aim| format!("{}: {}", aim.row.name, aim_words(aim)))
        .collect()
}

/// The answer, and whether it is not of all that was asked.
fn warned(record: &Record, answer: Option<(Tone, String)>) -> Option<(Tone, String)> {
    let has = |tone: Tone| record.notes.iter().any(|note| note.tone == tone);
    let (tone, warning) = if record.head.is_unfinished {
        (
            Tone::Bad,
            "The run was cut short: later rows and blocks are missing.",
        )
    } else if has(Tone::Bad) {
        (
            Tone::Bad,
            "Not all was measured: see what is to be read with it.",
        )
    } else if has(Tone::Warn) {
        (
            Tone::Warn,
            "The machine was disturbed, or something was left out: see what is to be read with it.",
        )
    } else {
        return answer;
    };
    let words = answer.map_or_else(String::new, |(_, text)| format!("{text} "));
    Some((tone, words + warning))
}

fn answer(judged: &[Judged<'_>], aims: &[Aim<'_>]) -> Option<(Tone, String)> {
    if !aims.is_empty() {
        let met = aims.iter().filter(|aim| aim.is_met).count();
        return Some(match aims.len() - met {
            0 => (Tone::Good, format!("All {met} targets are met.")),
            missed => {
                let mut text = format!("{met} of {} targets are met, {missed} missed", aims.len());
                if missed <= MISSES_NAMED_MAX {
                    text += &format!(": {}", misses(aims).join("; "));
                }
                (Tone::Warn, text + ".")
            }
        });
    }
    let first = judged.first()?;
    let ours = first.variants.first()?;
    let beside = |variant: &Variant| {
        let (ratio, _) = variant.beside?;
        Some(format!(
            "{} of {}",
            units::ratio(ratio.estimate),
            variant.name
        ))
    };
    let others: Vec<String> = first.variants.iter().filter_map(beside).collect();
    let figure = first.figure.write(ours.summary.median);
    let mut text = format!(
        "{}: {} has {figure} ({})",
        first.row.name, ours.name, first.figure.title
    );
    if !others.is_empty() {
        text += &format!(", {}", others.join(", "));
    }
    Some((Tone::Plain, text + "."))
}

fn facts(document: &mut Document, record: &Record) {
    let head = &record.head;
    let versions: Vec<&str> = head
        .versions
        .iter()
        .map(|(_, version)| version.as_str())
        .collect();
    document.fact("Programs", versions.join(" · "));
    let machine = &head.machine;
    document.fact(
        "Machine",
        format!(
            "{}, {} cores, {}, Linux {}",
            machine.processor,
            machine.cores,
            units::bytes(machine.memory_bytes as f64),
            machine.kernel
        ),
    );
    document.fact("Run", units::instant(head.began()));
    document.fact("Seed", head.seed.to_string());
    document.fact(
        "How",
        "servers on core 0, generator and back ends on core 1; every variant once in each block, in random order; the figure is the median of the blocks, a ratio is taken within blocks and has its 95 % interval",
    );
    if !head.missing.is_empty() {
        document.fact("Not measured", head.missing.join("; "));
    }
}

/// In the order in which rows have them.
fn figure_names(judged: &[Judged<'_>]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for judged in judged {
        if !names.contains(&judged.name) {
            names.push(judged.name.clone());
        }
    }
    names
}

fn figure_section(
    document: &mut Document,
    record: &Record,
    judged: &[&Judged<'_>],
    aims: &[Aim<'_>],
) {
    let Some(first) = judged.first() else {
        return;
    };
    let figure = &first.figure;
    let section = document.section(capital(&figure.title));
    section.table(table(judged, aims));
    for (row, text) in row_notes(judged) {
        section.note(Tone::Plain, format!("{row}: {text}"));
    }
    let groups: Vec<BarGroup> = judged.iter().map(|judged| group(record, judged)).collect();
    section.chart(Bars {
        title: capital(&figure.title),
        caption: "Medians of the blocks and their 95 % intervals.".into(),
        unit: figure.unit,
        groups,
        reference: None,
    });
}

fn row_notes<'a>(judged: &'a [&Judged<'_>]) -> Vec<(&'a str, &'a str)> {
    let note = |judged: &&'a Judged<'_>| {
        let is_main = judged.row.figures.first() == Some(&judged.name);
        Some((
            judged.row.name.as_str(),
            judged.row.note.as_deref().filter(|_| is_main)?,
        ))
    };
    judged.iter().filter_map(note).collect()
}

/// A line a variant.
fn table(judged: &[&Judged<'_>], aims: &[Aim<'_>]) -> Table {
    let title = judged
        .first()
        .map_or("", |judged| judged.figure.title.as_str());
    let firsts = judged
        .iter()
        .filter_map(|judged| judged.row.variants.first());
    let mut names: Vec<&String> = firsts.collect();
    names.dedup();
    let ours = match names.as_slice() {
        [only] => only.as_str(),
        _ => "the first",
    };
    let mut table = Table::new([
        Column::left("work"),
        Column::left("variant"),
        Column::right(title),
        Column::right(format!("{ours} ÷ it")),
        Column::left(format!("{ours} is")),
        Column::left("wanted"),
    ]);
    for judged in judged {
        for variant in &judged.variants {
            let (ratio, verdict) = match &variant.beside {
                Some((ratio, verdict)) => (ratio_text(ratio), verdict_cell(verdict.as_ref())),
                None => (String::new(), Cell::default()),
            };
            table.row([
                Cell::from(judged.row.name.as_str()),
                Cell::from(variant.name.as_str()),
                Cell::from(judged.figure.write(variant.summary.median)),
                Cell::from(ratio),
                verdict,
                wanted(judged, variant, aims),
            ]);
        }
        if let Some(control) = &judged.control {
            let first = judged.row.variants.first().map_or("", String::as_str);
            let name = format!("{first}, again");
            let cells = [
                judged.row.name.as_str(),
                &name,
                "",
                &ratio_text(&inverse(control)),
                "the noise floor",
            ];
            table.row(cells);
        }
    }
    table
}

/// The targets that stand beside a variant: against it, or of itself.
pub(crate) fn wanted(judged: &Judged<'_>, variant: &Variant, aims: &[Aim<'_>]) -> Cell {
    let own = aims.iter().filter(|aim| {
        let stands_at = match &aim.target.than {
            Some(Than::Variant(name)) => name,
            Some(Than::Best | Than::Row(_)) | None => &aim.target.variant,
        };
        aim.row.name == judged.row.name
            && aim.target.of == judged.name
            && *stands_at == variant.name
    });
    let mut tone = Tone::Plain;
    let mut words = Vec::new();
    for aim in own {
        let mark = if aim.is_met { "✓" } else { "✗" };
        words.push(format!("{mark} {}", bound(aim)));
        tone = match (tone, aim.is_met) {
            (Tone::Bad, _) | (_, false) => Tone::Bad,
            _ => Tone::Good,
        };
    }
    Cell::toned(tone, words.join(", "))
}

fn bound(aim: &Aim<'_>) -> String {
    let figure = figures::figure(&aim.target.of);
    let write = |value: f64| match aim.target.than {
        Some(_) => units::ratio(value),
        None => figure.write(value),
    };
    let least = aim
        .target
        .at_least
        .map(|least| format!("≥ {}", write(least)));
    let most = aim.target.at_most.map(|most| format!("≤ {}", write(most)));
    let more = aim.target.more_at_most;
    let more = more.map(|most| format!("at most {} more", figure.write(most)));
    let all: Vec<String> = least.into_iter().chain(most).chain(more).collect();
    let beside = match &aim.target.than {
        Some(Than::Best) => " of the best other".to_owned(),
        Some(Than::Row(row)) => format!(" than in “{row}”"),
        _ => String::new(),
    };
    format!("{}{beside}", all.join(" and "))
}

fn aim_words(aim: &Aim<'_>) -> String {
    let figure = figures::figure(&aim.target.of);
    let got = match (&aim.target.than, aim.target.more_at_most) {
        (_, Some(_)) if aim.got < 0.0 => format!("{} less", figure.write(-aim.got)),
        (_, Some(_)) => format!("{} more", figure.write(aim.got)),
        (Some(_), None) => units::ratio(aim.got),
        (None, None) => figure.write(aim.got),
    };
    let beside = match &aim.target.than {
        Some(Than::Variant(name)) => format!(" beside {name}"),
        Some(Than::Best) => " beside the best other".to_owned(),
        Some(Than::Row(row)) => format!(" beside “{row}”"),
        None => String::new(),
    };
    format!(
        "{} of {}{beside} {got} (wanted {})",
        figure.title,
        aim.target.variant,
        bound(aim)
    )
}

fn verdict_cell(verdict: Option<&Verdict>) -> Cell {
    match verdict {
        None => Cell::from("too few blocks to say"),
        Some(verdict) => {
            let tone = match verdict {
                Verdict::Faster => Tone::Good,
                Verdict::Slower => Tone::Bad,
                _ => Tone::Plain,
            };
            let text = match verdict {
                Verdict::Faster => "better".to_owned(),
                Verdict::Slower => "worse".to_owned(),
                other => other.to_string(),
            };
            Cell::toned(tone, text)
        }
    }
}

pub(crate) fn ratio_text(ratio: &Interval) -> String {
    format!("{:.2} ({:.2}–{:.2})", ratio.estimate, ratio.low, ratio.high)
}

fn inverse(ratio: &Interval) -> Interval {
    Interval {
        low: 1.0 / ratio.high,
        estimate: 1.0 / ratio.estimate,
        high: 1.0 / ratio.low,
    }
}

fn group(record: &Record, judged: &Judged<'_>) -> BarGroup {
    let reported = |variant: &str| {
        let first = judged.row.variants.first();
        let mut own = judged.row.reported.iter().filter(|reported| {
            let whose = reported.variant.as_ref().or(first);
            reported.of == judged.name && whose.is_some_and(|name| name == variant)
        });
        own.next().map(|reported| reported.figure)
    };
    let bar = |variant: &Variant| Bar {
        name: variant.name.clone(),
        value: variant.summary.median,
        interval: variant
            .interval
            .map(|interval| (interval.low, interval.high)),
        reported: reported(&variant.name),
    };
    BarGroup {
        label: if record.head.rows.len() > 1 {
            judged.row.name.clone()
        } else {
            String::new()
        },
        bars: judged.variants.iter().map(bar).collect(),
        marker: None::<Marker>,
    }
}

/// The field report's figures beside ours.
fn reported(document: &mut Document, record: &Record) {
    let mut table = Table::new([
        Column::left("work"),
        Column::left("variant"),
        Column::left("figure"),
        Column::right("reported"),
        Column::right("here"),
        Column::right("here ÷ reported"),
    ]);
    for row in &record.head.rows {
        for reported in &row.reported {
            let first = row.variants.first().cloned().unwrap_or_default();
            let variant = reported.variant.clone().unwrap_or(first);
            let figure = figures::figure(&reported.of);
            let here = judge::median(record, &row.name, &variant, &reported.of);
            let text = |value: Option<f64>| {
                value.map_or_else(|| units::NONE.to_owned(), |value| figure.write(value))
            };
            table.row([
                row.name.clone(),
                variant,
                figure.title.clone(),
                figure.unit.write_reported(reported.figure),
                text(here),
                here.map_or_else(
                    || units::NONE.to_owned(),
                    |here| units::ratio(here / reported.figure),
                ),
            ]);
        }
    }
    if !table.rows.is_empty() {
        let section = document.section("Beside the field report");
        section.text(
            "Another machine, another year: what compares is how the rows stand to each other.",
        );
        section.table(table);
    }
}

/// Everything else that was seen.
fn besides(document: &mut Document, record: &Record) {
    let mut columns: Vec<String> = Vec::new();
    let mut own: Vec<String> = Vec::new();
    for row in &record.head.rows {
        for name in judge::names(record, &row.name) {
            let known = figures::is_known(&name);
            if BESIDES.contains(&name.as_str()) && !columns.contains(&name) {
                columns.push(name);
            } else if !known && !own.contains(&name) && own.len() < OWN_FIGURES_MAX {
                own.push(name);
            }
        }
    }
    columns.sort_by_key(|name| BESIDES.iter().position(|known| known == name));
    columns.extend(own);
    columns.retain(|name| name != "failed" || any_failed(record));
    let figures: Vec<figures::Figure> = columns.iter().map(|name| figures::figure(name)).collect();
    let titles = figures.iter().map(|figure| Column::right(&figure.title));
    let mut table = Table::new(
        [Column::left("work"), Column::left("variant")]
            .into_iter()
            .chain(titles),
    );
    for row in &record.head.rows {
        for variant in &row.variants {
            let value = |(name, figure): (&String, &figures::Figure)| {
                let median = judge::median(record, &row.name, variant, name);
                median.map_or_else(String::new, |median| figure.write(median))
            };
            let values = columns.iter().zip(&figures).map(value);
            table.row(
                [row.name.clone(), variant.clone()]
                    .into_iter()
                    .chain(values),
            );
        }
    }
    if columns.is_empty() {
        return;
    }
    let section = document.section("What else was seen");
    section.text("Medians of the blocks. Rates and times are those of the load the row has: flat out unless it has a rate.");
    section.table(table);
    for row in &record.head.rows {
        section.text(format!("{}: {}.", row.name, row.load));
    }
}

fn any_failed(record: &Record) -> bool {
    let failed = |slice: &super::record::Slice| {
        slice
            .figures
            .get("failed")
            .is_some_and(|count| *count > 0.0)
    };
    record.slices.iter().any(failed)
}

fn curves(document: &mut Document, record: &Record) {
    let curve = |row: &RowHead| {
        let variants = row.variants.iter();
        let series = variants.filter_map(|variant| summary::curve(record, &row.name, variant));
        let series: Vec<QuantileSeries> = series.collect();
        (!series.is_empty()).then(|| Quantiles {
            title: format!("Response times, {}", row.name),
            caption: row.load.clone(),
            series,
        })
    };
    let curves: Vec<Quantiles> = record
        .head
        .rows
        .iter()
        .filter_map(curve)
        .take(CURVES_MAX)
        .collect();
    if !curves.is_empty() {
        let section = document.section(CURVES);
        curves.into_iter().for_each(|curve| section.chart(curve));
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| {
        first.to_uppercase().chain(letters).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::super::record::{Note, example};
    use super::*;

    #[test]
    fn a_report_says_figures_ratios_targets_and_what_was_reported() {
        let record = example();
        let text = document(&record).to_markdown();
        for part in [
            "# Example",
            "All 1 targets are met",
            "1.25 (1.25–1.25)",
            "better",
            "✓ ≥ 1.10",
            "Beside the field report",
            "91.38",
            "one, again",
            "Abacus, 2 cores",
        ] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
    }

    #[test]
    fn a_missed_target_is_told() {
        let mut record = example();
        record.head.rows[0].targets[0].at_least = Some(1.3);
        let text = document(&record).to_markdown();
        assert!(text.contains("0 of 1 targets are met, 1 missed"), "{text}");
        assert!(text.contains("✗ ≥ 1.30"), "{text}");
        assert!(text.contains("beside two 1.25"), "{text}");
    }

    #[test]
    fn what_is_not_whole_is_told_with_the_answer() {
        let mut record = example();
        record.notes.push(Note {
            row: Some("row".into()),
            tone: Tone::Bad,
            text: "two is left out".into(),
        });
        let text = document(&record).to_markdown();
        assert!(
            text.contains("targets are met. Not all was measured"),
            "{text}"
        );
        record.head.is_unfinished = true;
        let text = document(&record).to_markdown();
        assert!(text.contains("The run was cut short"), "{text}");
    }

    #[test]
    fn numbers_of_strangers_are_drawn_without_harm() {
        for wild in [f64::MAX, f64::MIN_POSITIVE, 0.0, -1.0] {
            let mut record = example();
            record.head.started = u64::MAX;
            record.head.machine.memory_bytes = u64::MAX;
            record.head.rows[0].reported[0].figure = wild;
            record.head.rows[0].targets[0].at_least = Some(wild);
            for slice in record.slices.iter_mut().skip(1).step_by(2) {
                slice.block = usize::MAX - slice.block;
                slice.figures.values_mut().for_each(|value| *value = wild);
                slice.times = vec![(0, 0), (u64::MAX, u64::MAX), (1, u64::MAX)];
            }
            document(&record).to_html();
            document(&record).to_text(80, report::Paint::Never);
            super::super::compare::compare(&example(), &record);
        }
    }
}
