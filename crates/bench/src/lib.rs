//! Measures web servers: a load generator, what the server spent meanwhile, and statistics that
//! say how much of a difference is real.
//!
//! The idea: every figure comes from interleaved, repeated slices with an interval around it, next
//! to what the server's processes consumed. Real servers are spoken to over sockets: nothing here
//! links the gateway, so nothing here can favour it.

#![forbid(unsafe_code)]

mod ab;
pub mod client;
mod command;
pub mod compare;
pub mod demo;
mod error;
pub mod lab;
pub mod native;
pub mod report;
pub mod search;
pub mod server;
pub mod stats;

pub use ab::NAME as APACHE_BENCH;
pub use command::{definition, main};
pub use error::Error;
