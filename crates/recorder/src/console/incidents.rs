//! What went wrong over some days: of which cause, how often, who held the places, and how the machine was.
//!
//! The idea: causes stand side by side, so that one which never ends hides no other, and each leads to what is
//! kept of it. A tenant sees what concerns it, of others' causes no name, and of others how many requests they held.

use std::collections::BTreeMap;

use ipc::console::{ConsoleScope, IncidentKind, LimitOwner, RequestState};
use report::units;
use report::{Cell, Document};

use super::history::Span;
use super::{Asking, NoPage, ROWS};
use crate::page::{self, Telling};
use crate::store::{FigureStore, INCIDENT_KINDS, IncidentCause, IncidentsOf, KeptIncident};

/// Holders that are named of one incident.
const HELD_MAX: usize = 5;
/// Incidents that are listed, where all are asked for: of one cause there are no more.
const SHOWN_MAX: usize = 3_000;
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
        scope: asking.scope,
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
    incidents(document, asking, &store.incidents_of(&of, most)?, told);
    Ok(())
}

/// The cause that an address names.
fn cause(asked: &str) -> Result<Option<(IncidentKind, &str)>, NoPage> {
    if asked.is_empty() {
        return Ok(None);
    }
    let (kind, what) = asked.split_once(' ').ok_or(NoPage::Unknown)?;
    let kind = INCIDENT_KINDS.iter().find(|(word, _)| *word == kind);
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
    let mut rows: Vec<IncidentCause> = Vec::new();
    let mut elsewhere = BTreeMap::<IncidentKind, IncidentCause>::new();
    for it in causes {
        match told.is_own(it.kind, &it.what) {
            true => rows.push(it.clone()),
            false => {
                let others = elsewhere.entry(it.kind).or_insert_with(|| IncidentCause {
                    incidents: 0,
                    times: 0,
                    ..it.clone()
                });
                others.incidents += it.incidents;
                others.times += it.times;
            }
        }
    }
    rows.extend(elsewhere.into_values());
    let mut table = told.telling.whole(rows);
    table.words("what", "内容", |it| {
        Cell::name(told.what(it.kind, &it.what))
    });
    table.leads(|it| {
        let kind = INCIDENT_KINDS.iter().find(|(_, kind)| *kind == it.kind);
        let (word, _) = kind.filter(|_| told.is_own(it.kind, &it.what))?;
        let address = &asking.address;
        Some(address.with(|asked| asked.cause = format!("{word} {}", it.what)))
    });
    table.count("incidents", "件数", |it| it.incidents);
    table.count("times", "回数", |it| it.times);
    table.words("last", "最後", |it| Cell::from(page::instant(it.last_s)));
    let heading = told.say("Causes of incidents", "出来事の原因");
    let nothing = told.say("Nothing went wrong.", "問題はありませんでした。");
    table.end(document, "causes", heading, nothing);
}

/// The last incidents.
fn incidents(
    document: &mut Document,
    asking: &Asking<'_>,
    incidents: &[KeptIncident],
    told: IncidentTelling<'_>,
) {
    if incidents.is_empty() {
        return;
    }
    let mut table = told.telling.whole(incidents);
    table.words("when", "日時", |it| {
        Cell::from(page::instant(it.incident.at_s))
    });
    if asking.is_of_archive() && *told.scope == ConsoleScope::All {
        table.words("machine", "マシン", |it| Cell::name(&*it.machine));
    }
    table.words("what", "内容", |KeptIncident { incident: it, .. }| {
        Cell::name(told.what(it.kind, &it.what))
    });
    table.words("why", "理由", |KeptIncident { incident: it, .. }| {
        Cell::from(match told.is_own(it.kind, &it.what) {
            true => &*it.why,
            false => "",
        })
    });
    table.count("times", "回数", |it| it.incident.times);
    table.count("under way", "処理中", |it| it.incident.in_flight);
    table.words("who held places", "枠の使用者", |it| {
        Cell::from(told.held(it))
    });
    table.words("oldest requests", "古いリクエスト", |it| {
        Cell::name(told.requests(it))
    });
    if *told.scope == ConsoleScope::All {
        table.words("the minute before", "直前の 1 分", |it| {
            Cell::from(sensors(it))
        });
    }
    let heading = told.say("Last incidents", "最近の出来事");
    table.end(document, "incidents", heading, "");
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
            true => format!("{of} {}", what.replace('\t', " ")),
            false => format!("{of} {}", self.say("(elsewhere)", "（他所）")),
        }
    }

    /// Those who held most, how many requests others of theirs did, and how many elsewhere.
    fn held(self, it: &KeptIncident) -> String {
        let (mut parts, mut more, mut others) = (Vec::new(), 0_u64, 0_u64);
        for place in &it.incident.held {
            let count = u64::from(place.in_flight) + u64::from(place.queued);
            let limit = LimitOwner::of_key(&place.limit, &place.key);
            if !self.scope.has_limit(&limit) {
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
