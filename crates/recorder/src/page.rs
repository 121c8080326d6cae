//! A range's figures as a report, for a terminal or as a page.
//!
//! The idea: what a figure is worth stands beside it: visitors of several salts are a sum, lists say
//! what is beyond their names, and what was never logged is not shown as zero. All texts in it come
//! from clients; the renderers take them for nothing else.

use std::collections::BTreeMap;

use report::units::{self, Unit};
use report::{Along, Bar, BarGroup, Bars, Column, Document, Line, Lines, Panel, Table, Tone};

use crate::day::{Figures, ListOf, Tally};
use crate::range::{COMPARED_DAYS, RangeFigures};
use crate::salts::{SaltPeriod, civil};

/// Days of a range that are shown each; a longer one is shown by month.
const DAYS_SHOWN_MAX: usize = 31;
/// Trails that are shown.
const TRAILS_SHOWN: usize = 20;
const WEEKDAYS: [&str; 7] = [
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
    "Sunday",
];

/// A list as it is shown.
struct Shown {
    of: ListOf,
    heading: &'static str,
    name: &'static str,
    count: &'static str,
}

const fn shown(
    of: ListOf,
    heading: &'static str,
    name: &'static str,
    count: &'static str,
) -> Shown {
    Shown {
        of,
        heading,
        name,
        count,
    }
}

const LISTS: [Shown; 17] = [
    shown(ListOf::Pages, "Pages", "page", "views"),
    shown(ListOf::Entries, "Entry pages", "page", "visits"),
    shown(ListOf::Exits, "Exit pages", "page", "visits"),
    shown(ListOf::NextPages, "From page to page", "pages", "times"),
    shown(
        ListOf::Referrers,
        "Where visits came from",
        "source",
        "visits",
    ),
    shown(
        ListOf::ReferringPages,
        "Pages that led here",
        "page",
        "visits",
    ),
    shown(
        ListOf::Campaigns,
        "Campaigns",
        "source / medium / campaign",
        "visits",
    ),
    shown(
        ListOf::Searches,
        "Searched for on the site",
        "words",
        "times",
    ),
    shown(ListOf::Browsers, "Browsers", "browser", "visits"),
    shown(ListOf::Systems, "Systems", "system", "visits"),
    shown(ListOf::Devices, "Devices", "device", "visits"),
    shown(ListOf::Countries, "Countries", "country", "visits"),
    shown(ListOf::Bots, "Bots", "bot", "requests"),
    shown(ListOf::Files, "Files", "file", "requests"),
    shown(ListOf::Missing, "Not found", "path", "requests"),
    shown(
        ListOf::Errors,
        "Errors of the server",
        "status and path",
        "requests",
    ),
    shown(ListOf::Statuses, "Statuses", "status", "requests"),
];

/// Makes a report, with so many rows of each list.
pub fn document(site: &str, range: &RangeFigures, salt: SaltPeriod, rows: usize) -> Document {
    let (from, to) = (civil(range.from), civil(range.to));
    let mut document = Document::new(format!("Visits of {site}"), format!("{from} to {to}"));
    overview(&mut document, range, salt);
    if range.days.is_empty() {
        return document;
    }
    days(&mut document, range);
    hours(&mut document, range);
    weekdays(&mut document, range);
    for shown in &LISTS {
        list(&mut document, range, shown, rows);
    }
    slowest(&mut document, range, rows);
    trails(&mut document, range, salt);
    document
}

