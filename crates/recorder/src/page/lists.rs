//! Lists of names with their figures, and trails.

use report::units::{self, Unit};
use report::{Cell, Column, Document, Phrase, Picture, Section, Table};

use super::Telling;
use crate::day::{ListOf, Tally, TopList, TrailStep};
use crate::range::RangeFigures;
use crate::salts::civil;

/// Digits of a visitor's number.
pub(crate) const VISITOR_DIGITS: usize = 12;
/// Pages of a trail that a row shows.
const STEPS_SHOWN: usize = 12;

/// A list as it is shown.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shown {
    pub(crate) of: ListOf,
    /// What addresses call it.
    pub(crate) id: &'static str,
    heading: Phrase,
    name: Phrase,
    counted: Counted,
}

/// What a list counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Counted {
    Views,
    Visits,
    Times,
    Requests,
    Runs,
}

impl Counted {
    fn phrase(self) -> Phrase {
        match self {
            Counted::Views => Phrase::new("views", "閲覧"),
            Counted::Visits => Phrase::new("visits", "訪問"),
            Counted::Times => Phrase::new("times", "回数"),
            Counted::Requests => Phrase::new("requests", "リクエスト"),
            Counted::Runs => Phrase::new("runs", "実行"),
        }
    }
}

const PAGE: Phrase = Phrase::new("page", "ページ");
const PAGES: Phrase = Phrase::new("pages", "ページ");

/// A list of pages, unless it says otherwise.
const fn shown(of: ListOf, id: &'static str, counted: Counted) -> Shown {
    Shown {
        of,
        id,
        heading: PAGES,
        name: PAGE,
        counted,
    }
}

impl Shown {
    const fn under(mut self, english: &'static str, japanese: &'static str) -> Shown {
        self.heading = Phrase::new(english, japanese);
        self
    }

    const fn named(mut self, english: &'static str, japanese: &'static str) -> Shown {
        self.name = Phrase::new(english, japanese);
        self
    }

    /// How pages before or after one are shown.
    pub(crate) fn neighbours(id: &'static str, heading: Phrase) -> Shown {
        Shown {
            heading,
            ..shown(ListOf::NextPages, id, Counted::Times)
        }
    }

    /// How a list is shown.
    pub(crate) fn of(list: ListOf) -> &'static Shown {
        let found = LISTS.iter().find(|shown| shown.of == list);
        // All lists are in the table, as a test says.
        found.unwrap_or(&LISTS[0])
    }
}

pub(super) const LISTS: [Shown; 21] = [
    shown(ListOf::Pages, "pages", Counted::Views).under("Pages", "ページ"),
    shown(ListOf::Entries, "entries", Counted::Visits).under("Entry pages", "入口ページ"),
    shown(ListOf::Exits, "exits", Counted::Visits).under("Exit pages", "出口ページ"),
    shown(ListOf::NextPages, "next", Counted::Times)
        .under("From page to page", "ページから次のページへ")
        .named("pages", "ページ"),
    shown(ListOf::Referrers, "sources", Counted::Visits)
        .under("Where visits came from", "訪問元")
        .named("source", "訪問元"),
    shown(ListOf::ReferringPages, "referrers", Counted::Visits)
        .under("Pages that led here", "リンク元ページ"),
    shown(ListOf::Campaigns, "campaigns", Counted::Visits)
        .under("Campaigns", "キャンペーン")
        .named("source / medium / campaign", "参照元 / 媒体 / キャンペーン"),
    shown(ListOf::Searches, "searches", Counted::Times)
        .under("Searched for on the site", "サイト内検索")
        .named("words", "検索語"),
    shown(ListOf::Browsers, "browsers", Counted::Visits)
        .under("Browsers", "ブラウザ")
        .named("browser", "ブラウザ"),
    shown(ListOf::Systems, "systems", Counted::Visits)
        .under("Systems", "OS")
        .named("system", "OS"),
    shown(ListOf::Devices, "devices", Counted::Visits)
        .under("Devices", "端末")
        .named("device", "端末"),
    shown(ListOf::Countries, "countries", Counted::Visits)
        .under("Countries", "国")
        .named("country", "国"),
    shown(ListOf::Bots, "bots", Counted::Requests)
        .under("Bots", "ボット")
        .named("bot", "ボット"),
    shown(ListOf::Files, "files", Counted::Requests)
        .under("Files", "ファイル")
        .named("file", "ファイル"),
    shown(ListOf::Missing, "missing", Counted::Requests)
        .under("Not found", "見つからないパス")
        .named("path", "パス"),
    shown(ListOf::Errors, "errors", Counted::Requests)
        .under("Errors of the server", "サーバのエラー")
        .named("status and path", "ステータスとパス"),
    shown(ListOf::Statuses, "statuses", Counted::Requests)
        .under("Statuses", "ステータス")
        .named("status", "ステータス"),
    shown(ListOf::Reasons, "reasons", Counted::Requests)
        .under("Refused and failed", "拒否と失敗")
        .named("reason", "理由"),
    shown(ListOf::Rules, "rules", Counted::Requests)
        .under("Rules", "ルール")
        .named("rule", "ルール"),
    shown(ListOf::BackEnds, "back-ends", Counted::Requests)
        .under("Back ends", "バックエンド")
        .named("back end", "バックエンド"),
    shown(ListOf::Programs, "programs", Counted::Runs)
        .under("Programs by rule", "ルールごとのプログラム")
        .named("rule", "ルール"),
];

