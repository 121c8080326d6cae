//! What the machine is in, what runs on it and behind it, and what is not as it should be.

use std::time::{Duration, UNIX_EPOCH};

use config::model::sensor::{self, Worse};
use control::{Certificate, Sensor, Status};
use ipc::console::ConsoleScope;
use ipc::recorder::Side;
use report::units;
use report::{Cell, Column, Document, Language, Table, Tone};

use super::super::history::unit;
use super::LiveTelling;
use super::now::{listed, listed_of, toned};
use crate::alert::{AlertStanding, AlertState};

/// Days before its end from which a certificate is looked at.
const ENDING_DAYS: i64 = 14;
const DAY_S: i64 = 86_400;

fn or_none(value: Option<f64>, write: fn(f64) -> String) -> Cell {
    value.map_or(Cell::from(units::NONE), |it| Cell::figure(write(it), it))
}

/// Sensors, what can be raised, and rules that shed.
pub(super) fn machine(document: &mut Document, told: &LiveTelling<'_>) {
    let mut table = Table::new([
        Column::left(told.say("sensor", "センサー")),
        Column::right(told.say("now", "現在")),
        Column::right(told.say("mean of 10 s", "10 秒の平均")),
        Column::right(told.say("too much", "過大")),
        Column::left(told.say("unit", "単位")),
        Column::left(told.say("what it measures", "内容")),
    ]);
    let sensors = told.live.sensors.map(|it| &it.sensors);
    for (name, sensor) in sensors.into_iter().flat_map(control::Named::iter) {
        let mut now = or_none(sensor.value, units::figure);
        if is_too_much(name, sensor) {
            now.tone = Tone::Bad;
        }
        table.row([
            Cell::name(name),
            now,
            or_none(sensor.mean_10s, units::figure),
            or_none(sensor.too_much, units::figure),
            Cell::from(&*sensor.unit),
            Cell::from(&*sensor.meaning),
        ]);
    }
    listed(
        document,
        "sensors",
        told.say("Sensors", "センサー"),
        table,
        told,
    );
    shedding(document, told);
    if let Some(sensors) = told.live.sensors {
        for advice in &sensors.advice {
            let section = document.section(format!(
                "{}: {}",
                told.say("What can be raised", "上げられるもの"),
                advice.sensor
            ));
            section.text(&*advice.state);
            section.listing(told.say("Commands", "コマンド"), advice.commands.join("\n"));
            section.text(&*advice.cost);
        }
        if !sensors.missing.is_empty() {
            let heading = told.say("Not told by this machine", "このマシンでは分からないもの");
            let section = document.section(heading);
            for missing in &sensors.missing {
                section.text(format!("{}: {}", missing.sensors.join(", "), missing.why));
                section.text(&*missing.remedy);
            }
        }
    }
}

/// Whether a sensor is beyond what is too much; of what is left, that is below it.
fn is_too_much(name: &str, sensor: &Sensor) -> bool {
    let worse = sensor::Sensor::from_name(name).map(|it| it.worse());
    let beyond = |(value, too_much)| match worse {
        Some(Worse::Below) => value <= too_much,
        Some(Worse::Above) | None => value >= too_much,
    };
    sensor.value.zip(sensor.too_much).is_some_and(beyond)
}

fn shedding(document: &mut Document, told: &LiveTelling<'_>) {
    let mut table = Table::new([
        Column::left(told.say("rule", "規則")),
        Column::left(told.say("sensor", "センサー")),
        Column::right(told.say("value", "値")),
        Column::right(told.say("enters at", "開始")),
        Column::left(told.say("state", "状態")),
        Column::right(told.say("admitted", "受け入れ")),
        Column::right(told.say("shed", "拒否")),
    ]);
    for rule in &told.live.status.shedding {
        let tone = match &*rule.state {
            "green" => Tone::Good,
            "yellow" => Tone::Warn,
            _ => Tone::Bad,
        };
        table.row([
            Cell::name(&*rule.rule),
            Cell::name(&*rule.sensor),
            or_none(rule.value, units::figure),
            Cell::figure(units::figure(rule.enter), rule.enter),
            Cell::toned(tone, &*rule.state),
            Cell::figure(units::share(rule.admitted_share), rule.admitted_share),
            toned(rule.shed, Tone::Bad),
        ]);
    }
    listed(
        document,
        "shedding",
        told.say("Rules that shed", "負荷の制限規則"),
        table,
        told,
    );
}

