//! What is answered of certificates: each of them, and all in short.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

/// A certificate that clients are shown, or one that is still to come.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
#[serde(default)]
pub struct Certificate {
    /// The first of its names.
    pub name: String,
    /// All that it is good for, or is to be.
    pub names: Vec<String>,
    /// `file`, `acme`, `local`, or `upstream` where it is shown to back ends.
    pub source: Cow<'static, str>,
    /// The path of its file, the account that orders it, or the site it was made for.
    pub of: String,
    /// Whose sites all its names are of; the console alone is told.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tenants: Vec<String>,
    /// What its key is; none where there is no certificate yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// From when it is valid, in UTC.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub valid_from: Option<String>,
    /// Until when.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub valid_until: Option<String>,
    /// How long that is from now: below 0 where it is over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub valid_s: Option<i64>,
    /// What is wrong: with its file, or with the last order.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// Of one that is ordered: how that goes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub order: Option<CertificateOrder>,
    /// Handshakes that were completed with it.
    pub handshakes: u64,
    /// Handshakes that clients ended by an alert when they saw it.
    pub client_alerts: u64,
}

/// How it goes with a certificate that is ordered of an authority.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
#[serde(default)]
pub struct CertificateOrder {
    /// What it is ordered for; what is served may still be for other names.
    pub names: Vec<String>,
    /// Whether this machine orders it: another one that shares the store may.
    pub here: bool,
    /// How often it was tried since the acme process started.
    pub tries: u32,
    /// How often it was issued since then.
    pub issued: u32,
    /// Failures since it last went well.
    pub failures: u32,
    /// How often it was rehearsed since then.
    pub rehearsals: u32,
    /// What went wrong in the last of these.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rehearsal_problem: Option<String>,
    /// When it was last tried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_try: Option<String>,
    /// When it is tried next.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_try: Option<String>,
}

/// All certificates in short.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
#[serde(default)]
pub struct Certificates {
    /// Those that clients are shown, by source.
    pub served: crate::Named<u64>,
    /// Sources that hold something wrong now, and orders that failed last.
    pub broken: u64,
    /// How many have ended, or end within so many days, each count containing those before it.
    pub ending_within_days: crate::Named<u64>,
    /// The first hundred that end: the name, and when in seconds since 1970.
    pub first_to_end: Vec<(String, i64)>,
    /// Orders that were tried since the acme process started.
    pub orders: u64,
    /// Of these, those that were issued.
    pub issued: u64,
    /// Certificates of which the last order failed.
    pub failing: u64,
    /// Certificates that are ordered and not there yet.
    pub awaited: u64,
    /// What clients asked for that no site names; `None` where none did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_demand: Option<OnDemand>,
}

/// Names that clients asked for and a site covers by a pattern alone.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
#[serde(default)]
pub struct OnDemand {
    /// Times that a map was asked about a name.
    pub asked: u64,
    /// Of these, those that it accepted, and that were wanted of the authority.
    pub accepted: u64,
    /// Names whose certificates came while handshakes waited.
    pub obtained: u64,
    /// Handshakes that wait now.
    pub waiting: u64,
}

/// What the keeper of private keys did for this server, and how it is.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
#[serde(default)]
pub struct Keeper {
    /// Its process; none where it is being started again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// How often it was started again.
    pub restarts: u64,
    /// Signatures it made.
    pub signatures: u64,
    /// What it refused, by reason; `key_cap` and `cap` are the caps of signatures a second.
    pub refused: crate::Named<u64>,
}

/// How the process is that asks authorities for certificates.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
#[serde(default)]
pub struct AcmeProcess {
    /// It; none where it is being started again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// How often it was started again.
    pub restarts: u64,
}
