//! Who asks for what at this moment, and who holds, waits and is refused.

use control::{Limit, Replies, Status, TenantNow};
use ipc::console::{ConsoleScope, LimitOwner};
use report::units::{self, Unit};
use report::{Cell, Document, Tone};

use super::LiveTelling;

/// What goes on now.
pub(super) fn now(document: &mut Document, told: &LiveTelling<'_>) {
    if *told.scope == ConsoleScope::All {
        machine_facts(document, told);
    } else {
        let per_s = own_tenants(told).filter_map(|it| it.requests_per_s);
        let per_s = per_s.reduce(|one, other| one + other);
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
    let status = &told.live.now.status;
    let ended = |status: &Status| status.workers.iter().map(|it| it.ended).sum::<u64>();
    let refused = |status: &Status| status.limits.iter().map(Limit::refused_total).sum::<u64>();
    let between = |of: &dyn Fn(&Status) -> u64| {
        let before = told.live.before;
        per_second(before.map(|(before, seconds)| rate(of(status), of(before), seconds)))
    };
    let workers = || status.workers.iter();
    let connections: usize = workers().map(|it| it.connections).sum();
    let waiting: u64 = status.limits.iter().map(|it| it.queued).sum();
    let mut fact = |english, japanese, value: String| {
        document.fact(told.say(english, japanese), value);
    };
    fact("requests a second", "毎秒リクエスト", between(&ended));
    let under_way = workers().map(|it| it.in_flight).sum();
    fact("under way", "処理中", units::count(under_way));
    fact("waiting", "待機中", units::count(waiting));
    fact("refused a second", "毎秒の拒否", between(&refused));
    fact("95 % within", "95 % の応答", quantile(told, 0.95));
    fact("99 % within", "99 % の応答", quantile(told, 0.99));
    fact("connections", "接続", units::count(connections as u64));
    fact("serving for", "稼働時間", uptime(status.uptime_s));
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
    let time = &told.live.now.status.time;
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

/// Sites that were asked for since the last look.
fn sites(document: &mut Document, told: &LiveTelling<'_>) {
    let (status, before) = (&told.live.now.status, told.live.before);
    let known = before.map(|(before, _)| {
        let sites = before.sites.iter();
        sites
            .map(|site| (&*site.site, site.replies))
            .collect::<std::collections::HashMap<_, _>>()
    });
    let seconds = before.map(|(_, seconds)| seconds);
    let shown = status.sites.iter();
    let shown = shown.filter(|site| told.has_site(&site.site));
    let mut shown = shown.peekable();
    if *told.scope != ConsoleScope::All && shown.peek().is_none() {
        // Of a row's hosts the server counts no requests by themselves.
        return;
    }
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
    let per_s = |(_, now, before): &(&str, Replies, Replies), of: fn(&Replies) -> u64| {
        seconds.map(|seconds| rate(of(now), of(before), seconds))
    };
    let mut table = told.telling.table(rows);
    table.words("site", "サイト", |it| Cell::name(it.0));
    table.leads(|it| told.site(it.0));
    table.figure("requests/s", "リクエスト/秒", Unit::Count, |it| {
        per_s(it, Replies::count)
    });
    table.figure("4xx/s", "4xx/s", Unit::Count, |it| {
        per_s(it, |it| it.by_class[3])
    });
    table.figure("5xx/s", "5xx/s", Unit::Count, |it| {
        per_s(it, |it| it.by_class[4])
    });
    table.figure("sent/s", "送信/秒", Unit::Bytes, |it| {
        per_s(it, |it| it.bytes_out)
    });
    table.count("requests so far", "これまで", |it| it.1.count());
    told.end(table, document, "sites", "Sites", "サイト");
}

/// What tenants of the scope take.
fn own_tenants<'a>(told: &LiveTelling<'a>) -> impl Iterator<Item = &'a TenantNow> {
    let (tenants, scope) = (told.live.now.tenants.iter(), told.scope);
    tenants.filter(|it| scope.has_tenant(&it.tenant))
}

fn tenants(document: &mut Document, told: &LiveTelling<'_>) {
    let mut table = told.telling.table(own_tenants(told));
    table.name("tenant", "テナント", |it| &it.tenant);
    table.leads(|it| told.tenant(&it.tenant));
    table.figure("cores", "コア", Unit::Count, |it| it.cpu_cores);
    table.figure("throttled", "抑制", Unit::Share, |it| it.throttled_share);
    table.figure("memory", "メモリ", Unit::Bytes, |it| it.memory_bytes);
    table.figure("disk/s", "ディスク/秒", Unit::Bytes, |it| {
        it.io_bytes_per_s
    });
    table.figure("requests/s", "リクエスト/秒", Unit::Count, |it| {
        it.requests_per_s
    });
    table.figure(
        "handshakes/s",
        "ハンドシェイク/秒",
        Unit::Count,
        |it| it.handshakes_per_s,
    );
    table.count("waiting", "待機中", |it| it.waiting);
    table.figure("refused/s", "拒否/秒", Unit::Count, |it| {
        it.refused_per_s
    });
    told.end(table, document, "tenants", "Tenants", "テナント");
}

