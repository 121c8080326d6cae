//! Rules that shed, as a table and for Prometheus.

use std::fmt::Write as _;

use config::model::sensor::Sensor;
use control::{ShedRule, ShedTenant, Status};

use super::exposition::Text;
use super::table::{count, duration, grid};

/// Tenants shown.
const TENANTS_MAX: usize = 30;

/// The rules, and the tenants of which most was shed.
pub(super) fn table(figures: &Status, out: &mut String) {
    let rows = figures.shedding.iter().map(|rule| {
        vec![
            rule.rule.clone(),
            reading(rule),
            state(rule),
            duration(u64::try_from(rule.since_ms / 1_000).unwrap_or(u64::MAX)),
            format!("{:.0}%", rule.admitted_share * 100.0),
            count(rule.shed),
            count(rule.shadow_shed),
        ]
    });
    let heads = [
        "shedding",
        "sensor",
        "state",
        "for",
        "admitted",
        "shed",
        "would be shed",
    ];
    grid(&heads, rows.collect(), out);
    let tenants = figures.shed_by_tenant.iter().take(TENANTS_MAX);
    let rows = tenants.map(|it| vec![it.tenant.clone(), count(it.shed), count(it.shadow_shed)]);
    grid(&["tenant", "shed", "would be shed"], rows.collect(), out);
    if let more @ 1.. = figures.shed_by_tenant.len().saturating_sub(TENANTS_MAX) {
        let _ = writeln!(out, "and {more} more: nagaya status --json");
    }
}

/// `red`, or `red (shadow)`.
fn state(rule: &ShedRule) -> String {
    match &*rule.mode {
        "shadow" => format!("{} (shadow)", rule.state),
        _ => rule.state.to_string(),
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

/// One figure of each rule.
fn of_rules<V>(
    rules: &[ShedRule],
    of: fn(&ShedRule) -> V,
) -> impl Iterator<Item = ([(&'static str, &String); 1], V)> {
    rules
        .iter()
        .map(move |rule| ([("rule", &rule.rule)], of(rule)))
}

/// States are numbers: 0 green, 1 yellow, 2 red.
pub(super) fn prometheus(figures: &Status, out: &mut Text) {
    let rules = &figures.shedding;
    let level = |rule: &ShedRule| match &*rule.state {
        "green" => 0,
        "yellow" => 1,
        _ => 2,
    };
    let help = "How a rule that sheds stands: 0 green, 1 yellow, 2 red.";
    out.each("shedding_state", help, of_rules(rules, level));
    let help = "1 where a rule is in shadow and sheds nobody.";
    let shadow = of_rules(rules, |rule| u64::from(rule.mode == "shadow"));
    out.each("shedding_shadow", help, shadow);
    let help = "Share of requests that a rule that sheds admits.";
    let shares = of_rules(rules, |rule| rule.admitted_share);
    out.each("shedding_admitted_share", help, shares);
    let shed = of_rules(rules, |rule| rule.shed);
    out.each("shed_total", "Requests shed, by rule.", shed);
    let help = "Requests a rule would have shed, were it not in shadow.";
    let shed = of_rules(rules, |rule| rule.shadow_shed);
    out.each("shed_shadow_total", help, shed);
    let of = |of: fn(&ShedTenant) -> u64| {
        let tenants = figures.shed_by_tenant.iter();
        tenants.map(move |it| ([("tenant", &it.tenant)], of(it)))
    };
    let shed = of(|it| it.shed);
    out.each("tenant_shed_total", "Requests shed, by tenant.", shed);
    let help = "Requests that a rule in shadow would have shed, by tenant.";
    out.each("tenant_shed_shadow_total", help, of(|it| it.shadow_shed));
}
