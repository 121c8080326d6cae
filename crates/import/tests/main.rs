//! Imports: what comes of lines of other servers, that nothing is opened, and that what is written is
//! a configuration.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod apache;
mod corpus;
mod debian;
mod nginx;
mod properties;
mod report;
mod servers;
mod written;
