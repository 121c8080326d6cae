//! `capacity`: of each resource how full it is, when it will be, by whom, and what would help.
//!
//! The idea: busy hours of days say how it goes on ([`crate::capacity`]), and what tenants took in
//! those hours says who makes them; what moving one would give is the same line without its share.
//! What cannot be raised and what is nobody's in particular is said as such.

use std::cell::RefCell;
use std::collections::BTreeMap;

use config::model::sensor::{self, Gauge, Worse};
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};
use report::units::{self, Unit};
use report::{Cell, Document, Language, Phrase, Tone};
use serde_json::{Value, json};

use crate::capacity::{BusyHour, DAYS_MAX, DAYS_MIN, FullOn, full_on, trend};
use crate::history::{ALL_TENANTS, Sums};
use crate::page::{MaybeFigure, Telling};
use crate::salts::{civil, day_number};
use crate::store::{FigureStore, StoreError, Tier};

/// Seconds of a day.
const DAY_S: i64 = 86_400;
/// Tenants that are named of each resource.
const TENANTS_NAMED: usize = 5;
/// What can run out, and what of a tenant it is made of.
const MADE_OF: [(Gauge, &str); 8] = [
    (Gauge::Load1, "cpu"),
    (Gauge::CpuPressure, "cpu"),
    (Gauge::MemoryAvailable, "memory"),
    (Gauge::MemoryPressure, "memory"),
    (Gauge::IoPressure, "cpu"),
    (Gauge::Conntrack, "requests"),
    (Gauge::Descriptors, "requests"),
    (Gauge::Ports, "requests"),
];
/// Days whose busy hours say whose a resource is.
const SHARED_DAYS: i32 = 7;
/// Seconds for which an outlook is kept.
const KEPT_S: i64 = 60;

/// Something that can be used up.
#[derive(Debug, Clone)]
pub struct Resource {
    /// Its figure.
    pub figure: &'static str,
    /// At which it is full.
    pub full: f64,
    /// Whether that is the least there has to be.
    pub is_least: bool,
    /// What its numbers are.
    pub unit: Unit,
    /// What of a tenant it is made of: `cpu`, `memory` or `requests`.
    pub made_of: &'static str,
    /// What raises it to twice as much, where that is known: commands.
    pub raised_by: Vec<String>,
}

/// What a machine can run out of, that its sensors tell: from where on they say that it is too much, and
/// a task for each processor. `raised_by` says what raises one.
pub fn resources(processors: usize, raised_by: impl Fn(&str) -> Vec<String>) -> Vec<Resource> {
    let made = MADE_OF.iter().filter_map(|(gauge, made_of)| {
        let full = match gauge {
            Gauge::Load1 => processors as f64,
            gauge => gauge.too_much()?,
        };
        Some(Resource {
            figure: gauge.name(),
            full,
            is_least: gauge.worse() == Worse::Below,
            unit: match gauge.unit() {
                sensor::Unit::Share => Unit::Share,
                _ => Unit::Count,
            },
            made_of,
            raised_by: raised_by(gauge.name()),
        })
    });
    made.collect()
}

/// How it stands with each resource there are figures of.
#[derive(Debug)]
pub struct Outlook(Vec<(Resource, ResourceState)>);

/// Looks at all resources at a time, in the zone of which days are told.
///
/// # Errors
/// Where figures cannot be read.
pub fn outlook(
    store: &FigureStore,
    resources: Vec<Resource>,
    now: &Zoned,
) -> Result<Outlook, StoreError> {
    let mut known = Vec::new();
    for resource in resources {
        if let Some(state) = ResourceState::read(store, &resource, now)? {
            known.push((resource, state));
        }
    }
    Ok(Outlook(known))
}

/// An outlook for all who look within a minute: reading the figures of three months takes a while.
#[derive(Debug, Default)]
pub struct KeptOutlook(RefCell<Option<(i64, Outlook)>>);

impl KeptOutlook {
    /// As a report: of what is kept, or else of what a new look says.
    pub(crate) fn document(
        &self,
        now: &Zoned,
        language: Language,
        look: impl FnOnce() -> Result<Outlook, StoreError>,
    ) -> Result<Document, StoreError> {
        let now_s = now.timestamp().as_second();
        let mut kept = self.0.borrow_mut();
        match &*kept {
            Some((at_s, outlook)) if (*at_s..*at_s + KEPT_S).contains(&now_s) => {
                Ok(outlook.document(language))
            }
            _ => Ok(kept.insert((now_s, look()?)).1.document(language)),
        }
    }
}

