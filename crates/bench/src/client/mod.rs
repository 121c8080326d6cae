//! The load generator: prebuilt bytes out, replies scanned and counted, one event loop a thread.
//!
//! The idea: everything that can be decided is decided before the load begins (`plan`), and what
//! it came to is a value (`outcome`) that threads and slices merge. In between nothing is
//! allocated per request.

mod outcome;
mod plan;

pub use outcome::*;
pub use plan::*;
