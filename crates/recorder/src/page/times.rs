//! Figures over time: in short, by day, hour, weekday and month, and how long requests took.

use std::collections::BTreeMap;

use report::units::{self, Unit};
use report::{Along, Cell, Document, Language, Line, Lines, Panel, Phrase, Table};

use super::lists::section;
use super::{DAYS_SHOWN_MAX, Telling};
use crate::day::Figures;
use crate::durations::Durations;
use crate::range::{COMPARED_DAYS, RangeFigures};
use crate::salts::civil;

/// A figure of some.
pub(crate) type FigureOf = fn(&Figures) -> f64;

const WEEKDAYS: [Phrase; 7] = [
    Phrase::new("Monday", "月曜日"),
    Phrase::new("Tuesday", "火曜日"),
    Phrase::new("Wednesday", "水曜日"),
    Phrase::new("Thursday", "木曜日"),
    Phrase::new("Friday", "金曜日"),
    Phrase::new("Saturday", "土曜日"),
    Phrase::new("Sunday", "日曜日"),
];
/// Shares that latency is told by.
const QUANTILES: [(f64, Phrase); 3] = [
    (0.5, Phrase::new("median", "中央値")),
    (0.95, Phrase::new("95 %", "95 %")),
    (0.99, Phrase::new("99 %", "99 %")),
];

/// What a range comes to, as facts; it has figures.
pub(crate) fn overview(document: &mut Document, range: &RangeFigures, telling: &Telling<'_>) {
    let total = &range.total;
    let mut fact = |english, japanese, value: String| {
        document.fact(telling.say(english, japanese), value);
    };
    fact("views of pages", "ページ閲覧", units::count(total.views));
    fact("visits", "訪問", units::count(total.visits));
    visitor_facts(document, range, telling);
    let mut fact = |english, japanese, value: String| {
        document.fact(telling.say(english, japanese), value);
    };
    if total.visits > 0 {
        let visits = total.visits as f64;
        fact(
            "views a visit",
            "訪問あたりの閲覧",
            units::figure(total.views as f64 / visits),
        );
        let time = units::seconds((total.visit_s as f64 / visits).round());
        fact("time a visit", "訪問あたりの時間", time);
        let bounces = total.bounces.max(0) as f64 / visits;
        fact(
            "visits of one page",
            "1 ページだけの訪問",
            units::share(bounces),
        );
    }
    fact("requests", "リクエスト", units::count(total.requests));
    fact("of these by bots", "うちボット", units::count(total.bots));
    fact("sent", "送信量", units::bytes(total.bytes as f64));
    let [_, _, _, wrong, failed] = total.statuses;
    fact("answered 4xx", "4xx の応答", units::count(wrong));
    fact("answered 5xx", "5xx の応答", units::count(failed));
    took(document, total, telling);
}

/// Who came, as facts.
pub(crate) fn visitor_facts(document: &mut Document, range: &RangeFigures, telling: &Telling<'_>) {
    document.fact(telling.say("visitors", "訪問者"), visitors(range, telling));
    if let Some((new, returning)) = range.new_and_returning {
        let (new, returning) = (units::count(new), units::count(returning));
        let (name, told) = match telling.language {
            Language::English => (
                format!("new in their {}", telling.salt_word()),
                format!("{new}, {returning} had come before"),
            ),
            Language::Japanese => (
                format!("その{}に初めての訪問者", telling.salt_word()),
                format!("{new}、再訪 {returning}"),
            ),
        };
        document.fact(name, told);
    }
}

/// Of several salts visitors are a sum.
fn visitors(range: &RangeFigures, telling: &Telling<'_>) -> String {
    let count = units::count(range.visitors);
    let word = telling.salt_word();
    match (range.salts, telling.language) {
        (0 | 1, _) => count,
        (salts, Language::English) => {
            format!("{count} (sum of {salts} {word}s: who came in two of them counts twice)")
        }
        (salts, Language::Japanese) => {
            format!("{count}（{salts} {word}分の合計：複数の{word}に来た人は重ねて数えます）")
        }
    }
}

/// How long requests took, as facts.
fn took(document: &mut Document, total: &Figures, telling: &Telling<'_>) {
    if total.durations.count() == 0 {
        return;
    }
    let [median, most, nearly_all] = QUANTILES.map(|(share, name)| {
        let (name, us) = (
            name.said_in(telling.language),
            total.durations.quantile_us(share),
        );
        format!(
            "{name} {}",
            us.map_or(units::NONE.into(), |us| units::micros(us as f64))
        )
    });
    let told = [median, most, nearly_all].join(", ");
    document.fact(telling.say("time a request", "応答時間"), told);
    if total.handshakes > 0 {
        let share = units::share(total.handshakes as f64 / total.requests.max(1) as f64);
        let name = telling.say("TLS handshakes", "TLS ハンドシェイク");
        document.fact(
            name,
            format!("{} ({share})", units::count(total.handshakes)),
        );
    }
    if total.queue_us == 0 && total.upstream_us == 0 {
        // A log that tells neither.
        return;
    }
    let mean = |us: u64| units::micros(us as f64 / total.requests.max(1) as f64);
    let (queue, upstream) = (mean(total.queue_us), mean(total.upstream_us));
    let parts = match telling.language {
        Language::English => format!("{queue} waiting, {upstream} in back ends"),
        Language::Japanese => format!("待ち {queue}、バックエンド {upstream}"),
    };
    document.fact(telling.say("of it, on average", "その内訳（平均）"), parts);
}

