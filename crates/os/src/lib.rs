//! What the gateway asks of Linux, one module per kind of wish.
//!
//! The idea: the rest of the program is safe code that holds `OwnedFd`s. Every descriptor made
//! here is close-on-exec, every call that a signal may interrupt is repeated, and every `unsafe`
//! block of the program (outside the script engine) stands in this crate. No policy lives here:
//! which file may be opened, or when to listen, is the callers' business.

pub mod calendar;
pub mod calls;
pub mod cgroup;
pub mod confine;
pub mod cpu;
pub mod directory;
pub mod exec;
pub mod fdpass;
pub mod file;
pub mod kernel;
pub mod log;
pub mod net;
pub mod pipe;
pub mod process;
pub mod random;
pub mod sensors;
pub mod shared;
pub mod signal;
pub mod spawn;
pub mod stream;
mod symlinks;
pub mod tree;
pub mod user;
