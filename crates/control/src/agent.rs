//! What `nagaya agent` answers to a client that speaks HTTP.

use serde::Serialize;

use crate::Named;

/// How a machine is, for whoever forwards requests there.
#[derive(Debug, Clone, Serialize)]
pub struct Agent {
    /// `drain` or `up`.
    pub state: &'static str,
    /// How much of its weight the machine is up to.
    pub percent: u32,
    /// What its sensors say; `null` for one that it does not have.
    pub sensors: Named<Option<f64>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sensor_that_is_not_there_is_null() {
        let agent = Agent {
            state: "drain",
            percent: 0,
            sensors: [("cpu_pressure", Some(0.5)), ("load1", None)]
                .into_iter()
                .collect(),
        };
        let spelt = r#"{"state":"drain","percent":0,"sensors":{"cpu_pressure":0.5,"load1":null}}"#;
        assert_eq!(crate::json(&agent), format!("{spelt}\n"));
    }
}
