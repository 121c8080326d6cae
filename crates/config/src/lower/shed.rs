//! `[[shed]]`.
//!
//! The idea: a rule that could never shed, or never stop, is refused here; while the machine is
//! overloaded is no time to find out.

use std::sync::Arc;

use super::conditions::{SiteFiles, conditions};
use super::context::{Spot, problem, title_of};
use super::table::Table;
use super::template::{Purpose, leads_somewhere, template};
use super::tops::Tops;
use super::upstream::Upstreams;
use super::value::Value;
use super::{files, names::Named};
use crate::model::sensor::{Gauge, Sensor, Unit, Worse};
use crate::model::{
    Condition, Degrade, Map, MapSource, SHED_RULES_MAX, Shed, ShedReply, ShedScope, Template,
    TemplatePart,
};
use crate::{keys, units};

/// Longest name.
const NAME_BYTES_MAX: usize = 255;
/// How long a state lasts, where nothing is said.
const DWELL_MS: u64 = 2_000;

/// Every `[[shed]]`, in the order of the files.
pub(crate) fn lower_all(tops: &Tops<'_>, upstreams: &Upstreams, maps: &[Map]) -> Vec<Shed> {
    let mut rules = Rules::default();
    for value in tops.optional_elements("shed") {
        if rules.list.len() == SHED_RULES_MAX {
            value.report(format!("there are more than {SHED_RULES_MAX} `[[shed]]`"));
            break;
        }
        if let Some(table) = value.table(&keys::SHED) {
            rules.add(&table, upstreams, maps);
        }
    }
    rules.list
}

/// The rules so far, and where their names stand.
#[derive(Default)]
struct Rules {
    list: Vec<Shed>,
    spots: Vec<(String, Spot)>,
}

impl Rules {
    fn add(&mut self, table: &Table<'_>, upstreams: &Upstreams, maps: &[Map]) {
        let sensor = table.required("sensor");
        let sensor = sensor.and_then(|value| sensor_of(&value, upstreams));
        let base = sensor.as_ref().map(Sensor::name).unwrap_or_default();
        let name = rule_name(table, "[[shed]]", base, &self.spots);
        let (scope, mode) = (table.choice("scope"), table.choice("mode"));
        let rest = (respond(table), matched(table, maps), degrade(table));
        let dwell = table.some_number("dwell");
        let Some(sensor) = sensor else {
            // What it would be compared with is not known, but some values are wrong for all.
            for value in ["enter", "leave"].map(|name| table.get(name)) {
                let number = value.and_then(|value| Some((value, value.number()?)));
                number.map(|(value, number)| positive(&value, number));
            }
            return;
        };
        let (enter, leave) = thresholds(table, &sensor);
        let dwell_ms = dwell.unwrap_or(match scope {
            ShedScope::OverShare => DWELL_MS,
            ShedScope::All => 0,
        });
        let (respond, conditions, degrade) = rest;
        self.spots.push((name.clone(), table.spot()));
        self.list.push(Shed {
            name,
            sensor,
            enter,
            leave,
            dwell_ms,
            scope,
            mode,
            respond,
            conditions,
            degrade,
        });
    }
}

/// What a rule is called: its own word, or its base, with a number where another is called so.
pub(super) fn rule_name(
    table: &Table<'_>,
    title: &str,
    base: String,
    known: &[(String, Spot)],
) -> String {
    let taken = |name: &str| known.iter().find(|(other, _)| other == name);
    let Some(value) = table.get("name") else {
        let numbered = |number: usize| match number {
            1 => base.clone(),
            number => format!("{base} {number}"),
        };
        // One more than there are: one of these is free.
        let mut names = (1..=known.len() + 1).map(numbered);
        return names.find(|name| taken(name).is_none()).unwrap_or(base);
    };
    let name = value.text().unwrap_or_default();
    let fits = (1..=NAME_BYTES_MAX).contains(&name.len());
    if value.is_text() && (!fits || name.chars().any(char::is_control)) {
        value.report(format!(
            "the `name` of a `{title}` must be a short text without control characters"
        ));
    }
    if let Some((_, first)) = taken(name) {
        value.report_again(format!("two `{title}` are called `{name}`"), first.clone());
    }
    name.to_owned()
}

pub(super) fn sensor_of(value: &Value<'_>, upstreams: &Upstreams) -> Option<Sensor> {
    let name = value.text()?;
    let Some(sensor) = Sensor::from_name(name) else {
        let finding = problem(value.spot(), format!("there is no sensor `{name}`"));
        let meant = keys::nearest(name, Gauge::ALL.iter().map(|gauge| gauge.name()));
        value.context.report(match meant {
            Some(meant) => finding.meant(Some(meant)),
            None => finding.help("`nagaya sensors` lists them"),
        });
        return None;
    };
    if let Sensor::Upstream(upstream, _) = &sensor {
        if !upstreams.is_named(upstream) {
            let finding = problem(value.spot(), format!("there is no upstream `{upstream}`"));
            let help = format!("describe it: `{}`", title_of("upstreams", upstream));
            value.context.report(finding.help(help).absence());
        } else if !upstreams.has_agents(upstream) {
            let message = format!("nobody tells the sensors of upstream `{upstream}`");
            let help =
                "run `nagaya agent` beside its servers, and add `agent = 9707` to the upstream";
            value.report_help(message, help);
        }
    }
    Some(sensor)
}

