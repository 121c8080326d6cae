//! What is measured of the machine and of tenants, over time.
//!
//! The idea: a figure is one chart of its mean and its most, as finely as the range allows. Of the
//! machine's own all are shown, of tenants' those that the filter names or the scope has.

use config::model::{Measure, ServerFigure, WatchedFigure, sensor};
use ipc::console::{ConsoleAnswer, ConsoleScope};
use ipc::limit_figures::LIMIT_FIGURES;
use jiff::civil::Date;
use report::units::Unit;
use report::{Along, Document, Language, Line, Lines, units};

use super::{Asking, NoPage, frame};
use crate::history::{ALL_TENANTS, Sums};
use crate::page::{self, MaybeFigure};
use crate::salts::civil;
use crate::store::{FigureStore, HOURS_DAYS, MINUTES_DAYS, Tier};

/// Figures that are looked at.
const SERIES_MAX: usize = 20_000;
/// Charts on a page.
pub(super) const CHARTS_MAX: usize = 24;
/// Charts of the last hour by the second, which have 3,600 points each.
const SECONDS_SHOWN_MAX: usize = 4;
/// Days that are shown by the minute, and by the hour.
const MINUTE_DAYS: i32 = 2;
const HOUR_DAYS: i32 = 62;
const DAY_S: f64 = 86_400.0;
/// How names of figures begin that are not the machine's.
pub(super) const OWNED: [&str; 3] = ["tenant.", "site.", "upstream."];

/// The page of figures over time.
pub(super) fn answer(store: &FigureStore, asking: &Asking<'_>) -> Result<ConsoleAnswer, NoPage> {
    let days = asking.range()?;
    let telling = asking.telling();
    let mut document = asking.document(frame::HISTORY.said_in(asking.language), days);
    let shown = shown(store, asking)?;
    let nothing = telling.say("Nothing is followed yet.", "記録された推移はありません。");
    let section = ("figures", "", nothing);
    tell(&mut document, store, asking, &shown, section)?;
    if shown.len() > CHARTS_MAX {
        let count = units::count(shown.len() as u64);
        document.section("").text(match asking.language {
            Language::English => format!("{CHARTS_MAX} of {count}: a filter finds the others."),
            Language::Japanese => format!("{count} 件のうち {CHARTS_MAX} 件。絞り込みで探せます。"),
        });
    }
    if days.1 >= asking.today() {
        for chart in last_hour(asking, &shown) {
            document.section("").chart(chart);
        }
    }
    frame::given(asking, document, "history", None, days)
}

/// What of the server is followed beside its sensors, over the days that are asked for.
pub(super) fn of_server(store: &FigureStore, asking: &Asking<'_>) -> Result<Document, NoPage> {
    let days = asking.range()?;
    let telling = asking.telling();
    let mut document = asking.document("", days);
    let names = ServerFigure::ALL
        .into_iter()
        .map(|(_, name)| name.to_owned());
    let names = names.chain([format!("{ALL_TENANTS}{}", Measure::Throttled.word())]);
    let names: Vec<_> = names.filter(|name| telling.shows(name)).collect();
    let nothing = telling.say(
        "No handshake of TLS, and no quota that ran out.",
        "TLS ハンドシェイクも、上限に達した割り当てもありません。",
    );
    let heading = telling.say("Handshakes and quotas", "ハンドシェイクと割り当て");
    let heading = format!("{heading}, {}", std::mem::take(&mut document.subtitle));
    let section = ("over-time", &*heading, nothing);
    tell(&mut document, store, asking, &names, section)?;
    Ok(document)
}

