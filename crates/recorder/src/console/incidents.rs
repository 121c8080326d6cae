//! What went wrong over some days: of which cause, how often, who held the places, and how the machine was.
//!
//! The idea: causes stand side by side, so that one which never ends hides no other, and each leads to what is
//! kept of it. A tenant sees what concerns it, of others' causes no name, and of others how many requests they held.

use std::collections::BTreeMap;
use std::time::{Duration, UNIX_EPOCH};

use ipc::console::{ConsoleScope, IncidentKind, RequestState};
use report::units;
use report::{Cell, Column, Document, Table};

use super::history::Span;
use super::{Asking, NoPage, ROWS};
use crate::page::Telling;
use crate::store::{FigureStore, IncidentCause, IncidentsOf, KeptIncident};

/// Holders that are named of one incident.
const HELD_MAX: usize = 5;
/// Incidents that are listed, where all are asked for: of one cause there are no more.
const SHOWN_MAX: usize = 3_000;
/// What addresses call kinds.
const KINDS: [(&str, IncidentKind); 4] = [
    ("limit", IncidentKind::Limit),
    ("shedding", IncidentKind::Shedding),
    ("program", IncidentKind::Program),
    ("upstream", IncidentKind::Upstream),
];

/// Whose eyes they are, and what is told how.
#[derive(Clone, Copy)]
struct IncidentTelling<'a> {
    scope: &'a ConsoleScope,
    telling: Telling<'a>,
}

/// Adds what there was.
pub(super) fn tell(
    document: &mut Document,
    store: &FigureStore,
    asking: &Asking<'_>,
) -> Result<(), NoPage> {
    let (from, to) = asking.range()?;
    let span = Span::of(asking, from, to);
    let told = IncidentTelling {
        scope: asking.question.scope,
        telling: asking.telling(),
    };
    let of = IncidentsOf {
        from_s: span.from_s,
        to_s: span.to_s,
        scope: told.scope,
        cause: cause(&asking.address.asked.cause)?,
        filter: &asking.filter,
    };
    if of
        .cause
        .is_some_and(|(kind, what)| !told.is_own(kind, what))
    {
        return Err(NoPage::Unknown);
    }
    causes(document, asking, &store.causes(&of)?, told);
    let most = told.telling.rows.clamp(ROWS, SHOWN_MAX);
    incidents(document, &store.incidents_of(&of, most)?, told);
    Ok(())
}

/// The cause that an address names.
fn cause(asked: &str) -> Result<Option<(IncidentKind, &str)>, NoPage> {
    if asked.is_empty() {
        return Ok(None);
    }
    let (kind, what) = asked.split_once(' ').ok_or(NoPage::Unknown)?;
    let kind = KINDS.iter().find(|(word, _)| *word == kind);
    let (_, kind) = kind.ok_or(NoPage::Unknown)?;
    Ok(Some((*kind, what)))
}

/// The causes, each leading to what is kept of it.
fn causes(
    document: &mut Document,
    asking: &Asking<'_>,
    causes: &[IncidentCause],
    told: IncidentTelling<'_>,
) {
    let telling = told.telling;
    let mut table = Table::new([
        Column::left(telling.say("what", "内容")),
        Column::right(telling.say("incidents", "件数")),
        Column::right(telling.say("times", "回数")),
        Column::left(telling.say("last", "最後")),
    ]);
    let mut elsewhere = BTreeMap::<IncidentKind, IncidentCause>::new();
    let row = |what: Cell, it: &IncidentCause| {
        let counts = [it.incidents, it.times].map(Cell::count);
        let last = Cell::from(instant(it.last_s));
        [what].into_iter().chain(counts).chain([last])
    };
    for it in causes {
        if !told.is_own(it.kind, &it.what) {
            let others = elsewhere.entry(it.kind).or_insert_with(|| IncidentCause {
                incidents: 0,
                times: 0,
                ..it.clone()
            });
            others.incidents += it.incidents;
            others.times += it.times;
            continue;
        }
        let mut name = Cell::name(told.what(it.kind, &it.what));
        let word = KINDS.iter().find(|(_, kind)| *kind == it.kind);
        let word = word.map_or("", |(word, _)| word);
        name.link = Some(
            asking
                .address
                .with(|asked| asked.cause = format!("{word} {}", it.what)),
        );
        table.row(row(name, it));
    }
    for it in elsewhere.values() {
        table.row(row(Cell::from(told.what(it.kind, &it.what)), it));
    }
    let section = document.section(telling.say("Causes of incidents", "出来事の原因"));
    section.id = "causes";
    match table.rows.is_empty() {
        true => section.text(telling.say("Nothing went wrong.", "問題はありませんでした。")),
        false => section.table(table),
    }
}

