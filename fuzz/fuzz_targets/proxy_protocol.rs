//! Fuzzes the property `proxy_protocol`.
#![no_main]

#[path = "../../crates/wire/tests/properties/mod.rs"]
mod properties;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| properties::proxy_protocol(bytes));