/// Adds a table of the first of these figures, and a chart of each; or says that there is nothing.
fn tell(
    document: &mut Document,
    store: &FigureStore,
    asking: &Asking<'_>,
    names: &[String],
    (id, heading, nothing): (&'static str, &str, &str),
) -> Result<(), NoPage> {
    let (from, to) = asking.range()?;
    let span = Span::of(asking, from, to);
    let tier = span.tier();
    let (mut rows, mut charts) = (Vec::new(), Vec::new());
    for name in names.iter().take(CHARTS_MAX) {
        let samples = store.samples(name, tier, span.from_s, span.to_s)?;
        if let Some(sums) = samples.iter().map(|(_, sums)| *sums).reduce(merged) {
            rows.push((name, unit(name), sums));
            charts.push(span.chart(asking, name, &samples, tier));
        }
    }
    let mut table = asking.telling().table(rows);
    table.name("figure", "項目", |it| it.0);
    table.numbers("mean", "平均", |it| it.2.mean().cell(it.1));
    table.numbers("least", "最小", |it| it.2.low.cell(it.1));
    table.numbers("most", "最大", |it| it.2.high.cell(it.1));
    table.end(document, id, heading, nothing);
    for chart in charts {
        document.section("").chart(chart);
    }
    Ok(())
}

/// The figures of the scope that are shown.
fn shown(store: &FigureStore, asking: &Asking<'_>) -> Result<Vec<String>, NoPage> {
    let scope = asking.scope;
    let telling = asking.telling();
    let is_machine = |name: &str| !OWNED.iter().any(|begin| name.starts_with(begin));
    let is_wanted = |name: &str| match (scope, telling.filter) {
        (ConsoleScope::All, "") => is_machine(name),
        _ => telling.shows(name),
    };
    // What limits came to is counts: these have a page of their own.
    let is_shown = |name: &str| !name.starts_with(LIMIT_FIGURES) && scope.has_figure(name);
    Ok(store.series(|name| is_shown(name) && is_wanted(name), SERIES_MAX)?)
}

/// The last hour of figures by the second, as far as it is of today.
fn last_hour(asking: &Asking<'_>, shown: &[String]) -> Vec<Lines> {
    let today = asking.today();
    let span = Span::of(asking, today, today);
    let telling = asking.telling();
    let title = telling.say("the last hour by the second", "直近 1 時間（秒単位）");
    let line = telling.say("each second", "毎秒");
    let held = shown.iter().filter_map(|name| {
        let seconds = asking.moment.heard?.seconds(name).into_iter();
        let seconds: Vec<_> = seconds.filter(|(at_s, _)| *at_s >= span.from_s).collect();
        let lines = vec![span.line(line, 1, seconds.iter().copied())];
        let title = format!("{name}: {title}");
        let chart = || page::panel(&title, span.along(), unit(name), lines);
        (!seconds.is_empty()).then(chart)
    });
    held.take(SECONDS_SHOWN_MAX).collect()
}

fn merged(mut one: Sums, other: Sums) -> Sums {
    one.merge(&other);
    one
}

/// What a figure's numbers are.
pub(super) fn unit(name: &str) -> Unit {
    let of_all = name.strip_prefix(ALL_TENANTS);
    let of_one = of_all.map(|what| format!("tenant.all.{what}"));
    let figure = WatchedFigure::from_name(of_one.as_deref().unwrap_or(name));
    match figure.map(|figure| figure.unit()) {
        Some(sensor::Unit::Share) => Unit::Share,
        Some(sensor::Unit::PerSecond) => Unit::PerSecond,
        Some(sensor::Unit::Seconds) => Unit::Seconds,
        Some(sensor::Unit::Bytes) => Unit::Bytes,
        Some(sensor::Unit::Load | sensor::Unit::Count) | None => Unit::Count,
    }
}

/// The days of a range as instants.
pub(super) struct Span {
    pub(super) from_s: i64,
    pub(super) to_s: i64,
    /// The first day and the last, after the first of 1970.
    first: i32,
    last: i32,
    /// How many days ago the first was.
    age: i32,
}

impl Span {
    pub(super) fn of(asking: &Asking<'_>, from: i32, to: i32) -> Span {
        let zone = asking.moment.now.time_zone();
        let begin = |date: Date| {
            let begin = date.to_zoned(zone.clone());
            begin.map_or(0, |begin| begin.timestamp().as_second())
        };
        Span {
            from_s: begin(civil(from)),
            to_s: begin(civil(to.saturating_add(1))),
            first: from,
            last: to,
            age: asking.today().saturating_sub(from),
        }
    }

    /// How finely it is shown.
    pub(super) fn tier(&self) -> Tier {
        // What is older is not kept so finely.
        match self.last - self.first {
            ..MINUTE_DAYS if self.age < MINUTES_DAYS => Tier::Minute,
            ..HOUR_DAYS if self.age < HOURS_DAYS => Tier::Hour,
            _ => Tier::Day,
        }
    }

    /// What charts of it run along.
    pub(super) fn along(&self) -> Along {
        match self.first < self.last {
            true => Along::Day,
            false => Along::Time,
        }
    }

    /// Where a moment is in them.
    pub(super) fn place(&self, at_s: i64) -> f64 {
        let since_s = (at_s - self.from_s) as f64;
        match self.first < self.last {
            true => f64::from(self.first) + since_s / DAY_S,
            false => since_s,
        }
    }

    /// Values, each of so many seconds; where nothing was measured nothing is drawn.
    fn line(&self, name: &str, step_s: i64, values: impl Iterator<Item = (i64, f64)>) -> Line {
        let mut points = Vec::new();
        let mut before = None;
        for (at_s, value) in values {
            let at = self.place(at_s);
            if before.is_some_and(|before| at_s - before > 2 * step_s) {
                points.push((at, f64::NAN));
            }
            before = Some(at_s);
            points.push((at, value));
        }
        Line {
            name: name.into(),
            points,
        }
    }

    fn chart(&self, asking: &Asking<'_>, name: &str, samples: &[(i64, Sums)], tier: Tier) -> Lines {
        let telling = asking.telling();
        let line = |name: &str, value: fn(&Sums) -> f64| {
            let values = samples.iter().map(|(at_s, sums)| (*at_s, value(sums)));
            self.line(name, tier.seconds(), values)
        };
        let lines = vec![
            line(telling.say("mean", "平均"), Sums::mean),
            line(telling.say("most", "最大"), |sums| sums.high),
        ];
        page::panel(name, self.along(), unit(name), lines)
    }
}

#[cfg(test)]
mod tests {
    use ipc::console::ConsoleQuestion;
    use jiff::tz::TimeZone;

    use super::super::ConsoleMoment;
    use super::*;
    use crate::hearing::Heard;
    use crate::history::{Detail, Sample};
    use crate::salts::SaltPeriod;

    #[test]
    fn the_last_hour_is_drawn_by_the_second_where_it_is_held_and_today_is_shown() {
        let directory = testkit::TempDir::new();
        let (mut store, _) = FigureStore::open(directory.path(), 0).expect("it opens");
        let now = civil(20_784).at(12, 0, 0, 0);
        let now = now.to_zoned(TimeZone::UTC).expect("a time");
        let now_s = now.timestamp().as_second();
        let (at_s, heard) = (Tier::Minute.begin(now_s), Heard::default());
        let sample = Sample {
            name: "load1".into(),
            at_s,
            sums: Sums::of(1.0),
        };
        store.write_samples(&[sample]).expect("written");
        for at_s in now_s - 10..now_s {
            heard.note(at_s, "load1", 1.0, Detail::Seconds);
        }
        let shows_seconds = |query: String, heard: Option<&Heard>| {
            let question = ConsoleQuestion {
                scope: ConsoleScope::All,
                base: "/".into(),
                path: "history".into(),
                query,
                ..ConsoleQuestion::default()
            };
            let moment = ConsoleMoment {
                now: now.clone(),
                salt: SaltPeriod::Day,
                live: None,
                heard,
                outlook: None,
                archive: None,
            };
            let body = super::super::answer(&store, &question, &moment).body;
            assert!(body.contains("load1"), "{body}");
            body.contains("load1: the last hour by the second")
        };
        let today = format!("from={}", civil(20_784));
        assert!(shows_seconds(today.clone(), Some(&heard)) && !shows_seconds(today, None));
        let before = format!("from={}&to={}&filter=load1", civil(20_782), civil(20_783));
        assert!(!shows_seconds(before, Some(&heard)));
    }

    #[test]
    fn a_figure_is_written_in_its_own_unit() {
        for (name, unit_of_it) in [
            ("load1", Unit::Count),
            ("memory_available", Unit::Share),
            ("conntrack", Unit::Share),
            ("io_pressure_full", Unit::Share),
            ("loop_lag", Unit::Seconds),
            ("tenant.a.b.memory", Unit::Bytes),
            ("tenants.memory", Unit::Bytes),
            ("site.a.example.errors", Unit::Share),
            ("site.a.example.p99", Unit::Seconds),
            ("site.a.example.requests", Unit::PerSecond),
            ("nobody.knows.it", Unit::Count),
        ] {
            assert_eq!(unit(name), unit_of_it, "{name}");
        }
    }
}
