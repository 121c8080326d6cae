//! The request path: listeners, pipeline, handlers, upstreams.
//!
//! Start with [`pipeline`]: the life of a request in order. Below it [`exchange`] hides the
//! protocol, beside it [`server`] and [`worker`] run it, one thread a core. This is the only
//! crate that knows all the others; nothing here parses HTTP (`wire`), reads configuration
//! (`config`) or calls Linux (`os`).
#![forbid(unsafe_code)]

pub mod access_log;
pub mod address;
pub mod admission;
pub mod agents;
mod backups;
pub mod buffer;
pub mod client;
pub mod clock;
mod compression;
pub mod conditions;
pub mod control;
mod copies;
pub mod deadline;
pub mod decoding;
pub mod error;
pub mod error_reply;
pub mod exchange;
pub mod fields;
pub mod figures;
#[cfg(test)]
mod fixture;
pub mod generation;
pub mod glob;
mod guarded;
pub mod handler;
pub mod helper;
pub mod intake;
pub mod io;
pub mod listener;
pub mod load_table;
pub mod maps;
mod media_types;
pub mod permits;
pub mod pipe;
pub mod pipeline;
pub mod programs;
pub mod refused;
pub mod reply_head;
pub mod resolve;
pub mod room;
mod rules;
pub mod scripts;
pub mod sensors;
pub mod server;
pub mod shares;
pub mod shedding;
pub mod site;
pub mod spool;
pub mod stage;
pub mod stats;
pub mod status;
pub mod stderr_log;
pub mod template;
pub mod thread;
pub mod upstream;
pub mod warden;
pub mod worker;
pub mod write_buffer;

pub use error::Error;
pub use server::serve;
