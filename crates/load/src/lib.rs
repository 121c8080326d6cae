//! A load generator, what the server spent meanwhile, and statistics that say how much of a
//! difference is real.
//!
//! The idea: real servers are spoken to over sockets, on time whatever they do, and their processes
//! are read from outside: nothing here links the gateway, so nothing here can favour it. What is
//! asked for, and how it is told, is left to the commands on top.

#![forbid(unsafe_code)]

pub mod client;
mod error;
mod seconds;
pub mod server;
pub mod stats;

pub use error::{Error, in_words};
