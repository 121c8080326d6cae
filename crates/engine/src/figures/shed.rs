//! Rules that shed, as a table and for Prometheus.

use std::fmt::Write as _;

use super::prometheus::Text;
use super::table::{count, duration, grid};
use crate::shedding::rows::{RuleFigures, ShedFigures};

/// Tenants shown.
const TENANTS_MAX: usize = 30;

/// The rules, and the tenants of which most was shed.
pub(super) fn table(figures: &ShedFigures, out: &mut String) {
    let rows = figures.rules.iter().map(|rule| {
        vec![
            rule.name.to_string(),
            rule.reading(),
            rule.state.word().to_owned(),
            duration(rule.since.as_secs()),
            format!("{:.0}%", rule.share * 100.0),
            count(rule.shed),
        ]
    });
    let heads = ["shedding", "sensor", "state", "for", "admitted", "shed"];
    grid(&heads, rows.collect(), out);
    let tenants = figures.tenants.iter().take(TENANTS_MAX);
    let rows = tenants.map(|(tenant, shed)| vec![tenant.to_string(), count(*shed)]);
    grid(&["tenant", "shed"], rows.collect(), out);
    if let more @ 1.. = figures.tenants.len().saturating_sub(TENANTS_MAX) {
        let _ = writeln!(out, "and {more} more: nagaya status --json");
    }
}

/// States are numbers: 0 green, 1 yellow, 2 red.
pub(super) fn prometheus(figures: &ShedFigures, out: &mut Text) {
    type Figure = fn(&RuleFigures) -> f64;
    let families: [(_, _, Figure); 2] = [
        (
            "shedding_state",
            "How a rule that sheds stands: 0 green, 1 yellow, 2 red.",
            |rule| f64::from(rule.state as u8),
        ),
        (
            "shedding_admitted_share",
            "Share of requests that a rule that sheds admits.",
            |rule| rule.share,
        ),
    ];
    for (name, help, value) in families {
        out.family(name, "gauge", help);
        for rule in &figures.rules {
            out.sample(name, &[("rule", &rule.name)], value(rule));
        }
    }
    out.family("shed_total", "counter", "Requests shed, by rule.");
    for rule in &figures.rules {
        out.sample("shed_total", &[("rule", &rule.name)], rule.shed);
    }
    let name = "tenant_shed_total";
    out.family(name, "counter", "Requests shed, by tenant.");
    for (tenant, shed) in &figures.tenants {
        out.sample(name, &[("tenant", tenant)], shed);
    }
}
