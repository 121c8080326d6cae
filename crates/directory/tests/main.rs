//! Directories, asked as a server asks them: real databases, and what becomes of them.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod archive;
mod archive_reading;
mod asking;
mod databases;
mod faults;
mod fleet;
mod fleet_machines;
mod fleet_way;
mod life;
