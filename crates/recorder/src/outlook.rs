//! `capacity`: of each resource how full it is, when it will be, by whom, and what would help.
//!
//! The idea: busy hours of days say how it goes on ([`crate::capacity`]), and what tenants took in
//! those hours says who makes them; what moving one would give is the same line without its share.
//! What cannot be raised and what is nobody's in particular is said as such.

use std::collections::BTreeMap;

use config::model::sensor::{self, Gauge, Worse};
use report::units::{self, Unit};
use report::{Column, Document, Language, Phrase, Table, Tone};
use serde_json::{Value, json};

use crate::capacity::{BusyHour, DAYS_MAX, DAYS_MIN, FullOn, full_on, trend};
use crate::history::Sums;
use crate::salts::civil;
use crate::store::{FigureStore, StoreError, Tier};

/// Seconds of a day.
const DAY_S: i64 = 86_400;
/// Tenants that are named of each resource.
const TENANTS_NAMED: usize = 5;
/// Tenants that are looked at.
const TENANTS_MAX: usize = 10_000;
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
const SHARED_DAYS: i64 = 7;

/// Something that can be used up.
#[derive(Debug, Clone)]
pub struct Resource {
    /// Its figure.
    pub figure: String,
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
            figure: gauge.name().to_owned(),
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

/// Looks at all resources at a time.
///
/// # Errors
/// Where figures cannot be read.
pub fn outlook(
    store: &FigureStore,
    resources: Vec<Resource>,
    now_s: i64,
) -> Result<Outlook, StoreError> {
    let mut known = Vec::new();
    for resource in resources {
        if let Some(state) = ResourceState::read(store, &resource, now_s)? {
            known.push((resource, state));
        }
    }
    Ok(Outlook(known))
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
        let columns = [
            say("peak today", "今日の最大"),
            say("95 % of minutes", "分単位の 95 %"),
            say("busy hour", "最も混む 1 時間"),
            say("grows by day", "1 日の増加"),
            say("full at", "上限"),
            say("full on", "上限に達する日"),
        ];
        let columns = columns.into_iter().map(Column::right);
        let first = Column::left(say("resource", "リソース"));
        let mut table = Table::new([first].into_iter().chain(columns));
        for (resource, state) in &self.0 {
            table.row(state.row(resource, language));
        }
        let section = document.section(say("Resources", "リソース"));
        section.id = "capacity";
        section.table(table);
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
        now_s: i64,
    ) -> Result<Option<ResourceState>, StoreError> {
        let today = Tier::Day.begin(now_s);
        let hours = store.samples(
            &resource.figure,
            Tier::Hour,
            today - DAYS_MAX as i64 * DAY_S,
            now_s.saturating_add(1),
        )?;
        if hours.is_empty() {
            return Ok(None);
        }
        let minutes = store.samples(&resource.figure, Tier::Minute, today, now_s + 1)?;
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
        let busiest = busiest_hours(&hours, sign);
        // Today is not over.
        let over = busiest.iter().filter(|(day, _)| *day * DAY_S < today);
        let busy_hours =
            over.filter_map(|(day, (_, value))| Some((i32::try_from(*day).ok()?, *value)));
        let busy_hours: Vec<BusyHour> = busy_hours.collect();
        // When it is full where this share of what is used is left.
        let full_of = |left: f64| {
            let hours = busy_hours.iter();
            let hours = hours.map(|(day, value)| (*day, resource.with_used(*value, left)));
            let hours: Vec<BusyHour> = hours.collect();
            let line = trend(&hours);
            full_on(line.as_ref(), hours.len(), resource.full, resource.is_least)
        };
        let week = busiest.range(today / DAY_S - SHARED_DAYS..);
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

    fn row(&self, resource: &Resource, language: Language) -> Vec<String> {
        let write =
            |value: Option<f64>| value.map_or(units::NONE.into(), |it| resource.unit.write(it));
        let line = trend(&self.busy_hours);
        let growth = line.map_or(units::NONE.into(), |line| {
            let (low, high) = line.between;
            units::with_interval(resource.unit, line.per_day, low, high)
        });
        vec![
            resource.figure.clone(),
            write(self.peak(resource)),
            write(self.p95),
            write(self.busy_hours.last().map(|(_, value)| *value)),
            growth,
            resource.unit.write(resource.full),
            when(self.full, language),
        ]
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
        if !self.tenants.is_empty() {
            let columns = [
                say(
                    "share of the busy hours of a week",
                    "1 週間の混む時間での割合",
                ),
                say("full if it moves", "移転した場合"),
                say("full if it is held to half", "半分に制限した場合"),
            ];
            let columns = columns.into_iter().map(Column::right);
            let first = Column::left(say("tenant", "テナント"));
            let mut table = Table::new([first].into_iter().chain(columns));
            for it in &self.tenants {
                table.row([
                    it.tenant.clone(),
                    units::share(it.share),
                    when(it.full_moved, language),
                    when(it.full_halved, language),
                ]);
            }
            section.table(table);
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
fn busiest_hours(hours: &[(i64, Sums)], sign: f64) -> BTreeMap<i64, (i64, f64)> {
    let mut busiest: BTreeMap<i64, (i64, f64)> = BTreeMap::new();
    for (at_s, sums) in hours {
        let mean = sums.mean();
        let most = busiest
            .entry(at_s.div_euclid(DAY_S))
            .or_insert((*at_s, mean));
        if mean * sign > most.1 * sign {
            *most = (*at_s, mean);
        }
    }
    busiest
}

/// The tenants that took most in these hours, with their share of what all took.
fn shares(
    store: &FigureStore,
    made_of: &str,
    hours: &[i64],
) -> Result<Vec<(String, f64)>, StoreError> {
    let (Some(first), Some(last)) = (hours.first(), hours.last()) else {
        return Ok(Vec::new());
    };
    let ending = format!(".{made_of}");
    let mut taken = Vec::new();
    for figure in store.series("tenant.", TENANTS_MAX)? {
        let name = figure.strip_prefix("tenant.");
        let Some(tenant) = name.and_then(|name| name.strip_suffix(&ending)) else {
            continue;
        };
        let samples = store.samples(&figure, Tier::Hour, *first, *last + 1)?;
        let busy = samples.iter().filter(|(at_s, _)| hours.contains(at_s));
        taken.push((
            tenant.to_owned(),
            busy.map(|(_, it)| it.mean()).sum::<f64>(),
        ));
    }
    let all: f64 = taken.iter().map(|(_, sum)| sum).sum();
    taken.retain(|(_, sum)| *sum > 0.0);
    taken.sort_by(|one, other| other.1.total_cmp(&one.1));
    taken.truncate(TENANTS_NAMED);
    Ok(taken
        .into_iter()
        .map(|(tenant, sum)| (tenant, sum / all))
        .collect())
}

#[cfg(test)]
mod tests {
    use testkit::TempDir;

    use super::*;
    use crate::history::Sample;

    fn resource(figure: &str, full: f64, is_least: bool) -> Resource {
        Resource {
            figure: figure.into(),
            full,
            is_least,
            unit: Unit::Share,
            made_of: "cpu",
            raised_by: Vec::new(),
        }
    }

    fn told(store: &FigureStore, now_s: i64) -> Document {
        let resources = vec![resource("conntrack", 0.8, false)];
        let outlook = outlook(store, resources, now_s).expect("read");
        outlook.document(Language::English)
    }

    /// A store with the busy hour of each day at eight, and the day after the last at noon.
    fn store(directory: &TempDir, days: i64, value: impl Fn(i64) -> f64) -> (FigureStore, i64) {
        let (mut store, _) = FigureStore::open(directory.path(), 0).expect("it opens");
        let sample = |name: &str, at_s: i64, value: f64| Sample {
            name: name.into(),
            at_s,
            sums: Sums::of(value),
        };
        let mut samples = Vec::new();
        for day in 0..days {
            let busy = day * DAY_S + 8 * 3_600;
            samples.push(sample("conntrack", busy, value(day)));
            samples.push(sample("conntrack", busy + 7_200, 0.01));
            samples.push(sample("tenant.big.cpu", busy, 3.0));
            samples.push(sample("tenant.small.cpu", busy, 1.0));
            samples.push(sample("tenant.night.cpu", busy + 7_200, 9.0));
        }
        samples.push(sample("conntrack", days * DAY_S, 0.5));
        store.write_samples(&samples).expect("written");
        (store, days * DAY_S + 43_200)
    }

    #[test]
    fn of_two_weeks_the_day_is_told_when_it_is_full_and_whose_it_is() {
        let directory = TempDir::new();
        let (store, now_s) = store(&directory, 20, |day| 0.2 + 0.02 * day as f64);
        let told = told(&store, now_s);
        assert_eq!(told.answer, None);
        let text = format!("{:?}", told.sections);
        // 0.58 on the 20th of January 1970; 11 days more.
        assert!(text.contains("1970-01-31"), "{text}");
        for (part, is_there) in [
            ("big", true),
            ("75 %", true),
            ("small", true),
            ("night", false),
        ] {
            assert_eq!(text.contains(part), is_there, "{part}: {text}");
        }
        // A quarter of 0.02 a day is left: not full for a long time.
        assert!(text.contains("1970-0"), "{text}");
    }

    #[test]
    fn of_less_nothing_is_foretold_and_that_is_said() {
        let directory = TempDir::new();
        let (store, now_s) = store(&directory, 5, |_| 0.2);
        let told = told(&store, now_s);
        let (_, answer) = told.answer.expect("an answer");
        assert!(answer.contains("there are 5"), "{answer}");
    }

    #[test]
    fn of_an_empty_database_that_is_said() {
        let directory = TempDir::new();
        let (store, _) = FigureStore::open(directory.path(), 0).expect("it opens");
        let told = told(&store, 9);
        assert!(told.sections.is_empty() && told.answer.is_some());
    }

    #[test]
    fn what_moving_and_limits_and_raising_give_is_told_to_programs() {
        let directory = TempDir::new();
        let (store, now_s) = store(&directory, 20, |day| 0.2 + 0.02 * day as f64);
        let mut conntrack = resource("conntrack", 0.8, false);
        conntrack.raised_by = vec!["sysctl -w net.netfilter.nf_conntrack_max=1".into()];
        let outlook = outlook(&store, vec![conntrack], now_s).expect("read");
        let told: Value = serde_json::from_str(&outlook.json()).expect("JSON");
        let told = &told["resources"][0];
        assert_eq!(
            (&told["resource"], &told["days"]),
            (&json!("conntrack"), &json!(20))
        );
        assert_eq!(told["full"]["on"], "1970-01-31");
        let big = &told["tenants"][0];
        assert_eq!(
            (&big["tenant"], &big["share"]),
            (&json!("big"), &json!(0.75))
        );
        // 0.8 is 1.28 of what there is where 5/8 are left: 36 days of 0.02 more; 0.8 is 1.6 of a half.
        assert_eq!(big["full_if_halved"]["on"], "1970-02-24");
        assert_eq!(told["full_if_doubled"]["on"], "1970-03-12");
        let text = outlook
            .document(Language::English)
            .to_text(100, report::Paint::Never);
        assert!(text.contains("nf_conntrack_max=1"), "{text}");
    }

    #[test]
    fn what_has_to_be_left_is_less_used_where_a_tenant_has_gone() {
        let least = resource("memory_available", 0.1, true);
        assert!((least.with_used(0.4, 0.5) - 0.7).abs() < 1e-9);
        let most = resource("conntrack", 0.8, false);
        assert!((most.with_used(0.4, 0.5) - 0.2).abs() < 1e-9);
    }

    #[test]
    fn what_can_run_out_has_an_end_on_every_machine() {
        let resources = resources(2, |figure| vec![format!("raise {figure}")]);
        assert_eq!(resources.len(), MADE_OF.len());
        assert_eq!((resources[0].full, resources[0].is_least), (2.0, false));
        let memory = resources.iter().find(|it| it.figure == "memory_available");
        assert!(memory.is_some_and(|it| it.is_least && it.unit == Unit::Share));
    }
}
