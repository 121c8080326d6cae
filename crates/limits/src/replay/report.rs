//! What a replay tells: for each key and for all together.

use std::time::Duration;

use crate::{Time, Why};

/// What would have come of all arrivals.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// When the first came, and the last.
    pub from: Time,
    /// When the last came.
    pub until: Time,
    /// Each key, those most refused first, then those that waited most. Keys beyond
    /// [`KEYS_MAX`](super::KEYS_MAX) are told together, as [`OTHER`](super::OTHER).
    pub keys: Vec<KeyReport>,
    /// All keys together.
    pub total: KeyReport,
}

impl Report {
    /// The most requests that any key would have had under way at once without a limit.
    #[must_use]
    pub(crate) fn wanted_max(&self) -> u32 {
        self.keys.iter().map(|key| key.wanted).max().unwrap_or(0)
    }
}

/// What would have come of the arrivals of one key.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeyReport {
    /// The key, made printable; empty for a fixed limit.
    pub key: String,
    /// Requests that went on, at once or after a wait.
    pub admitted: u64,
    /// Requests that went on after a wait.
    pub waited: u64,
    /// Half of these waited no longer.
    pub wait_p50: Duration,
    /// 99 of 100 of these waited no longer.
    pub wait_p99: Duration,
    /// The longest wait of these.
    pub wait_max: Duration,
    /// How many were refused, for each reason that occurred.
    pub refused: Vec<(Why, u64)>,
    /// Permits given out at once at most.
    pub peak: u32,
    /// Requests that would have been under way at once at most without a limit.
    pub wanted: u32,
}

impl KeyReport {
    /// How many were refused, for whatever reason.
    #[must_use]
    pub fn refused_total(&self) -> u64 {
        self.refused.iter().map(|(_, count)| count).sum()
    }
}