/// Pools and what programs used.
pub(super) fn programs(document: &mut Document, told: &LiveTelling<'_>) {
    let programs = &told.live.status.programs;
    if *told.scope == ConsoleScope::All {
        let killed: u64 = programs.killed.iter().map(|(_, count)| count).sum();
        for (name, count) in [
            (
                told.say("programs that run", "実行中"),
                programs.running as u64,
            ),
            (told.say("started", "開始"), programs.started),
            (told.say("not started", "開始できず"), programs.failed),
            (told.say("killed", "強制終了"), killed),
        ] {
            document.fact(name, units::count(count));
        }
    }
    pools(document, told);
    groups(document, told);
}

fn pools(document: &mut Document, told: &LiveTelling<'_>) {
    let mut table = Table::new([
        Column::left(told.say("pool", "プール")),
        Column::left(told.say("tenant", "テナント")),
        Column::left(told.say("state", "状態")),
        Column::right(told.say("processes", "プロセス")),
        Column::right(told.say("waiting", "待機中")),
        Column::right(told.say("throttled", "抑制")),
        Column::right(told.say("memory", "メモリ")).in_unit("bytes"),
        Column::right(told.say("longest request", "最長の処理")).in_unit("ms"),
        Column::left(told.say("why it failed", "失敗の理由")),
    ]);
    let shown = told.live.pools.iter();
    let (shown, total) = told.few(shown.filter(|it| told.scope.has_tenant(&it.tenant)));
    for pool in shown {
        let tone = match &*pool.state {
            "failed" => Tone::Bad,
            "warm" => Tone::Good,
            _ => Tone::Plain,
        };
        table.row([
            Cell::name(&*pool.name),
            Cell::name(&*pool.tenant),
            Cell::toned(tone, &*pool.state),
            Cell::count(pool.processes.into()),
            toned(pool.waiting, Tone::Warn),
            or_none(pool.throttled_share, units::share),
            or_none(pool.memory_bytes.map(|it| it as f64), units::bytes),
            or_none(pool.longest_ms.map(|it| it as f64), |ms| {
                units::micros(ms * 1e3)
            }),
            Cell::name(&*pool.failure),
        ]);
    }
    let title = told.say("Pools", "プール");
    listed_of(document, "pools", title, (table, total), told);
}

fn groups(document: &mut Document, told: &LiveTelling<'_>) {
    let shown = told.live.status.groups.iter();
    let (shown, total) = told.few(shown.filter(|it| told.scope.has_tenant(&it.tenant)));
    let mut names: Vec<&str> = Vec::new();
    for (name, _) in shown.iter().flat_map(|group| group.used.iter()) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let columns = names.iter().map(|name| {
        let (words, unit) = match (name.strip_suffix("_us"), name.strip_suffix("_bytes")) {
            (Some(words), _) => (words, "µs"),
            (None, Some(words)) => (words, "bytes"),
            (None, None) => (*name, ""),
        };
        Column::right(words.replace('_', " ")).in_unit(unit)
    });
    let group = Column::left(told.say("group", "グループ"));
    let mut table = Table::new([group].into_iter().chain(columns));
    for group in shown {
        let parts = [&group.site, &group.rule, &group.script, &group.pool];
        let parts = parts.into_iter().flatten().map(String::as_str);
        let name = [&*group.tenant]
            .into_iter()
            .chain(parts)
            .collect::<Vec<_>>();
        let used = names.iter().map(|name| match group.used.get(name) {
            Some(value) if name.ends_with("_bytes") => {
                Cell::figure(units::bytes(*value as f64), *value as f64)
            }
            Some(value) if name.ends_with("_us") => {
                Cell::figure(units::micros(*value as f64), *value as f64)
            }
            Some(value) => Cell::count(*value),
            None => Cell::from(units::NONE),
        });
        table.row([Cell::name(name.join(" / "))].into_iter().chain(used));
    }
    let heading = told.say("What programs used", "プログラムの使用量");
    listed_of(document, "groups", heading, (table, total), told);
}