/// Views and visits by day, or by month where the days are many.
pub(crate) fn days(document: &mut Document, range: &RangeFigures, telling: &Telling<'_>) {
    let figures: [(&str, FigureOf); 2] = [
        (telling.say("views", "閲覧"), |it| it.views as f64),
        (telling.say("visits", "訪問"), |it| it.visits as f64),
    ];
    let title = telling.say("Views and visits", "閲覧と訪問");
    let heading = telling.say("Day by day", "日ごと");
    if range.days.len() < 2 {
        return;
    }
    let section = section(document, "days", heading);
    section.chart(by_day(range, title, Unit::Count, &figures));
    if range.days.len() > DAYS_SHOWN_MAX {
        return;
    }
    let mut table = telling.whole(&range.days);
    table.words("day", "日", |it| Cell::from(civil(it.0).to_string()));
    table.count("views", "閲覧", |it| it.1.views);
    table.count("visits", "訪問", |it| it.1.visits);
    table.count("visitors", "訪問者", |it| it.2);
    table.count("requests", "リクエスト", |it| it.1.requests);
    table.figure("sent", "送信量", Unit::Bytes, |it| it.1.bytes);
    section.table(table.done());
}

/// Figures by day as a chart. Days of which nothing is known are gaps.
pub(crate) fn by_day(
    range: &RangeFigures,
    title: &str,
    unit: Unit,
    figures: &[(&str, FigureOf)],
) -> Lines {
    let line = |(name, figure): &(&str, FigureOf)| {
        let days = range.days.iter();
        let points = days.map(|(day, it, _)| (f64::from(*day), figure(it)));
        day_line(name, points)
    };
    panel(title, Along::Day, unit, figures.iter().map(line).collect())
}

/// Counts by day as a chart.
pub(crate) fn counts_by_day(title: &str, name: &str, days: Vec<(f64, f64)>) -> Lines {
    panel(
        title,
        Along::Day,
        Unit::Count,
        vec![day_line(name, days.into_iter())],
    )
}

fn day_line(name: &str, days: impl Iterator<Item = (f64, f64)>) -> Line {
    let mut points: Vec<(f64, f64)> = Vec::new();
    for (day, value) in days {
        if points.last().is_some_and(|(before, _)| before + 1.0 < day) {
            points.push((day - 0.5, f64::NAN));
        }
        points.push((day, value));
    }
    Line {
        name: name.into(),
        points,
    }
}

/// Views by hour of the day, beside the days before.
pub(crate) fn hours(document: &mut Document, range: &RangeFigures, telling: &Telling<'_>) {
    let [days, days_before] = range.days_with_hours;
    if days == 0 {
        return;
    }
    let mean = |figures: &BTreeMap<u8, Figures>, hour: u8, days: u32| {
        let views = figures.get(&hour).map_or(0, |it| it.views);
        views as f64 / f64::from(days.max(1))
    };
    let now = match days {
        1 => telling.say("this day", "この日"),
        _ => telling.say("mean day", "平均の日"),
    };
    let mut means = vec![(now.to_owned(), &range.hours, days)];
    if days_before > 0 {
        let before = match telling.language {
            Language::English => format!("mean of the {COMPARED_DAYS} days before"),
            Language::Japanese => format!("それまでの {COMPARED_DAYS} 日の平均"),
        };
        means.push((before, &range.hours_before, days_before));
    }
    let lines = means.iter().map(|(name, figures, days)| Line {
        name: name.clone(),
        points: (0..24)
            .map(|hour| (f64::from(hour) * 3_600.0, mean(figures, hour, *days)))
            .collect(),
    });
    let lines = lines.collect();
    let section = section(document, "hours", telling.say("Hour by hour", "時間ごと"));
    let title = telling.say("Views by hour of the day", "時間帯ごとの閲覧");
    section.chart(panel(title, Along::Time, Unit::Count, lines));
    let mut table = telling.whole(0..24_u8);
    table.words("hour", "時", |hour| Cell::from(format!("{hour:02}")));
    for (name, figures, days) in &means {
        table.figures(name, Unit::Count, |hour| mean(figures, *hour, *days));
    }
    section.table(table.done());
    if range.minutes.len() > 1 {
        let minutes = range.minutes.iter();
        let points = minutes.map(|(minute, it)| (f64::from(*minute) * 60.0, it.requests as f64));
        let line = Line {
            name: telling.say("requests", "リクエスト").into(),
            points: points.collect(),
        };
        let title = telling.say(
            "Requests a minute, from midnight",
            "1 分ごとのリクエスト（0 時から）",
        );
        section.chart(panel(title, Along::Time, Unit::Count, vec![line]));
    }
}

