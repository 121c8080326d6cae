//! Fuzzes the property `http2_frames`.
#![no_main]

#[path = "../../crates/engine/src/listener/h2/frames.rs"]
mod frames;
#[path = "../../crates/engine/src/listener/h2/property.rs"]
mod property;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| property::http2_frames(bytes));
