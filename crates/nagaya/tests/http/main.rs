//! HTTP as clients and the servers behind see it: files, back ends, and clients that are slow,
//! many or odd.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../fixtures/mod.rs"]
mod fixtures;

mod admission;
mod agents;
mod bounds;
mod changing_files;
mod compression;
mod early_hints;
mod exchanges;
mod garden;
mod hidden;
mod htaccess;
mod http2;
mod http2_browser;
mod http2_cves;
mod http2_streams;
mod http2_vectors;
mod mounts;
mod mutations;
mod peers;
mod proxy;
mod proxy_protocol;
mod ranges;
mod redirects;
mod refused_clients;
mod replies;
mod rewriting;
mod settings;
mod spool;
mod static_files;
mod steady_clients;
mod stragglers;
mod tls;
mod tls_clients;
mod tls_cves;
mod tls_flood;
mod tls_hostile;
mod tls_upstreams;
mod vectors;