/// Servers behind this one.
pub(super) fn back_ends(document: &mut Document, told: &LiveTelling<'_>) {
    let mut table = Table::new([
        Column::left(told.say("upstream", "アップストリーム")),
        Column::left(told.say("server", "サーバ")),
        Column::left(told.say("state", "状態")),
        Column::right(told.say("under way", "処理中")),
        Column::right(told.say("oldest", "最長")).in_unit("s"),
        Column::right(told.say("requests", "リクエスト")),
        Column::right(told.say("failures", "失敗")),
        Column::right(told.say("timeouts", "時間切れ")),
    ]);
    for it in told.live.status.upstreams.iter() {
        if !told.telling.shows(&it.upstream) && !told.telling.shows(&it.server) {
            continue;
        }
        let state = match (it.is_up(), it.drain) {
            (false, _) => Cell::toned(Tone::Bad, told.say("down", "停止")),
            (true, true) => Cell::toned(Tone::Warn, told.say("draining", "切り離し中")),
            (true, false) => Cell::toned(Tone::Good, told.say("up", "稼働")),
        };
        table.row([
            Cell::name(&*it.upstream),
            Cell::name(&*it.server),
            state,
            Cell::count(it.in_flight),
            or_none(it.oldest_s, units::seconds),
            Cell::count(it.requests),
            toned(it.failures, Tone::Bad),
            toned(it.timeouts, Tone::Warn),
        ]);
    }
    listed(
        document,
        "back-ends",
        told.say("Servers", "サーバ"),
        table,
        told,
    );
}

/// Certificates by their end.
pub(super) fn certificates(document: &mut Document, told: &LiveTelling<'_>) {
    let mut table = Table::new([
        Column::left(told.say("name", "名前")),
        Column::right(told.say("days left", "残り日数")),
        Column::left(told.say("valid until", "有効期限")),
        Column::left(told.say("from", "発行元")),
        Column::right(told.say("handshakes", "ハンドシェイク")),
        Column::left(told.say("what is wrong", "問題")),
    ]);
    let shown = told.live.certificates.iter().filter(|it| is_ours(it, told));
    let mut shown: Vec<_> = shown.collect();
    shown.sort_by_key(|it| it.valid_s.unwrap_or(i64::MIN));
    let (shown, total) = told.few(shown.into_iter());
    for it in shown {
        let days = it.valid_s.map(|s| s.div_euclid(DAY_S));
        let mut left = or_none(days.map(|days| days as f64), units::figure);
        left.tone = match days {
            Some(..0) => Tone::Bad,
            Some(0..ENDING_DAYS) => Tone::Warn,
            _ => Tone::Plain,
        };
        let problem = it.problem.as_deref().unwrap_or_default();
        let mut problem = Cell::name(problem);
        problem.tone = Tone::Bad;
        let from = match *told.scope {
            ConsoleScope::All => format!("{} {}", it.source, it.of),
            // Whose account and whose files these are is not a tenant's to know.
            ConsoleScope::Tenants(_) => it.source.to_string(),
        };
        table.row([
            Cell::name(it.names.join(", ")),
            left,
            Cell::from(it.valid_until.clone().unwrap_or_else(|| units::NONE.into())),
            Cell::name(from),
            Cell::count(it.handshakes),
            problem,
        ]);
    }
    let title = told.say("Certificates", "証明書");
    listed_of(document, "certificates", title, (table, total), told);
}

