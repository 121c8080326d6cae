//! Fuzzes the property `client_hello`.
#![no_main]

#[path = "../../crates/wire/tests/properties/mod.rs"]
mod properties;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| properties::client_hello(bytes));
