//! All sites side by side, those with most first.

use std::collections::BTreeMap;

use ipc::console::ConsoleAnswer;
use report::units::Unit;
use report::{Cell, Picture, Tone};

use super::address::Page;
use super::site::SitePart;
use super::{Asking, NoPage, frame};
use crate::day::Figures;
use crate::page::RowTable;
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
    /// All, in the order of the columns: what addresses call them. The usual one needs no word.
    const ALL: [(SortedBy, &'static str); 7] = [
        (SortedBy::Name, "name"),
        (SortedBy::Views, ""),
        (SortedBy::Visits, "visits"),
        (SortedBy::Visitors, "visitors"),
        (SortedBy::Requests, "requests"),
        (SortedBy::Errors, "errors"),
        (SortedBy::Slowness, "slowness"),
    ];

    pub(super) fn id(self) -> &'static str {
        // They stand in their order.
        SortedBy::ALL[self as usize].1
    }

    pub(super) fn of_id(id: &str) -> Option<SortedBy> {
        let found = SortedBy::ALL.into_iter().find(|(_, it)| *it == id);
        found.map(|(by, _)| by)
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
    let telling = asking.telling();
    let mut sites = super::sites_of(asking, store)?;
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
    let mut document = asking.document(telling.say("Sites", "サイト"), (from, to));
    let nothing = telling.say("There are none.", "ありません。");
    let section = table(asking, rows, (from, to)).end(&mut document, "sites", "", nothing);
    section.text(match asking.is_of_archive() {
        false => telling.say(
            "Visitors are the sum of days: who came on two of them counts twice.",
            "訪問者は日ごとの合計です。2 日に来た人は 2 回数えます。",
        ),
        true => telling.say(
            "Visits are those of each machine: one that two of them served counts twice.",
            "訪問はマシンごとに数えます。2 台にまたがる訪問は 2 回数えます。",
        ),
    });
    frame::given(asking, document, "sites", None, (from, to))
}

fn table<'a>(
    asking: &'a Asking<'_>,
    rows: Vec<(String, SiteRow)>,
    (from, to): (i32, i32),
) -> RowTable<'a, (String, SiteRow)> {
    let mut telling = asking.telling();
    telling.rows = telling.rows.max(SITES_SHOWN);
    let mut table = telling.table(rows);
    table.name("site", "サイト", |it| &it.0);
    let is_of_archive = asking.is_of_archive();
    table.leads(move |(site, _)| {
        let part = match is_of_archive {
            // Of visits there is more than is sent.
            true => SitePart::Speed,
            false => SitePart::Visits,
        };
        let page = Page::Site(site.clone(), part);
        Some(asking.address.to(page))
    });
    table.numbers("views", "閲覧", |(_, row)| {
        let views = Cell::count(row.total.views);
        let day = |day| row.views.get(&day).map_or(0.0, |views| *views as f64);
        match from < to {
            true => views.with(Picture::Trend((from..=to).map(day).collect())),
            false => views,
        }
    });
    table.count("visits", "訪問", |it| it.1.total.visits);
    if !is_of_archive {
        table.count("visitors", "訪問者", |it| it.1.visitors);
    }
    table.count("requests", "リクエスト", |it| it.1.total.requests);
    table.news("errors", "エラー", Tone::Bad, |it| it.1.errors());
    table.figure("95 % within", "95 % の応答", Unit::Micros, |it| {
        it.1.p95_us()
    });
    let shown = SortedBy::ALL.into_iter();
    let shown = shown.filter(|(by, _)| !is_of_archive || *by != SortedBy::Visitors);
    for (column, (by, _)) in table.columns().zip(shown) {
        column.link = Some(asking.address.with(|asked| asked.sorted_by = by));
        column.is_sorted = by == asking.address.asked.sorted_by && by != SortedBy::Name;
    }
    table
}
