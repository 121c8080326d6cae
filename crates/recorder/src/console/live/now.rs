//! Who asks for what at this moment, and who holds, waits and is refused.

use control::{Replies, Status};
use ipc::console::ConsoleScope;
use report::units;
use report::{Cell, Column, Document, Language, Section, Table, Tone};

use super::LiveTelling;

/// What goes on now.
pub(super) fn now(document: &mut Document, told: &LiveTelling<'_>) {
    let status = told.live.status;
    if *told.scope == ConsoleScope::All {
        machine_facts(document, told);
    } else {
        let per_s = told.live.before.map(|(before, seconds)| {
            let count = |status: &Status| {
                let sites = status.sites.iter();
                let sites = sites.filter(|site| told.scope.has_site(&site.site));
                sites.map(|site| site.replies.count()).sum::<u64>()
            };
            rate(count(status), count(before), seconds)
        });
        document.fact(
            told.say("requests a second", "毎秒リクエスト"),
            per_second(per_s),
        );
    }
    sites(document, told);
    tenants(document, told);
    if *told.scope == ConsoleScope::All {
        workers(document, told);
    }
}

fn machine_facts(document: &mut Document, told: &LiveTelling<'_>) {
    let status = told.live.status;
    let ended = |status: &Status| status.workers.iter().map(|it| it.ended).sum::<u64>();
    let refused = |status: &Status| -> u64 {
        status
            .limits
            .iter()
            .map(control::Limit::refused_total)
            .sum()
    };
    let between = |of: &dyn Fn(&Status) -> u64| {
        let before = told.live.before;
        per_second(before.map(|(before, seconds)| rate(of(status), of(before), seconds)))
    };
    let workers = || status.workers.iter();
    let connections: usize = workers().map(|it| it.connections).sum();
    let waiting: u64 = status.limits.iter().map(|it| it.queued).sum();
    for (name, value) in [
        (
            told.say("requests a second", "毎秒リクエスト"),
            between(&ended),
        ),
        (
            told.say("under way", "処理中"),
            units::count(workers().map(|it| it.in_flight).sum()),
        ),
        (told.say("waiting", "待機中"), units::count(waiting)),
        (
            told.say("refused a second", "毎秒の拒否"),
            between(&refused),
        ),
        (told.say("95 % within", "95 % の応答"), quantile(told, 0.95)),
        (told.say("99 % within", "99 % の応答"), quantile(told, 0.99)),
        (
            told.say("connections", "接続"),
            units::count(connections as u64),
        ),
        (told.say("serving for", "稼働時間"), uptime(status.uptime_s)),
    ] {
        document.fact(name, value);
    }
}

/// In the two largest units that say something.
fn uptime(seconds: u64) -> String {
    let minutes = seconds / 60;
    match (minutes / 1_440, minutes / 60 % 24, minutes % 60) {
        (0, 0, minutes) => format!("{minutes} min"),
        (0, hours, minutes) => format!("{hours} h {minutes} min"),
        (days, hours, _) => format!("{days} d {hours} h"),
    }
}

/// A share of the exchanges since the last look took at most so long, as far as buckets tell.
fn quantile(told: &LiveTelling<'_>, share: f64) -> String {
    let time = &told.live.status.time;
    let before = told
        .live
        .before
        .map(|(before, _)| &before.time.total.counts);
    let counts = time.total.counts.iter().enumerate().map(|(place, count)| {
        let before = before.and_then(|it| it.get(place)).copied();
        count.saturating_sub(before.unwrap_or(0))
    });
    let counts: Vec<u64> = counts.collect();
    let wanted = (counts.iter().sum::<u64>() as f64 * share).ceil();
    let mut below = 0;
    for (place, count) in counts.iter().enumerate() {
        below += count;
        if below > 0 && below as f64 >= wanted {
            return match time.bounds_us.get(place) {
                Some(bound) => format!("≤ {}", units::micros(*bound as f64)),
                None => {
                    let last = time.bounds_us.last().copied().unwrap_or(0);
                    format!("> {}", units::micros(last as f64))
                }
            };
        }
    }
    units::NONE.into()
}

fn rate(now: u64, before: u64, seconds: f64) -> f64 {
    now.saturating_sub(before) as f64 / seconds
}

fn per_second(rate: Option<f64>) -> String {
    rate.map_or(units::NONE.into(), units::figure)
}

fn rate_cell(rate: Option<f64>) -> Cell {
    rate.map_or(Cell::from(units::NONE), |it| {
        Cell::figure(units::figure(it), it)
    })
}