/// Lines of one unit.
pub(crate) fn panel(title: &str, along: Along, unit: Unit, lines: Vec<Line>) -> Lines {
    Lines {
        title: title.into(),
        along,
        panels: vec![Panel {
            title: String::new(),
            unit,
            lines,
        }],
        ..Lines::default()
    }
}

/// Means by weekday, where there was each.
pub(crate) fn weekdays(document: &mut Document, range: &RangeFigures, telling: &Telling<'_>) {
    if range.days.len() < 7 {
        return;
    }
    let mean = |sum: u64, days: u32| sum as f64 / f64::from(days.max(1));
    let mut table = telling.whole(range.weekdays().into_iter().zip(WEEKDAYS));
    table.words("weekday", "曜日", |(_, name)| {
        Cell::from(name.said_in(telling.language))
    });
    table.count("days", "日数", |((_, days), _)| u64::from(*days));
    table.figure(
        "views a day",
        "1 日の閲覧",
        Unit::Count,
        |((it, days), _)| mean(it.views, *days),
    );
    table.figure(
        "visits a day",
        "1 日の訪問",
        Unit::Count,
        |((it, days), _)| mean(it.visits, *days),
    );
    section(document, "weekdays", telling.say("Weekdays", "曜日ごと")).table(table.done());
}

/// Sums by month, where the range is longer than one.
pub(crate) fn months(document: &mut Document, range: &RangeFigures, telling: &Telling<'_>) {
    let months = range.months();
    if months.len() < 2 {
        return;
    }
    let mut table = telling.whole(months);
    table.words("month", "月", |it| Cell::from(&*it.0));
    table.count("views", "閲覧", |it| it.1.views);
    table.count("visits", "訪問", |it| it.1.visits);
    table.count("requests", "リクエスト", |it| it.1.requests);
    section(document, "months", telling.say("Months", "月ごと")).table(table.done());
}

/// How long requests took, by day and by hour of the day.
pub(crate) fn speed(document: &mut Document, range: &RangeFigures, telling: &Telling<'_>) {
    took(document, &range.total, telling);
    let timed = range.days.iter().any(|(_, it, _)| it.durations.count() > 0);
    if !timed {
        return;
    }
    let quantiles: [FigureOf; 3] = [
        |it| quantile(&it.durations, 0.5),
        |it| quantile(&it.durations, 0.95),
        |it| quantile(&it.durations, 0.99),
    ];
    let names = QUANTILES.map(|(_, name)| name.said_in(telling.language));
    let figures: Vec<_> = names.into_iter().zip(quantiles).collect();
    let title = telling.say("Response time by day", "日ごとの応答時間");
    let days = range.days.iter();
    let days = days.map(|(day, it, _)| (civil(*day).to_string(), it));
    let days = timed_table(telling.say("day", "日"), days, telling);
    let by_days = section(document, "speed", telling.say("Day by day", "日ごと"));
    if range.days.len() > 1 {
        by_days.chart(by_day(range, title, Unit::Micros, &figures));
    }
    by_days.table(days);
    let hours = range
        .hours
        .iter()
        .map(|(hour, it)| (format!("{hour:02}"), it));
    let hours = timed_table(telling.say("hour", "時"), hours, telling);
    section(
        document,
        "speed-hours",
        telling.say("Hour by hour", "時間ごと"),
    )
    .table(hours);
}

fn quantile(durations: &Durations, share: f64) -> f64 {
    durations
        .quantile_us(share)
        .map_or(f64::NAN, |us| us as f64)
}

/// Percentiles and parts of what requests took in each of some periods.
fn timed_table<'a>(
    period: &'static str,
    periods: impl Iterator<Item = (String, &'a Figures)>,
    telling: &Telling<'_>,
) -> Table {
    let mut table = telling.whole(periods.filter(|(_, it)| it.durations.count() > 0));
    table.words(period, period, |it| Cell::from(&*it.0));
    table.count("requests", "リクエスト", |it| it.1.requests);
    for (share, name) in QUANTILES {
        table.figures(name.said_in(telling.language), Unit::Micros, |(_, it)| {
            quantile(&it.durations, share)
        });
    }
    let mean = |sum: u64, it: &Figures| sum as f64 / it.requests.max(1) as f64;
    table.figure(
        "waiting, mean",
        "待ち（平均）",
        Unit::Micros,
        |(_, it)| mean(it.queue_us, it),
    );
    table.figure(
        "back ends, mean",
        "バックエンド（平均）",
        Unit::Micros,
        |(_, it)| mean(it.upstream_us, it),
    );
    table.count("handshakes", "ハンドシェイク", |(_, it)| {
        it.handshakes
    });
    table.done()
}