/// Whether all names of a certificate are of sites in the scope.
fn is_ours(certificate: &Certificate, told: &LiveTelling<'_>) -> bool {
    let tenants = &certificate.tenants;
    let is_ours = |name: &String| told.scope.has_tenant(name);
    *told.scope == ConsoleScope::All || (!tenants.is_empty() && tenants.iter().all(is_ours))
}

/// What is not as it should be, the worst first.
pub(super) fn alerts(document: &mut Document, told: &LiveTelling<'_>) {
    let mut found = of_rules(told);
    found.extend(of_configuration(told.live.status, told));
    found.extend(of_serving(told));
    let section = document.section("");
    if found.is_empty() {
        let fine = told.say("Nothing is wrong.", "問題はありません。");
        section.note(Tone::Good, fine);
    }
    found.sort_by_key(|(tone, _)| *tone != Tone::Bad);
    for (tone, text) in found {
        section.note(tone, text);
    }
    rules(document, told);
}

/// All rules by which somebody is told, with how each stands.
fn rules(document: &mut Document, told: &LiveTelling<'_>) {
    let mut table = Table::new([
        Column::left(told.say("alert", "警告")),
        Column::left(told.say("state", "状態")),
        Column::left(told.say("figure", "項目")),
        Column::right(told.say("value", "値")),
        Column::left(told.say("bad", "異常")),
        Column::right(told.say("bound", "しきい値")),
        Column::right(told.say("for", "継続")).in_unit("s"),
        Column::left(told.say("since", "開始")),
        Column::right(told.say("worst", "最悪値")),
    ]);
    for AlertStanding { rule, state, value } in told.live.alerts {
        let unit = unit(&rule.figure);
        let written = |value: f64| Cell::figure(unit.write(value), value);
        let none = || Cell::from(units::NONE);
        let (standing, since, worst) = match state {
            AlertState::Calm => (
                Cell::toned(Tone::Good, told.say("calm", "正常")),
                None,
                None,
            ),
            AlertState::Pending { since_s } => {
                let pending = told.say("pending", "保留中");
                (Cell::toned(Tone::Warn, pending), Some(since_s), None)
            }
            AlertState::Raised { since_s, worst } => {
                let raised = told.say("raised", "発生中");
                (Cell::toned(Tone::Bad, raised), Some(since_s), Some(*worst))
            }
        };
        table.row([
            Cell::name(&*rule.name),
            standing,
            Cell::name(&*rule.figure),
            value.map_or_else(none, written),
            Cell::from(match rule.side {
                Side::Above => told.say("above", "超過"),
                Side::Below => told.say("below", "未満"),
            }),
            written(rule.bound),
            Cell::figure(units::seconds(rule.for_s.into()), rule.for_s.into()),
            since.map_or_else(none, |s| Cell::from(instant(*s))),
            worst.map_or_else(none, written),
        ]);
    }
    let title = told.say("Rules", "規則");
    listed(document, "alerts", title, table, told);
}

fn instant(s: i64) -> String {
    let since = Duration::from_secs(u64::try_from(s).unwrap_or(0));
    units::instant(UNIX_EPOCH + since)
}

/// What somebody wanted to be told of.
fn of_rules(told: &LiveTelling<'_>) -> Vec<(Tone, String)> {
    let told_of = told.live.alerts.iter();
    let told_of = told_of.filter_map(|AlertStanding { rule, state, .. }| match state {
        AlertState::Calm => None,
        AlertState::Pending { since_s } => {
            let what = told.say("beyond its bound since", "しきい値を超過中");
            let text = format!(
                "{}: {} {what} {}",
                rule.name,
                rule.figure,
                instant(*since_s)
            );
            Some((Tone::Warn, text))
        }
        AlertState::Raised { since_s, worst } => {
            let what = told.say("beyond its bound since", "しきい値を超過中");
            let most = told.say("worst", "最悪値");
            let (since, worst) = (instant(*since_s), units::figure(*worst));
            let text = format!(
                "{}: {} {what} {since}, {most} {worst}",
                rule.name, rule.figure
            );
            Some((Tone::Bad, text))
        }
    });
    told_of.collect()
}

