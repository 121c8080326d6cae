//! Who waited at limits and was refused over some days: by limit and reason, by key, and when.
//!
//! The idea: each is a count that was followed, so that sums over any days are exact; a tenant sees those
//! of limits that stand on what is its own, and its keys of those of plans and of the site of all rows.

use std::collections::BTreeMap;

use ipc::limit_figures::{LIMIT_FIGURES, LimitCount};
use report::units::{self, Unit};
use report::{Cell, Document, Line, Lines, Tone};

use super::history::Span;
use super::{Asking, NoPage};
use crate::page::{self, Telling};
use crate::store::{FigureStore, Tier};

/// Figures that are looked at.
const FIGURES_MAX: usize = 200_000;
/// Figures that the chart is made of, those that count most, and its lines.
const CHARTED_MAX: usize = 24;
const LINES_MAX: usize = 6;

/// What a limit came to.
#[derive(Debug, Default)]
struct LimitRow {
    waited: u64,
    refused: u64,
    reasons: BTreeMap<String, u64>,
}

/// All limits, and the keys of refusals.
#[derive(Debug, Default)]
struct Refused {
    limits: BTreeMap<String, LimitRow>,
    keys: Vec<(String, String, u64)>,
}

/// How finely it is told: of the archive by the hour at the finest, so that there is room for many limits.
pub(super) fn tier(asking: &Asking<'_>, span: &Span) -> Tier {
    match span.tier() {
        Tier::Minute if asking.is_of_archive() => Tier::Hour,
        tier => tier,
    }
}

/// What there was, as sections.
pub(super) fn document(store: &FigureStore, asking: &Asking<'_>) -> Result<Document, NoPage> {
    let (from, to) = asking.range()?;
    let telling = asking.telling();
    let mut document = asking.document("", (from, to));
    let range = std::mem::take(&mut document.subtitle);
    let span = Span::of(asking, from, to);
    let refused = Refused::read(store, asking, &span)?;
    tell_limits(&mut document, &refused, &range, &telling);
    if let Some(chart) = chart(store, asking, &span, &refused)? {
        document.section("").chart(chart);
    }
    tell_keys(&mut document, &refused, &range, &telling);
    Ok(document)
}

impl Refused {
    fn read(store: &FigureStore, asking: &Asking<'_>, span: &Span) -> Result<Refused, NoPage> {
        let telling = asking.telling();
        let time = (span.from_s, span.to_s);
        let tier = tier(asking, span);
        let mut sums = store.sums(LIMIT_FIGURES, tier, time, FIGURES_MAX)?;
        if tier == Tier::Day {
            // Of keys no days are kept.
            let hours = store.sums(LIMIT_FIGURES, Tier::Hour, time, FIGURES_MAX)?;
            let keys = hours.into_iter();
            sums.extend(keys.filter(|(name, _)| {
                matches!(LimitCount::of_name(name), Some((_, LimitCount::Key(_))))
            }));
        }
        let mut refused = Refused::default();
        for (name, sums) in &sums {
            let Some((limit, count)) = LimitCount::of_name(name) else {
                continue;
            };
            if !asking.scope.has_limit(&count.part_of(limit)) || !telling.shows(limit) {
                continue;
            }
            // Sums of counts are whole.
            let sum = sums.sum as u64;
            match count {
                LimitCount::Waited => {
                    let row = refused.limit(limit);
                    row.waited = row.waited.saturating_add(sum);
                }
                LimitCount::Refused(reason) => {
                    let row = refused.limit(limit);
                    row.refused = row.refused.saturating_add(sum);
                    let of_reason = row.reasons.entry(reason.into()).or_default();
                    *of_reason = of_reason.saturating_add(sum);
                }
                LimitCount::Key(key) => refused.keys.push((limit.into(), key.into(), sum)),
            }
        }
        let keys = &mut refused.keys;
        keys.sort_by_key(|(.., count)| std::cmp::Reverse(*count));
        Ok(refused)
    }

    fn limit(&mut self, limit: &str) -> &mut LimitRow {
        self.limits.entry(limit.into()).or_default()
    }
}

fn tell_limits(document: &mut Document, refused: &Refused, range: &str, telling: &Telling<'_>) {
    let mut limits: Vec<_> = refused.limits.iter().collect();
    limits.sort_by_key(|(_, it)| std::cmp::Reverse((it.refused, it.waited)));
    let mut table = telling.table(limits);
    table.name("limit", "制限", |it| it.0);
    table.count("waited", "待機した", |it| it.1.waited);
    table.news("refused", "拒否", Tone::Bad, |it| it.1.refused);
    table.words("why", "理由", |(_, it)| {
        let reasons = it.reasons.iter();
        let reasons = reasons.map(|(reason, count)| format!("{reason} {}", units::count(*count)));
        Cell::name(reasons.collect::<Vec<_>>().join(", "))
    });
    let heading = telling.say("Waited and refused", "待機と拒否");
    let nothing = telling.say("Nothing was recorded.", "記録はありません。");
    table.end(document, "refused", &format!("{heading}, {range}"), nothing);
}