/// `enter` and `leave`.
fn thresholds(table: &Table<'_>, sensor: &Sensor) -> (f64, f64) {
    let (default, part) = (sensor.gauge().too_much(), usual_part(sensor.gauge()));
    let enter = table.get("enter");
    let enter = match &enter {
        Some(value) => threshold(value, sensor),
        None => {
            if default.is_none() && !table.has_misspelt("enter") {
                let message = format!(
                    "`enter` is missing: no value of `{sensor}` is too much on every machine"
                );
                let help = "look at it with `nagaya sensors` when there is much to do, then add `enter = …`";
                table
                    .context
                    .report(problem(table.spot(), message).help(help).absence());
            }
            default
        }
    };
    let leave = table.get("leave");
    let written = leave.and_then(|value| Some((value, threshold(&value, sensor)?)));
    // Where nothing could be read that was reported.
    let Some(enter) = enter else {
        return (1.0, part);
    };
    let Some((value, leave)) = written else {
        return (enter, enter * part);
    };
    let (is_worse, which) = match sensor.worse() {
        Worse::Above => (leave > enter, "above"),
        Worse::Below => (leave < enter, "below"),
    };
    if is_worse {
        let message =
            format!("`leave` ({leave}) is {which} `enter` ({enter}): the rule would never settle");
        value.report_help(
            message,
            "it may be `enter` itself, or any value that is better",
        );
    }
    (enter, leave)
}

/// A value that the sensor can pass in both directions.
fn threshold(value: &Value<'_>, sensor: &Sensor) -> Option<f64> {
    let number = measured_number(value, sensor.unit(), sensor)?;
    let number = positive(value, number)?;
    let name = value.name;
    if let Some(most) = plausible(sensor.gauge()).filter(|most| number > *most) {
        let message = format!("`{name}` is {number} seconds: `{sensor}` hardly ever gets there");
        let help = match number / 1_000.0 {
            seconds if seconds <= most => format!("{number} milliseconds are {seconds}"),
            _ => format!("it is in seconds, and rarely above {most}"),
        };
        value.warn_help(message, help);
    }
    Some(number)
}

/// A number as it is measured: of a share one that it can pass, of bytes also with a unit.
pub(super) fn measured_number(
    value: &Value<'_>,
    unit: Unit,
    of: &impl std::fmt::Display,
) -> Option<f64> {
    if unit == Unit::Bytes {
        return Some(value.size(0, 1 << 50)? as f64);
    }
    let name = value.name;
    if let Some((expected, meant)) = measured(value, unit) {
        let message = format!("`{name}` must be a number, not a text");
        let meant = meant.map_or(String::new(), |meant| format!(": write {meant}"));
        value.report_help(message, format!("`{of}` is {expected}{meant}"));
        return None;
    }
    let number = value.number()?;
    if unit == Unit::Share && number >= 1.0 {
        let message = format!("`{name}` must be below 1: `{of}` is a share");
        let finding = problem(value.spot(), message);
        value.context.report(match number <= 100.0 {
            true => finding.help(format!("{number} % is {}", number / 100.0)),
            false => finding,
        });
        return None;
    }
    Some(number)
}

fn positive(value: &Value<'_>, number: f64) -> Option<f64> {
    if number <= 0.0 {
        value.report(format!("`{}` must be above 0", value.name));
        return None;
    }
    Some(number)
}

/// What a sensor's values are, and the number that a text with a unit means; `None` where the value
/// is no such text.
fn measured(value: &Value<'_>, unit: Unit) -> Option<(&'static str, Option<f64>)> {
    let text = value.typed().filter(|_| value.is_text())?;
    let text = text.trim();
    if text.parse::<f64>().is_ok() {
        return None;
    }
    let percent = || text.strip_suffix('%')?.trim_end().parse::<f64>().ok();
    let seconds = || units::parse_duration(text).map(|ms| ms as f64 / 1_000.0);
    match unit {
        Unit::Share => Some(("a share, such as 0.6", percent().map(|it| it / 100.0))),
        Unit::Seconds => Some(("in seconds, such as 1 or 0.1", seconds())),
        Unit::PerSecond => Some(("a number a second, such as 0.5", None)),
        Unit::Load => Some(("a number of tasks, such as 3 or 3.5", None)),
        Unit::Count | Unit::Bytes => Some(("a number, such as 100", None)),
    }
}

/// Seconds beyond which somebody meant milliseconds.
fn plausible(gauge: Gauge) -> Option<f64> {
    match gauge {
        Gauge::LoopLag => Some(10.0),
        Gauge::QueueAge => Some(60.0),
        _ => None,
    }
}