impl Outlook {
    /// As a report.
    pub fn document(&self, language: Language) -> Document {
        let say = |english, japanese| Phrase::new(english, japanese).said_in(language);
        let mut document = Document::new(
            say("Capacity", "容量"),
            say(
                "How full each resource is, and when it will be",
                "各リソースの使用率と、いつ不足するか",
            ),
        );
        document.language = language;
        if self.0.is_empty() {
            let nothing = say(
                "Nothing was recorded of this machine yet.",
                "このマシンの記録はまだありません。",
            );
            document.answer = Some((Tone::Warn, nothing.into()));
            return document;
        }
        let telling = Telling::whole_in(language);
        let mut table = telling.table(&self.0);
        let line = |state: &ResourceState| trend(&state.busy_hours);
        table.words("resource", "リソース", |(it, _)| Cell::from(it.figure));
        table.numbers("peak today", "今日の最大", |(it, state)| {
            state.peak(it).cell(it.unit)
        });
        table.numbers("95 % of minutes", "分単位の 95 %", |(it, state)| {
            state.p95.cell(it.unit)
        });
        table.numbers("busy hour", "最も混む 1 時間", |(it, state)| {
            state
                .busy_hours
                .last()
                .map(|(_, value)| *value)
                .cell(it.unit)
        });
        table.numbers("grows by day", "1 日の増加", |(it, state)| {
            let growth = line(state).map(|line| {
                let (low, high) = line.between;
                let text = units::with_interval(it.unit, line.per_day, low, high);
                Cell::figure(text, line.per_day)
            });
            growth.unwrap_or_else(|| Cell::from(units::NONE))
        });
        table.numbers("full at", "上限", |(it, _)| it.full.cell(it.unit));
        table.numbers("full on", "上限に達する日", |(_, state)| {
            Cell::from(when(state.full, language))
        });
        table.end(&mut document, "capacity", say("Resources", "リソース"), "");
        for (resource, state) in &self.0 {
            state.tell(resource, &mut document, language);
        }
        let days = self.0.iter().map(|(_, state)| state.busy_hours.len());
        let days = days.max().unwrap_or(0);
        if days < DAYS_MIN {
            let told = match language {
                Language::English => format!(
                    "Nothing is foretold: it takes {DAYS_MIN} days with figures, and there are {days}."
                ),
                Language::Japanese => {
                    format!("{days} 日分の記録では予測できません。{DAYS_MIN} 日分が必要です。")
                }
            };
            document.answer = Some((Tone::Warn, told));
        }
        document
    }

    /// For programs: a line of JSON.
    pub fn json(&self) -> String {
        let resources: Vec<Value> = self.0.iter().map(|(it, state)| state.json(it)).collect();
        let answer = json!({ "days_needed": DAYS_MIN, "resources": resources });
        format!("{answer}\n")
    }
}

/// How it stands with a resource.
#[derive(Debug)]
struct ResourceState {
    today: Option<Sums>,
    p95: Option<f64>,
    busy_hours: Vec<BusyHour>,
    full: FullOn,
    /// When it is full where there is twice as much of it.
    full_doubled: FullOn,
    tenants: Vec<TenantPart>,
}

/// What a tenant makes of a resource.
#[derive(Debug)]
struct TenantPart {
    tenant: String,
    /// Its share of the busy hours of the last week.
    share: f64,
    /// When it is full without it, and where it is held to half.
    full_moved: FullOn,
    full_halved: FullOn,
}

