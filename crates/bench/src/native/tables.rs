//! Tables that the text and the page share.

use report::units;
use report::{Cell, Column, Table, Tone};

use super::record::{PaceWord, Report, per_second};
use super::series::{QUANTILES, SeriesRecord, needed_for};

/// Latencies: quantiles down, kinds of time across.
pub(crate) fn latencies(report: &Report) -> Table {
    let times = &report.times;
    let mut kinds: Vec<(&str, &SeriesRecord)> = match report.asked.pace {
        PaceWord::Open => vec![("response", &times.response), ("service", &times.service)],
        PaceWord::Closed => vec![("service", &times.service)],
    };
    kinds.push(("first byte", &times.waiting));
    if times.connect.count > 0 {
        kinds.push(("connecting", &times.connect));
    }
    let titles = kinds.iter().map(|(title, _)| Column::right(*title));
    let mut table = Table::new(std::iter::once(Column::left("")).chain(titles));
    for (name, quantile) in QUANTILES {
        let cells = kinds
            .iter()
            .map(|(_, series)| quantile_cell(series, quantile));
        table.row(std::iter::once(Cell::from(name)).chain(cells));
    }
    let mut row = |name: &str, of: fn(&SeriesRecord) -> String| {
        let cells = kinds.iter().map(|(_, series)| match series.count {
            0 => units::NONE.to_owned(),
            _ => of(series),
        });
        table.row(std::iter::once(name.to_owned()).chain(cells));
    };
    row("max", |series| units::micros(series.max_us as f64));
    row("mean", |series| units::micros(series.mean_us));
    row("± deviation", |series| units::micros(series.deviation_us));
    table
}

/// The quantile, where there are samples enough.
fn quantile_cell(series: &SeriesRecord, quantile: f64) -> Cell {
    Cell::from(match series.is_enough_for(quantile) {
        true => units::micros(series.quantile_us(quantile) as f64),
        false => units::NONE.to_owned(),
    })
}

/// What the gaps in the table of latencies mean; nothing where there are none.
pub(crate) fn too_few(report: &Report) -> Option<String> {
    let count = report.times.service.count;
    let missing = QUANTILES
        .into_iter()
        .find(|(_, quantile)| count < needed_for(*quantile));
    missing.map(|(name, quantile)| {
        format!(
            "{}: fewer than ten times lie beyond it; {name} takes {} of them",
            units::NONE,
            units::count(needed_for(quantile))
        )
    })
}

/// What failed and how often; nothing where nothing did.
pub(crate) fn failures(report: &Report) -> Option<Table> {
    let mut table = Table::new([
        Column::right("how many"),
        Column::right("share"),
        Column::left("what failed"),
    ]);
    let attempts = report.attempts().max(1) as f64;
    let mut row = |count: u64, what: String| {
        if count > 0 {
            let share = units::share(count as f64 / attempts);
            table.row([units::count(count), share, what]);
        }
    };
    for (count, what) in errors_in_words(report) {
        row(count, what);
    }
    if report.failed_by_status > 0 {
        for (status, count) in &report.statuses {
            if !(200..400).contains(status) {
                row(*count, format!("status {status}"));
            }
        }
    }
    (!table.rows.is_empty()).then_some(table)
}

fn errors_in_words(report: &Report) -> [(u64, String); 7] {
    let errors = &report.errors;
    let patience = units::seconds(report.asked.timeout_s);
    [
        (
            errors.connect,
            "no connection: refused, unreachable, or no local port left".into(),
        ),
        (errors.tls, "TLS did not come about".into()),
        (errors.reset, "reset by the server".into()),
        (errors.closed, "closed before the reply was whole".into()),
        (
            errors.timeout,
            format!("timeout: nothing came for {patience}"),
        ),
        (
            errors.framing,
            "no HTTP, or framing that cannot be trusted".into(),
        ),
        (errors.write, "could not be sent".into()),
    ]
}

/// Whole replies by class of status: `2xx 1,234`.
pub(crate) fn status_classes(report: &Report) -> Vec<(String, u64)> {
    let mut classes: Vec<(String, u64)> = Vec::new();
    for (status, count) in &report.statuses {
        let name = format!("{}xx", status / 100);
        match classes.last_mut() {
            Some((last, sum)) if *last == name => *sum = sum.saturating_add(*count),
            _ => classes.push((name, *count)),
        }
    }
    classes
}

/// A row for each URL; nothing where there is one.
pub(crate) fn urls(report: &Report) -> Option<Table> {
    if report.by_url.len() < 2 {
        return None;
    }
    let mut table = Table::new([
        Column::left("URL"),
        Column::right("share"),
        Column::right("rate"),
        Column::right("failed"),
        Column::right("p50"),
        Column::right("p99"),
        Column::right("max"),
    ]);
    let all = report.completed.max(1) as f64;
    for url in &report.by_url {
        let tone = if url.failed > 0 {
            Tone::Warn
        } else {
            Tone::Plain
        };
        table.row([
            Cell::from(url.url.as_str()),
            Cell::from(units::share(url.completed as f64 / all)),
            Cell::from(units::per_second(per_second(
                url.completed,
                report.recorded_s,
            ))),
            Cell::toned(tone, units::count(url.failed)),
            quantile_cell(&url.response, 0.5),
            quantile_cell(&url.response, 0.99),
            Cell::from(units::micros(url.response.max_us as f64)),
        ]);
    }
    Some(table)
}
