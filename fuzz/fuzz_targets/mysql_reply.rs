//! Fuzzes the property `mysql_reply`.
#![no_main]

#[path = "../../crates/stores/tests/properties/mod.rs"]
mod properties;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| properties::mysql_reply(bytes));