impl ResourceState {
    fn read(
        store: &FigureStore,
        resource: &Resource,
        now: &Zoned,
    ) -> Result<Option<ResourceState>, StoreError> {
        let to_s = now.timestamp().as_second().saturating_add(1);
        let today = day_number(now.date());
        // An hour more or less than so many days where clocks were put forward or back.
        let today_s = now
            .start_of_day()
            .map_or(to_s, |it| it.timestamp().as_second());
        let from_s = today_s - DAYS_MAX as i64 * DAY_S;
        let hours = store.samples(resource.figure, Tier::Hour, from_s, to_s)?;
        if hours.is_empty() {
            return Ok(None);
        }
        let minutes = store.samples(resource.figure, Tier::Minute, today_s, to_s)?;
        let mut sums: Option<Sums> = None;
        for (_, minute) in &minutes {
            match &mut sums {
                Some(sums) => sums.merge(minute),
                None => sums = Some(*minute),
            }
        }
        let sign = if resource.is_least { -1.0 } else { 1.0 };
        let mut means: Vec<f64> = minutes.iter().map(|(_, it)| it.mean() * sign).collect();
        means.sort_by(f64::total_cmp);
        let at = (means.len() as f64 * 0.95).ceil() as usize;
        let p95 = means.get(at.saturating_sub(1)).map(|mean| mean * sign);
        let busiest = busiest_hours(&hours, sign, now.time_zone());
        // Today is not over.
        let over = busiest.range(..today);
        let busy_hours: Vec<BusyHour> = over.map(|(day, (_, value))| (*day, *value)).collect();
        // When it is full where this share of what is used is left.
        let full_of = |left: f64| {
            let hours = busy_hours.iter();
            let hours = hours.map(|(day, value)| (*day, resource.with_used(*value, left)));
            let hours: Vec<BusyHour> = hours.collect();
            let line = trend(&hours);
            full_on(line.as_ref(), hours.len(), resource.full, resource.is_least)
        };
        let week = busiest.range(today - SHARED_DAYS..);
        let week: Vec<i64> = week.map(|(_, (at_s, _))| *at_s).collect();
        let shares = shares(store, resource.made_of, &week)?.into_iter();
        let tenants = shares.map(|(tenant, share)| TenantPart {
            tenant,
            share,
            full_moved: full_of(1.0 - share),
            full_halved: full_of(1.0 - share / 2.0),
        });
        Ok(Some(ResourceState {
            today: sums,
            p95,
            full: full_of(1.0),
            full_doubled: full_of(0.5),
            tenants: tenants.collect(),
            busy_hours,
        }))
    }

    /// The most of today.
    fn peak(&self, resource: &Resource) -> Option<f64> {
        let today = self.today?;
        Some(match resource.is_least {
            true => today.low,
            false => today.high,
        })
    }

    fn tell(&self, resource: &Resource, document: &mut Document, language: Language) {
        if self.tenants.is_empty() && resource.raised_by.is_empty() {
            return;
        }
        let say = |english, japanese| Phrase::new(english, japanese).said_in(language);
        let section = document.section(match language {
            Language::English => format!("What makes `{}`", resource.figure),
            Language::Japanese => format!("`{}` の内訳", resource.figure),
        });
        section.id = resource.figure;
        if !self.tenants.is_empty() {
            let telling = Telling::whole_in(language);
            let mut table = telling.table(&self.tenants);
            table.words("tenant", "テナント", |it| Cell::from(&*it.tenant));
            table.figure(
                "share of the busy hours of a week",
                "1 週間の混む時間での割合",
                Unit::Share,
                |it| it.share,
            );
            table.numbers("full if it moves", "移転した場合", |it| {
                Cell::from(when(it.full_moved, language))
            });
            table.numbers(
                "full if it is held to half",
                "半分に制限した場合",
                |it| Cell::from(when(it.full_halved, language)),
            );
            section.table(table.done());
            let made_of = resource.made_of;
            section.text(match language {
                Language::English => format!(
                    "Its share is that of the {made_of} of all tenants. A tenant is held to less by `[tenants.NAME]`: \
                     `cgroup = {{ cpu = \"50%\", memory = \"512MiB\" }}`, or by a limit of its requests."
                ),
                Language::Japanese => format!(
                    "割合は全テナントの {made_of} に対するものです。テナントの制限は `[tenants.NAME]` の \
                     `cgroup = {{ cpu = \"50%\", memory = \"512MiB\" }}`、またはリクエストの制限で行います。"
                ),
            });
        }
        if !resource.raised_by.is_empty() {
            let title = say("What raises it to twice as much", "上限を 2 倍にするには");
            section.listing(title, resource.raised_by.join("\n"));
            if !matches!(self.full_doubled, FullOn::TooFewDays(_)) {
                let then = say("It is full then", "その場合");
                section.text(format!("{then}: {}", when(self.full_doubled, language)));
            }
        }
    }

