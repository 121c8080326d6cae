//! Fuzzes the property `console_question`.
#![no_main]

#[path = "../../crates/recorder/tests/properties/mod.rs"]
mod properties;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| properties::console_question(bytes));
