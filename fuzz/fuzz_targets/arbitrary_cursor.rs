//! Fuzzes the property `arbitrary_cursor`.
#![no_main]

#[path = "../../crates/ipc/tests/properties/mod.rs"]
mod properties;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| properties::arbitrary_cursor(bytes));
