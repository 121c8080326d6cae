//! What the machine and the gateway are in, measured ten times a second, for all to read.
//!
//! The idea: one thread of the server reads everything ([`sampling`]) and publishes one number a
//! gauge; whoever decides or shows something reads these numbers, and no request ever reads a
//! file. [`gauges::Snapshot`] is what was measured at one moment, for those who are told of
//! each; [`gauges::Sensors`] is the latest of them, in atomics, for everybody else.

pub mod advice;
pub mod gauges;
mod handshakes;
mod history;
mod machine;
pub mod sampling;
pub mod view;
