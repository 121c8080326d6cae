//! Everything that operators may ask for, of one moment, for who shows it to them.
//!
//! The idea: the same types as the answers, in JSON, read again at the other end; what is missing there
//! is as if nothing had been counted.

use serde::{Deserialize, Serialize};

use crate::{Certificate, Key, PoolStanding, Sensors, Status, TenantNow};

/// What a server says of itself.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
#[serde(default)]
pub struct Snapshot {
    /// Everything it counts.
    pub status: Status,
    /// What its sensors say.
    pub sensors: Sensors,
    /// Keys of limits that hold or wait, those with most first.
    pub keys: Vec<Key>,
    /// Tenants, those that take most first.
    pub tenants: Vec<TenantNow>,
    /// How pools stand; none where the spawner does not say.
    pub pools: Vec<PoolStanding>,
    /// Its certificates, those with a problem first.
    pub certificates: Vec<Certificate>,
    /// Tenants whose rows of all these are here, whoever comes first.
    pub looked_at: Vec<String>,
}

impl Snapshot {
    /// Reads it.
    ///
    /// # Errors
    /// It is none.
    pub fn of_json(json: &str) -> Result<Snapshot, String> {
        serde_json::from_str(json).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Concurrent, Group, Limit, Replies, Sensor, ShedRule, Site, Stragglers};

    #[test]
    fn what_is_read_is_what_was_told() {
        let snapshot = Snapshot {
            status: Status {
                version: "1".into(),
                sites: vec![Site {
                    site: "a".into(),
                    replies: Replies {
                        by_class: [1, 2, 3, 4, 5],
                        bytes_in: 6,
                        bytes_out: u64::MAX,
                        ..Replies::default()
                    },
                }],
                stragglers: Stragglers {
                    now: 1,
                    ended: [("killed", 2)].into_iter().collect(),
                },
                groups: vec![Group {
                    tenant: "a".into(),
                    used: [("cpu_us", 9)].into_iter().collect(),
                    ..Group::default()
                }],
                limits: vec![Limit {
                    limit: "tenant a".into(),
                    concurrent: Some(Concurrent::Word("auto".into())),
                    wait_ms: Some(u128::from(u64::MAX) + 1),
                    refused: [("full", 3)].into_iter().collect(),
                    ..Limit::default()
                }],
                shedding: vec![ShedRule {
                    state: "red".into(),
                    value: Some(0.5),
                    ..ShedRule::default()
                }],
                ..Status::default()
            },
            sensors: Sensors {
                sensors: [("load1", Sensor::default())].into_iter().collect(),
                loop_lag_s: vec![None, Some(0.1)],
                ..Sensors::default()
            },
            pools: vec![PoolStanding::default()],
            keys: vec![Key::default()],
            ..Snapshot::default()
        };
        let told = crate::json(&snapshot);
        let read = Snapshot::of_json(&told).expect("a snapshot");
        assert_eq!(crate::json(&read), told);
        let empty = crate::json(&Snapshot::of_json("{}").expect("nothing was counted"));
        assert_eq!(empty, crate::json(&Snapshot::default()));
        assert!(Snapshot::of_json("[").is_err());
    }
}
