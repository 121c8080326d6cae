//! `capacity`: of each resource how full it is, when it will be, by whom, and what would help.
//!
//! The idea: busy hours of days say how it goes on ([`crate::capacity`]), and what tenants took in
//! those hours says who makes them; what moving one would give is the same line without its share.
//! What cannot be raised and what is nobody's in particular is said as such.

use std::collections::BTreeMap;

use report::units::{self, Unit};
use report::{Column, Document, Table, Tone};

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
    /// What raises it, where that is known: commands.
    pub raised_by: Vec<String>,
}

/// Makes the report of all resources at a time.
///
/// # Errors
/// Where figures cannot be read.
pub fn outlook(
    store: &FigureStore,
    resources: &[Resource],
    now_s: i64,
) -> Result<Document, StoreError> {
    let mut document = Document::new("Capacity", "How full each resource is, and when it will be");
    let columns = [
        "peak today",
        "95 % of minutes",
        "busy hour",
        "grows by day",
        "full",
    ];
    let columns = columns.into_iter().map(Column::right);
    let mut table = Table::new([Column::left("resource")].into_iter().chain(columns));
    let mut details = Vec::new();
    for resource in resources {
        let Some(state) = ResourceState::read(store, resource, now_s)? else {
            continue;
        };
        table.row(state.row(resource));
        details.push((resource, state));
    }
    if table.rows.is_empty() {
        let nothing = "Nothing was recorded of this machine yet.";
        document.answer = Some((Tone::Warn, nothing.into()));
        return Ok(document);
    }
    document.section("Resources").table(table);
    for (resource, state) in &details {
        state.tell(resource, &mut document);
    }
    let days = details.iter().map(|(_, state)| state.busy_hours.len());
    let days = days.max().unwrap_or(0);
    if days < DAYS_MIN {
        let told = format!(
            "Nothing is foretold from {days} days: it takes {DAYS_MIN} with an hour of figures each."
        );
        document.answer = Some((Tone::Warn, told));
    }
    Ok(document)
}

/// How it stands with a resource.
struct ResourceState {
    today: Option<Sums>,
    p95: Option<f64>,
    busy_hours: Vec<BusyHour>,
    full: FullOn,
    /// Tenants with their share of the busy hours of the last week, and when it is full without each.
    tenants: Vec<(String, f64, FullOn)>,
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
        let full_at = |busy_hours: &[BusyHour]| {
            let line = trend(busy_hours);
            full_on(
                line.as_ref(),
                busy_hours.len(),
                resource.full,
                resource.is_least,
            )
        };
        let mut state = ResourceState {
            today: sums,
            p95,
            full: full_at(&busy_hours),
            busy_hours,
            tenants: Vec::new(),
        };
        let week = busiest.range(today / DAY_S - SHARED_DAYS..);
        let week: Vec<i64> = week.map(|(_, (at_s, _))| *at_s).collect();
        for (tenant, share) in shares(store, resource.made_of, &week)? {
            let without: Vec<BusyHour> = state
                .busy_hours
                .iter()
                .map(|(day, value)| {
                    let used = if resource.is_least {
                        1.0 - value
                    } else {
                        *value
                    };
                    let left = used * (1.0 - share);
                    (*day, if resource.is_least { 1.0 - left } else { left })
                })
                .collect();
            state.tenants.push((tenant, share, full_at(&without)));
        }
        Ok(Some(state))
    }

    fn row(&self, resource: &Resource) -> Vec<String> {
        let write =
            |value: Option<f64>| value.map_or(units::NONE.into(), |it| resource.unit.write(it));
        let peak = self
            .today
            .map(|it| if resource.is_least { it.low } else { it.high });
        let line = trend(&self.busy_hours);
        let growth = line.map_or(units::NONE.into(), |line| {
            let (low, high) = line.between;
            units::with_interval(resource.unit, line.per_day, low, high)
        });
        vec![
            resource.figure.clone(),
            write(peak),
            write(self.p95),
            write(self.busy_hours.last().map(|(_, value)| *value)),
            growth,
            when(self.full),
        ]
    }

    fn tell(&self, resource: &Resource, document: &mut Document) {
        if self.tenants.is_empty() && resource.raised_by.is_empty() {
            return;
        }
        let section = document.section(format!("What makes `{}`", resource.figure));
        if !self.tenants.is_empty() {
            let columns = ["share of the busy hours of a week", "full if it moves"];
            let columns = columns.into_iter().map(Column::right);
            let mut table = Table::new([Column::left("tenant")].into_iter().chain(columns));
            for (tenant, share, full) in &self.tenants {
                table.row([tenant.clone(), units::share(*share), when(*full)]);
            }
            section.table(table);
            section.text(format!(
                "A tenant is held to less by `[tenants.NAME]`: `cgroup = {{ cpu = \"50%\" }}` and the like. \
                 Its share is that of the {} of all tenants.",
                resource.made_of
            ));
        }
        if !resource.raised_by.is_empty() {
            section.listing("What raises it", resource.raised_by.join("\n"));
        }
    }
}

/// When it is full, in words.
fn when(full: FullOn) -> String {
    match full {
        FullOn::TooFewDays(_) => units::NONE.into(),
        FullOn::Now => "now".into(),
        FullOn::NotForAYear => "not within a year".into(),
        FullOn::Day {
            likely,
            earliest,
            latest,
        } => {
            let day = |day: Option<i32>| day.map_or("later".into(), |day| civil(day).to_string());
            let (likely, latest) = (day(likely), day(latest));
            format!("{likely} ({} to {latest})", civil(earliest))
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
        let told = outlook(&store, &[resource("conntrack", 0.8, false)], now_s).expect("read");
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
        let told = outlook(&store, &[resource("conntrack", 0.8, false)], now_s).expect("read");
        let (_, answer) = told.answer.expect("an answer");
        assert!(answer.contains("from 5 days"), "{answer}");
    }

    #[test]
    fn of_an_empty_database_that_is_said() {
        let directory = TempDir::new();
        let (store, _) = FigureStore::open(directory.path(), 0).expect("it opens");
        let told = outlook(&store, &[resource("conntrack", 0.8, false)], 9).expect("read");
        assert!(told.sections.is_empty() && told.answer.is_some());
    }
}
