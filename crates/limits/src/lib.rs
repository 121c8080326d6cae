//! Limits: who may go on, who waits, who is refused. No sockets, no clock, no tasks.
//!
//! Time comes in as [`Time`], randomness as seeds, wake-ups go out through [`std::task::Waker`].
//! So a model test runs a day of traffic in a second, and what it shows holds for the gateway.
#![forbid(unsafe_code)]

mod adaptive;
mod ask;
mod definition;
pub mod fleet;
mod histogram;
#[cfg(test)]
mod interleave;
mod ledger;
mod look;
mod permit;
mod queue;
mod rate;
mod refusal;
pub mod replay;
pub mod schedule;
pub mod shed;
mod sync;
mod throttle;
mod ticket;
mod time;

pub use adaptive::{Adaptive, Outcome};
pub use ask::{Ask, Class, LimitId, TenantId, WANTS_MAX, Want};
pub use definition::{
    Change, Concurrent, Defined, Definition, Keyed, Mode, RateDefinition, Shared, TenantDefinition,
};
pub use ledger::{
    Admission, FleetCall, FleetLook, LeaseLook, Ledger, RateCheck, RateTicket, TenantLease,
};
pub use look::{GateLook, LimitLook, Steered, Totals};
pub use permit::{Permit, Used};
pub use queue::handshake;
pub use refusal::{Refusal, Why};
pub use throttle::{Throttle, ThrottleLook};
pub use ticket::Ticket;
pub use time::Time;
