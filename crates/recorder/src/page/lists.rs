//! Lists of names with their figures, and trails.

use report::units::{self, Unit};
use report::{Cell, Column, Document, Phrase, Picture, Section};

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
    /// What it counts.
    counted: Phrase,
}

const VIEWS: Phrase = Phrase::new("views", "閲覧");
const VISITS: Phrase = Phrase::new("visits", "訪問");
const TIMES: Phrase = Phrase::new("times", "回数");
const REQUESTS: Phrase = Phrase::new("requests", "リクエスト");
const RUNS: Phrase = Phrase::new("runs", "実行");
const PAGE: Phrase = Phrase::new("page", "ページ");
const PAGES: Phrase = Phrase::new("pages", "ページ");

/// A list of pages, unless it says otherwise.
const fn shown(of: ListOf, id: &'static str, counted: Phrase) -> Shown {
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
            ..shown(ListOf::NextPages, id, TIMES)
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
    shown(ListOf::Pages, "pages", VIEWS).under("Pages", "ページ"),
    shown(ListOf::Entries, "entries", VISITS).under("Entry pages", "入口ページ"),
    shown(ListOf::Exits, "exits", VISITS).under("Exit pages", "出口ページ"),
    shown(ListOf::NextPages, "next", TIMES)
        .under("From page to page", "ページから次のページへ")
        .named("pages", "ページ"),
    shown(ListOf::Referrers, "sources", VISITS)
        .under("Where visits came from", "訪問元")
        .named("source", "訪問元"),
    shown(ListOf::ReferringPages, "referrers", VISITS)
        .under("Pages that led here", "リンク元ページ"),
    shown(ListOf::Campaigns, "campaigns", VISITS)
        .under("Campaigns", "キャンペーン")
        .named("source / medium / campaign", "参照元 / 媒体 / キャンペーン"),
    shown(ListOf::Searches, "searches", TIMES)
        .under("Searched for on the site", "サイト内検索")
        .named("words", "検索語"),
    shown(ListOf::Browsers, "browsers", VISITS)
        .under("Browsers", "ブラウザ")
        .named("browser", "ブラウザ"),
    shown(ListOf::Systems, "systems", VISITS)
        .under("Systems", "OS")
        .named("system", "OS"),
    shown(ListOf::Devices, "devices", VISITS)
        .under("Devices", "端末")
        .named("device", "端末"),
    shown(ListOf::Countries, "countries", VISITS)
        .under("Countries", "国")
        .named("country", "国"),
    shown(ListOf::Bots, "bots", REQUESTS)
        .under("Bots", "ボット")
        .named("bot", "ボット"),
    shown(ListOf::Files, "files", REQUESTS)
        .under("Files", "ファイル")
        .named("file", "ファイル"),
    shown(ListOf::Missing, "missing", REQUESTS)
        .under("Not found", "見つからないパス")
        .named("path", "パス"),
    shown(ListOf::Errors, "errors", REQUESTS)
        .under("Errors of the server", "サーバのエラー")
        .named("status and path", "ステータスとパス"),
    shown(ListOf::Statuses, "statuses", REQUESTS)
        .under("Statuses", "ステータス")
        .named("status", "ステータス"),
    shown(ListOf::Reasons, "reasons", REQUESTS)
        .under("Refused and failed", "拒否と失敗")
        .named("reason", "理由"),
    shown(ListOf::Rules, "rules", REQUESTS)
        .under("Rules", "ルール")
        .named("rule", "ルール"),
    shown(ListOf::BackEnds, "back-ends", REQUESTS)
        .under("Back ends", "バックエンド")
        .named("back end", "バックエンド"),
    shown(ListOf::Programs, "programs", RUNS)
        .under("Programs by rule", "ルールごとのプログラム")
        .named("rule", "ルール"),
];

/// Adds a list, where there is anything in it.
pub(crate) fn list(document: &mut Document, list: &TopList, shown: &Shown, telling: &Telling<'_>) {
    if list.is_empty() {
        return;
    }
    let mut rows = Vec::new();
    let mut rest = match telling.filter {
        "" => list.other(),
        _ => Tally::default(),
    };
    let ranked = list.ranked().into_iter();
    for (name, tally) in ranked.filter(|(name, _)| telling.shows(name)) {
        match rows.len() < telling.rows {
            true => rows.push((Some(name), tally)),
            false => rest.merge(&tally),
        }
    }
    if rest.count > 0 {
        rows.push((None, rest));
    }
    let language = telling.language;
    let mut table = telling.whole(rows);
    table.column(Column::left(shown.name.said_in(language)), |it| {
        match it.0 {
            Some(name) => Cell::name(name),
            None => Cell::from(telling.say("(other)", "(その他)")),
        }
    });
    let counted = shown.counted.said_in(language);
    table.figures(counted, Unit::Count, |it| it.1.count.max(0).unsigned_abs());
    let total = list.total().max(1) as f64;
    table.numbers("share", "割合", |it| {
        let share = it.1.count as f64 / total;
        Cell::figure(units::share(share), share).with(Picture::Share(share))
    });
    if matches!(shown.counted, VIEWS | REQUESTS) {
        table.figure("sent", "送信量", Unit::Bytes, |it| it.1.bytes);
    }
    let all = match shown.of {
        ListOf::Rules | ListOf::BackEnds => Some(telling.say("time", "時間")),
        ListOf::Programs => Some(telling.say("processor time", "プロセッサ時間")),
        _ => None,
    };
    if let Some(all) = all {
        let known = |it: &Tally| (it.timed > 0).then_some(it.us);
        table.figures(all, Unit::Micros, |it| known(&it.1));
        table.figure("mean", "平均", Unit::Micros, |(_, it)| {
            known(it).map(|us| us as f64 / it.timed as f64)
        });
    }
    let section = section(document, shown.id, shown.heading.said_in(language));
    if !telling.filter.is_empty() && list.other().count > 0 {
        section.text(telling.say(
            "Names beyond the 2,000 that a day keeps cannot be searched.",
            "1 日に保存される 2,000 件を超えた名前は検索できません。",
        ));
    }
    section.table(table.done());
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
