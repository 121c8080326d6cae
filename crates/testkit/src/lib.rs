//! Test tools: byte-exact client, scripted upstream, process harness.
#![forbid(unsafe_code)]
