//! Fuzzes the property `fastcgi_records`.
#![no_main]

#[path = "../../crates/fastcgi/tests/properties/mod.rs"]
mod properties;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| properties::fastcgi_records(bytes));
