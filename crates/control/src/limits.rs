//! What `limits list` and `limits top` answer.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::Named;

/// A limit, and what all its keys together have come to.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
#[serde(default)]
pub struct Limit {
    /// What it is told from all others by.
    pub limit: String,
    /// What the configuration calls it.
    pub name: String,
    /// Who says that it is as it is.
    pub from: String,
    /// `enforce` or `shadow`.
    pub mode: Cow<'static, str>,
    /// Whether its `when` holds now.
    pub holds: bool,
    /// Whether it counts some requests only.
    #[serde(rename = "match")]
    pub has_match: bool,
    /// `handshake` where it counts these.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on: Option<Cow<'static, str>>,
    /// Permits for each key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub concurrent: Option<Concurrent>,
    /// Permits there are now, where that changes by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub concurrent_now: Option<u32>,
    /// Permits there are now, whoever decides; metrics tell.
    #[serde(skip)]
    pub permits: Option<u32>,
    /// Requests of a key that may wait, where it has permits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<u32>,
    /// How long they may wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait_ms: Option<u128>,
    /// After how long a wait a request is late.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub late_ms: Option<u128>,
    /// Its rate, as the configuration spells it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<String>,
    /// Requests at once within that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burst: Option<u32>,
    /// Keys in use.
    pub keys: u64,
    /// Requests that hold a permit.
    pub in_flight: u64,
    /// Requests that hold a permit of the key that has most of them; metrics tell.
    #[serde(skip)]
    pub in_flight_most: u64,
    /// Requests that wait.
    pub queued: u64,
    /// Requests admitted.
    pub admitted: u64,
    /// Requests that waited, whatever came of it.
    pub waited: u64,
    /// Requests it would have refused, were it not in shadow.
    pub shadow_refused: u64,
    /// Requests refused, by reason.
    pub refused: Named<u64>,
}

impl Limit {
    /// Requests refused, for whatever reason.
    pub fn refused_total(&self) -> u64 {
        self.refused.iter().map(|(_, count)| count).sum()
    }
}

/// Permits of a limit.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Concurrent {
    /// So many.
    Fixed(u32),
    /// A word that says who decides.
    Word(Cow<'static, str>),
}

/// A key of a limit, and what it has come to.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
#[serde(default)]
pub struct Key {
    /// What the limit is told from all others by.
    pub limit: String,
    /// The key; empty where the limit has one alone.
    pub key: String,
    /// Whether it stands for all keys there was no room for.
    pub overflow: bool,
    /// Requests that hold a permit.
    pub in_flight: u32,
    /// Requests that wait.
    pub queued: u32,
    /// Requests that may wait.
    pub queue: u32,
    /// Requests admitted.
    pub admitted: u64,
    /// Requests that waited, whatever came of it.
    pub waited: u64,
    /// Requests refused.
    pub refused: u64,
    /// Requests it would have refused, were it not in shadow.
    pub shadow_refused: u64,
    /// Permits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub concurrent: Option<u32>,
    /// How long the oldest that waits has waited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oldest_ms: Option<u128>,
    /// Where the key is a file, the processor time that a run of it takes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_us: Option<u128>,
}
