//! Limits: who may go on, who waits, who is refused. No sockets, no clock, no tasks.
//!
//! Time comes in as [`Time`], randomness as seeds, wake-ups go out through [`std::task::Waker`].
//! So a model test runs a day of traffic in a second, and what it shows holds for the gateway.
#![forbid(unsafe_code)]

mod adaptive;
mod queue;
mod rate;
pub mod schedule;
mod time;

pub use adaptive::{Adaptive, Outcome};
pub use queue::{Charge, Next, Prefix, Queue, Share, Waiter};
pub use rate::Rate;
pub use time::Time;