fn of_configuration(status: &Status, told: &LiveTelling<'_>) -> Vec<(Tone, String)> {
    let mut found = Vec::new();
    if let Some(refused) = &status.reload_refused {
        let what = told.say(
            "The last reload was refused",
            "最後の再読み込みは拒否されました",
        );
        found.push((
            Tone::Bad,
            format!("{what} ({}): {}", refused.at, refused.problem),
        ));
    }
    for aside in &status.set_aside {
        let what = told.say("set aside", "除外中");
        found.push((
            Tone::Bad,
            format!("{} {what} ({}): {}", aside.file, aside.since, aside.problem),
        ));
    }
    found.extend(status.held.iter().map(|it| (Tone::Warn, it.clone())));
    let broken = status.certificates.as_ref().map_or(0, |it| it.broken);
    if broken > 0 {
        let what = told.say("Certificates with something wrong", "問題のある証明書");
        found.push((Tone::Bad, format!("{what}: {broken}")));
    }
    for (count, what) in [
        (
            status.access_records_lost,
            told.say("Access records lost", "失われたアクセス記録"),
        ),
        (
            status.error_lines_lost,
            told.say("Lines of the error log lost", "失われたエラーログの行"),
        ),
        (
            status.restarts,
            told.say("Restarts of the server", "サーバの再起動"),
        ),
    ] {
        if count > 0 {
            found.push((Tone::Warn, format!("{what}: {}", units::count(count))));
        }
    }
    found
}

fn of_serving(told: &LiveTelling<'_>) -> Vec<(Tone, String)> {
    let status = told.live.status;
    let mut found = Vec::new();
    for rule in status.shedding.iter().filter(|rule| rule.state != "green") {
        let text = match told.telling.language {
            Language::English => format!(
                "Too much to do: {} admits {}",
                rule.rule,
                units::share(rule.admitted_share)
            ),
            Language::Japanese => format!(
                "過負荷: {} は {} を受け入れています",
                rule.rule,
                units::share(rule.admitted_share)
            ),
        };
        let tone = if rule.state == "red" {
            Tone::Bad
        } else {
            Tone::Warn
        };
        found.push((tone, text));
    }
    for it in status.upstreams.iter().filter(|it| !it.is_up()) {
        let what = told.say("Back end is down", "バックエンド停止");
        found.push((Tone::Bad, format!("{what}: {} {}", it.upstream, it.server)));
    }
    for pool in told.live.pools.iter().filter(|it| it.state == "failed") {
        let what = told.say("Pool does not start", "プールが起動しません");
        found.push((
            Tone::Bad,
            format!("{what}: {}: {}", pool.name, pool.failure),
        ));
    }
    for it in told.live.certificates {
        let days = it.valid_s.map(|s| s.div_euclid(DAY_S));
        let Some(days) = days.filter(|days| *days < ENDING_DAYS) else {
            continue;
        };
        let what = told.say("Certificate ends, days left", "証明書の残り日数");
        let tone = if days < 0 { Tone::Bad } else { Tone::Warn };
        found.push((tone, format!("{what}: {}: {days}", it.name)));
    }
    let sensors = told.live.sensors.map(|it| &it.sensors);
    for (name, sensor) in sensors.into_iter().flat_map(control::Named::iter) {
        if is_too_much(name, sensor) {
            let what = told.say("Sensor beyond what is too much", "センサーが過大");
            found.push((Tone::Warn, format!("{what}: {name}")));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_what_is_left_too_little_is_too_much() {
        let said = |name: &str, value: f64| {
            let sensor = Sensor {
                value: Some(value),
                too_much: Some(0.1),
                ..Sensor::default()
            };
            is_too_much(name, &sensor)
        };
        assert!(!said("memory_available", 0.95) && said("memory_available", 0.05));
        assert!(said("memory_pressure", 0.95) && !said("memory_pressure", 0.05));
    }
}
