//! What is told of one site, a part a page.

use ipc::console::ConsoleAnswer;
use report::units::{self, Unit};
use report::{Document, Language, Link, Phrase, Tone};

use super::address::{Format, Page, PageQuery, Titled};
use super::history::Span;
use super::{Asking, NoPage, ROWS, frame, load};
use crate::day::{ListOf, PartsWanted, Tally, TopList, TrailStep};
use crate::page::{self, FigureOf, Shown, Telling};
use crate::range::RangeFigures;
use crate::salts::SaltPeriod;
use crate::store::{FigureStore, MINUTES_DAYS};

/// Trails of a range that are listed.
const TRAILS_SHOWN: usize = 50;

/// A part of what is told of a site.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SitePart {
    Visits,
    Pages,
    Sources,
    Visitors,
    Devices,
    Bots,
    Errors,
    Speed,
}

impl Titled for SitePart {
    const ALL: &'static [(SitePart, &'static str, Phrase)] = &[
        (SitePart::Visits, "visits", Phrase::new("Visits", "訪問")),
        (SitePart::Pages, "pages", Phrase::new("Pages", "ページ")),
        (
            SitePart::Sources,
            "sources",
            Phrase::new("Sources", "訪問元"),
        ),
        (
            SitePart::Visitors,
            "visitors",
            Phrase::new("Visitors", "訪問者"),
        ),
        (SitePart::Devices, "devices", Phrase::new("Devices", "端末")),
        (SitePart::Bots, "bots", Phrase::new("Bots", "ボット")),
        (SitePart::Errors, "errors", Phrase::new("Errors", "エラー")),
        (SitePart::Speed, "speed", Phrase::new("Speed", "速さ")),
    ];
}

impl SitePart {
    /// The lists it shows, in order.
    fn lists(self) -> &'static [ListOf] {
        use ListOf::{BackEnds, Bots, Browsers, Campaigns, Countries, Devices, Entries, Errors};
        use ListOf::{Exits, Files, Missing, NextPages, Pages, Programs, Reasons, Referrers};
        use ListOf::{ReferringPages, Rules, Searches, Statuses, Systems};
        match self {
            SitePart::Visits | SitePart::Visitors => &[],
            SitePart::Pages => &[Pages, Entries, Exits, NextPages, Files],
            SitePart::Sources => &[Referrers, ReferringPages, Campaigns, Searches],
            SitePart::Devices => &[Browsers, Systems, Devices, Countries],
            SitePart::Bots => &[Bots],
            SitePart::Errors => &[Statuses, Reasons, Missing, Errors],
            SitePart::Speed => &[Pages, Rules, BackEnds, Programs],
        }
    }

    /// What of days it takes.
    fn wanted(self) -> PartsWanted {
        let other = match self {
            SitePart::Visits => PartsWanted::HOURS
                .and(PartsWanted::MINUTES)
                .and(PartsWanted::VISITORS),
            SitePart::Visitors => PartsWanted::VISITORS.and(PartsWanted::TRAILS),
            SitePart::Speed => PartsWanted::HOURS,
            _ => PartsWanted::TOTALS,
        };
        let lists = self.lists().iter();
        lists.fold(other, |wanted, of| wanted.and(PartsWanted::list(*of)))
    }
}

/// A page of a site.
pub(super) fn answer(
    store: &FigureStore,
    asking: &Asking<'_>,
    site: &str,
    part: SitePart,
) -> Result<ConsoleAnswer, NoPage> {
    let days = asking.range()?;
    let (from, to) = days;
    let telling = asking.telling();
    let mut document = asking.document(site, days);
    let asked = &asking.address.asked;
    match (part, asked) {
        (SitePart::Pages, PageQuery { seen, .. }) if !seen.is_empty() => {
            one_page(store, &mut document, site, seen, days, &telling)?;
        }
        (
            SitePart::Visitors,
            PageQuery {
                visitor: Some(visitor),
                ..
            },
        ) => {
            // Of days before there are no trails.
            let days = (from.max(asking.today() - MINUTES_DAYS), to);
            one_visitor(store, &mut document, site, *visitor, days, &telling)?;
        }
        _ => {
            let salt = asking.moment.salt;
            let range = RangeFigures::read(store, site, days, salt, part.wanted())?;
            worth(&mut document, &range, asking);
            if !range.days.is_empty() {
                tell(&mut document, part, &range, &telling);
            }
            if part == SitePart::Speed {
                throttled(store, &mut document, site, asking)?;
            }
        }
    }
    link_names(asking, site, &mut document);
    frame::given(asking, document, site, Some((site, part)), days)
}