fn tell_keys(document: &mut Document, refused: &Refused, range: &str, telling: &Telling<'_>) {
    let mut table = telling.table(&refused.keys);
    table.name("limit", "制限", |it| &it.0);
    table.name("key", "キー", |it| &it.1);
    table.news("refused", "拒否", Tone::Bad, |it| it.2);
    let heading = format!(
        "{}, {range}",
        telling.say("Refused by key", "キーごとの拒否")
    );
    let nothing = telling.say("Nothing was recorded.", "記録はありません。");
    let section = table.end(document, "refused-keys", &heading, nothing);
    section.text(telling.say(
        "Keys made of addresses, fields or cookies are not recorded. The others are kept for 62 days.",
        "アドレス・ヘッダ・クッキーによるキーは記録しません。その他は 62 日間残ります。",
    ));
}

/// When requests were refused, a line for each reason; where nothing was told there was nothing.
fn chart(
    store: &FigureStore,
    asking: &Asking<'_>,
    span: &Span,
    refused: &Refused,
) -> Result<Option<Lines>, NoPage> {
    let mut figures = Vec::new();
    for (limit, row) in &refused.limits {
        for (reason, count) in &row.reasons {
            figures.push((*count, &**limit, &**reason));
        }
    }
    figures.sort_by_key(|(count, ..)| std::cmp::Reverse(*count));
    let tier = tier(asking, span);
    let mut reasons = BTreeMap::<&str, BTreeMap<i64, f64>>::new();
    for (_, limit, reason) in figures.into_iter().take(CHARTED_MAX) {
        if reasons.len() >= LINES_MAX && !reasons.contains_key(reason) {
            continue;
        }
        let name = LimitCount::Refused(reason).name(limit);
        let counts = reasons.entry(reason).or_default();
        for (at_s, sums) in store.samples(&name, tier, span.from_s, span.to_s)? {
            *counts.entry(at_s).or_default() += sums.sum;
        }
    }
    if reasons.is_empty() {
        return Ok(None);
    }
    let now_s = asking.moment.now.timestamp().as_second();
    let step_s = tier.seconds();
    let times = || {
        let step = usize::try_from(step_s).unwrap_or(usize::MAX);
        (tier.begin(span.from_s)..span.to_s.min(now_s)).step_by(step)
    };
    let lines = reasons.into_iter().map(|(reason, counts)| {
        let point = |at_s: i64| {
            // The archive's first part begins where its days do.
            let count = counts.range(at_s..at_s + step_s).map(|(_, it)| it).sum();
            let is_shown = at_s >= span.from_s || count > 0.0;
            is_shown.then(|| (span.place(at_s.max(span.from_s)), count))
        };
        Line {
            name: reason.into(),
            points: times().filter_map(point).collect(),
        }
    });
    let telling = asking.telling();
    let title = match tier {
        Tier::Minute => telling.say("Refused, by the minute", "毎分の拒否"),
        Tier::Hour => telling.say("Refused, by the hour", "毎時の拒否"),
        Tier::Day => telling.say("Refused, by the day", "毎日の拒否"),
    };
    Ok(Some(page::panel(
        title,
        span.along(),
        Unit::Count,
        lines.collect(),
    )))
}

#[cfg(test)]
mod tests {
    use ipc::archive::ArchivedSample;
    use ipc::archive::question::ArchiveFound;
    use ipc::console::{ConsoleQuestion, ConsoleScope};
    use jiff::tz::{TimeZone, offset};

    use super::super::ConsoleMoment;
    use super::*;
    use crate::salts::{SaltPeriod, civil};
    use crate::store::PartsOfTime;

    #[test]
    fn a_part_that_begins_where_days_do_is_in_the_chart_as_it_is_in_the_table() {
        let directory = testkit::TempDir::new();
        let (store, _) = FigureStore::open(directory.path(), 0).expect("it opens");
        // Its midnight is in the midst of a day of figures.
        let now = civil(20_784).at(12, 0, 0, 0);
        let now = now.to_zoned(TimeZone::fixed(offset(9))).expect("a time");
        let moment = ConsoleMoment {
            now,
            salt: SaltPeriod::Day,
            live: None,
            heard: None,
            outlook: None,
            archive: None,
        };
        let question = ConsoleQuestion {
            scope: ConsoleScope::All,
            query: format!("machine=*&from={}", civil(20_694)),
            ..ConsoleQuestion::default()
        };
        let asking = Asking::of(&question, "limits", &moment).expect("a page");
        let (from, to) = asking.range().expect("days");
        let span = Span::of(&asking, from, to);
        assert_eq!(span.tier(), Tier::Day);
        let kept = Span::of(&asking, to - 31, to).from_s;
        for first_s in [span.from_s, kept] {
            let sample = |at_s: i64| ArchivedSample {
                name: LimitCount::Refused("full").name("tenant a/few"),
                at_s,
                sums: [1.0, 5.0, 5.0, 5.0],
            };
            let found = ArchiveFound {
                samples: vec![sample(first_s), sample(Tier::Day.begin(first_s) + 86_400)],
                ..ArchiveFound::default()
            };
            let time = PartsOfTime {
                tier: Tier::Day,
                seconds: (first_s, span.to_s),
                parts: Vec::new(),
            };
            let store = store.of_archive(&found, &time).expect("in memory");
            let refused = Refused::read(&store, &asking, &span).expect("read");
            assert_eq!(refused.limits["tenant a/few"].refused, 10);
            let chart = chart(&store, &asking, &span, &refused).expect("read");
            let points = &chart.expect("a chart").panels[0].lines[0].points;
            let shown = points.iter().map(|(_, count)| count);
            assert_eq!(shown.sum::<f64>(), 10.0, "{points:?}");
            assert!(points.iter().all(|(at, _)| *at >= f64::from(from)));
        }
    }
}
