//! What the machine is in, what runs on it and behind it, and what is not as it should be.

use config::model::sensor::{self, Worse};
use control::{Certificate, Sensor, Status};
use ipc::console::ConsoleScope;
use ipc::recorder::Side;
use report::units::{self, Unit};
use report::{Cell, Document, Language, Tone};

use super::super::history::unit;
use super::LiveTelling;
use crate::alert::{AlertStanding, AlertState};
use crate::page::{self, MaybeFigure};

/// Days before its end from which a certificate is looked at.
const ENDING_DAYS: i64 = 14;
const DAY_S: i64 = 86_400;

/// Sensors, what can be raised, and rules that shed.
pub(super) fn machine(document: &mut Document, told: &LiveTelling<'_>) {
    let sensors = &told.live.now.sensors;
    let mut table = told.telling.table(sensors.sensors.iter());
    table.words("sensor", "センサー", |it| Cell::name(it.0));
    table.leads(|it| told.history(it.0));
    table.numbers("now", "現在", |(name, it)| {
        let mut now = it.value.cell(Unit::Count);
        if is_too_much(name, it) {
            now.tone = Tone::Bad;
        }
        now
    });
    table.figure("mean of 10 s", "10 秒の平均", Unit::Count, |it| {
        it.1.mean_10s
    });
    table.figure("too much", "過大", Unit::Count, |it| it.1.too_much);
    table.words("unit", "単位", |it| Cell::from(&*it.1.unit));
    table.words("what it measures", "内容", |it| {
        Cell::from(&*it.1.meaning)
    });
    told.end(table, document, "sensors", "Sensors", "センサー");
    shedding(document, told);
    for advice in &sensors.advice {
        let heading = told.say("What can be raised", "上げられるもの");
        let section = document.section(format!("{heading}: {}", advice.sensor));
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
    let mut table = told.telling.table(&told.live.now.status.shedding);
    table.name("rule", "規則", |it| &it.rule);
    table.name("sensor", "センサー", |it| &it.sensor);
    table.leads(|it| told.history(&it.sensor));
    table.figure("value", "値", Unit::Count, |it| it.value);
    table.figure("enters at", "開始", Unit::Count, |it| it.enter);
    table.words("state", "状態", |it| {
        let tone = match &*it.state {
            "green" => Tone::Good,
            "yellow" => Tone::Warn,
            _ => Tone::Bad,
        };
        Cell::toned(tone, &*it.state)
    });
    table.figure("admitted", "受け入れ", Unit::Share, |it| {
        it.admitted_share
    });
    table.news("shed", "拒否", Tone::Bad, |it| it.shed);
    told.end(
        table,
        document,
        "shedding",
        "Rules that shed",
        "負荷の制限規則",
    );
}

/// Pools and what programs used.
pub(super) fn programs(document: &mut Document, told: &LiveTelling<'_>) {
    let programs = &told.live.now.status.programs;
    if *told.scope == ConsoleScope::All {
        let killed: u64 = programs.killed.iter().map(|(_, count)| count).sum();
        let mut fact = |english, japanese, count| {
            document.fact(told.say(english, japanese), units::count(count));
        };
        fact("programs that run", "実行中", programs.running as u64);
        fact("started", "開始", programs.started);
        fact("not started", "開始できず", programs.failed);
        fact("killed", "強制終了", killed);
    }
    pools(document, told);
    groups(document, told);
}

fn pools(document: &mut Document, told: &LiveTelling<'_>) {
    let shown = told.live.now.pools.iter();
    let shown = shown.filter(|it| told.scope.has_tenant(&it.tenant));
    let mut table = told.telling.table(shown);
    table.name("pool", "プール", |it| &it.name);
    table.name("tenant", "テナント", |it| &it.tenant);
    table.leads(|it| told.tenant(&it.tenant));
    table.words("state", "状態", |it| {
        let tone = match &*it.state {
            "failed" => Tone::Bad,
            "warm" => Tone::Good,
            _ => Tone::Plain,
        };
        Cell::toned(tone, &*it.state)
    });
    table.count("processes", "プロセス", |it| it.processes.into());
    table.news("waiting", "待機中", Tone::Warn, |it| it.waiting);
    table.figure("throttled", "抑制", Unit::Share, |it| it.throttled_share);
    table.figure("memory", "メモリ", Unit::Bytes, |it| it.memory_bytes);
    table.figure("longest request", "最長の処理", Unit::Micros, |it| {
        it.longest_ms.map(|ms| ms as f64 * 1e3)
    });
    table.name("why it failed", "失敗の理由", |it| &it.failure);
    told.end(table, document, "pools", "Pools", "プール");
}

fn groups(document: &mut Document, told: &LiveTelling<'_>) {
    let shown = told.live.now.status.groups.iter();
    let shown = shown.filter(|it| told.scope.has_tenant(&it.tenant));
    let mut names: Vec<&str> = Vec::new();
    for (name, _) in shown.clone().flat_map(|group| group.used.iter()) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let mut table = told.telling.table(shown);
    table.words("group", "グループ", |it| {
        let parts = [&it.site, &it.rule, &it.script, &it.pool];
        let parts = parts.into_iter().flatten().map(String::as_str);
        let name = [&*it.tenant].into_iter().chain(parts);
        Cell::name(name.collect::<Vec<_>>().join(" / "))
    });
    for name in names {
        let (words, unit) = match (name.strip_suffix("_us"), name.strip_suffix("_bytes")) {
            (Some(words), _) => (words, Unit::Micros),
            (None, Some(words)) => (words, Unit::Bytes),
            (None, None) => (name, Unit::Count),
        };
        table.figures(words.replace('_', " "), unit, |it| {
            it.used.get(name).copied()
        });
    }
    told.end(
        table,
        document,
        "groups",
        "What programs used",
        "プログラムの使用量",
    );
}

/// Servers behind this one.
pub(super) fn back_ends(document: &mut Document, told: &LiveTelling<'_>) {
    let mut table = told.telling.table(told.live.now.status.upstreams.iter());
    table.words("upstream", "アップストリーム", |it| {
        Cell::name(&*it.upstream)
    });
    table.leads(|it| told.history(&format!("upstream.{}.", it.upstream)));
    table.name("server", "サーバ", |it| &it.server);
    table.words("state", "状態", |it| match (it.is_up(), it.drain) {
        (false, _) => Cell::toned(Tone::Bad, told.say("down", "停止")),
        (true, true) => Cell::toned(Tone::Warn, told.say("draining", "切り離し中")),
        (true, false) => Cell::toned(Tone::Good, told.say("up", "稼働")),
    });
    table.count("under way", "処理中", |it| it.in_flight);
    table.figure("oldest", "最長", Unit::Seconds, |it| it.oldest_s);
    table.count("requests", "リクエスト", |it| it.requests);
    table.news("failures", "失敗", Tone::Bad, |it| it.failures);
    table.news("timeouts", "時間切れ", Tone::Warn, |it| it.timeouts);
    told.end(table, document, "back-ends", "Servers", "サーバ");
}

/// Certificates by their end.
pub(super) fn certificates(document: &mut Document, told: &LiveTelling<'_>) {
    let shown = told
        .live
        .now
        .certificates
        .iter()
        .filter(|it| is_ours(it, told));
    let mut shown: Vec<&Certificate> = shown.collect();
    shown.sort_by_key(|it| it.valid_s.unwrap_or(i64::MIN));
    let mut table = told.telling.table(shown);
    table.words("name", "名前", |it| Cell::name(it.names.join(", ")));
    table.leads(|it| it.names.iter().find_map(|name| told.site(name)));
    table.numbers("days left", "残り日数", |it| {
        let days = it.valid_s.map(|s| s.div_euclid(DAY_S));
        let mut left = days.map(|days| days as f64).cell(Unit::Count);
        left.tone = match days {
            Some(..0) => Tone::Bad,
            Some(0..ENDING_DAYS) => Tone::Warn,
            _ => Tone::Plain,
        };
        left
    });
    table.words("valid until", "有効期限", |it| {
        Cell::from(it.valid_until.as_deref().unwrap_or(units::NONE))
    });
    table.words("from", "発行元", |it| match *told.scope {
        ConsoleScope::All => Cell::name(format!("{} {}", it.source, it.of)),
        // Whose account and whose files these are is not a tenant's to know.
        ConsoleScope::Tenants(_) => Cell::name(&*it.source),
    });
    table.count("handshakes", "ハンドシェイク", |it| it.handshakes);
    table.words("what is wrong", "問題", |it| {
        let mut problem = Cell::name(it.problem.as_deref().unwrap_or_default());
        problem.tone = Tone::Bad;
        problem
    });
    told.end(table, document, "certificates", "Certificates", "証明書");
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
    found.extend(of_configuration(&told.live.now.status, told));
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
    let mut table = told.telling.table(told.live.alerts);
    let written = |it: &AlertStanding, value: Option<f64>| value.cell(unit(&it.rule.figure));
    table.name("alert", "警告", |it| &it.rule.name);
    table.words("state", "状態", |it| match it.state {
        AlertState::Calm => Cell::toned(Tone::Good, told.say("calm", "正常")),
        AlertState::Pending { .. } => Cell::toned(Tone::Warn, told.say("pending", "保留中")),
        AlertState::Raised { .. } => Cell::toned(Tone::Bad, told.say("raised", "発生中")),
    });
    table.name("figure", "項目", |it| &it.rule.figure);
    table.leads(|it| told.history(&it.rule.figure));
    table.numbers("value", "値", |it| written(it, it.value));
    table.words("bad", "異常", |it| {
        Cell::from(match it.rule.side {
            Side::Above => told.say("above", "超過"),
            Side::Below => told.say("below", "未満"),
        })
    });
    table.numbers("bound", "しきい値", |it| {
        written(it, Some(it.rule.bound))
    });
    table.figure("for", "継続", Unit::Seconds, |it| {
        f64::from(it.rule.for_s)
    });
    table.words("since", "開始", |it| match it.state {
        AlertState::Calm => Cell::from(units::NONE),
        AlertState::Pending { since_s } | AlertState::Raised { since_s, .. } => {
            Cell::from(page::instant(since_s))
        }
    });
    table.numbers("worst", "最悪値", |it| match it.state {
        AlertState::Raised { worst, .. } => written(it, Some(worst)),
        _ => Cell::from(units::NONE),
    });
    told.end(table, document, "alerts", "Rules", "規則");
}

/// What somebody wanted to be told of.
fn of_rules(told: &LiveTelling<'_>) -> Vec<(Tone, String)> {
    let beyond = told.say("beyond its bound since", "しきい値を超過中");
    let told_of = told.live.alerts.iter();
    let told_of = told_of.filter_map(|AlertStanding { rule, state, .. }| {
        let (tone, since_s, worst) = match state {
            AlertState::Calm => return None,
            AlertState::Pending { since_s } => (Tone::Warn, since_s, None),
            AlertState::Raised { since_s, worst } => (Tone::Bad, since_s, Some(*worst)),
        };
        let since = page::instant(*since_s);
        let mut text = format!("{}: {} {beyond} {since}", rule.name, rule.figure);
        if let Some(worst) = worst {
            let most = told.say("worst", "最悪値");
            text += &format!(", {most} {}", units::figure(worst));
        }
        Some((tone, text))
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
    let recorder = status.recorder.iter();
    for it in recorder.flat_map(|it| &it.untold_alerts) {
        let what = told.say("its program has failed", "プログラムが失敗しました");
        let text = format!("{}: {what} ({}): {}", it.alert, it.at, it.why);
        found.push((Tone::Bad, text));
    }
    found.extend(status.held.iter().map(|it| (Tone::Warn, it.clone())));
    let mut add = |tone, what: &str, count: u64| {
        if count > 0 {
            found.push((tone, format!("{what}: {}", units::count(count))));
        }
    };
    let broken = status.certificates.as_ref().map_or(0, |it| it.broken);
    let what = told.say("Certificates with something wrong", "問題のある証明書");
    add(Tone::Bad, what, broken);
    let what = told.say("Access records lost", "失われたアクセス記録");
    add(Tone::Warn, what, status.access_records_lost);
    let what = told.say("Lines of the error log lost", "失われたエラーログの行");
    add(Tone::Warn, what, status.error_lines_lost);
    let what = told.say("Restarts of the server", "サーバの再起動");
    add(Tone::Warn, what, status.restarts);
    found
}

fn of_serving(told: &LiveTelling<'_>) -> Vec<(Tone, String)> {
    let now = told.live.now;
    let mut found = Vec::new();
    for rule in &now.status.shedding {
        let tone = match &*rule.state {
            "green" => continue,
            "red" => Tone::Bad,
            _ => Tone::Warn,
        };
        let (rule, share) = (&rule.rule, units::share(rule.admitted_share));
        let text = match told.telling.language {
            Language::English => format!("Too much to do: {rule} admits {share}"),
            Language::Japanese => format!("過負荷: {rule} は {share} を受け入れています"),
        };
        found.push((tone, text));
    }
    let mut add = |tone, english, japanese, which: String| {
        found.push((tone, format!("{}: {which}", told.say(english, japanese))));
    };
    for it in now.status.upstreams.iter().filter(|it| !it.is_up()) {
        let which = format!("{} {}", it.upstream, it.server);
        add(Tone::Bad, "Back end is down", "バックエンド停止", which);
    }
    for it in now.pools.iter().filter(|it| it.state == "failed") {
        let which = format!("{}: {}", it.name, it.failure);
        add(
            Tone::Bad,
            "Pool does not start",
            "プールが起動しません",
            which,
        );
    }
    for it in &now.certificates {
        let days = it.valid_s.map(|s| s.div_euclid(DAY_S));
        if let Some(days @ ..ENDING_DAYS) = days {
            let tone = if days < 0 { Tone::Bad } else { Tone::Warn };
            let which = format!("{}: {days}", it.name);
            add(
                tone,
                "Certificate ends, days left",
                "証明書の残り日数",
                which,
            );
        }
    }
    for (name, sensor) in now.sensors.sensors.iter() {
        if is_too_much(name, sensor) {
            let (english, japanese) = ("Sensor beyond what is too much", "センサーが過大");
            add(Tone::Warn, english, japanese, name.to_owned());
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
