//! What rules that shed have come to: for status and metrics.

use std::sync::Arc;
use std::time::Duration;

use config::model::sensor::Sensor;
use limits::shed::State;

use crate::worker::Shared;

/// All of it.
#[derive(Debug, Default)]
pub(crate) struct ShedFigures {
    /// The rules, in their order.
    pub rules: Vec<RuleFigures>,
    /// Tenants of which requests were shed, those with most first.
    pub tenants: Vec<(Arc<str>, u64)>,
}

/// A rule that sheds.
#[derive(Debug)]
pub(crate) struct RuleFigures {
    /// Its name.
    pub name: Arc<str>,
    /// What it looks at.
    pub sensor: Sensor,
    /// The last value, if there is one.
    pub value: Option<f64>,
    /// Beyond it there is too much to do.
    pub enter: f64,
    /// Back at it there is not any more.
    pub leave: f64,
    /// How it stands,
    pub state: State,
    /// for so long.
    pub since: Duration,
    /// The share of requests that is admitted.
    pub share: f64,
    /// Requests it has shed.
    pub shed: u64,
}

impl RuleFigures {
    /// `cpu_pressure 12.3%, too much above 40.0%`; without the sensor's name where the rule has it.
    pub(crate) fn reading(&self) -> String {
        let unit = self.sensor.unit();
        let value = self.value.map_or("-".to_owned(), |value| unit.show(value));
        let beyond = self.sensor.beyond(self.enter);
        let sensor = self.sensor.name();
        match *self.name == *sensor {
            true => format!("{value}, too much {beyond}"),
            false => format!("{sensor} {value}, too much {beyond}"),
        }
    }
}

/// Collects them.
pub(crate) fn collect(shared: &Shared) -> ShedFigures {
    let generation = shared.generation();
    let Some(shedding) = generation.as_ref().and_then(|it| it.shedding.as_ref()) else {
        return ShedFigures::default();
    };
    let rules = shedding.rules.iter().map(|rule| {
        let standing = &rule.standing;
        RuleFigures {
            name: Arc::clone(&standing.name),
            sensor: standing.sensor.clone(),
            value: standing.value(),
            enter: standing.enter,
            leave: standing.leave,
            state: standing.state(),
            since: standing.since(),
            share: standing.share(),
            shed: standing.shed(),
        }
    });
    let tenants = shedding.tenants.iter();
    let tenants = tenants.map(|tenant| (Arc::clone(&tenant.load.name), tenant.load.shed()));
    let mut tenants: Vec<_> = tenants.filter(|(_, shed)| *shed > 0).collect();
    tenants.sort_by(|left, right| right.1.cmp(&left.1).then_with(|| left.0.cmp(&right.0)));
    ShedFigures {
        rules: rules.collect(),
        tenants,
    }
}
