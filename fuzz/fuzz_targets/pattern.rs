//! Fuzzes the property `pattern`.
#![no_main]

#[path = "../../crates/script/tests/properties/mod.rs"]
mod properties;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| properties::pattern(bytes));
