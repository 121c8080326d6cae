//! What is answered of TLS handshakes: what they came to, and those that came to nothing.

use serde::{Deserialize, Serialize};

use crate::Named;

/// What handshakes have come to.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
#[serde(default)]
pub struct Handshakes {
    /// Costly steps made: with a key exchange and a signature.
    pub full: u64,
    /// Steps of resumptions, and second steps.
    pub short: u64,
    /// Processor time they took, the keeper's included.
    pub cpu_us: u64,
    /// Steps that wait for their turn.
    pub waiting: usize,
    /// Handshakes that failed, by reason.
    pub failed: Named<u64>,
    /// Those among them that the client ended, by the word it said.
    pub client_alerts: Named<u64>,
    /// Those after which a request came, of each tenant that had some.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub by_tenant: Vec<TenantHandshakes>,
}

/// A tenant's handshakes after which a request came: before that anybody can say its names.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
#[serde(default)]
pub struct TenantHandshakes {
    /// Its name.
    pub tenant: String,
    /// How many.
    pub handshakes: u64,
    /// What they took of processors, the keeper's included.
    pub cpu_us: u64,
}

/// A handshake that came to nothing.
#[derive(Debug, Default, Clone, Serialize)]
pub struct HandshakeFailure {
    /// When, in UTC.
    pub at: String,
    /// The client.
    pub client: String,
    /// The name it asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The stable word for why.
    pub reason: &'static str,
    /// What the client said of it: the name of its alert.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_alert: Option<&'static str>,
    /// The versions of TLS it offered, newest first.
    pub offered: Vec<&'static str>,
    /// More, where there is more to say.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub detail: String,
}