/// Says what the figures of a range are worth.
fn worth(document: &mut Document, range: &RangeFigures, asking: &Asking<'_>) {
    let telling = asking.telling();
    let section = document.section("");
    if range.days.is_empty() {
        let nothing = telling.say(
            "Nothing was recorded on these days.",
            "この期間の記録はありません。",
        );
        return section.note(Tone::Warn, nothing);
    }
    if range.to >= asking.today() {
        let now = asking.moment.now.strftime("%H:%M");
        section.text(match asking.language {
            Language::English => format!("Today counts until {now}."),
            Language::Japanese => format!("今日は {now} までの分です。"),
        });
    }
    let days = i64::from(range.to) - i64::from(range.from) + 1;
    let known = range.days.len() as i64;
    if known < days {
        section.text(match asking.language {
            Language::English => format!("There are figures of {known} of these {days} days."),
            Language::Japanese => format!("{days} 日のうち {known} 日の記録があります。"),
        });
    }
}

fn tell(document: &mut Document, part: SitePart, range: &RangeFigures, telling: &Telling<'_>) {
    let before = document.sections.len();
    match part {
        SitePart::Visits => {
            page::overview(document, range, telling);
            page::days(document, range, telling);
            page::hours(document, range, telling);
            page::weekdays(document, range, telling);
            page::months(document, range, telling);
        }
        SitePart::Visitors => visitors(document, range, telling),
        SitePart::Bots => bots(document, range, telling),
        SitePart::Errors => errors(document, range, telling),
        SitePart::Speed => {
            page::speed(document, range, telling);
            page::slowest(document, range, telling);
        }
        SitePart::Pages | SitePart::Sources | SitePart::Devices => {}
    }
    // Of pages the slowest were told.
    let is_told = |of: &ListOf| part == SitePart::Speed && *of == ListOf::Pages;
    for of in part.lists().iter().filter(|of| !is_told(of)) {
        page::list(document, range.list(*of), Shown::of(*of), telling);
    }
    if !part.lists().is_empty() && document.sections.len() == before {
        let nothing = telling.say(
            "Nothing of this was recorded.",
            "この種の記録はありません。",
        );
        document.section("").text(nothing);
    }
}

/// How long its own programs and pool were kept from processors, as a fact.
fn throttled(
    store: &FigureStore,
    document: &mut Document,
    site: &str,
    asking: &Asking<'_>,
) -> Result<(), NoPage> {
    let (from, to) = asking.range()?;
    let span = Span::of(asking, from, to);
    let name = format!("site.{site}.throttled");
    let samples = store.samples(&name, span.tier(), span.from_s, span.to_s)?;
    if !samples.is_empty() {
        let kept_s = samples.iter().map(|(_, sums)| load::in_all(sums)).sum();
        let name = asking
            .telling()
            .say("kept from processors", "抑制された時間");
        document.fact(name, units::seconds(kept_s));
    }
    Ok(())
}

fn visitors(document: &mut Document, range: &RangeFigures, telling: &Telling<'_>) {
    page::visitor_facts(document, range, telling);
    let matching = |steps: &[TrailStep]| steps.iter().any(|step| telling.shows(&step.page));
    let trails = range.trails.iter().filter(|(_, _, steps)| matching(steps));
    let trails: Vec<_> = trails.cloned().collect();
    page::trails(document, &trails, TRAILS_SHOWN, telling);
    let section = document.section("");
    section.text(match telling.language {
        Language::English => format!(
            "Trails are kept for {MINUTES_DAYS} days, of the 200 visitors of a day who were seen last."
        ),
        Language::Japanese => {
            format!("足跡は {MINUTES_DAYS} 日間、各日の最後の 200 人の分が残ります。")
        }
    });
    if telling.salt == SaltPeriod::Day {
        section.text(telling.say(
            "Who is new and who returns is not known: a visitor has another number each day.",
            "訪問者の番号は毎日変わるため、新規と再訪は区別できません。",
        ));
    }
}

