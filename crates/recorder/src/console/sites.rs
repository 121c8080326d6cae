//! All sites side by side, those with most first.

use std::collections::BTreeMap;

use report::units;
use report::{Cell, Column, Document, Language, Picture, Table};

use super::address::Page;
use super::site::SitePart;
use super::{Asking, ConsoleAnswer, NoPage, export, frame, site};
use crate::day::Figures;
use crate::salts::civil;
use crate::store::FigureStore;

/// Sites that a page shows where not all are asked for.
const SITES_SHOWN: usize = 200;

/// What the list is sorted by, the most first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum SortedBy {
    /// The name, from A on.
    Name,
    #[default]
    Views,
    Visits,
    Visitors,
    Requests,
    Errors,
    Slowness,
}

impl SortedBy {
    /// All, in the order of the columns.
    const ALL: [SortedBy; 7] = [
        SortedBy::Name,
        SortedBy::Views,
        SortedBy::Visits,
        SortedBy::Visitors,
        SortedBy::Requests,
        SortedBy::Errors,
        SortedBy::Slowness,
    ];

    /// What addresses call it; the usual one needs no word.
    pub(super) fn id(self) -> &'static str {
        match self {
            SortedBy::Name => "name",
            SortedBy::Views => "",
            SortedBy::Visits => "visits",
            SortedBy::Visitors => "visitors",
            SortedBy::Requests => "requests",
            SortedBy::Errors => "errors",
            SortedBy::Slowness => "slowness",
        }
    }

    pub(super) fn of_id(id: &str) -> Option<SortedBy> {
        SortedBy::ALL.into_iter().find(|it| it.id() == id)
    }
}

/// A site's row.
#[derive(Debug, Default)]
struct SiteRow {
    total: Figures,
    /// The sum of its days.
    visitors: u64,
    /// Views by day.
    views: BTreeMap<i32, u64>,
}

impl SiteRow {
    fn errors(&self) -> u64 {
        let [.., failed] = self.total.statuses;
        failed
    }

    fn p95_us(&self) -> Option<u64> {
        self.total.durations.quantile_us(0.95)
    }

    fn sort_key(&self, by: SortedBy) -> u64 {
        match by {
            SortedBy::Name => 0,
            SortedBy::Views => self.total.views,
            SortedBy::Visits => self.total.visits,
            SortedBy::Visitors => self.visitors,
            SortedBy::Requests => self.total.requests,
            SortedBy::Errors => self.errors(),
            SortedBy::Slowness => self.p95_us().unwrap_or(0),
        }
    }
}

/// The page of all sites.
pub(super) fn answer(store: &FigureStore, asking: &Asking<'_>) -> Result<ConsoleAnswer, NoPage> {
    let (from, to) = asking.range()?;
    let asked = &asking.address.asked;
    let scope = asking.question.scope;
    let telling = asking.telling();
    let mut sites = super::sites_of(scope, store)?;
    sites.retain(|site| telling.shows(site));
    let named = sites.iter().cloned();
    let mut rows: BTreeMap<String, SiteRow> =
        named.map(|site| (site, SiteRow::default())).collect();
    store.each_total((from, to), &sites, |site, day, total, visitors| {
        if let Some(row) = rows.get_mut(site) {
            row.total.merge(total);
            row.visitors = row.visitors.saturating_add(visitors);
            row.views.insert(day, total.views);
        }
    })?;
    let mut rows: Vec<(String, SiteRow)> = rows.into_iter().collect();
    rows.sort_by_key(|(_, row)| std::cmp::Reverse(row.sort_key(asked.sorted_by)));
    let shown = match telling.rows {
        usize::MAX => rows.len(),
        _ => rows.len().min(SITES_SHOWN),
    };
    let mut document = Document::new(telling.say("Sites", "サイト"), told_range(from, to));
    document.language = asking.language;
    let section = document.section("");
    section.id = "sites";
    if rows.is_empty() {
        section.text(telling.say("There are none.", "ありません。"));
    }
    if shown < rows.len() {
        section.text(match asking.language {
            Language::English => format!("{shown} of {} sites.", rows.len()),
            Language::Japanese => format!("{} サイトのうち {shown} 件。", rows.len()),
        });
    }
    let table = table(asking, rows.iter().take(shown), (from, to));
    section.table(table);
    section.text(telling.say(
        "Visitors are the sum of days: who came on two of them counts twice.",
        "訪問者は日ごとの合計です。2 日に来た人は 2 回数えます。",
    ));
    if let Some(format) = asked.format {
        return export::answer(asking, format, &document, "sites", (from, to));
    }
    site::link_lists(asking, &mut document, shown < rows.len());
    Ok(frame::page(asking, None, &document, (from, to)))
}

/// The days that are shown, in words that need no language.
pub(super) fn told_range(from: i32, to: i32) -> String {
    match from == to {
        true => civil(to).to_string(),
        false => format!("{} – {}", civil(from), civil(to)),
    }
}

fn table<'a>(
    asking: &Asking<'_>,
    rows: impl Iterator<Item = &'a (String, SiteRow)>,
    (from, to): (i32, i32),
) -> Table {
    let telling = asking.telling();
    let titles = [
        telling.say("site", "サイト"),
        telling.say("views", "閲覧"),
        telling.say("visits", "訪問"),
        telling.say("visitors", "訪問者"),
        telling.say("requests", "リクエスト"),
        telling.say("errors", "エラー"),
        telling.say("95 % within", "95 % の応答"),
    ];
    let columns = titles.into_iter().zip(SortedBy::ALL).map(|(title, by)| {
        let mut column = match by {
            SortedBy::Name => Column::left(title),
            SortedBy::Slowness => Column::right(title).in_unit("µs"),
            _ => Column::right(title),
        };
        column.link = Some(asking.address.with(|asked| asked.sorted_by = by));
        column.is_sorted = by == asking.address.asked.sorted_by && by != SortedBy::Name;
        column
    });
    let mut table = Table::new(columns);
    for (site, row) in rows {
        let mut name = Cell::name(site);
        let page = Page::Site(site.clone(), SitePart::Visits);
        name.link = Some(asking.address.to(page));
        let mut views = Cell::count(row.total.views);
        if from < to {
            let day = |day| row.views.get(&day).map_or(0.0, |views| *views as f64);
            views = views.with(Picture::Trend((from..=to).map(day).collect()));
        }
        let counts = [row.total.visits, row.visitors, row.total.requests];
        let p95 = row.p95_us().map_or(Cell::from(units::NONE), |us| {
            Cell::figure(units::micros(us as f64), us as f64)
        });
        let mut errors = Cell::count(row.errors());
        if row.errors() > 0 {
            errors.tone = report::Tone::Bad;
        }
        let cells = [name, views].into_iter().chain(counts.map(Cell::count));
        table.row(cells.chain([errors, p95]));
    }
    table
}
