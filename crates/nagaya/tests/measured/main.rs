//! Commands that measure.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod ab;
mod bench_native;
