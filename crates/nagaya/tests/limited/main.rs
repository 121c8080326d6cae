//! Limits, shedding and sensors.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../fixtures/mod.rs"]
mod fixtures;

mod classes;
mod fleet;
mod fleet_machines;
mod fleet_rates;
mod limits;
mod limits_bypass;
mod limits_kept;
mod limits_logs;
mod limits_promise;
mod limits_records;
mod sensors;
mod shed;
mod suspended;
