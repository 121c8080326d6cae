//! What the gateway's processes say to each other.
//!
//! The idea: a message is a plain type; serde and postcard write it down, and its descriptors
//! travel beside the bytes ([`codec`], [`message`]). Each link has a module: [`server`] for supervisor and
//! server, [`scripted`] for certificates that these two speak of, [`manifest`] for supervisor and spawner, [`order`] for a worker and the spawner,
//! [`rows`] for what it says there of rows,
//! [`keeper`] for supervisor and keeper, [`signing`] for a server and the keeper, [`acme`] for
//! supervisor and acme process, [`ring`] for a worker and the recorder, [`console`] for a server and
//! the recorder, whose figures of limits [`limit_figures`] names, [`recorder`] for this and the supervisor; [`directory`] for the directory process, a server and the supervisor; [`query`] is what of queries it is told; [`certificates`] is what the keeper leaves to others.
//! Whoever has more privileges decodes as if it were hostile what it hears from who has fewer:
//! every length is checked against what is there, and every text has a cap. [`groups`] says which
//! control groups a configuration asks for, so that all of them mean the same ones. Sockets are
//! made and waited for elsewhere (`os::fdpass`).
#![forbid(unsafe_code)]

pub mod acme;
pub mod archive;
pub mod certificates;
pub mod codec;
pub mod console;
pub mod directory;
pub mod fleet;
pub mod groups;
pub mod handover;
pub mod keeper;
pub mod limit_figures;
mod link_sender;
pub mod manifest;
pub mod message;
pub mod order;
pub mod pools;
pub mod query;
pub mod recorder;
pub mod ring;
pub mod rows;
pub mod scripted;
pub mod server;
pub mod signing;