fn bots(document: &mut Document, range: &RangeFigures, telling: &Telling<'_>) {
    let total = &range.total;
    let share = total.bots as f64 / total.requests.max(1) as f64;
    document.fact(
        telling.say("requests", "リクエスト"),
        units::count(total.requests),
    );
    document.fact(
        telling.say("of these by bots", "うちボット"),
        units::count(total.bots),
    );
    document.fact(telling.say("their share", "その割合"), units::share(share));
    let figures: [(&str, FigureOf); 2] = [
        (telling.say("people", "人"), |it| {
            it.requests.saturating_sub(it.bots) as f64
        }),
        (telling.say("bots", "ボット"), |it| it.bots as f64),
    ];
    let title = telling.say("Requests by day", "日ごとのリクエスト");
    chart(document, range, title, &figures);
}

fn errors(document: &mut Document, range: &RangeFigures, telling: &Telling<'_>) {
    let [_, _, _, wrong, failed] = range.total.statuses;
    let requests = range.total.requests.max(1) as f64;
    for (name, count) in [
        (telling.say("answered 4xx", "4xx の応答"), wrong),
        (telling.say("answered 5xx", "5xx の応答"), failed),
    ] {
        let share = units::share(count as f64 / requests);
        document.fact(name, format!("{} ({share})", units::count(count)));
    }
    let figures: [(&str, FigureOf); 2] = [
        ("4xx", |it| it.statuses[3] as f64),
        ("5xx", |it| it.statuses[4] as f64),
    ];
    let title = telling.say("Refused and failed by day", "日ごとの 4xx と 5xx");
    chart(document, range, title, &figures);
}

fn chart(document: &mut Document, range: &RangeFigures, title: &str, figures: &[(&str, FigureOf)]) {
    if range.days.len() > 1 {
        let lines = page::by_day(range, title, Unit::Count, figures);
        document.section("").chart(lines);
    }
}

/// One page of the site: its days, and where people came from and went to.
fn one_page(
    store: &FigureStore,
    document: &mut Document,
    site: &str,
    seen: &str,
    days: (i32, i32),
    telling: &Telling<'_>,
) -> Result<(), NoPage> {
    let (mut sum, mut by_day) = (Tally::default(), Vec::new());
    let [mut before, mut after] = [TopList::default(), TopList::default()];
    let wanted = PartsWanted::list(ListOf::Pages)
        .and(PartsWanted::list(ListOf::NextPages))
        .and(PartsWanted::TRAILS);
    let mut trails = Vec::new();
    store.each_day(site, days, wanted, |day, figures| {
        let lists = std::mem::take(&mut figures.lists);
        let tally = lists[ListOf::Pages as usize].tally(seen);
        sum.merge(&tally);
        by_day.push((f64::from(day), tally.count as f64));
        for (pair, tally) in lists[ListOf::NextPages as usize].names() {
            let Some((from, to)) = pair.split_once(" → ") else {
                continue;
            };
            if to == seen {
                before.add(from, tally);
            }
            if from == seen {
                after.add(to, tally);
            }
        }
        let seen_by = std::mem::take(&mut figures.trails).into_iter();
        let seen_by = seen_by.filter(|(_, steps)| steps.iter().any(|step| *step.page == *seen));
        trails.extend(seen_by.map(|(visitor, steps)| (day, visitor, steps)));
        trails.drain(..trails.len().saturating_sub(TRAILS_SHOWN));
    })?;
    trails.reverse();
    document.subtitle = format!("{seen} · {}", document.subtitle);
    document.fact(
        telling.say("views", "閲覧"),
        units::count(u64::try_from(sum.count).unwrap_or(0)),
    );
    document.fact(
        telling.say("sent", "送信量"),
        units::bytes(sum.bytes as f64),
    );
    if sum.timed > 0 {
        let mean = units::micros(sum.us as f64 / sum.timed as f64);
        document.fact(telling.say("mean time", "平均時間"), mean);
    }
    if by_day.len() > 1 {
        let title = telling.say("Views by day", "日ごとの閲覧");
        let lines = page::counts_by_day(title, telling.say("views", "閲覧"), by_day);
        document.section("").chart(lines);
    }
    let came_from = Phrase::new("Came from", "直前のページ");
    let went_on_to = Phrase::new("Went on to", "次のページ");
    page::list(
        document,
        &before,
        &Shown::neighbours("before", came_from),
        telling,
    );
    page::list(
        document,
        &after,
        &Shown::neighbours("after", went_on_to),
        telling,
    );
    page::trails(document, &trails, TRAILS_SHOWN, telling);
    Ok(())
}

