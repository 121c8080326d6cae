//! The request path: listeners, pipeline, handlers, upstreams.
//!
//! Start with [`pipeline`]: the life of a request in order. Below it [`exchange`] hides the
//! protocol, beside it [`server`] and [`worker`] run it, one thread a core. This is the only
//! crate that knows all the others; nothing here parses HTTP (`wire`), reads configuration
//! (`config`) or calls Linux (`os`).
#![forbid(unsafe_code)]

mod access_log;
mod address;
mod admission;
pub mod agents;
mod backups;
mod bounds;
mod buffer;
mod causes;
mod challenges;
mod client;
mod clock;
mod compression;
mod conditions;
pub mod control;
mod copies;
mod costs;
mod deadline;
mod decoding;
pub mod directory;
mod error;
mod error_reply;
mod exchange;
mod expiry;
mod fields;
mod figures;
#[cfg(test)]
mod fixture;
mod fleet;
mod generation;
pub mod glob;
mod guarded;
mod handler;
mod helper;
pub mod htaccess;
mod http2_stats;
mod intake;
mod io;
mod linked_thread;
mod listener;
mod listener_terms;
mod load_table;
mod maps;
mod media_types;
pub mod permits;
mod pipe;
mod pipeline;
mod programs;
mod recent;
mod recording;
mod refused;
mod reply_head;
pub mod resolve;
mod rewrite;
mod room;
mod rules;
mod scripts;
pub mod sensors;
mod server;
mod shares;
mod shedding;
mod site;
mod site_log;
mod spool;
mod stage;
mod stats;
mod status;
mod stderr_log;
mod suspension;
mod template;
mod thread;
mod tls;
mod tree;
mod upstream;
mod warden;
mod watched_file;
mod worker;
mod write_buffer;

pub use error::Error;
pub use server::serve;
pub use shedding::unescaped;
pub use tls::servers::credulous_client;
