//! Fuzzes the property `directory_messages`.
#![no_main]

#[path = "../../crates/ipc/tests/properties/mod.rs"]
mod properties;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| properties::directory_messages(bytes));
