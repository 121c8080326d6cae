//! Limits that hold over several machines: permits are leased from a store that all of them ask. Without I/O.
//!
//! The idea: of each key the store knows how many permits a machine may hold, and until when by the store's
//! clock. A machine claims what it needs a little ahead, and counts its own lease from before it asked, shortened by a
//! margin: so it has stopped giving out permits before the store may give them to another. What is in flight is
//! told with every claim, and counts whatever the store says. A store that has restarted, is another one, or has heard
//! of nobody for half a lease is **quiet** for one: it confirms what machines hold, and gives out nothing new.
//!
//! Of a rate machines draw what is to begin at once, and nothing is held.
//!
//! [`PermitLease`] is a machine's side of one key, [`RateLease`] of one of a rate, [`Contact`] what it knows of the store,
//! [`StoreModel`] the store's side, which the script that runs in the store mirrors line by line. Left out: which keys a machine
//! has, and how words get there.

mod bucket;
mod contact;
mod divide;
mod lease;
mod rate;
mod store;
#[cfg(test)]
mod tests;

pub use contact::{Contact, FleetRules, FleetState};
pub use divide::divide;
pub use lease::{InUse, OnLoss, PermitLease};
pub(crate) use rate::Offer;
pub use rate::{RateBy, RateLease, RateStock, RateTerms, RateUse};
pub use store::{Holder, StoreModel};

/// A limit and one of its keys, by the same number on all machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FleetKey(pub [u64; 2]);

/// What a machine says of one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim {
    /// Which.
    pub key: FleetKey,
    /// Permits there are of it, over all machines.
    pub limit: u32,
    /// Permits in flight here: they count whatever is answered.
    pub used: u32,
    /// Permits that it goes on holding until it has an answer; no fewer than in flight.
    pub keep: u32,
    /// Permits that it needs now: for what is in flight, and for whoever waits.
    pub need: u32,
    /// Permits that it would like to hold, no fewer than it needs.
    pub want: u32,
    /// For how many it asks, where machines have to share: tenants that wait, from 1.
    pub weight: u32,
}

/// What the store says to a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grant {
    /// Permits that the machine may hold.
    pub held: u32,
    /// The machine's part, as the needs and wants of all stand: what it holds beyond that, others wait for.
    pub part: u32,
    /// Whether the wants of all come to more than there is.
    pub is_contended: bool,
    /// Whether other machines were called that may have something to give.
    pub is_coming: bool,
}

/// What a machine wants of one key of a rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateClaim {
    /// Which.
    pub key: FleetKey,
    /// The time that the rate takes for one, in nanoseconds, at least 1.
    pub interval_ns: u64,
    /// The time that it takes for a burst, in microseconds.
    pub full_us: u64,
    /// How many are to begin.
    pub want: u32,
    /// How many come there in a twentieth of a second; 0: no more are wanted than somebody waits for.
    pub demand: u32,
    /// How much of a burst was used that the store does not know of, as it was away, in microseconds.
    pub spent_us: u64,
}

/// What the store says to a claim of a rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateGrant {
    /// How many may begin.
    pub count: u32,
    /// In how long there is one more, in microseconds; 0: there is.
    pub next_us: u64,
    /// In how long there is a whole burst, in microseconds.
    pub full_us: u64,
}

/// What the store says to a machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoreReply {
    /// How much longer it gives out nothing new, in milliseconds.
    pub quiet_ms: u64,
    /// Machines it has heard of within a lease.
    pub machines: u32,
    /// Keys to be claimed again at once: another machine waits for what this one holds, or has given back what this one waits for.
    pub called: Vec<FleetKey>,
    /// To each claim, in their order.
    pub grants: Vec<Grant>,
    /// To each claim of a rate, in their order.
    pub rates: Vec<RateGrant>,
}
