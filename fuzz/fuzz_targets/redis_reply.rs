//! Fuzzes the property `redis_reply`.
#![no_main]

#[path = "../../crates/stores/tests/properties/mod.rs"]
mod properties;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| properties::redis_reply(bytes));
