//! What went wrong of late: when, how often, who held the places, and how the machine was just before.
//!
//! The idea: a tenant sees what concerns it, and of others how many requests they held.

use std::time::{Duration, UNIX_EPOCH};

use ipc::console::{ConsoleScope, IncidentKind, RequestState};
use report::units;
use report::{Cell, Column, Document, Table};

use super::LiveTelling;
use super::now::listed;
use crate::store::KeptIncident;

/// Holders that are named of one incident.
const HELD_MAX: usize = 5;
/// Sensors that are told of one incident.
const SENSORS: [&str; 4] = ["load1", "cpu_pressure", "memory_available", "io_pressure"];

/// The table of incidents.
pub(super) fn incidents(document: &mut Document, told: &LiveTelling<'_>) {
    let mut titles = vec![
        Column::left(told.say("when", "日時")),
        Column::left(told.say("what", "内容")),
        Column::left(told.say("why", "理由")),
        Column::right(told.say("times", "回数")),
        Column::right(told.say("under way", "処理中")),
        Column::left(told.say("who held places", "枠の使用者")),
        Column::left(told.say("oldest requests", "古いリクエスト")),
    ];
    let is_all = *told.scope == ConsoleScope::All;
    if is_all {
        titles.push(Column::left(told.say("the minute before", "直前の 1 分")));
    }
    let mut table = Table::new(titles);
    for it in told.live.incidents {
        let incident = &it.incident;
        let what = what(told, it);
        if !concerns(told, it) || !told.telling.shows(&what) {
            continue;
        }
        let since = Duration::from_secs(u64::try_from(incident.at_s).unwrap_or(0));
        let mut row = vec![
            Cell::from(units::instant(UNIX_EPOCH + since)),
            Cell::name(what),
            Cell::from(match is_all || is_own(told, it) {
                true => &*incident.why,
                false => "",
            }),
            Cell::count(incident.times),
            Cell::count(incident.in_flight),
            Cell::name(held(told, it)),
            Cell::name(requests(told, it)),
        ];
        if is_all {
            row.push(Cell::from(sensors(it)));
        }
        table.row(row);
    }
    let title = told.say("Incidents of 30 days", "30 日間の出来事");
    listed(document, "incidents", title, table, told);
}

/// What went wrong; what is not theirs has no name for these eyes.
fn what(told: &LiveTelling<'_>, it: &KeptIncident) -> String {
    let kind = kind(told, it.incident.kind);
    match *told.scope == ConsoleScope::All || is_own(told, it) {
        true => format!("{kind} {}", it.incident.what),
        false => format!("{kind} {}", told.say("(elsewhere)", "（他所）")),
    }
}

fn is_own(told: &LiveTelling<'_>, it: &KeptIncident) -> bool {
    it.incident.kind == IncidentKind::Limit && told.has_limit(&it.incident.what)
}

fn kind(told: &LiveTelling<'_>, kind: IncidentKind) -> &'static str {
    match kind {
        IncidentKind::Limit => told.say("refused by", "拒否:"),
        IncidentKind::Shedding => told.say("shed by", "負荷制限:"),
        IncidentKind::Program => told.say("programs killed:", "プログラム強制終了:"),
        IncidentKind::Upstream => told.say("back end down:", "バックエンド停止:"),
    }
}

/// Whether these eyes may know of it: their own limit has refused, or they held places.
fn concerns(told: &LiveTelling<'_>, it: &KeptIncident) -> bool {
    let mut held = it.incident.held.iter();
    let mut holds = || held.any(|it| told.has_limit(&it.limit));
    let mut requests = it.incident.requests.iter();
    let mut asks = || requests.any(|it| told.scope.has_site(&it.site));
    *told.scope == ConsoleScope::All || is_own(told, it) || holds() || asks()
}

/// The oldest requests that held places or waited for them; of others how many.
fn requests(told: &LiveTelling<'_>, it: &KeptIncident) -> String {
    let (own, others): (Vec<_>, Vec<_>) = it
        .incident
        .requests
        .iter()
        .partition(|it| told.scope.has_site(&it.site));
    let own = own.into_iter().map(|it| {
        let state = match it.state {
            RequestState::Waiting => told.say("waiting", "待機中"),
            RequestState::Answering => told.say("answering", "応答中"),
            RequestState::Sending => told.say("sending", "送信中"),
            RequestState::Abandoned => told.say("abandoned", "放棄"),
        };
        let age = units::seconds(it.age_ms as f64 / 1e3);
        format!("{}{} {age} {state}", it.site, it.path)
    });
    let mut parts: Vec<String> = own.collect();
    if !others.is_empty() {
        let what = told.say("elsewhere", "他所");
        parts.push(format!("{what}: {}", others.len()));
    }
    parts.join("; ")
}

/// Those who held most, and of others how many requests.
fn held(told: &LiveTelling<'_>, it: &KeptIncident) -> String {
    let (mut parts, mut others) = (Vec::new(), 0_u64);
    for place in &it.incident.held {
        if parts.len() >= HELD_MAX || !told.has_limit(&place.limit) {
            others = others.saturating_add(u64::from(place.in_flight) + u64::from(place.queued));
            continue;
        }
        let key = match &*place.key {
            "" => String::new(),
            key => format!(" {key}"),
        };
        let (holding, waiting) = (told.say("holding", "使用中"), told.say("waiting", "待機中"));
        parts.push(format!(
            "{}{key}: {} {holding}, {} {waiting}",
            place.limit, place.in_flight, place.queued
        ));
    }
    if others > 0 {
        let what = told.say("elsewhere", "他所");
        parts.push(format!("{what}: {}", units::count(others)));
    }
    parts.join("; ")
}

fn sensors(it: &KeptIncident) -> String {
    let known = it.sensors.iter();
    let known = known.filter(|(name, _)| SENSORS.contains(&name.as_str()));
    let told = known.map(|(name, [low, mean, high])| {
        let [low, mean, high] = [low, mean, high].map(|it| units::figure(*it));
        format!("{name} {mean} ({low}–{high})")
    });
    told.collect::<Vec<_>>().join(", ")
}
