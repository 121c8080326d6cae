//! What machines share, as the server sees it.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// How long a machine may say nothing.
const LOST_S: f64 = 15.0;

/// The store that machines count limits by, and what this one has leased of it.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
#[serde(default)]
pub struct Fleet {
    /// `answers`, `quiet` for one that gives out nothing new for now, or `lost`.
    pub store: Cow<'static, str>,
    /// Machines that it has told of.
    pub machines: u32,
    /// Whether an operator has this one drained.
    pub drained: bool,
    /// Whether the store evicts keys when it is full.
    pub evicts: bool,
    /// The longest that it took to answer in the last minutes; none: there was no answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slowest_answer_s: Option<f64>,
    /// Since that was asked which it answered last; none: never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answered_ago_s: Option<f64>,
    /// Why it is lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// What is leased, by limit, of those that are in use.
    pub leases: Vec<FleetLease>,
}

/// What is leased of a limit, all its keys together.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
#[serde(default)]
pub struct FleetLease {
    /// Its name, as `limits list` gives it.
    pub limit: String,
    /// Keys in use.
    pub keys: u32,
    /// Permits that this machine may give out.
    pub leased: u64,
    /// Permits that are in flight here.
    pub in_flight: u64,
    /// Requests that wait here.
    pub queued: u64,
}

/// What comes to a rate, all its keys together, in the last seconds.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
#[serde(default)]
pub struct FleetRate {
    /// Its name, as `limits list` gives it.
    pub limit: String,
    /// Requests that began here, each second.
    pub begun_per_s: f64,
    /// Requests that came here, each second.
    pub came_per_s: f64,
    /// Requests that wait here.
    pub queued: u64,
}

/// The machines that share limits, as the store and each of them know.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
#[serde(default)]
pub struct FleetMachines {
    /// How the store is for the machine that answers, as [`Fleet::store`].
    pub store: Cow<'static, str>,
    /// For how long permits are given.
    pub lease_s: f64,
    /// What the limits that are in use are on the machine that answers: permits, or a rate.
    pub limits: BTreeMap<String, String>,
    /// Each of them.
    pub machines: Vec<FleetMachine>,
}

/// What a machine says of itself, and the store of it.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
#[serde(default)]
pub struct FleetMachine {
    /// Its name.
    pub machine: String,
    /// Whether it is the one that answers.
    pub here: bool,
    /// Since it was heard of, by the store's clock; none: it was not for an hour.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heard_ago_s: Option<f64>,
    /// Whether an operator wants it drained.
    pub to_drain: bool,
    /// Whether several gateways say that they are it.
    pub namesakes: bool,
    /// Whether it is: it asks for no further requests, and ends connections with their reply.
    pub drained: bool,
    /// Which program it runs.
    pub version: String,
    /// Requests under way.
    pub in_flight: u64,
    /// The longest that the store took to answer it in the last minutes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slowest_answer_s: Option<f64>,
    /// A digest of each part of its configuration.
    pub digests: BTreeMap<String, String>,
    /// The parts in which it differs from what most machines have.
    pub differs: Vec<String>,
    /// Limits in use of which it has leased something, those with most first.
    pub leases: Vec<FleetLease>,
    /// Rates in use, those to which most came first.
    pub rates: Vec<FleetRate>,
}

impl FleetMachines {
    /// Reads it.
    ///
    /// # Errors
    /// It is none.
    pub fn of_json(json: &str) -> Result<FleetMachines, String> {
        serde_json::from_str(json).map_err(|error| error.to_string())
    }
}

impl FleetMachine {
    /// Whether it was not heard of for so long that it is lost: it says something every three seconds.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.heard_ago_s.is_none_or(|ago_s| ago_s > LOST_S)
    }

    /// Reads what a machine says of itself; `None` where it is nothing of the kind.
    #[must_use]
    pub fn of_json(json: &str) -> Option<FleetMachine> {
        serde_json::from_str(json).ok()
    }
}