/// Sites that were asked for since the last look.
fn sites(document: &mut Document, told: &LiveTelling<'_>) {
    let (status, before) = (told.live.status, told.live.before);
    let known = before.map(|(before, _)| {
        let sites = before.sites.iter();
        sites
            .map(|site| (&*site.site, site.replies))
            .collect::<std::collections::HashMap<_, _>>()
    });
    let seconds = before.map(|(_, seconds)| seconds);
    let shown = status.sites.iter();
    let shown =
        shown.filter(|site| told.scope.has_site(&site.site) && told.telling.shows(&site.site));
    let mut rows: Vec<(&str, Replies, Replies)> = shown
        .map(|site| {
            let before = known.as_ref().and_then(|known| known.get(&*site.site));
            (
                &*site.site,
                site.replies,
                before.copied().unwrap_or_default(),
            )
        })
        .collect();
    rows.sort_by_key(|(_, now, before)| {
        std::cmp::Reverse(now.count().saturating_sub(before.count()))
    });
    let total = rows.len();
    let mut table = Table::new([
        Column::left(told.say("site", "サイト")),
        Column::right(told.say("requests/s", "リクエスト/秒")),
        Column::right("4xx/s"),
        Column::right("5xx/s"),
        Column::right(told.say("sent/s", "送信/秒")).in_unit("bytes/s"),
        Column::right(told.say("requests so far", "これまで")),
    ]);
    for (site, now, before) in rows.into_iter().take(told.rows_max()) {
        let per_s = |of: &dyn Fn(&Replies) -> u64| seconds.map(|s| rate(of(&now), of(&before), s));
        let sent = per_s(&|it| it.bytes_out);
        let sent = sent.map_or(Cell::from(units::NONE), |it| {
            Cell::figure(units::bytes(it), it)
        });
        table.row([
            Cell::name(site),
            rate_cell(per_s(&Replies::count)),
            rate_cell(per_s(&|it| it.by_class[3])),
            rate_cell(per_s(&|it| it.by_class[4])),
            sent,
            Cell::count(now.count()),
        ]);
    }
    let title = told.say("Sites", "サイト");
    listed_of(document, "sites", title, (table, total), told);
}

fn tenants(document: &mut Document, told: &LiveTelling<'_>) {
    let titles = [
        Column::right(told.say("cores", "コア")),
        Column::right(told.say("throttled", "抑制")),
        Column::right(told.say("memory", "メモリ")).in_unit("bytes"),
        Column::right(told.say("disk/s", "ディスク/秒")).in_unit("bytes/s"),
        Column::right(told.say("requests/s", "リクエスト/秒")),
        Column::right(told.say("waiting", "待機中")),
        Column::right(told.say("refused/s", "拒否/秒")),
    ];
    let tenant = Column::left(told.say("tenant", "テナント"));
    let mut table = Table::new([tenant].into_iter().chain(titles));
    let shown = told.live.tenants.iter();
    let (shown, total) = told.few(shown.filter(|it| told.scope.has_tenant(&it.tenant)));
    for it in shown {
        let none = || Cell::from(units::NONE);
        let written = |value: Option<f64>, write: fn(f64) -> String| {
            value.map_or(none(), |it| Cell::figure(write(it), it))
        };
        table.row([
            Cell::name(&*it.tenant),
            written(it.cpu_cores, units::figure),
            written(it.throttled_share, units::share),
            written(it.memory_bytes.map(|it| it as f64), units::bytes),
            written(it.io_bytes_per_s, units::bytes),
            written(it.requests_per_s, units::figure),
            Cell::count(it.waiting),
            written(it.refused_per_s, units::figure),
        ]);
    }
    let title = told.say("Tenants", "テナント");
    listed_of(document, "tenants", title, (table, total), told);
}

fn workers(document: &mut Document, told: &LiveTelling<'_>) {
    let status = told.live.status;
    let titles = [
        Column::right(told.say("connections", "接続")),
        Column::right(told.say("under way", "処理中")),
        Column::right(told.say("requests so far", "これまで")),
        Column::right(told.say("late", "遅れ")).in_unit("s"),
    ];
    let worker = Column::left(told.say("worker", "ワーカー"));
    let mut table = Table::new([worker].into_iter().chain(titles));
    for (index, worker) in status.workers.iter().enumerate() {
        let lag = status.loop_lag_s.get(index).copied().flatten();
        table.row([
            Cell::from(index.to_string()),
            Cell::count(worker.connections as u64),
            Cell::count(worker.in_flight),
            Cell::count(worker.ended),
            lag.map_or(Cell::from(units::NONE), |s| {
                Cell::figure(units::seconds(s), s)
            }),
        ]);
    }
    listed(
        document,
        "workers",
        told.say("Workers", "ワーカー"),
        table,
        told,
    );
}

