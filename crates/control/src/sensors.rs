//! What `sensors` answers; what is not known is `null`.

use serde::Serialize;

use crate::Named;

/// All sensors.
#[derive(Debug, Clone, Serialize)]
pub struct Sensors {
    /// Each by its name.
    pub sensors: Named<Sensor>,
    /// How late each worker is, in seconds.
    pub loop_lag_s: Vec<Option<f64>>,
    /// What this machine does not tell.
    pub missing: Vec<Missing>,
    /// What can be raised.
    pub advice: Vec<Advice>,
}

/// What there is to say of a sensor.
#[derive(Debug, Clone, Serialize)]
pub struct Sensor {
    /// What it says.
    pub value: Option<f64>,
    /// What it said on average over 10 s.
    pub mean_10s: Option<f64>,
    /// What is too much on any machine.
    pub too_much: Option<f64>,
    /// What its numbers count.
    pub unit: &'static str,
    /// What it measures, in words.
    pub meaning: &'static str,
    /// What rules that shed make of it.
    pub rules: Vec<String>,
}

/// Sensors that this machine does not have.
#[derive(Debug, Clone, Serialize)]
pub struct Missing {
    /// Their names.
    pub sensors: Vec<&'static str>,
    /// What was looked for, and what came of it.
    pub why: String,
    /// What would make the machine tell.
    pub remedy: &'static str,
}

/// What can be done about a sensor.
#[derive(Debug, Clone, Serialize)]
pub struct Advice {
    /// Its name.
    pub sensor: &'static str,
    /// How much there is, in words.
    pub state: String,
    /// What raises it.
    pub commands: Vec<String>,
    /// What that costs.
    pub cost: String,
}
