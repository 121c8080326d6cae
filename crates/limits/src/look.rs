//! What an operator sees of limits, and of their gates.

use std::sync::Arc;
use std::time::Duration;

use crate::ask::LimitId;
use crate::refusal::Why;

/// One limit as it stands, all its keys together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitLook {
    /// The limit.
    pub limit: LimitId,
    /// Keys in use; a fixed limit has one.
    pub keys: u64,
    /// Permits given out.
    pub in_flight: u64,
    /// Permits given out for the key that has most.
    pub in_flight_most: u64,
    /// Requests that wait.
    pub queued: u64,
    /// Permits there are for each key; none: any number.
    pub cap: Option<u32>,
    /// What it has come to.
    pub totals: Totals,
}

/// What a limit has come to, keys included that are forgotten. None of it ever falls as long as
/// the limit's identity is configured.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Requests admitted.
    pub admitted: u64,
    /// Requests that waited, whatever came of it.
    pub waited: u64,
    /// Requests it would have refused, were it not in shadow.
    pub shadow_refused: u64,
    /// Requests refused, in the order of [`Why::ALL`].
    pub refused: [u64; Why::ALL.len()],
}

/// One gate as it stands: a limit and one key of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GateLook {
    /// The limit.
    pub limit: LimitId,
    /// What the limit is called in messages.
    pub name: Arc<str>,
    /// What the limit's state is kept by.
    pub identity: Arc<str>,
    /// The key, cut and made printable; empty for a fixed limit.
    pub key: String,
    /// Whether this gate stands for all keys a tenant had no room for.
    pub overflow: bool,
    /// Permits given out.
    pub in_flight: u32,
    /// Permits there are; none: any number.
    pub cap: Option<u32>,
    /// Requests that wait here.
    pub queued: u32,
    /// Requests that may wait here.
    pub queue_max: u32,
    /// Requests admitted so far.
    pub admitted: u64,
    /// Requests refused here so far.
    pub refused: u64,
    /// Requests that would have been refused here, were it not in shadow.
    pub shadow_refused: u64,
    /// Requests that waited here so far.
    pub waited: u64,
    /// How long the oldest waiter has waited.
    pub oldest: Option<Duration>,
}

/// What is told of a fixed limit to who decides how many permits it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Steered {
    /// Permits that are out.
    pub in_flight: u32,
    /// Requests that wait.
    pub waiting: u32,
    /// Requests let in so far, in all.
    pub admitted: u64,
}