/// One visitor's trail.
fn one_visitor(
    store: &FigureStore,
    document: &mut Document,
    site: &str,
    visitor: u64,
    days: (i32, i32),
    telling: &Telling<'_>,
) -> Result<(), NoPage> {
    let mut trails = Vec::new();
    store.each_day(site, days, PartsWanted::TRAILS, |day, figures| {
        if let Some(steps) = figures.trails.remove(&visitor) {
            trails.push((day, visitor, steps));
        }
    })?;
    if trails.is_empty() {
        // As all else that is not there.
        return Err(NoPage::Unknown);
    }
    page::trail(document, &trails, telling);
    Ok(())
}

/// Lets names of pages and visitors lead to what is told of them alone.
fn link_names(asking: &Asking<'_>, site: &str, document: &mut Document) {
    let of_page = |seen: &str| {
        let address = super::Address {
            page: Page::Site(site.to_owned(), SitePart::Pages),
            ..asking.address.clone()
        };
        address.with(|asked| {
            (asked.seen, asked.visitor, asked.list) = (seen.into(), None, String::new());
            asked.filter.clear();
        })
    };
    let of_visitor = |digits: &str| {
        let address = super::Address {
            page: Page::Site(site.to_owned(), SitePart::Visitors),
            ..asking.address.clone()
        };
        address.with(|asked| {
            asked.visitor = u64::from_str_radix(digits, 16).ok();
            asked.seen.clear();
            asked.filter.clear();
        })
    };
    for section in &mut document.sections {
        let place = match section.id {
            "pages" | "entries" | "exits" | "slowest" | "before" | "after" => 0,
            "trails" => 1,
            "trail" => 2,
            _ => continue,
        };
        for block in &mut section.blocks {
            let report::Block::Table(table) = block else {
                continue;
            };
            for cell in table.rows.iter_mut().filter_map(|row| row.get_mut(place)) {
                if section.id == "trails" {
                    cell.link = Some(of_visitor(&cell.text));
                } else if cell.is_name {
                    cell.link = Some(of_page(&cell.text));
                }
            }
        }
    }
}

/// Adds to each list where it is had for other programs, and where there is more of it.
pub(super) fn link_lists(asking: &Asking<'_>, document: &mut Document) {
    let telling = asking.telling();
    for section in &mut document.sections {
        let rows = section.blocks.iter().find_map(|block| match block {
            report::Block::Table(table) => Some(table.rows.len()),
            _ => None,
        });
        let Some(rows) = rows.filter(|rows| *rows > 0 && !section.id.is_empty()) else {
            continue;
        };
        let link = |text: &str, change: &dyn Fn(&mut PageQuery)| Link {
            text: text.into(),
            address: asking.address.with(|asked| {
                asked.list = section.id.into();
                change(asked);
            }),
        };
        let mut links = vec![
            link("CSV", &|asked| asked.format = Some(Format::Csv)),
            link("JSON", &|asked| asked.format = Some(Format::Json)),
        ];
        if section.is_cut || (rows > ROWS && telling.rows == ROWS) {
            let all = link(telling.say("all rows", "すべての行"), &|asked| {
                asked.has_all_rows = true;
                asked.list.clear();
            });
            links.push(Link {
                address: format!("{}#{}", all.address, section.id),
                ..all
            });
        }
        section.links = links;
    }
}