fn overview(document: &mut Document, range: &RangeFigures, salt: SaltPeriod) {
    let total = &range.total;
    if range.days.is_empty() {
        let nothing = "Nothing was recorded on these days.";
        document.answer = Some((Tone::Warn, nothing.into()));
        return;
    }
    let visitors = match range.salts {
        0 | 1 => units::count(range.visitors),
        salts => format!(
            "{} (sum of {salts} {}s: who came in two of them counts twice)",
            units::count(range.visitors),
            salt.word()
        ),
    };
    document.fact("views of pages", units::count(total.views));
    document.fact("visits", units::count(total.visits));
    document.fact("visitors", visitors);
    if let Some((new, returning)) = range.new_and_returning {
        let told = format!(
            "{}, {} had come before",
            units::count(new),
            units::count(returning)
        );
        document.fact(format!("new in their {}", salt.word()), told);
    }
    if total.visits > 0 {
        let visits = total.visits as f64;
        document.fact("views a visit", units::figure(total.views as f64 / visits));
        document.fact(
            "time a visit",
            units::seconds((total.visit_s as f64 / visits).round()),
        );
        let bounces = total.bounces.max(0) as f64 / visits;
        document.fact("visits of one page", units::share(bounces));
    }
    document.fact("requests", units::count(total.requests));
    document.fact("of these by bots", units::count(total.bots));
    document.fact("sent", units::bytes(total.bytes as f64));
    let [_, _, _, wrong, failed] = total.statuses;
    document.fact("answered 4xx", units::count(wrong));
    document.fact("answered 5xx", units::count(failed));
    if total.durations.count() > 0 {
        let at = |share| {
            let us = total.durations.quantile_us(share);
            us.map_or(units::NONE.into(), |us| units::micros(us as f64))
        };
        let told = format!("median {}, 95 % {}, 99 % {}", at(0.5), at(0.95), at(0.99));
        document.fact("time a request", told);
        let mean = |us: u64| units::micros(us as f64 / total.requests.max(1) as f64);
        let parts = format!(
            "{} waiting, {} in back ends",
            mean(total.queue_us),
            mean(total.upstream_us)
        );
        document.fact("of it, on average", parts);
    }
}

/// Views and visits side by side.
fn pair(label: String, views: f64, visits: f64) -> BarGroup {
    let bar = |name: &str, value: f64| Bar {
        name: name.into(),
        value,
        ..Bar::default()
    };
    BarGroup {
        label,
        bars: vec![bar("views", views), bar("visits", visits)],
        marker: None,
    }
}

fn days(document: &mut Document, range: &RangeFigures) {
    let groups: Vec<BarGroup> = match range.days.len() <= DAYS_SHOWN_MAX {
        true => {
            let days = range.days.iter();
            days.map(|(day, it, _)| {
                pair(civil(*day).to_string(), it.views as f64, it.visits as f64)
            })
            .collect()
        }
        false => {
            let months = range.months().into_iter();
            months
                .map(|(month, it)| pair(month, it.views as f64, it.visits as f64))
                .collect()
        }
    };
    if groups.len() < 2 {
        return;
    }
    let section = document.section("Day by day");
    section.chart(Bars {
        title: "Views and visits".into(),
        groups,
        ..Bars::default()
    });
    if range.days.len() <= DAYS_SHOWN_MAX {
        let columns = ["views", "visits", "visitors", "requests", "sent"].map(Column::right);
        let mut table = Table::new([Column::left("day")].into_iter().chain(columns));
        for (day, figures, visitors) in &range.days {
            let counts = [figures.views, figures.visits, *visitors, figures.requests];
            let counts = counts.map(units::count);
            let sent = units::bytes(figures.bytes as f64);
            let day = [civil(*day).to_string()];
            table.row(day.into_iter().chain(counts).chain([sent]));
        }
        section.table(table);
    }
}

fn hours(document: &mut Document, range: &RangeFigures) {
    let [days, days_before] = range.days_with_hours;
    if days == 0 {
        return;
    }
    let mean = |figures: &BTreeMap<u8, Figures>, hour: u8, days: u32| {
        let views = figures.get(&hour).map_or(0, |it| it.views);
        views as f64 / f64::from(days.max(1))
    };
    let now = if days == 1 { "this day" } else { "mean day" };
    let mut means = vec![(now.to_owned(), &range.hours, days)];
    if days_before > 0 {
        let before = format!("mean of the {COMPARED_DAYS} days before");
        means.push((before, &range.hours_before, days_before));
    }
    let lines = means.iter().map(|(name, figures, days)| Line {
        name: name.clone(),
        points: (0..24)
            .map(|hour| (f64::from(hour), mean(figures, hour, *days)))
            .collect(),
    });
    let lines = lines.collect();
    let section = document.section("Hour by hour");
    section.chart(panel(
        "Views by hour of the day",
        Along::Figure(Unit::Count),
        lines,
    ));
    let columns = means
        .iter()
        .map(|(name, _, _)| Column::right(name.as_str()));
    let mut table = Table::new([Column::left("hour")].into_iter().chain(columns));
    for hour in 0..24_u8 {
        let figures = means.iter();
        let figures = figures.map(|(_, of, days)| units::figure(mean(of, hour, *days)));
        table.row([format!("{hour:02}")].into_iter().chain(figures));
    }
    section.table(table);
    if range.minutes.len() > 1 {
        let minutes = range.minutes.iter();
        let points = minutes.map(|(minute, it)| (f64::from(*minute) * 60.0, it.requests as f64));
        let line = Line {
            name: "requests".into(),
            points: points.collect(),
        };
        section.chart(panel(
            "Requests a minute, from midnight",
            Along::Time,
            vec![line],
        ));
    }
}

