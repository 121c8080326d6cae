//! What `sensors` answers; what is not known is `null`.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::Named;

/// All sensors.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
#[serde(default)]
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
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
#[serde(default)]
pub struct Sensor {
    /// What it says.
    pub value: Option<f64>,
    /// What it said on average over 10 s.
    pub mean_10s: Option<f64>,
    /// What is too much on any machine.
    pub too_much: Option<f64>,
    /// What its numbers count.
    pub unit: Cow<'static, str>,
    /// What it measures, in words.
    pub meaning: Cow<'static, str>,
    /// What rules that shed make of it.
    pub rules: Vec<String>,
}

/// Sensors that this machine does not have.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
#[serde(default)]
pub struct Missing {
    /// Their names.
    pub sensors: Vec<Cow<'static, str>>,
    /// What was looked for, and what came of it.
    pub why: String,
    /// What would make the machine tell.
    pub remedy: Cow<'static, str>,
}

/// What can be done about a sensor.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
#[serde(default)]
pub struct Advice {
    /// Its name.
    pub sensor: Cow<'static, str>,
    /// How much there is, in words.
    pub state: String,
    /// What raises it.
    pub commands: Vec<String>,
    /// What that costs.
    pub cost: String,
}
