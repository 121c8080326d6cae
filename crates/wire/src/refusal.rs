//! Why bytes were refused.
//!
//! One small value for every rule of this crate: the status to answer and a reason that never
//! changes its spelling, so that logs and tests can name the rule. No text from the peer is kept.

use std::fmt;

/// Bytes that break a rule: the status to answer and a stable `snake_case` reason for logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Refusal {
    /// Status to answer before closing.
    pub status: u16,
    /// The rule that was broken, such as `bare_lf` or `te_and_cl`.
    pub reason: &'static str,
}

impl Refusal {
    /// Names a broken rule.
    pub const fn new(status: u16, reason: &'static str) -> Refusal {
        Refusal { status, reason }
    }

    /// A broken rule of syntax or framing: 400.
    pub(crate) const fn bad(reason: &'static str) -> Refusal {
        Refusal::new(400, reason)
    }

    /// The same rule broken by an upstream: 502.
    pub(crate) const fn by_upstream(self) -> Refusal {
        Refusal::new(502, self.reason)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "refused with {}: {}", self.status, self.reason)
    }
}

impl std::error::Error for Refusal {}