/// The last incidents.
fn incidents(document: &mut Document, incidents: &[KeptIncident], told: IncidentTelling<'_>) {
    if incidents.is_empty() {
        return;
    }
    let telling = told.telling;
    let mut titles = vec![
        Column::left(telling.say("when", "日時")),
        Column::left(telling.say("what", "内容")),
        Column::left(telling.say("why", "理由")),
        Column::right(telling.say("times", "回数")),
        Column::right(telling.say("under way", "処理中")),
        Column::left(telling.say("who held places", "枠の使用者")),
        Column::left(telling.say("oldest requests", "古いリクエスト")),
    ];
    let is_all = *told.scope == ConsoleScope::All;
    if is_all {
        titles.push(Column::left(
            telling.say("the minute before", "直前の 1 分"),
        ));
    }
    let mut table = Table::new(titles);
    for it in incidents {
        let incident = &it.incident;
        let why = match told.is_own(incident.kind, &incident.what) {
            true => &*incident.why,
            false => "",
        };
        let mut row = vec![
            Cell::from(instant(incident.at_s)),
            Cell::name(told.what(incident.kind, &incident.what)),
            Cell::from(why),
            Cell::count(incident.times),
            Cell::count(incident.in_flight),
            Cell::from(told.held(it)),
            Cell::name(told.requests(it)),
        ];
        if is_all {
            row.push(Cell::from(sensors(it)));
        }
        table.row(row);
    }
    let section = document.section(telling.say("Last incidents", "最近の出来事"));
    section.id = "incidents";
    section.table(table);
}

fn instant(at_s: i64) -> String {
    let since = Duration::from_secs(u64::try_from(at_s).unwrap_or(0));
    units::instant(UNIX_EPOCH + since)
}

impl IncidentTelling<'_> {
    fn say(self, english: &'static str, japanese: &'static str) -> &'static str {
        self.telling.say(english, japanese)
    }

    /// Whether what went wrong is theirs.
    fn is_own(self, kind: IncidentKind, what: &str) -> bool {
        let has_owner = matches!(kind, IncidentKind::Limit | IncidentKind::Program);
        *self.scope == ConsoleScope::All || (has_owner && self.scope.has_limit(what))
    }

    /// What went wrong; what is not theirs has no name for these eyes.
    fn what(self, kind: IncidentKind, what: &str) -> String {
        let of = match kind {
            IncidentKind::Limit => self.say("refused by", "拒否:"),
            IncidentKind::Shedding => self.say("shed by", "負荷制限:"),
            IncidentKind::Program => self.say("programs killed:", "プログラム強制終了:"),
            IncidentKind::Upstream => self.say("back end down:", "バックエンド停止:"),
        };
        match self.is_own(kind, what) {
            true => format!("{of} {what}"),
            false => format!("{of} {}", self.say("(elsewhere)", "（他所）")),
        }
    }

    /// Those who held most, how many requests others of theirs did, and how many elsewhere.
    fn held(self, it: &KeptIncident) -> String {
        let (mut parts, mut more, mut others) = (Vec::new(), 0_u64, 0_u64);
        for place in &it.incident.held {
            let count = u64::from(place.in_flight) + u64::from(place.queued);
            if !self.scope.has_limit(&place.limit) {
                others = others.saturating_add(count);
                continue;
            }
            if parts.len() >= HELD_MAX || place.limit.is_empty() {
                more = more.saturating_add(count);
                continue;
            }
            let key = match &*place.key {
                "" => String::new(),
                key => format!(" {key}"),
            };
            let (holding, waiting) = (self.say("holding", "使用中"), self.say("waiting", "待機中"));
            parts.push(format!(
                "{}{key}: {} {holding}, {} {waiting}",
                place.limit, place.in_flight, place.queued
            ));
        }
        let further = self.say("further", "その他");
        for (what, count) in [(further, more), (self.say("elsewhere", "他所"), others)] {
            if count > 0 {
                parts.push(format!("{what}: {}", units::count(count)));
            }
        }
        parts.join("; ")
    }

    /// The oldest requests that held places or waited for them; of others how many.
    fn requests(self, it: &KeptIncident) -> String {
        let requests = it.incident.requests.iter();
        let (own, others): (Vec<_>, Vec<_>) =
            requests.partition(|it| self.scope.has_site(&it.site));
        let own = own.into_iter().map(|it| {
            let state = match it.state {
                RequestState::Waiting => self.say("waiting", "待機中"),
                RequestState::Answering => self.say("answering", "応答中"),
                RequestState::Sending => self.say("sending", "送信中"),
                RequestState::Abandoned => self.say("abandoned", "放棄"),
            };
            let age = units::seconds(it.age_ms as f64 / 1e3);
            format!("{}{} {age} {state}", it.site, it.path)
        });
        let mut parts: Vec<String> = own.collect();
        if !others.is_empty() {
            let what = self.say("elsewhere", "他所");
            parts.push(format!("{what}: {}", others.len()));
        }
        parts.join("; ")
    }
}

fn sensors(it: &KeptIncident) -> String {
    let told = it.sensors.iter().map(|(name, [low, mean, high])| {
        let [low, mean, high] = [low, mean, high].map(|it| units::figure(*it));
        format!("{name} {mean} ({low}–{high})")
    });
    told.collect::<Vec<_>>().join(", ")
}
