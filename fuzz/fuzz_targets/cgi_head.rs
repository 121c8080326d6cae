//! Fuzzes the property `cgi_head`.
#![no_main]

#[path = "../../crates/fastcgi/tests/properties/mod.rs"]
mod properties;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| properties::cgi_head(bytes));