/// Who holds, waits and is refused.
pub(super) fn limits(document: &mut Document, told: &LiveTelling<'_>) {
    keys(document, told);
    let titles = [
        Column::right(told.say("permits", "許可数")),
        Column::right(told.say("rate", "レート")),
        Column::right(told.say("holding", "使用中")),
        Column::right(told.say("waiting", "待機中")),
        Column::right(told.say("admitted", "許可")),
        Column::right(told.say("waited", "待機した")),
        Column::right(told.say("refused", "拒否")),
        Column::left(told.say("why", "理由")),
    ];
    let limit = Column::left(told.say("limit", "制限"));
    let mut table = Table::new([limit].into_iter().chain(titles));
    for it in told.live.status.limits.iter() {
        if !told.has_limit(&it.limit) || !told.telling.shows(&it.limit) {
            continue;
        }
        let reasons = it.refused.iter().filter(|(_, count)| **count > 0);
        let reasons = reasons.map(|(reason, count)| format!("{reason} {}", units::count(*count)));
        let permits = it.concurrent_now.or(match &it.concurrent {
            Some(control::Concurrent::Fixed(permits)) => Some(*permits),
            _ => None,
        });
        let refused = it.refused_total();
        let mut name = it.limit.clone();
        if it.mode == "shadow" {
            name.push_str(told.say(" (in shadow)", "（試行）"));
        }
        table.row([
            Cell::name(name),
            permits.map_or(Cell::from(units::NONE), |it| Cell::count(it.into())),
            Cell::from(it.rate.clone().unwrap_or_else(|| units::NONE.into())),
            Cell::count(it.in_flight),
            toned(it.queued, Tone::Warn),
            Cell::count(it.admitted),
            Cell::count(it.waited),
            toned(refused, Tone::Bad),
            Cell::from(reasons.collect::<Vec<_>>().join(", ")),
        ]);
    }
    listed(document, "limits", told.say("Limits", "制限"), table, told);
    classes(document, told);
}

/// The keys that hold and wait.
fn keys(document: &mut Document, told: &LiveTelling<'_>) {
    let titles = [
        Column::left(told.say("limit", "制限")),
        Column::left(told.say("key", "キー")),
        Column::right(told.say("holding", "使用中")),
        Column::right(told.say("waiting", "待機中")),
        Column::right(told.say("oldest waits", "最長の待ち")).in_unit("ms"),
        Column::right(told.say("refused", "拒否")),
    ];
    let mut table = Table::new(titles);
    let shown = told
        .live
        .keys
        .iter()
        .filter(|key| told.has_limit(&key.limit));
    let (shown, total) = told.few(shown);
    for key in shown {
        table.row([
            Cell::name(&*key.limit),
            match key.overflow {
                true => Cell::from(told.say("(other)", "(その他)")),
                false => Cell::name(&*key.key),
            },
            Cell::count(key.in_flight.into()),
            toned(key.queued.into(), Tone::Warn),
            key.oldest_ms.map_or(Cell::from(units::NONE), |ms| {
                Cell::figure(units::micros(ms as f64 * 1e3), ms as f64)
            }),
            toned(key.refused, Tone::Bad),
        ]);
    }
    let title = told.say("Who holds and who waits", "使用中と待機中");
    listed_of(document, "keys", title, (table, total), told);
}

fn classes(document: &mut Document, told: &LiveTelling<'_>) {
    let titles = [
        Column::left(told.say("tenant", "テナント")),
        Column::left(told.say("class", "クラス")),
        Column::right(told.say("waited", "待機した")),
        Column::right(told.say("mean wait", "平均の待ち")).in_unit("µs"),
        Column::right(told.say("refused", "拒否")),
    ];
    let mut table = Table::new(titles);
    let shown = told.live.status.classes.iter();
    let (shown, total) = told.few(shown.filter(|it| told.scope.has_tenant(&it.tenant)));
    for it in shown {
        let mean = it.waited_us as f64 / it.waited.max(1) as f64;
        table.row([
            Cell::name(&*it.tenant),
            Cell::name(&*it.class),
            Cell::count(it.waited),
            Cell::figure(units::micros(mean), mean),
            toned(it.refused, Tone::Bad),
        ]);
    }
    let title = told.say("Classes of requests", "リクエストのクラス");
    listed_of(document, "classes", title, (table, total), told);
}

/// A count that is news where it is not zero.
pub(super) fn toned(count: u64, tone: Tone) -> Cell {
    let mut cell = Cell::count(count);
    if count > 0 {
        cell.tone = tone;
    }
    cell
}

/// Adds a table, or says that there is nothing in it.
pub(super) fn listed(
    document: &mut Document,
    id: &'static str,
    heading: &str,
    table: Table,
    told: &LiveTelling<'_>,
) {
    let total = table.rows.len();
    listed_of(document, id, heading, (table, total), told);
}

/// Adds a table of the first of so many rows, and says that there are more.
pub(super) fn listed_of(
    document: &mut Document,
    id: &'static str,
    heading: &str,
    (table, total): (Table, usize),
    told: &LiveTelling<'_>,
) {
    let section: &mut Section = document.section(heading);
    section.id = id;
    let shown = table.rows.len();
    match shown {
        0 => section.text(told.say("None at present.", "現在はありません。")),
        _ => section.table(table),
    }
    if shown < total {
        let [shown, total] = [shown, total].map(|count| units::count(count as u64));
        section.text(match told.telling.language {
            Language::English => format!("{shown} of {total}."),
            Language::Japanese => format!("{total} 件のうち {shown} 件。"),
        });
    }
}
