//! The recorder, as the server sees it.

use serde::{Deserialize, Serialize};

use crate::Named;

/// What the recorder was told by this server, and how it is.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
#[serde(default)]
pub struct Recorder {
    /// Its process; none where it is being started again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// How often it was started again.
    pub restarts: u64,
    /// Requests of which it was told.
    pub told: u64,
    /// Requests that are not recorded, as the configuration says: by client, cookie or wish.
    pub excluded: u64,
    /// What is not recorded although it was to be: requests before it had begun (`no_reader`) and while it
    /// was behind (`full`), and names of pages and the like (`name`).
    pub dropped: Named<u64>,
    /// Since it looked for what it is told; it does 20 times a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seen_ago_s: Option<f64>,
    /// Since it has last written figures; it does every five seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub written_ago_s: Option<f64>,
    /// What it has taken of processors.
    pub cpu_s: f64,
    /// How often a program of an alert has failed.
    pub alerts_failed: u64,
    /// Alerts whose program has failed when it was run last: nobody was told.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub untold_alerts: Vec<UntoldAlert>,
    /// How sending stands, where it sends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sends: Option<RecorderSends>,
}

/// How what the recorder sends elsewhere stands.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
#[serde(default)]
pub struct RecorderSends {
    /// Whether the database takes it.
    pub up: bool,
    /// Whether anything was tried yet.
    pub tried: bool,
    /// Why it does not, in the recorder's words.
    pub why: String,
    /// Since the oldest minute was over that waits.
    pub lag_s: u64,
    /// Minutes of figures and of sites, and incidents, that wait.
    pub waiting: u64,
    /// Those that were lost since the recorder began.
    pub lost: u64,
}

/// An alert of which nobody was told.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct UntoldAlert {
    /// Its name.
    pub alert: String,
    /// When its program failed.
    pub at: String,
    /// What became of it.
    pub why: String,
}