fn panel(title: &str, along: Along, lines: Vec<Line>) -> Lines {
    Lines {
        title: title.into(),
        along,
        panels: vec![Panel {
            title: String::new(),
            lines,
            ..Panel::default()
        }],
        ..Lines::default()
    }
}

fn weekdays(document: &mut Document, range: &RangeFigures) {
    if range.days.len() < 7 {
        return;
    }
    let columns = ["days", "views a day", "visits a day"].map(Column::right);
    let mut table = Table::new([Column::left("weekday")].into_iter().chain(columns));
    for ((figures, days), name) in range.weekdays().iter().zip(WEEKDAYS) {
        let mean = |sum: u64| units::figure(sum as f64 / f64::from((*days).max(1)));
        table.row([
            name.to_owned(),
            days.to_string(),
            mean(figures.views),
            mean(figures.visits),
        ]);
    }
    document.section("Weekdays").table(table);
}

fn list(document: &mut Document, range: &RangeFigures, shown: &Shown, rows: usize) {
    let list = range.list(shown.of);
    if list.is_empty() {
        return;
    }
    let by_request = matches!(shown.count, "views" | "requests");
    let mut columns = vec![
        Column::left(shown.name),
        Column::right(shown.count),
        Column::right("share"),
    ];
    if by_request {
        columns.push(Column::right("sent"));
    }
    let total = list.total().max(1) as f64;
    let row = |name: &str, tally: &Tally| {
        let count = u64::try_from(tally.count).unwrap_or(0);
        let mut cells = vec![
            name.to_owned(),
            units::count(count),
            units::share(tally.count as f64 / total),
        ];
        if by_request {
            cells.push(units::bytes(tally.bytes as f64));
        }
        cells
    };
    let ranked = list.ranked();
    let mut table = Table::new(columns);
    for (name, tally) in ranked.iter().take(rows) {
        table.row(row(name, tally));
    }
    let mut rest = list.other();
    for (_, tally) in ranked.iter().skip(rows) {
        rest.count += tally.count;
        rest.bytes = rest.bytes.saturating_add(tally.bytes);
    }
    if rest.count > 0 {
        table.row(row("(other)", &rest));
    }
    document.section(shown.heading).table(table);
}

/// Pages by the mean of what they took.
fn slowest(document: &mut Document, range: &RangeFigures, rows: usize) {
    let pages = range.list(ListOf::Pages).ranked();
    let mean = |tally: &Tally| tally.us as f64 / tally.timed as f64;
    let mut pages: Vec<_> = pages.into_iter().filter(|(_, it)| it.timed > 0).collect();
    if pages.is_empty() {
        return;
    }
    pages.sort_by(|(_, a), (_, b)| mean(b).total_cmp(&mean(a)));
    let mut table = Table::new([
        Column::left("page"),
        Column::right("mean time"),
        Column::right("views"),
    ]);
    for (name, tally) in pages.iter().take(rows) {
        let views = u64::try_from(tally.count).unwrap_or(0);
        table.row([
            (*name).to_owned(),
            Unit::Micros.write(mean(tally)),
            units::count(views),
        ]);
    }
    document.section("Slowest pages").table(table);
}

fn trails(document: &mut Document, range: &RangeFigures, salt: SaltPeriod) {
    if range.trails.is_empty() {
        return;
    }
    let section = document.section("Trails of visitors");
    section.text(format!(
        "The last {TRAILS_SHOWN} of those whose trail is kept. A visitor has another name each {}.",
        salt.word()
    ));
    let mut table = Table::new(["day", "visitor", "pages"].map(Column::left));
    for (day, visitor, steps) in range.trails.iter().take(TRAILS_SHOWN) {
        let pages = steps.iter().map(|step| {
            let (hour, minute) = (step.second / 3_600, step.second / 60 % 60);
            format!("{hour:02}:{minute:02} {}", step.page)
        });
        let pages: Vec<String> = pages.collect();
        table.row([
            civil(*day).to_string(),
            format!("{:06x}", visitor & 0xff_ffff),
            pages.join(" → "),
        ]);
    }
    section.table(table);
}
