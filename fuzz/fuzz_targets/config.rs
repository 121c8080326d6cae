//! Fuzzes the property `config`.
#![no_main]

#[path = "../../crates/config/tests/properties/mod.rs"]
mod properties;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| properties::config(bytes));