    fn json(&self, resource: &Resource) -> Value {
        let line = trend(&self.busy_hours);
        let tenants = self.tenants.iter().map(|it| {
            json!({
                "tenant": it.tenant,
                "share": it.share,
                "full_if_moved": full_json(it.full_moved),
                "full_if_halved": full_json(it.full_halved),
            })
        });
        let tenants: Vec<Value> = tenants.collect();
        json!({
            "resource": resource.figure,
            "full_at": resource.full,
            "peak_today": self.peak(resource),
            "p95_today": self.p95,
            "busy_hour": self.busy_hours.last().map(|(_, value)| *value),
            "days": self.busy_hours.len(),
            "per_day": line.map(|it| it.per_day),
            "per_day_between": line.map(|it| [it.between.0, it.between.1]),
            "full": full_json(self.full),
            "made_of": resource.made_of,
            "tenants": tenants,
            "raised_by": resource.raised_by,
            "full_if_doubled": full_json(self.full_doubled),
        })
    }
}

impl Resource {
    /// A value of which only this share of what is used is left.
    fn with_used(&self, value: f64, left: f64) -> f64 {
        match self.is_least {
            // Of these what is left is told, and all is 1.
            true => 1.0 - (1.0 - value) * left,
            false => value * left,
        }
    }
}

fn full_json(full: FullOn) -> Value {
    let day = |day: i32| civil(day).to_string();
    match full {
        FullOn::TooFewDays(_) => Value::Null,
        FullOn::Now => json!({ "on": "now" }),
        FullOn::NotForAYear => json!({ "on": "not within a year" }),
        FullOn::Day {
            likely,
            earliest,
            latest,
        } => json!({
            "on": likely.map_or("later".into(), day),
            "earliest": day(earliest),
            "latest": latest.map_or("later".into(), day),
        }),
    }
}

/// When it is full, in words.
fn when(full: FullOn, language: Language) -> String {
    let say = |english, japanese| Phrase::new(english, japanese).said_in(language);
    match full {
        FullOn::TooFewDays(_) => units::NONE.into(),
        FullOn::Now => say("now", "すでに到達").into(),
        FullOn::NotForAYear => say("not within a year", "1 年以内にはない").into(),
        FullOn::Day {
            likely,
            earliest,
            latest,
        } => {
            let day = |day: Option<i32>| {
                day.map_or_else(
                    || say("later", "それ以降").into(),
                    |day| civil(day).to_string(),
                )
            };
            let (likely, latest) = (day(likely), day(latest));
            format!("{likely} ({} – {latest})", civil(earliest))
        }
    }
}

/// By day the hour in which most was used: when it began, and its mean.
fn busiest_hours(hours: &[(i64, Sums)], sign: f64, zone: &TimeZone) -> BTreeMap<i32, (i64, f64)> {
    let mut busiest: BTreeMap<i32, (i64, f64)> = BTreeMap::new();
    for (at_s, sums) in hours {
        let mean = sums.mean();
        let at = Timestamp::from_second(*at_s).unwrap_or_default();
        let day = day_number(zone.to_datetime(at).date());
        let most = busiest.entry(day).or_insert((*at_s, mean));
        if mean * sign > most.1 * sign {
            *most = (*at_s, mean);
        }
    }
    busiest
}

/// The tenants that took most in these hours, with their share of what all took, followed or not.
fn shares(
    store: &FigureStore,
    made_of: &str,
    hours: &[i64],
) -> Result<Vec<(String, f64)>, StoreError> {
    let ending = format!(".{made_of}");
    let taken = store.of_hours(("tenant.", &ending), hours)?;
    let all = store.of_hours((ALL_TENANTS, made_of), hours)?;
    let followed: f64 = taken.iter().map(|(_, sum)| sum).sum();
    let all = all.first().map_or(followed, |(_, all)| all.max(followed));
    let most = taken.into_iter().filter(|(_, sum)| *sum > 0.0);
    let shares = most.take(TENANTS_NAMED).filter_map(|(figure, sum)| {
        let tenant = figure.strip_prefix("tenant.")?.strip_suffix(&ending)?;
        Some((tenant.to_owned(), sum / all))
    });
    Ok(shares.collect())
}

#[cfg(test)]
mod tests;