/// What part of what is too much is not any more, where nothing is said.
fn usual_part(gauge: Gauge) -> f64 {
    match gauge {
        Gauge::MemoryAvailable => 1.5,
        Gauge::Conntrack | Gauge::Descriptors | Gauge::Ports => 0.875,
        _ => 0.6,
    }
}

fn respond(table: &Table<'_>) -> ShedReply {
    let table = table
        .get("respond")
        .and_then(|value| value.table(&keys::SHED_RESPOND));
    let Some(table) = table else {
        return ShedReply::Whale;
    };
    match (table.get("redirect"), table.get("page")) {
        (Some(redirect), Some(page)) => {
            let finding = problem(page.spot(), "either a `redirect` or a `page`, not both");
            table
                .context
                .report(finding.other("the redirect", redirect.spot()));
            ShedReply::Whale
        }
        (Some(target), None) => redirect(&target).unwrap_or(ShedReply::Whale),
        (None, Some(page)) => {
            let page = files::error_page(&page).map(Arc::new);
            page.map_or(ShedReply::Whale, ShedReply::Page)
        }
        (None, None) => {
            if !table.has_strangers() {
                let finding = problem(table.spot(), "`respond` is empty");
                let help = "leave it out for our page, or add `redirect` or `page`";
                table.context.report(finding.help(help).absence());
            }
            ShedReply::Whale
        }
    }
}

fn redirect(value: &Value<'_>) -> Option<ShedReply> {
    let target = template(value, Purpose::Target)?;
    if !leads_somewhere(&target) {
        let help = "it begins with `/`, `http://`, `https://` or a variable";
        value.report_help("`redirect` must be a path or a URL", help);
    }
    if comes_back(&target) {
        value.report_help(
            "`redirect` leads to where the request came from, so none would be sent away",
            "name a place of its own: `http://sorry.example.jp/`",
        );
    }
    if target.lookups().next().is_some() {
        value.report_help(
            "no map is asked for a request that is shed",
            "name the place itself: it is told at once",
        );
    }
    Some(ShedReply::Redirect(target))
}

/// Whether a target is the very place that was asked for, whatever its scheme and its query.
fn comes_back(target: &Template) -> bool {
    let parts = match target.parts.as_slice() {
        [TemplatePart::Text(scheme), TemplatePart::Host, rest @ ..]
            if ["http://", "https://"].contains(&scheme.as_str()) =>
        {
            rest
        }
        [
            TemplatePart::Scheme,
            TemplatePart::Text(text),
            TemplatePart::Host,
            rest @ ..,
        ] if text == "://" => rest,
        parts => parts,
    };
    match parts {
        [TemplatePart::Path | TemplatePart::Uri | TemplatePart::RequestUri] => true,
        [TemplatePart::Path, TemplatePart::Text(text), ..] => text.starts_with('?'),
        _ => false,
    }
}

fn matched(table: &Table<'_>, maps: &[Map]) -> Vec<Condition> {
    let Some(value) = table.get("match") else {
        return Vec::new();
    };
    let conditions = conditions(&value, SiteFiles::Rooted, 0);
    match too_late(&conditions, maps) {
        None => {}
        Some("map") => value.report_help(
            "no program is asked whether a request is shed",
            "that would wait for it: ask a map that has a `file`, or match the `path`",
        ),
        Some(name) => value.report_help(
            format!("`{name}` cannot stand in the `match` of a `[[shed]]`"),
            "a request is shed before any file was looked for: match its `path`",
        ),
    }
    conditions
}

/// The first condition that asks for what is not known, and not to be had at once, when requests
/// are shed.
fn too_late(conditions: &[Condition], maps: &[Map]) -> Option<&'static str> {
    let is_program = |map: &Map| matches!(map.source, MapSource::Program(_));
    conditions.iter().find_map(|condition| match condition {
        Condition::File(_) => Some("file"),
        Condition::FileRegex(_) => Some("file_regex"),
        Condition::Exists(_) => Some("exists"),
        Condition::ServerEnv(_) => Some("server_env"),
        Condition::CostAbove(_) => Some("cost_above"),
        Condition::Row(_) => Some("row"),
        Condition::Map(asked) => maps.get(asked.map).is_some_and(is_program).then_some("map"),
        Condition::Not(inner) => too_late(inner, maps),
        _ => None,
    })
}

fn degrade(table: &Table<'_>) -> Vec<Degrade> {
    let mut found = Vec::new();
    for value in table.list("degrade") {
        let Some(word) = value.text() else {
            continue;
        };
        match Degrade::named(word) {
            Some(degrade) if found.contains(&degrade) => {
                value.report(format!("`{word}` stands there twice"));
            }
            Some(degrade) => found.push(degrade),
            None => {
                let finding = problem(
                    value.spot(),
                    format!("nothing is called `{word}` that requests can do without"),
                );
                let known = Degrade::NAMES.iter().map(|(name, _)| *name);
                let finding = match keys::nearest(word, known) {
                    Some(meant) => finding.meant(Some(meant)),
                    None => finding.help("known is `optional_scripts`"),
                };
                value.context.report(finding);
            }
        }
    }
    found
}
