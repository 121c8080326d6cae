//! `nagaya bench` and `ab`: loads a server, compares two, or looks for the highest rate at which one
//! holds its goals.
//!
//! The idea: every figure comes with what it is worth: intervals, what the server spent, what stood
//! in the way. The load is that of the crate `load`; nothing here links the gateway, so nothing
//! here can favour it.

#![forbid(unsafe_code)]

mod ab;
mod command;
pub mod compare;
mod native;
mod search;
#[cfg(test)]
mod tests;

pub use ab::NAME as APACHE_BENCH;
pub use command::{definition, main};
