//! The gateway as its operator meets it: starting, reloading, ending, commands, logs and documents.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../fixtures/mod.rs"]
mod fixtures;

mod access_log;
mod acme;
mod alerts;
mod certs;
mod commands;
mod console;
mod demand;
mod descriptors;
mod directories;
mod dns;
mod ending;
mod error_log;
mod export;
mod fail2ban;
mod from_apache;
mod hardened;
mod heard;
mod hestiacp;
mod htaccess_beside_apache;
mod import;
mod import_beside_apache;
mod import_nginx;
mod keeper;
mod made_up_htaccess;
mod metrics;
mod readme;
mod readme_figures;
mod recorded;
mod recorded_clock;
mod recorded_sent;
mod recorder;
mod reload_command;
mod reload_under_load;
mod row_certificates;
mod row_console;
mod row_figures;
mod set_aside;
mod supervisor;
mod town;
mod upgrade;
mod verify;
