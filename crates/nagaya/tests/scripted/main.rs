//! Scripts in the running gateway.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../fixtures/mod.rs"]
mod fixtures;

mod ruby_api;
mod script;
mod script_examples;
mod script_files;
mod script_filters;
mod script_filters_peers;
mod script_shadow;
mod script_upstreams;
mod scripts_life;
mod scripts_limiter;
mod scripts_requests;
mod scripts_soak;
mod ssl_handshake;
mod tenant_vms;
