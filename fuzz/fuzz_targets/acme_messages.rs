//! Fuzzes the property `acme_messages`.
#![no_main]

#[path = "../../crates/ipc/tests/properties/mod.rs"]
mod properties;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| properties::acme_messages(bytes));