impl Shown {
    /// What times of a name are called, in all and on average, where they are told.
    fn timed(&self, telling: &Telling<'_>) -> Option<[&'static str; 2]> {
        let mean = telling.say("mean", "平均");
        match self.of {
            ListOf::Rules | ListOf::BackEnds => Some([telling.say("time", "時間"), mean]),
            ListOf::Programs => Some([telling.say("processor time", "プロセッサ時間"), mean]),
            _ => None,
        }
    }
}

/// Times of a name, in all and on average.
fn times(tally: &Tally) -> [Cell; 2] {
    let us = |us: f64| Cell::figure(units::micros(us), us);
    match tally.timed {
        0 => [units::NONE; 2].map(Cell::from),
        timed => [us(tally.us as f64), us(tally.us as f64 / timed as f64)],
    }
}

/// Adds a list, where there is anything in it.
pub(crate) fn list(document: &mut Document, list: &TopList, shown: &Shown, telling: &Telling<'_>) {
    if list.is_empty() {
        return;
    }
    let is_sent = matches!(shown.counted, Counted::Views | Counted::Requests);
    let mut columns = vec![
        Column::left(shown.name.said_in(telling.language)),
        Column::right(shown.counted.phrase().said_in(telling.language)),
        Column::right(telling.say("share", "割合")),
    ];
    if is_sent {
        columns.push(Column::right(telling.say("sent", "送信量")).in_unit("bytes"));
    }
    let timed = shown.timed(telling);
    let titles = timed.into_iter().flatten();
    columns.extend(titles.map(|title| Column::right(title).in_unit("µs")));
    let total = list.total().max(1) as f64;
    let row = |name: Cell, tally: &Tally| {
        let share = tally.count as f64 / total;
        let mut cells = vec![
            name,
            Cell::count(u64::try_from(tally.count).unwrap_or(0)),
            Cell::figure(units::share(share), share).with(Picture::Share(share)),
        ];
        if is_sent {
            cells.push(Cell::figure(
                units::bytes(tally.bytes as f64),
                tally.bytes as f64,
            ));
        }
        if timed.is_some() {
            cells.extend(times(tally));
        }
        cells
    };
    let ranked = list.ranked();
    let found = || ranked.iter().filter(|(name, _)| telling.shows(name));
    let mut table = Table::new(columns);
    for (name, tally) in found().take(telling.rows) {
        table.row(row(Cell::name(*name), tally));
    }
    let mut rest = match telling.filter {
        "" => list.other(),
        _ => Tally::default(),
    };
    found()
        .skip(telling.rows)
        .for_each(|(_, tally)| rest.merge(tally));
    if rest.count > 0 {
        table.row(row(Cell::from(telling.say("(other)", "(その他)")), &rest));
    }
    let section = section(document, shown.id, shown.heading.said_in(telling.language));
    if !telling.filter.is_empty() && list.other().count > 0 {
        section.text(telling.say(
            "Names beyond the 2,000 that a day keeps cannot be searched.",
            "1 日に保存される 2,000 件を超えた名前は検索できません。",
        ));
    }
    section.table(table);
}

