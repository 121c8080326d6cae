//! What Linux does on our wish: files, logs, sockets, descriptors, processes and programs.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod beneath;
mod files;
mod logs;
mod processes;
mod reserve;
mod sockets;
mod spawn;
mod walls;
