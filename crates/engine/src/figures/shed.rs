//! Rules that shed, as a table and for Prometheus.

use std::fmt::Write as _;

use config::model::sensor::Sensor;
use control::{ShedRule, Status};

use super::prometheus::Text;
use super::table::{count, duration, grid};

/// Tenants shown.
const TENANTS_MAX: usize = 30;

/// The rules, and the tenants of which most was shed.
pub(super) fn table(figures: &Status, out: &mut String) {
    let rows = figures.shedding.iter().map(|rule| {
        vec![
            rule.rule.clone(),
            reading(rule),
            rule.state.to_owned(),
            duration(u64::try_from(rule.since_ms / 1_000).unwrap_or(u64::MAX)),
            format!("{:.0}%", rule.admitted_share * 100.0),
            count(rule.shed),
        ]
    });
    let heads = ["shedding", "sensor", "state", "for", "admitted", "shed"];
    grid(&heads, rows.collect(), out);
    let tenants = figures.shed_by_tenant.iter().take(TENANTS_MAX);
    let rows = tenants.map(|it| vec![it.tenant.clone(), count(it.shed)]);
    grid(&["tenant", "shed"], rows.collect(), out);
    if let more @ 1.. = figures.shed_by_tenant.len().saturating_sub(TENANTS_MAX) {
        let _ = writeln!(out, "and {more} more: nagaya status --json");
    }
}

/// `cpu_pressure 12.3%, too much above 40.0%`; without the sensor's name where the rule has it.
fn reading(rule: &ShedRule) -> String {
    let Some(sensor) = Sensor::from_name(&rule.sensor) else {
        return rule.sensor.clone();
    };
    let value = rule.value.map(|value| sensor.unit().show(value));
    let (value, beyond) = (value.unwrap_or("-".into()), sensor.beyond(rule.enter));
    let name = match rule.rule == rule.sensor {
        true => String::new(),
        false => format!("{sensor} "),
    };
    format!("{name}{value}, too much {beyond}")
}

/// States are numbers: 0 green, 1 yellow, 2 red.
pub(super) fn prometheus(figures: &Status, out: &mut Text) {
    type Figure = fn(&ShedRule) -> f64;
    let families: [(_, _, Figure); 2] = [
        (
            "shedding_state",
            "How a rule that sheds stands: 0 green, 1 yellow, 2 red.",
            |rule| match rule.state {
                "green" => 0.0,
                "yellow" => 1.0,
                _ => 2.0,
            },
        ),
        (
            "shedding_admitted_share",
            "Share of requests that a rule that sheds admits.",
            |rule| rule.admitted_share,
        ),
    ];
    for (name, help, value) in families {
        out.family(name, "gauge", help);
        for rule in &figures.shedding {
            out.sample(name, &[("rule", &rule.rule)], value(rule));
        }
    }
    out.family("shed_total", "counter", "Requests shed, by rule.");
    for rule in &figures.shedding {
        out.sample("shed_total", &[("rule", &rule.rule)], rule.shed);
    }
    let name = "tenant_shed_total";
    out.family(name, "counter", "Requests shed, by tenant.");
    for it in &figures.shed_by_tenant {
        out.sample(name, &[("tenant", &it.tenant)], it.shed);
    }
}
