//! Fuzzes the property `memcached_reply`.
#![no_main]

#[path = "../../crates/stores/tests/properties/mod.rs"]
mod properties;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| properties::memcached_reply(bytes));