/// Adds a section that addresses can name.
pub(super) fn section<'a>(
    document: &'a mut Document,
    id: &'static str,
    heading: &str,
) -> &'a mut Section {
    let section = document.section(heading);
    section.id = id;
    section
}

/// Pages by the mean of what they took.
pub(crate) fn slowest(document: &mut Document, range: &RangeFigures, telling: &Telling<'_>) {
    let pages = range.list(ListOf::Pages).ranked();
    let mean = |tally: &Tally| tally.us as f64 / tally.timed as f64;
    let pages = pages.into_iter();
    let mut pages: Vec<_> = pages
        .filter(|(name, it)| it.timed > 0 && telling.shows(name))
        .collect();
    if pages.is_empty() {
        return;
    }
    pages.sort_by(|(_, a), (_, b)| mean(b).total_cmp(&mean(a)));
    let mut table = telling.table(pages);
    table.name("page", "ページ", |it| it.0);
    table.figure("mean time", "平均時間", Unit::Micros, |it| mean(&it.1));
    table.count("views", "閲覧", |it| {
        u64::try_from(it.1.count).unwrap_or(0)
    });
    let heading = telling.say("Slowest pages", "遅いページ");
    table.end(document, "slowest", heading, "");
}

/// The trails that ended last.
pub(crate) fn trails(
    document: &mut Document,
    trails: &[(i32, u64, Vec<TrailStep>)],
    most: usize,
    telling: &Telling<'_>,
) {
    if trails.is_empty() {
        return;
    }
    let section = section(
        document,
        "trails",
        telling.say("Trails of visitors", "訪問者の足跡"),
    );
    section.text(match telling.language {
        report::Language::English => format!(
            "The last {most} of those whose trail is kept. A visitor has another name each {}.",
            telling.salt_word()
        ),
        report::Language::Japanese => format!(
            "足跡が残る訪問者のうち最近の {most} 人です。訪問者の番号は{}ごとに変わります。",
            telling.salt_word()
        ),
    });
    let mut table = telling.whole(trails.iter().take(most));
    table.words("day", "日", |it| Cell::from(civil(it.0).to_string()));
    table.words("visitor", "訪問者", |(_, visitor, _)| {
        Cell::from(format!("{visitor:0VISITOR_DIGITS$x}"))
    });
    table.words("pages", "ページ", |(_, _, steps)| {
        let pages = steps.iter().take(STEPS_SHOWN);
        let pages = pages.map(|step| format!("{} {}", minute(step), step.page));
        let mut pages: Vec<String> = pages.collect();
        if let Some(more @ 1..) = steps.len().checked_sub(STEPS_SHOWN) {
            pages.push(format!("… +{more}"));
        }
        Cell::name(pages.join(" → "))
    });
    section.table(table.done());
}

/// One visitor's trail, page by page.
pub(crate) fn trail(
    document: &mut Document,
    trails: &[(i32, u64, Vec<TrailStep>)],
    telling: &Telling<'_>,
) {
    let steps = trails.iter().flat_map(|(day, _, steps)| {
        let next = steps.iter().skip(1).map(Some).chain([None]);
        steps
            .iter()
            .zip(next)
            .map(|(step, next)| (*day, step, next))
    });
    let mut table = telling.whole(steps);
    table.words("day", "日", |it| Cell::from(civil(it.0).to_string()));
    table.words("time", "時刻", |(_, step, _)| {
        Cell::from(format!("{}:{:02}", minute(step), step.second % 60))
    });
    table.name("page", "ページ", |it| &it.1.page);
    table.figure(
        "until the next",
        "次まで",
        Unit::Seconds,
        |(_, step, next)| next.map(|next| f64::from(next.second.saturating_sub(step.second))),
    );
    section(document, "trail", telling.say("Pages seen", "見たページ")).table(table.done());
}

/// Hour and minute of a step.
fn minute(step: &TrailStep) -> String {
    let (hour, minute) = (step.second / 3_600, step.second / 60 % 60);
    format!("{hour:02}:{minute:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_list_is_shown_under_a_name_of_its_own() {
        for of in ListOf::ALL {
            assert_eq!(Shown::of(of).of, of);
        }
        let mut ids: Vec<_> = LISTS.iter().map(|shown| shown.id).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), LISTS.len());
    }
}
