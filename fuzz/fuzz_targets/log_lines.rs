//! Fuzzes the property `log_lines`.
#![no_main]

#[path = "../../crates/recorder/tests/properties/mod.rs"]
mod properties;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| properties::log_lines(bytes));