fn workers(document: &mut Document, told: &LiveTelling<'_>) {
    let status = &told.live.now.status;
    let lag_s = |index: usize| status.loop_lag_s.get(index).copied().flatten();
    let mut table = told.telling.table(status.workers.iter().enumerate());
    table.words("worker", "ワーカー", |it| Cell::from(it.0.to_string()));
    table.count("connections", "接続", |it| it.1.connections as u64);
    table.count("of HTTP/2", "うち HTTP/2", |it| it.1.http2_connections);
    table.count("streams", "ストリーム", |it| it.1.http2_streams);
    table.count("under way", "処理中", |it| it.1.in_flight);
    table.count("requests so far", "これまで", |it| it.1.ended);
    table.figure("late", "遅れ", Unit::Seconds, |it| lag_s(it.0));
    told.end(table, document, "workers", "Workers", "ワーカー");
}

/// Who holds, waits and is refused.
pub(super) fn limits(document: &mut Document, told: &LiveTelling<'_>) {
    keys(document, told);
    let shown = told.live.now.status.limits.iter();
    let shown = shown.filter(|it| told.scope.has_limit(&it.limit));
    let mut table = told.telling.table(shown);
    table.words("limit", "制限", |it| {
        let shadow = told.say(" (in shadow)", "（試行）");
        let shadow = if it.mode == "shadow" { shadow } else { "" };
        Cell::name(format!("{}{shadow}", it.limit))
    });
    table.leads(|it| told.limit(&it.limit));
    table.numbers("permits", "許可数", |it| permits(it));
    table.numbers("rate", "レート", |it| {
        Cell::from(it.rate.as_deref().unwrap_or(units::NONE))
    });
    table.count("holding", "使用中", |it| it.in_flight);
    table.news("waiting", "待機中", Tone::Warn, |it| it.queued);
    table.count("admitted", "許可", |it| it.admitted);
    table.count("waited", "待機した", |it| it.waited);
    table.news("refused", "拒否", Tone::Bad, |it| it.refused_total());
    table.words("why", "理由", |it| {
        let reasons = it.refused.iter().filter(|(_, count)| **count > 0);
        let reasons = reasons.map(|(why, count)| format!("{why} {}", units::count(*count)));
        Cell::from(reasons.collect::<Vec<_>>().join(", "))
    });
    told.end(table, document, "limits", "Limits", "制限");
    classes(document, told);
}

fn permits(limit: &Limit) -> Cell {
    let permits = limit.concurrent_now.or(match &limit.concurrent {
        Some(control::Concurrent::Fixed(permits)) => Some(*permits),
        _ => None,
    });
    permits.map_or(Cell::from(units::NONE), |it| Cell::count(it.into()))
}

/// The keys that hold and wait.
fn keys(document: &mut Document, told: &LiveTelling<'_>) {
    let shown = told.live.now.keys.iter();
    let shown = shown.filter(|it| {
        let own = LimitOwner::of_key(&it.limit, &it.key);
        told.scope.has_limit(&own)
    });
    let mut table = told.telling.table(shown);
    table.name("limit", "制限", |it| &it.limit);
    table.leads(|it| told.limit(&it.limit));
    table.words("key", "キー", |it| match it.overflow {
        true => Cell::from(told.say("(other)", "(その他)")),
        false => Cell::name(&*it.key),
    });
    table.count("holding", "使用中", |it| it.in_flight.into());
    table.news("waiting", "待機中", Tone::Warn, |it| it.queued.into());
    table.figure("oldest waits", "最長の待ち", Unit::Micros, |it| {
        it.oldest_ms.map(|ms| ms as f64 * 1e3)
    });
    table.news("refused", "拒否", Tone::Bad, |it| it.refused);
    told.end(
        table,
        document,
        "keys",
        "Who holds and who waits",
        "使用中と待機中",
    );
}

fn classes(document: &mut Document, told: &LiveTelling<'_>) {
    let shown = told.live.now.status.classes.iter();
    let shown = shown.filter(|it| told.scope.has_tenant(&it.tenant));
    let mut table = told.telling.table(shown);
    table.name("tenant", "テナント", |it| &it.tenant);
    table.leads(|it| told.tenant(&it.tenant));
    table.name("class", "クラス", |it| &it.class);
    table.count("waited", "待機した", |it| it.waited);
    table.figure("mean wait", "平均の待ち", Unit::Micros, |it| {
        it.waited_us as f64 / it.waited.max(1) as f64
    });
    table.news("refused", "拒否", Tone::Bad, |it| it.refused);
    told.end(
        table,
        document,
        "classes",
        "Classes of requests",
        "リクエストのクラス",
    );
}
